package runner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// An exec job's whole way: order, fence, accept, process, output, result, seal, forget.
func TestExecJobFromOrderToForget(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", "echo hello; echo oops >&2; echo $TUGLINE_JOB_ID")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got, want := h.text(j, f, fleet.FrameStdout), "hello\n"+string(j)+"\n"; got != want {
		t.Errorf("standard output %q, want %q", got, want)
	}
	if got := h.text(j, f, fleet.FrameStderr); got != "oops\n" {
		t.Errorf("standard error %q", got)
	}
	a := h.attempt(j, f)
	if a.StartedAt == nil || a.Exit == nil || a.Exit.Reason != "exited" || a.Permissions != fleet.PermWorkspace {
		t.Errorf("attempt %+v", a)
	}
	if want := int64(len("hello\noops\n") + len(j) + 1); a.Log.Text != want || a.Log.Bytes <= want {
		t.Errorf("the log is told to have %d bytes, %d with framing; want %d, and more with it", a.Log.Text, a.Log.Bytes, want)
	}
	r.forgets(f)
	if items := r.journal.Pending(0, 10); len(items) != 0 {
		t.Errorf("the outbox still has %+v", items)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "attempts", string(j))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("runtime files are left: %v", err)
	}
}

func (r *testRunner) forgets(f fleet.Fence) {
	r.t.Helper()
	eventually(r.t, "the runner to forget the attempt", func() bool { _, ok := r.journal.Attempt(f); return !ok })
}

// Between the order and the process there are two fsyncs of the journal: the fence
// and the launch intent.
func TestStartCostsTwoSyncs(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	h.holds(t, r) // the first job pays for lazy things
	before := r.journal.Syncs()
	j, f := h.run(r.id, "/bin/sleep", "60")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	if got := r.journal.Syncs() - before; got != 2 {
		t.Errorf("%d fsyncs until the process ran, want 2", got)
	}
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Cancelled)
}

// holds runs one trivial job to its end.
func (h *testHub) holds(t *testing.T, r *testRunner) {
	t.Helper()
	j, f := h.run(r.id, "true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.forgets(f)
}

func TestHowJobsEnd(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	for _, c := range []struct {
		name  string
		spec  fleet.Spec
		state fleet.State
		check func(a *fleet.Attempt) bool
	}{
		{"exit code", fleet.Spec{Argv: []string{"/bin/sh", "-c", "exit 3"}}, fleet.Failed,
			func(a *fleet.Attempt) bool { return a.Exit.Code == 3 && a.Failure == fleet.ClassTaskFailed }},
		{"signal", fleet.Spec{Argv: []string{"/bin/sh", "-c", "kill -9 $$"}}, fleet.Failed,
			func(a *fleet.Attempt) bool {
				return a.Exit.Code == -1 && a.Exit.Signal == "KILL" && a.Failure == fleet.ClassCrashed
			}},
		{"no such program", fleet.Spec{Argv: []string{"/no/such/program"}}, fleet.Failed,
			func(a *fleet.Attempt) bool {
				return a.Exit.Reason == "start_failed" && a.Failure == fleet.ClassHarnessStartup && strings.Contains(a.Exit.Detail, "/no/such/program")
			}},
		{"timeout", fleet.Spec{Argv: []string{"/bin/sleep", "60"}, Timeouts: fleet.Timeouts{Total: 200 * time.Millisecond}}, fleet.Failed,
			func(a *fleet.Attempt) bool { return a.Exit.Reason == "timeout" && a.Failure == fleet.ClassTimeout }},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := h.submit(c.spec)
			f := h.assign(j, r.id)
			h.ends(j, c.state)
			h.sealed(j, f)
			if a := h.attempt(j, f); !c.check(a) {
				t.Errorf("ended as %+v (%s)", a.Exit, a.Failure)
			}
			r.forgets(f)
		})
	}
}

func TestCancelEndsTheProcess(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", "echo $$; exec sleep 60")
	eventually(t, "the process to tell its pid", func() bool { return h.text(j, f, fleet.FrameStdout) != "" })
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Cancelled)
	a := h.attempt(j, f)
	if a.Exit == nil || a.Exit.Reason != "stopped" || a.Failure != fleet.ClassCancelled {
		t.Errorf("ended as %+v (%s)", a.Exit, a.Failure)
	}
	h.sealed(j, f)
	r.forgets(f)
}

