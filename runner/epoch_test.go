package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/shared/fleet"
)

// restore sets the hub's records back to a snapshot and raises the epoch, as a node
// does that is started from a backup.
func (h *testHub) restore(snapshot []byte) {
	h.t.Helper()
	h.mu.Lock()
	err := h.machine.Restore(bytes.NewReader(snapshot))
	h.mu.Unlock()
	if err != nil {
		h.t.Fatal(err)
	}
	h.must(&state.RaiseEpoch{To: h.View().Meta().Epoch + 1, Cause: "restore"})
	h.srv.EndAll(fleet.Restarting, "restored")
}

func (h *testHub) snapshot() []byte {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var b bytes.Buffer
	if err := h.machine.Snapshot()(&b); err != nil {
		h.t.Fatal(err)
	}
	return b.Bytes()
}

// The hub is restored to a backup while a runner works: what the records hold goes on
// and is renewed, what they do not know of runs to its end and comes as an orphan, and
// nothing runs twice.
func TestWorkGoesOnOverARestore(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	runs := func(name string) string { b, _ := os.ReadFile(filepath.Join(dir, name)); return string(b) }
	argv := func(name string) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf("echo run >> %s; while [ ! -e %s ]; do sleep 0.02; done; echo %s is done", filepath.Join(dir, name), gate, name)}
	}
	begins := func(name string) {
		t.Helper()
		eventually(t, name+" to run", func() bool { return runs(name) == "run\n" })
	}
	known, f := h.run(r.id, argv("known")...)
	begins("known")
	// Of the second the backup holds the assignment, and not the accept.
	accepts := func(refuse func(state.Command) error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refuse = refuse
	}
	accepts(func(c state.Command) error {
		if _, ok := c.(*state.AcceptAttempt); ok {
			return fleet.Unavailable
		}
		return nil
	})
	second := h.submit(fleet.Spec{Argv: argv("second")})
	g := h.assign(second, r.id)
	backup := h.snapshot()
	accepts(nil)
	begins("second")
	unknown, e := h.run(r.id, argv("unknown")...)
	begins("unknown")
	if _, a := h.job(second).Find(g); a.AcceptedAt == nil {
		t.Fatal("the second is not accepted")
	}

	h.restore(backup)
	eventually(t, "the known attempts to be renewed", func() bool {
		return h.attempt(known, f).Epoch == 2 && h.attempt(second, g).Epoch == 2
	}, func() any { return []any{h.attempt(known, f), h.attempt(second, g)} })
	if s, u := h.job(known).State, h.job(second).State; s != fleet.Running || u != fleet.Running {
		t.Errorf("the jobs are %s and %s", s, u)
	}
	for _, f := range []fleet.Fence{f, g} {
		if rec, ok := r.journal.Attempt(f); !ok || rec.Progress.Epoch != 2 {
			t.Errorf("the journal says of %s: %+v", f, rec.Progress)
		}
	}
	if _, ok := h.View().Job(unknown); ok {
		t.Fatal("the restored state knows the third job")
	}

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(known, fleet.Succeeded)
	h.ends(second, fleet.Succeeded)
	var o *fleet.Orphan
	eventually(t, "the orphan to be whole", func() bool {
		o, _ = h.View().Orphan(e.String())
		return o != nil && o.Log.Sealed
	}, func() any { return h.View().Orphans() })
	if o.Job != unknown || o.Runner != r.id || o.Turn != 1 || o.Spec.Argv[0] != "/bin/sh" || o.Failure != fleet.ClassOK {
		t.Errorf("the orphan is %+v", o)
	}
	if got := h.text(unknown, e, fleet.FrameStdout); got != "unknown is done\n" {
		t.Errorf("its output is %q", got)
	}
	r.forgets(e)
	r.forgets(f)
	for _, name := range []string{"known", "second", "unknown"} {
		if got := runs(name); got != "run\n" {
			t.Errorf("%s ran: %q", name, got)
		}
	}
	h.must(&state.SettleOrphan{ID: e.String(), Adopt: true})
	if j := h.job(unknown); j.State != fleet.Verifying || j.Current().Fence != e {
		t.Errorf("the adopted job is %s", j.State)
	}
}

// A runner that is killed and started again after it was renewed is not renewed again.
func TestRenewalOutlivesTheRunner(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var cfg Config
	r := h.newRunner(func(c *Config) { cfg = *c })
	j, f := h.run(r.id, "/bin/sleep", "60")
	h.ends(j, fleet.Running)
	h.must(&state.RaiseEpoch{To: 5, Cause: "recover"})
	h.srv.EndAll(fleet.Restarting, "recovered")
	eventually(t, "the attempt to be renewed", func() bool { return h.attempt(j, f).Epoch == 5 })
	eventually(t, "the runner to hear that it is", func() bool { return !r.journal.PendingOf(f, attempt.KindRenewed) })
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	n := proposed[*state.RenewAttempt](h)
	cfg.Ticket = ""
	r = h.restart(cfg)
	if rec, ok := r.journal.Attempt(f); !ok || rec.Authority() != 5 || len(rec.Proof) == 0 {
		t.Errorf("the journal says %+v", rec.Progress)
	}
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Cancelled)
	if again := proposed[*state.RenewAttempt](h); n == 0 || again != n {
		t.Errorf("renewed %d times before the restart and %d after", n, again-n)
	}
}
