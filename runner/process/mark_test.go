package process

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Where a job's directory is gone, the marker is enough to end all of the job, its supervisor included.
func TestSweepMarkNeedsNoDirectory(t *testing.T) {
	for kind, self := range selves(t) {
		t.Run(kind, func(t *testing.T) {
			dir, marker := filepath.Join(t.TempDir(), "job"), newMarker(t)
			st, err := Spawn(t.Context(), self, dir, launchOf(marker, "sh", "-c", "(setsid sleep 60 &); echo ready; exec sleep 60"))
			if err != nil {
				t.Fatal(err)
			}
			saw(t, dir, "ready")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if got, err := Attach(dir); err != nil || got.State != Gone {
				t.Fatalf("attach: %+v, %v", got, err)
			}
			if killed, err := SweepMark(marker); err != nil || killed < 2 {
				t.Errorf("sweep: %d, %v", killed, err)
			}
			if left := survivors(t, marker); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if alive(st.Started.Supervisor) || alive(st.Started.Child) {
				t.Error("the supervisor or the child is left")
			}
			if killed, err := SweepMark(marker); err != nil || killed != 0 {
				t.Errorf("second sweep: %d, %v", killed, err)
			}
		})
	}
}

func TestReapSparesWhatIsKept(t *testing.T) {
	mine := newMarker(t)
	prefix := mine + "-"
	kept, stray, other := prefix+"kept", prefix+"stray", newMarker(t)
	var dirs []string
	for _, marker := range []string{kept, stray, other} {
		dir := filepath.Join(t.TempDir(), "job")
		spawned(t, dir, launchOf(marker, "sleep", "60"))
		dirs = append(dirs, dir)
	}
	n, err := Reap(prefix, func(marker string) bool { return marker == kept })
	if err != nil || n < 1 {
		t.Errorf("reap: %d, %v", n, err)
	}
	for i, want := range []State{Running, Gone, Running} {
		if got, err := Attach(dirs[i]); err != nil || got.State != want {
			t.Errorf("job %d is %s, %v; want %s", i, got.State, err, want)
		}
	}
	if n, err := Reap(prefix, func(string) bool { return false }); err != nil || n < 1 {
		t.Errorf("reap of all: %d, %v", n, err)
	}
	if _, err := Sweep(dirs[2]); err != nil {
		t.Error(err)
	}
}

// A supervisor that does nothing any more is ended together with its job, and the record says what happened.
func TestEndOfAHungSupervisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	st := spawned(t, dir, playOf(t, "stubborn"))
	saw(t, dir, "ready")
	if err := syscall.Kill(st.Started.Supervisor.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := Stop(dir, "enough"); err != nil {
		t.Fatal(err)
	}
	if err := End(dir, ReasonStopped, "enough"); err != nil {
		t.Fatal(err)
	}
	got, err := Wait(t.Context(), dir)
	if err != nil || got.State != Exited || got.Exit.Reason != ReasonStopped || got.Exit.Detail != "enough" || got.Exit.Code != -1 {
		t.Errorf("%+v %+v, %v", got, got.Exit, err)
	}
	if got.Exit != nil && (got.Exit.SpoolBytes == 0 || time.Since(got.Exit.FinishedAt) > time.Minute) {
		t.Errorf("exit %+v", got.Exit)
	}
	eventually(t, "both are gone", func() bool { return !alive(st.Started.Supervisor) && !alive(st.Started.Child) })
	if err := End(dir, ReasonTimeout, "again"); err != nil {
		t.Error(err)
	}
	if e := readExit(dir); e.Reason != ReasonStopped {
		t.Errorf("a record was replaced: %+v", e)
	}
}

// On a full disk a stop still reaches the supervisor.
func TestStopWithoutRoomForItsReason(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	spawned(t, dir, launchOf(newMarker(t), "sleep", "60"))
	// The name that the stop file is written under first is taken by a directory.
	if err := os.Mkdir(filepath.Join(dir, stopFile+"."+strconv.Itoa(os.Getpid())), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Stop(dir, "why"); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, dir); e.Reason != ReasonStopped {
		t.Errorf("exit %+v", e)
	}
}