// A job cancelled before its accept never runs: the refused accept ends the attempt.
func TestWithdrawnWhilePreparingNeverRuns(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	block := make(chan struct{})
	asked := make(chan struct{}, 1)
	h.mu.Lock()
	h.refuse = func(c state.Command) error {
		if _, ok := c.(*state.AcceptAttempt); ok {
			select {
			case asked <- struct{}{}:
			default:
			}
			select {
			case <-block:
			default:
				return fleet.Unavailable
			}
		}
		return nil
	}
	h.mu.Unlock()
	mark := filepath.Join(t.TempDir(), "ran")
	j, f := h.run(r.id, "/usr/bin/touch", mark)
	<-asked
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	close(block)
	r.forgets(f)
	if got := h.job(j).State; got != fleet.Cancelled {
		t.Errorf("the job is %s", got)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the withdrawn job ran")
	}
	eventually(t, "the hub to know that nothing of it is left", func() bool { return h.attempt(j, f).Gone })
}

func TestOwnerDeclines(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	dir := t.TempDir()
	owner := "origins: [manual]\npush: never\nrepositories: {allow: ['https://ok.example/**']}\nslots: 1\n"
	if err := os.WriteFile(OwnerFile(dir), []byte(owner), 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.newRunner(func(c *Config) { c.Dir, c.Slots = dir, 0 })
	for _, c := range []struct {
		name string
		spec fleet.Spec
		code fleet.Code
	}{
		{"origin", fleet.Spec{Argv: []string{"true"}, Origin: fleet.Origin{Kind: "automation", Name: "n"}}, fleet.OwnerPolicy},
		{"push", fleet.Spec{Argv: []string{"true"}, Push: "b", Repo: &fleet.Repo{URL: "https://ok.example/x"}}, fleet.OwnerPolicy},
		{"repository", fleet.Spec{Argv: []string{"true"}, Repo: &fleet.Repo{URL: "https://bad.example/x"}}, fleet.OwnerPolicy},
		{"path", fleet.Spec{Argv: []string{"true"}, Repo: &fleet.Repo{URL: "/srv/repo"}}, fleet.OwnerPolicy},
		{"harness", fleet.Spec{Kind: fleet.KindAgent, Harness: "emacs"}, fleet.HarnessMissing},
		{"secret", fleet.Spec{Argv: []string{"true"}, Secrets: []string{"NONE"}}, fleet.SecretMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := h.submit(c.spec)
			f := h.assign(j, r.id)
			eventually(t, "the decline", func() bool { return h.attempt(j, f).State == fleet.AttemptDeclined }, func() any { return h.attempt(j, f) })
			if a := h.attempt(j, f); a.Code != c.code || a.Detail == "" {
				t.Errorf("declined with %s %q, want %s", a.Code, a.Detail, c.code)
			}
			r.forgets(f)
		})
	}

	// All slots in use.
	j, f := h.run(r.id, "/bin/sleep", "60")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	k, g := h.run(r.id, "true")
	eventually(t, "the decline", func() bool { return h.attempt(k, g).Code == fleet.NoSlot })

	// The owner pauses; what runs goes on.
	if err := os.WriteFile(OwnerFile(dir), []byte(owner+"paused: lunch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pause to be offered", func() bool {
		p, _ := h.srv.PresenceOf(r.id)
		return strings.Contains(p.Declining, "lunch") && p.Slots == 0
	})
	// A mistake leaves the last good rules in force and is shown.
	if err := os.WriteFile(OwnerFile(dir), []byte("slot: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the alert", func() bool {
		u, _ := h.View().Runner(r.id)
		return len(u.Facts.Alerts) > 0 && strings.Contains(u.Facts.Alerts[0], "line 1")
	})
	if u, _ := h.View().Runner(r.id); u.Facts.Paused != "lunch" {
		t.Errorf("the last good rules are not in force: %+v", u.Facts)
	}
	if h.attempt(j, f).State != fleet.AttemptRunning {
		t.Error("the pause ended a running job")
	}
	h.must(&state.CancelJob{Job: j})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Cancelled)
}

// What never was here is not started: an accepted attempt of another life is lost.
func TestAcceptedAndNotHereIsLostNeverStarted(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	mark := filepath.Join(t.TempDir(), "ran")
	j := h.submit(fleet.Spec{Argv: []string{"/usr/bin/touch", mark}})
	res := h.must(&state.AssignJob{Job: j, Runner: r.id, Turn: 1, Slots: 1000})
	h.must(&state.AcceptAttempt{Job: j, Fence: res.Fence, Permissions: fleet.PermWorkspace})
	h.srv.Nudge(r.id)
	h.ends(j, fleet.Lost)
	eventually(t, "gone", func() bool { return h.attempt(j, res.Fence).Gone })
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was started")
	}
}

