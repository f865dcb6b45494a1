package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// pidOf gives the process id that a job has printed.
func (h *testHub) pidOf(j fleet.JobID, f fleet.Fence) int {
	h.t.Helper()
	eventually(h.t, "a process id", func() bool { return strings.HasSuffix(h.text(j, f, fleet.FrameStdout), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(h.text(j, f, fleet.FrameStdout)))
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func gone(pid int) bool {
	_, err := process.Identify(pid)
	return errors.Is(err, os.ErrProcessDone)
}

// An attempt whose directory is gone is lost, its processes are ended, and the other
// jobs of the runner do not notice.
func TestDirectoryOfAnAttemptIsGone(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	gate := filepath.Join(t.TempDir(), "gate")
	bad, badFence := h.run(c.id, "/bin/sh", "-c", "echo $$; (setsid sleep 61 >/dev/null 2>&1 &); exec sleep 60")
	good, goodFence := h.run(c.id, "/bin/sh", "-c", "while [ ! -e "+gate+" ]; do sleep 0.02; done; echo done")
	pid := h.pidOf(bad, badFence)
	eventually(t, "the other one", func() bool { return h.attempt(good, goodFence).StartedAt != nil })
	c.kill()
	if err := os.RemoveAll(filepath.Join(c.dir, "attempts", string(bad))); err != nil {
		t.Fatal(err)
	}
	c.start()
	h.ends(bad, fleet.Lost)
	if !gone(pid) {
		t.Error("the job is said to be lost and its process is there")
	}
	eventually(t, "it to be gone for the hub", func() bool { return h.attempt(bad, badFence).Gone })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(good, fleet.Succeeded)
	h.sealed(good, goodFence)
}

// An error of one attempt that does not pass ends that attempt alone.
func TestAttemptThatCannotGoOn(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	gate := filepath.Join(t.TempDir(), "gate")
	j, f := h.run(c.id, "/bin/sh", "-c", "echo $$; while [ ! -e "+gate+" ]; do sleep 0.02; done")
	pid := h.pidOf(j, f)
	c.kill()
	// What is to be masked can't be read, and nothing may leave unmasked.
	if err := os.Mkdir(filepath.Join(c.dir, "attempts", string(j), f.String(), "hidden.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.start()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Lost)
	if !gone(pid) {
		t.Error("the job is said to be lost and its process is there")
	}
	k, _ := h.run(c.id, "/bin/true")
	h.ends(k, fleet.Succeeded)
}

// A journal that is lost: what was launched is ended before the hub hears that nothing
// of it is here.
func TestLostJournalEndsWhatItForgot(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	j, f := h.run(c.id, "/bin/sh", "-c", "echo $$; (setsid sleep 61 >/dev/null 2>&1 &); exec sleep 60")
	pid := h.pidOf(j, f)
	c.kill()
	if err := os.Remove(filepath.Join(c.dir, "journal.log")); err != nil {
		t.Fatal(err)
	}
	c.start()
	if !gone(pid) {
		t.Error("a process without a record is there although the runner is connected")
	}
	h.ends(j, fleet.Lost)
	eventually(t, "it to be gone", func() bool { return h.attempt(j, f).Gone })
}

// A disk that is emptied after the end of a job and before all of its output was sent:
// the runner that comes back says that it has nothing of it, and the log ends where the
// hub's copy does, and says so.
func TestLostDiskOfAnUnsentLog(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	h := newHub(t, func(c *hubsession.Config) { c.Spool = stingy{c.Spool, &full} })
	c := h.child()
	gate := filepath.Join(t.TempDir(), "gate")
	j, f := h.run(c.id, "/bin/sh", "-c", "echo sent; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo unsent")
	eventually(t, "the first output", func() bool { return h.text(j, f, fleet.FrameStdout) == "sent\n" })
	full.Store(true)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	c.kill()
	for _, name := range []string{"journal.log", "attempts"} {
		if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	full.Store(false)
	if a := h.attempt(j, f); a.Log.Sealed {
		t.Fatalf("log %+v", a.Log)
	}
	c.start()
	h.sealed(j, f)
	a := h.attempt(j, f)
	if note := fleet.CutNote(a.Notes); !strings.Contains(note, "lost the rest") {
		t.Errorf("notes %q", a.Notes)
	}
	if got := h.text(j, f, fleet.FrameStdout); got != "sent\n" || h.job(j).State != fleet.Succeeded {
		t.Errorf("output %q, job %s", got, h.job(j).State)
	}
	k, kf := h.run(c.id, "/bin/true")
	h.ends(k, fleet.Succeeded)
	h.sealed(k, kf)
}

// stingy is a spool that takes no bytes for a while.
type stingy struct {
	hubsession.Spool
	full *atomic.Bool
}

func (s stingy) Append(ctx context.Context, k spool.Key, offset int64, data []byte) (int64, error) {
	if s.full.Load() {
		return 0, fleet.Unavailable
	}
	return s.Spool.Append(ctx, k, offset, data)
}

// An attempt of which the journal holds nothing that can be read is given up.
func TestUnreadableAssignment(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	j, f := h.run(c.id, "/bin/sh", "-c", "echo $$; exec sleep 60")
	pid := h.pidOf(j, f)
	c.kill()
	jo, err := journal.Open(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := jo.Attempt(f)
	progress := rec.Progress
	rec.Assignment = []byte("{")
	err = errors.Join(jo.Forget(f), jo.Begin(rec), jo.Update(f, journal.Durable, func(p *journal.Progress) { *p = progress }), jo.Close())
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	h.ends(j, fleet.Lost)
	if !gone(pid) {
		t.Error("the job is said to be lost and its process is there")
	}
	k, _ := h.run(c.id, "/bin/true")
	h.ends(k, fleet.Succeeded)
}

// A copy of a data directory has another mark, and leaves alone what the original
// has launched; the same directory under another name has the same one.
func TestMarkIsOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	mark := func(dir, id string) string {
		return (&Runner{cfg: Config{Dir: dir}, id: &identity{Runner: fleet.RunnerID(id)}}).mark()
	}
	if mark(dir, "a") != mark(link, "a") || mark(dir, "a") == mark(t.TempDir(), "a") || mark(dir, "a") == mark(dir, "b") {
		t.Errorf("%s, %s, %s", mark(dir, "a"), mark(link, "a"), mark(dir, "b"))
	}
}

// A report that can't be put into words keeps back its attempt's others and no more.
func TestReportThatCannotBeSent(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	bad, good := fleet.Fence{Epoch: 1, Index: 900}, fleet.Fence{Epoch: 1, Index: 901}
	rep, held := r.link.wording([]journal.Item{
		{Seq: 1, Fence: bad, Kind: "of a newer program"},
		{Seq: 2, Fence: good, Kind: "gone"},
		{Seq: 3, Fence: bad, Kind: "gone"},
	})
	if len(rep.Items) != 1 || rep.Items[0].Seq != 2 || len(held) != 2 || held[0].seq != 1 || held[1].seq != 3 || !held[0].retry || !held[1].retry {
		t.Errorf("report %+v, held %+v", rep, held)
	}
	if err := r.journal.Put(journal.Durable, journal.Item{Job: "j", Fence: bad, Kind: "of a newer program"}); err != nil {
		t.Fatal(err)
	}
	j, f := h.run(r.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
}

func TestTicketThatWasUsedSaysWhatToDo(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	used := h.ticket()
	h.newRunner(func(c *Config) { c.Ticket = used })
	r, err := New(Config{Dir: t.TempDir(), Name: "other", Ticket: used, Self: self(t)})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Run(t.Context())
	if !errors.Is(err, fleet.TicketUsed) || !strings.Contains(err.Error(), "tugline hub ticket") || !strings.HasSuffix(err.Error(), "give it in TUGLINE_TICKET") {
		t.Errorf("Run = %v", err)
	}
}

func TestStandDownSaysWhatHappened(t *testing.T) {
	s := &StandDown{Code: fleet.Superseded, Detail: "a newer session of this runner took over"}
	if text := s.Text(); !strings.Contains(text, "another process connected") || strings.Contains(text, "list") || strings.Contains(text, ": superseded") {
		t.Errorf("%q", text)
	}
	s = &StandDown{Code: fleet.RunnerUnknown, Detail: "runner box was retired: runner_unknown"}
	if text := s.Text(); strings.Contains(text, "runner_unknown") || !strings.Contains(text, "box was retired") {
		t.Errorf("%q", text)
	}
}

// While the disk takes nothing the runner offers nothing, and says why.
func TestTroubleWithTheDiskDeclines(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	r.trouble(&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	if hb := r.heartbeat(false); hb.Slots != 0 || !strings.HasPrefix(hb.Declining, "storage: ") {
		t.Errorf("heartbeat %+v", hb)
	}
	j := h.submit(fleet.Spec{Argv: []string{"/bin/true"}})
	f := h.assign(j, r.id)
	eventually(t, "it to be declined", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined })
	if a := h.attempt(j, f); a.Code != fleet.Storage {
		t.Errorf("declined as %s: %s", a.Code, a.Detail)
	}
}
