package update

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A service runs the present version again and again.
func TestACrashLoopEndsAtTheVersionBefore(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "crashes")
	g.must(g.placeIt(rel, b))
	var said []string
	for range MaxStarts + 2 {
		out, _ := g.start()
		said = append(said, out)
	}
	if got, want := strings.Join(said, ", "), "started 2.0.0, started 2.0.0, started 2.0.0, restored, started 1.0.0"; got != want {
		t.Errorf("the starts: %s, want %s", got, want)
	}
	if r := g.record(); r.State != RolledBack || !strings.Contains(r.Why, "3 starts") || r.From != "1.0.0" || r.To != "2.0.0" {
		t.Errorf("the record is %+v", r)
	}
	g.serves("1.0.0")
	var no *Refusal
	if err := g.placeIt(rel, b); !errors.As(err, &no) || !strings.Contains(err.Error(), "3 starts") {
		t.Errorf("tried again: %v", err)
	}
	next, c := g.release("2.0.1", "good")
	g.must(g.placeIt(next, c))
	g.serves("2.0.1")
}

// Whoever kills it between putting the version before back and saying so.
func TestARestoreThatIsNotRecordedIsFoundOut(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "crashes")
	g.must(g.placeIt(rel, b))
	for range MaxStarts {
		g.start()
	}
	g.must(g.point("1.0.0"))
	g.serves("1.0.0")
	if r := g.record(); r.State != RolledBack || !strings.Contains(r.Why, "3 starts") {
		t.Errorf("the record is %+v", r)
	}
}

// Failed starts count although good ones lie between: a start that went on is only no
// failed one.
func TestFailedStartsAreCounted(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "good")
	g.must(g.placeIt(rel, b))
	two, err := Open(g.Program(), g.log)
	g.must(err)
	for i := range MaxStarts {
		g.must(two.Begin()) // and a crash
		if n := g.record().Starts; n != i+1 {
			t.Fatalf("after %d failed starts the record has %d", i+1, n)
		}
		if i < MaxStarts-1 {
			g.must(two.Begin())
			g.must(two.Survived())
		}
	}
	if err := two.Begin(); !errors.Is(err, ErrRestored) {
		t.Fatalf("a start after %d failed ones: %v", MaxStarts, err)
	}
	g.serves("1.0.0")
}

// Without the version before there is nothing to go back to: the new one is started on.
func TestNothingToGoBackTo(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "good")
	g.must(g.placeIt(rel, b))
	two, err := Open(g.Program(), g.log)
	g.must(err)
	for range MaxStarts {
		g.must(two.Begin())
	}
	g.must(os.RemoveAll(g.versionDir("1.0.0")))
	if err := two.Begin(); err == nil || errors.Is(err, ErrRestored) {
		t.Errorf("a start without a version before: %v", err)
	}
	if v, err := g.Current(); err != nil || v != "2.0.0" {
		t.Errorf("the present version is %q, %v", v, err)
	}
}

func TestARecordOfAnotherFormatIsLeftAlone(t *testing.T) {
	g := newRig(t)
	file := filepath.Join(g.prefix, recordFile)
	for _, text := range []string{`{"version":2,"state":"new"}`, `{"version":`, ``} {
		g.must(os.WriteFile(file, []byte(text), 0o600))
		if err := g.Begin(); err == nil {
			t.Errorf("%q was taken for a record", text)
		}
		rel, b := g.release("2.0.0", "good")
		if err := g.Place(context.Background(), rel, g.pub, bytes.NewReader(b)); err == nil {
			t.Errorf("placed with %q for a record", text)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("the record became %q, %v", now, err)
		}
	}
	g.tidy("1.0.0")
}

func TestAtStart(t *testing.T) {
	rec := func(s State, starts int) Record { return Record{State: s, From: "1.0.0", To: "2.0.0", Starts: starts} }
	for _, c := range []struct {
		rec              Record
		running, current string
		want             action
		end              State
	}{
		{Record{}, "1.0.0", "1.0.0", goOn, ""},
		{rec(Failed, 0), "1.0.0", "1.0.0", goOn, ""},
		{rec(Confirmed, 0), "2.0.0", "2.0.0", goOn, ""},
		{rec(RolledBack, 3), "1.0.0", "1.0.0", goOn, ""},
		{rec(Testing, 0), "1.0.0", "1.0.0", settle, Failed},
		{rec(Testing, 0), "2.0.0", "2.0.0", goOn, ""}, // put there by somebody else
		{rec(Trying, 0), "2.0.0", "2.0.0", count, ""},
		{rec(Trying, 2), "2.0.0", "2.0.0", count, ""},
		{rec(Trying, 3), "2.0.0", "2.0.0", restore, ""},
		{rec(Trying, 9), "2.0.0", "2.0.0", restore, ""},
		{rec(Trying, 0), "1.0.0", "1.0.0", settle, Failed},
		{rec(Trying, 1), "1.0.0", "1.0.0", settle, RolledBack},
		{rec(Trying, 3), "1.0.0", "1.0.0", settle, RolledBack},
		{rec(Trying, 0), "1.0.0", "2.0.0", goOn, ""}, // the version before, by hand
		{rec(Trying, 3), "2.0.0", "1.0.0", goOn, ""}, // the new one, by hand
		{rec(Trying, 3), "3.0.0", "3.0.0", goOn, ""},
	} {
		do, end, why := atStart(c.rec, c.running, c.current)
		if do != c.want || end != c.end || (why != "") != (do == settle) {
			t.Errorf("%s after %d starts, running %s, present %s: %d %q %q, want %d %q", c.rec.State, c.rec.Starts, c.running, c.current, do, end, why, c.want, c.end)
		}
	}
}

func TestGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acked := time.Now()
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, false}, {ConfirmTime - time.Nanosecond, false}, {time.Nanosecond, true}, {time.Hour, true}} {
			time.Sleep(c.after)
			if got := Good(acked, time.Now()); got != c.want {
				t.Errorf("%v after the first acknowledged heartbeat: %v, want %v", time.Since(acked), got, c.want)
			}
		}
		if Good(time.Time{}, time.Now()) {
			t.Error("a version that no hub has heard is good")
		}
	})
}

// A failed update from a version that is itself not known to be good takes nothing from it: it still gives way to the one
// before, and the release that failed is still not tried again.
func TestAFailedUpdateLeavesTheWayBack(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.must(g.placeIt(g.release("1.1.0", "good")))
	open := func() *Store {
		s, err := Open(g.Program(), slog.New(slog.DiscardHandler))
		g.must(err)
		return s
	}
	next := open()
	g.must(next.Begin())
	rel, b := g.release("1.2.0", "good")
	for _, bad := range [][]byte{b[:len(b)-1], nil} {
		if err := next.Place(t.Context(), rel, g.pub, bytes.NewReader(bad)); err == nil {
			t.Fatal("a truncated program was placed")
		}
	}
	if rec, err := next.Standing(); err != nil || len(rec.Tried) != 2 || rec.Tried[1].Why == "" {
		t.Errorf("what was tried: %+v, %v", rec.Tried, err)
	}
	for range MaxStarts - 1 {
		g.must(open().Begin())
	}
	if err := open().Begin(); !errors.Is(err, ErrRestored) {
		t.Fatalf("after %d failed starts: %v", MaxStarts, err)
	}
	if v, err := g.Current(); err != nil || v != "1.0.0" {
		t.Errorf("the present version is %s, %v", v, err)
	}
}
