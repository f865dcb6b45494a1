package runner

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// childVar makes the test binary a runner of the named directory, and childTicket
// its ticket.
const (
	childVar    = "TUGLINE_TEST_RUNNER_CHILD"
	childTicket = "TUGLINE_TEST_RUNNER_TICKET"
)

func childRunner() int {
	r, err := New(Config{Dir: os.Getenv(childVar), Name: "box", Slots: 8, Ticket: os.Getenv(childTicket), Logger: testLogger("RUNNER_LOG")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = os.Unsetenv(childVar) // not for jobs and supervisors
	if err := r.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a runner in a process of its own, which can be killed.
type child struct {
	h   *testHub
	dir string
	id  fleet.RunnerID
	cmd *exec.Cmd
	tkt string
}

func (h *testHub) child() *child {
	h.t.Helper()
	c := &child{h: h, dir: h.t.TempDir(), tkt: h.ticket()}
	c.start()
	h.t.Cleanup(c.kill)
	return c
}

func (c *child) start() {
	c.h.t.Helper()
	c.cmd = exec.Command(self(c.h.t))
	c.cmd.Env = append(os.Environ(), childVar+"="+c.dir, childTicket+"="+c.tkt)
	c.cmd.Stderr = os.Stderr
	if err := c.cmd.Start(); err != nil {
		c.h.t.Fatal(err)
	}
	eventually(c.h.t, "the runner to be connected", func() bool {
		if c.id == "" {
			if id, err := loadIdentity(c.dir); err == nil && id != nil {
				c.id = id.Runner
			}
		}
		p, ok := c.h.srv.PresenceOf(c.id)
		return c.id != "" && ok && p.Connected && p.Full
	})
}

// kill is kill -9.
func (c *child) kill() {
	if c.cmd.Process == nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	eventually(c.h.t, "the hub to see that the runner is gone", func() bool {
		p, ok := c.h.srv.PresenceOf(c.id)
		return !ok || !p.Connected
	})
}

// A killed runner finds its running job again, adopts it, and no byte of output or
// events is lost or doubled.
func TestKilledRunnerAdoptsItsJob(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	gate := filepath.Join(t.TempDir(), "gate")
	j, f := h.run(c.id, "/bin/sh", "-c", "echo before $$; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo after $$")
	eventually(t, "output", func() bool { return h.text(j, f, fleet.FrameStdout) != "" })
	c.kill()
	c.start()
	eventually(t, "the job to be shown again", func() bool { return h.attempt(j, f).State == fleet.AttemptRunning })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	lines := strings.Split(strings.TrimSpace(h.text(j, f, fleet.FrameStdout)), "\n")
	if len(lines) != 2 || strings.TrimPrefix(lines[0], "before ") != strings.TrimPrefix(lines[1], "after ") {
		t.Errorf("output %q, want two lines of one process", lines)
	}
	if n := proposed[*state.AcceptAttempt](h); n != 1 {
		t.Errorf("accepted %d times", n)
	}
}

// slowCodex speaks like the CLI, one line at a time, and waits for a file in between.
const slowCodex = `#!/bin/sh
case "$1" in
--version) echo "codex-cli 0.171.0"; exit 0;;
login) echo "Logged in using an API key - sk-x" >&2; exit 0;;
esac
cat > /dev/null
echo '{"type":"thread.started","thread_id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}'
echo '{"type":"turn.started"}'
echo '{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"ls","aggregated_output":"","exit_code":null,"status":"in_progress"}}'
echo 'a warning that holds sk-secret-0123456789' >&2
while [ ! -e GATE ]; do sleep 0.02; done
echo '{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"ls","aggregated_output":"sk-secret-0123456789\n","exit_code":0,"status":"completed"}}'
echo '{"type":"item.completed","item":{"id":"item_2","type":"file_change","changes":[{"path":"'$PWD'/made.txt","kind":"add"},{"path":"/etc/hosts","kind":"update"}],"status":"completed"}}'
echo '{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"done"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'
`

// The events of a job whose runner was killed in between are, byte for byte, those
// that its frames give in one go.
func TestEventsAreDerivedAgainByteForByte(t *testing.T) {
	t.Setenv("CODEX_API_KEY", "sk-secret-0123456789")
	h := newHub(t)
	gate := filepath.Join(t.TempDir(), "gate")
	program := filepath.Join(t.TempDir(), "codex")
	if err := os.WriteFile(program, []byte(strings.ReplaceAll(slowCodex, "GATE", gate)), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(OwnerFile(dir), []byte("harnesses: {codex: {path: "+program+"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &child{h: h, dir: dir, tkt: h.ticket()}
	c.start()
	t.Cleanup(c.kill)
	eventually(t, "the harness to be found", func() bool {
		u, _ := h.View().Runner(c.id)
		_, ok := u.Facts.Harness("codex")
		return ok
	})
	j := h.submit(fleet.Spec{Kind: fleet.KindAgent, Harness: "codex"}, func(s *state.SubmitJob) { s.Prompt = h.put([]byte("do this")) })
	f := h.assign(j, c.id)
	eventually(t, "the first events", func() bool { return len(h.stream(j, f, wire.StreamEvents)) > 0 })
	c.kill()
	c.start()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	got := string(h.stream(j, f, wire.StreamEvents))
	if strings.Contains(got, "sk-secret") || !strings.Contains(got, strings.Repeat("*", 20)) {
		t.Errorf("the events are not masked: %s", got)
	}
	codex, _ := harness.Lookup("codex")
	p := codex.Parser(harness.ParseRequest{})
	var want []byte
	add := func(events []fleet.Event) {
		for _, e := range events {
			want = append(want, e.Line()...)
		}
	}
	for b := h.stream(j, f, wire.StreamOutput); len(b) > 0; {
		fr, n, err := fleet.DecodeFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		events, _ := p.Frame(fr)
		add(events)
		b = b[n:]
	}
	events, _ := p.End(harness.ExitInfo{Reason: "exited"})
	add(events)
	// Changed files are named from where the agent works.
	work := filepath.Join(dir, "scratch", string(j), "work") + "/"
	if !strings.Contains(string(want), work+"made.txt") || !strings.Contains(got, `"made.txt"`) || !strings.Contains(got, `"/etc/hosts"`) {
		t.Errorf("changed files: %s", got)
	}
	if d := cmp.Diff(strings.ReplaceAll(string(want), work, ""), got); d != "" {
		t.Errorf("events (-from the frames at the hub +as sent):\n%s", d)
	}
}

// A job that ended while no runner was there is reported by the next one.
func TestEndWithoutARunnerIsReported(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	j, f := h.run(c.id, "/bin/sh", "-c", "echo one; sleep 0.3; echo two; touch "+done+"; exit 7")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	c.kill()
	eventually(t, "the job to end by itself", func() bool { _, err := os.Stat(done); return err == nil })
	c.start()
	h.ends(j, fleet.Failed)
	h.sealed(j, f)
	if a := h.attempt(j, f); a.Exit.Code != 7 || h.text(j, f, fleet.FrameStdout) != "one\ntwo\n" {
		t.Errorf("exit %+v, output %q", a.Exit, h.text(j, f, fleet.FrameStdout))
	}
}

// killSupervisor ends the supervisor of a job with -9.
func (r *testRunner) killSupervisor(j fleet.JobID, f fleet.Fence) {
	r.t.Helper()
	st, err := process.Attach(filepath.Join(r.dir, "attempts", string(j), f.String(), "process"))
	if err == nil {
		err = syscall.Kill(st.Started.Supervisor.PID, syscall.SIGKILL)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A job whose supervisor was killed is lost, whatever it did; its processes are gone.
func TestKilledSupervisorIsLost(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", "echo $$; exec sleep 60")
	eventually(t, "output", func() bool { return h.text(j, f, fleet.FrameStdout) != "" })
	r.killSupervisor(j, f)
	h.ends(j, fleet.Lost)
	eventually(t, "gone", func() bool { return h.attempt(j, f).Gone })
	pid, err := strconv.Atoi(strings.TrimSpace(h.text(j, f, fleet.FrameStdout)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process to be gone", func() bool { return syscall.Kill(pid, 0) != nil })
	h.sealed(j, f)
	r.forgets(f)
}

// A runner that ends by itself leaves its job running for the next one; one in
// development mode ends it.
func TestStoppedRunnerLeavesItsJob(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 2, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	j, f := h.run(r.id, "/bin/sleep", "60")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	if err := r.end(); err != nil {
		t.Fatalf("Run = %v", err)
	}
	cfg.DevMode = true
	r = h.restart(cfg)
	eventually(t, "the job to be shown", func() bool { return len(r.heartbeat(false).Attempts) == 1 })
	if err := r.end(); err != nil {
		t.Fatalf("Run = %v", err)
	}
	if e := h.attempt(j, f).Exit; e == nil || e.Reason != process.ReasonStopped || e.Detail != "the runner stops" {
		t.Errorf("after the end of a runner in development mode the process ended as %+v", e)
	}
}

// Many jobs, a runner that is killed again and again: each ends once, with all of
// its output.
func TestManyJobsUnderKills(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := h.child()
	type one struct {
		job   fleet.JobID
		fence fleet.Fence
	}
	var all []one
	for i := range 24 {
		j := h.submit(fleet.Spec{Argv: []string{"/bin/sh", "-c", "echo start " + itoa(i) + "; sleep 0." + itoa(i%4) + "; echo end " + itoa(i)}})
		all = append(all, one{job: j})
	}
	open := func() (n int) {
		for _, o := range all {
			if s := h.job(o.job).State; !o.fence.IsZero() && (s == fleet.Assigned || s == fleet.Preparing || s == fleet.Running) {
				n++
			}
		}
		return n
	}
	kills := 0
	for i := range all {
		eventually(t, "a free slot", func() bool { return open() < 8 })
		all[i].fence = h.assign(all[i].job, c.id)
		if i%7 == 6 {
			c.kill()
			kills++
			c.start()
		}
	}
	for i, o := range all {
		eventually(t, "job "+itoa(i)+" to end", func() bool { return h.job(o.job).State.Ended() }, func() any { return h.job(o.job).Reason })
		if h.job(o.job).State == fleet.Lost {
			// Killed between the intent and the start: it may not start any more, and did not.
			if got := h.text(o.job, o.fence, fleet.FrameStdout); got != "" {
				t.Errorf("job %d is lost although it ran: %q", i, got)
			}
			continue
		}
		h.ends(o.job, fleet.Succeeded)
		h.sealed(o.job, o.fence)
		if got, want := h.text(o.job, o.fence, fleet.FrameStdout), fmt.Sprintf("start %d\nend %d\n", i, i); got != want {
			t.Errorf("job %d after %d kills: output %q, want %q", i, kills, got, want)
		}
		if events := h.stream(o.job, o.fence, wire.StreamEvents); len(events) > 0 {
			for s := bufio.NewScanner(strings.NewReader(string(events))); s.Scan(); {
				if !strings.HasPrefix(s.Text(), "{") {
					t.Errorf("job %d: event %q", i, s.Text())
				}
			}
		}
	}
}