// Values of secrets leave this machine neither in output nor in what is derived of it.
func TestSecretsAreMasked(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secrets.yaml"), []byte("DEPLOY: hunter2-and-more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOME_API_KEY", "sk-0123456789")
	if err := os.WriteFile(OwnerFile(dir), []byte("env_names: [SOME_*]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	if u, _ := h.View().Runner(r.id); len(u.Facts.Secrets) != 1 {
		t.Errorf("facts name the secrets %q", u.Facts.Secrets)
	}
	j := h.submit(fleet.Spec{Secrets: []string{"DEPLOY"}, Argv: []string{"/bin/sh", "-c",
		`printf 'a hunter2-'; sleep 0.05; echo "and-more b"; echo $SOME_API_KEY; echo "$DEPLOY" | tr a-z A-Z`}})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	want := "a " + strings.Repeat("*", 16) + " b\n" + strings.Repeat("*", 13) + "\nHUNTER2-AND-MORE\n"
	if got := h.text(j, f, fleet.FrameStdout); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestJobEnvironmentIsAnAllowlist(t *testing.T) {
	h := newHub(t)
	t.Setenv("STRANGE_THING", "x")
	t.Setenv("LC_TIME", "C")
	t.Setenv("SSH_AUTH_SOCK", "/tmp/agent")
	r := h.newRunner()
	j := h.submit(fleet.Spec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{"MINE": "1"}})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	got := "\n" + h.text(j, f, fleet.FrameStdout)
	for _, want := range []string{"\nMINE=1\n", "\nLC_TIME=C\n", "\nPATH=", "\nTUGLINE_FENCE=" + f.String(), "\nTUGLINE_SCRATCH=/", "\nTUGLINE_CLOSURE_FILE=/", "\nTUGLINE_ARTIFACTS=/", "\nTUGLINE_ATTEMPT=1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("environment lacks %q:%s", want, got)
		}
	}
	for _, no := range []string{"STRANGE_THING", "SSH_AUTH_SOCK", childVar} {
		if strings.Contains(got, no) {
			t.Errorf("environment has %s", no)
		}
	}
}

// Every output byte arrives once, whatever happens to the connection.
func TestOutputOverABrokenCable(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := &cable{}
	r := h.newRunner(func(cfg *Config) { cfg.Dial = c.dial })
	j, f := h.run(r.id, "/bin/sh", "-c", "i=0; while [ $i -lt 4000 ]; do echo line $i of some output that goes on and on; i=$((i+1)); [ $((i%400)) = 0 ] && sleep 0.05; done; true")
	for range 4 {
		sent := len(h.stream(j, f, wire.StreamOutput))
		eventually(t, "more output", func() bool {
			return len(h.stream(j, f, wire.StreamOutput)) > sent || h.job(j).State == fleet.Succeeded
		})
		c.pull(true)
	}
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	var want bytes.Buffer
	for i := range 4000 {
		want.WriteString("line " + itoa(i) + " of some output that goes on and on\n")
	}
	if got := h.text(j, f, fleet.FrameStdout); got != want.String() {
		t.Errorf("%d bytes of output arrived, want %d", len(got), want.Len())
	}
	r.forgets(f)
	if n := proposed[*state.FinishAttempt](h); n < 1 {
		t.Errorf("%d results", n)
	}
}
