package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

func TestNoRoom(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), false},
		{fmt.Errorf("write: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), true},
		{syscall.EDQUOT, true},
		{errors.New("git: fatal: write error: No space left on device"), true},
	} {
		if got := NoRoom(c.err); got != c.want {
			t.Errorf("NoRoom(%v) = %v", c.err, got)
		}
	}
}

// What a full disk refuses is tried until it is there, and told; anything else is
// told to the caller at once.
func TestInsistWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		h := &Host{Dir: "/data", Logger: slog.New(slog.DiscardHandler), Trouble: func(error) { told++ }}
		a := h.attempt(Assignment{Job: "j", Fence: fleet.Fence{Epoch: 1, Index: 1}})
		a.tell("working")
		left := 9
		begun := time.Now()
		err := a.insist(t.Context(), func() error {
			if left--; left > 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		if err != nil || told != 8 || a.View().Detail != "working" {
			t.Errorf("insist = %v after %d refusals; detail %q", err, told, a.View().Detail)
		}
		if d := time.Since(begun); d < 10*time.Second || d > time.Minute {
			t.Errorf("it took %s", d)
		}
		if err := a.insist(t.Context(), func() error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("insist = %v, want the error at once", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.insist(ctx, func() error { return syscall.ENOSPC }); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("insist = %v, want what was wrong when the context ended", err)
		}
	})
}

// An attempt that the journal does not hold any more is no reason to wait.
func TestRecordOfAnUnknownAttempt(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "d"))
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Dir: t.TempDir(), Journal: j, Logger: slog.New(slog.DiscardHandler)}
	a := h.attempt(Assignment{Job: "j", Fence: fleet.Fence{Epoch: 1, Index: 1}})
	if err := a.record(t.Context(), journal.Durable, nil); !errors.Is(err, fleet.NotFound) {
		t.Errorf("record = %v", err)
	}
	a.giveUp(t.Context(), errors.New("x"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
