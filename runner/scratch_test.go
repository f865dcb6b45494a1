package runner

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

func (r *testRunner) scratch(j fleet.JobID) string { return filepath.Join(r.dir, "scratch", string(j)) }

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// The directory of a job without repository goes once the job has ended, the hub has
// all of it, and the owner's time for it is over; not before.
func TestScratchGoesOnceNothingIsOwed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", `echo left > file; echo kept > "$TUGLINE_ARTIFACTS/log"`)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.forgets(f)
	file := filepath.Join(r.scratch(j), "work", "file")
	r.sweepScratch(time.Now().Add(71 * time.Hour))
	if !there(file) {
		t.Error("the directory went before the owner's time was over")
	}
	r.mu.Lock()
	r.owner.KeepScratch = -1
	r.mu.Unlock()
	r.sweepScratch(time.Now().Add(10000 * time.Hour))
	if !there(file) {
		t.Error("the directory went although its owner keeps it for ever")
	}
	r.mu.Lock()
	r.owner.KeepScratch = DefaultOwner().KeepScratch
	r.mu.Unlock()
	running, g := h.run(r.id, "/bin/sleep", "60")
	eventually(t, "the job to run", func() bool { return h.job(running).State == fleet.Running })
	r.sweepScratch(time.Now().Add(73 * time.Hour))
	if there(r.scratch(j)) {
		t.Errorf("%s is still there", r.scratch(j))
	}
	if !there(filepath.Join(r.scratch(running), "work")) {
		t.Error("the directory of a job that runs went")
	}
	h.must(&state.CancelJob{Job: running})
	h.ends(running, fleet.Cancelled)
	r.forgets(g)
}

// A directory of which the hub may lack something stays, however old it is.
func TestScratchStaysWhereSomethingIsOwed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.front(t, func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method != http.MethodPut || !strings.Contains(q.URL.Path, "/blobs/") {
			return false
		}
		http.Error(w, `{"code":"too_large","detail":"no room for it"}`, http.StatusRequestEntityTooLarge)
		return true
	})
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", `echo kept > "$TUGLINE_ARTIFACTS/log"`)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.forgets(f)
	foreign := filepath.Join(r.dir, "scratch", "notes")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	r.sweepScratch(time.Now().Add(10000 * time.Hour))
	for _, dir := range []string{filepath.Join(r.scratch(j), "work"), foreign} {
		if !there(dir) {
			t.Errorf("%s went", dir)
		}
	}
}

// What an earlier attempt left is no part of what the last one delivered. A note that
// is not of the last attempt counts for nothing.
func TestScratchOfEarlierAttemptsStays(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	write := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before := write(filepath.Join(r.scratch("a"), "before-1-2", "file"), "x")
	work := write(filepath.Join(r.scratch("a"), "work", "file"), "x")
	write(filepath.Join(r.scratch("a"), "fence"), "1-9")
	write(filepath.Join(r.scratch("a"), "done"), "1-9")
	other := write(filepath.Join(r.scratch("b"), "work", "file"), "x")
	write(filepath.Join(r.scratch("b"), "fence"), "1-9")
	write(filepath.Join(r.scratch("b"), "done"), "1-2")
	r.sweepScratch(time.Now().Add(10000 * time.Hour))
	if there(work) || !there(before) || !there(other) {
		t.Errorf("work %v, earlier attempt %v, foreign note %v; want the first gone alone", there(work), there(before), there(other))
	}
}

// A follow-up within the owner's time goes on in the directory, and then it is kept
// for that turn.
func TestScratchOfAFollowUp(t *testing.T) {
	h := turnsHub(t)
	r := h.turnsRunner("box")
	j := h.agentJob(nil, "write one")
	first := h.turn(j, r)
	r.forgets(first.Fence)
	if !there(filepath.Join(r.scratch(j), "done")) {
		t.Fatal("nothing says that the first turn owes nothing")
	}
	h.must(&state.FollowUp{Job: j, Prompt: h.put([]byte("write two"))})
	second := h.turn(j, r)
	if got := h.events(j, second); !strings.Contains(got, "one two") {
		t.Errorf("the second turn saw %s", got)
	}
	r.forgets(second.Fence)
	r.sweepScratch(time.Now().Add(100 * time.Hour))
	if there(r.scratch(j)) {
		t.Error("the directory is still there after both turns")
	}
}
