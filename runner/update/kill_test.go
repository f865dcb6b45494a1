package update

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// steps are what Place logs, in order.
var steps = []string{"begun", "verified", "remembered", "tested", "placed", "recorded", "switched"}

// asked is what the process that is killed is to place.
type asked struct {
	Release Release
	Key     string
}

// placeUntil places a release and kills this process at a step.
func placeUntil(step, prefix, file string) int {
	s, err := Open(filepath.Join(prefix, "current", "tugline"), slog.New(&at{"update: " + step, func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}}))
	var a asked
	var b []byte
	if err == nil {
		b, err = os.ReadFile(file + ".json")
	}
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil {
		b, err = os.ReadFile(file)
	}
	if err == nil {
		err = s.Place(context.Background(), a.Release, a.Key, bytes.NewReader(b))
	}
	fmt.Fprintln(os.Stderr, "placed:", err)
	return 1
}

func TestKilledAtEveryStep(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			rel, b := g.release("2.0.0", "good")
			file := filepath.Join(t.TempDir(), "program")
			g.must(os.WriteFile(file, b, 0o644))
			ask, err := json.Marshal(asked{rel, g.pub})
			g.must(err)
			g.must(os.WriteFile(file+".json", ask, 0o644))
			cmd := exec.Command(self, g.prefix, file)
			cmd.Env = append(os.Environ(), killAt+"="+step)
			out, err := cmd.CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || !ended.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("the process was not killed at %q: %v %s", step, err, out)
			}

			if step == "switched" {
				g.serves("2.0.0")
				return
			}
			g.serves("1.0.0")
			r, again := g.record(), g.placeIt(rel, b)
			var no *Refusal
			switch i {
			case 0, 1: // nothing of it was run: it is tried again
				if r.State != "" || again != nil {
					t.Errorf("the record is %+v; tried again: %v", r, again)
				}
				g.serves("2.0.0")
			default:
				if r.State != Failed || r.Why == "" || !errors.As(again, &no) {
					t.Errorf("the record is %+v; tried again: %v", r, again)
				}
				rel.Asked = "again"
				g.must(g.placeIt(rel, b))
				g.serves("2.0.0")
			}
			g.tidy("1.0.0", "2.0.0")
		})
	}
}
