package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// start runs a command that goes on until it is told to stop.
func (s *shell) start(args ...string) (end chan int) {
	end = make(chan int, 1)
	go func() { end <- s.do(args...) }()
	return end
}

func (s *shell) stop(end chan int) int {
	s.t.Helper()
	s.signals <- syscall.SIGTERM
	select {
	case code := <-end:
		return code
	case <-time.After(20 * time.Second):
		s.t.Fatal("it did not stop within 20 s")
		return -1
	}
}

func TestDevRunsAJobAndIsFoundByItself(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := newShell(t, "")
	end := d.start("dev", "--slots", "2")
	eventually(t, "the hub", func() bool { return strings.Contains(d.out.String(), "is ready at") })
	s := newShell(t, "")
	s.environ = d.environ
	if code := s.do("exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3"); code != exitFailed || s.out.String() != "out\n" || !strings.Contains(s.err.String(), "err\n") {
		t.Errorf("exit %d, out %q, err %q", code, s.out, s.err)
	}
	dir := repository(t)
	id := strings.TrimSpace(s.must("exec", "-d", "--repo", dir, "--", "sh", "-c", "echo more > b.txt"))
	if code := s.do("job", "logs", "-f", id[:20]); code != exitOK {
		t.Errorf("a job with a change: exit %d\n%s", code, s.err)
	}
	has(t, "the diff", s.must("job", "diff", id), "+++ b/b.txt", "+more")
	s.must("job", "pull", id, "--into", dir)
	if got := git(t, dir, "show", "tugline/"+id+":b.txt"); got != "more" {
		t.Errorf("the branch has %q", got)
	}
	has(t, "the runners", s.must("runner", "list"), "dev", "online", "0/2")
	has(t, "the status", s.must("hub", "status"), "1 connected of 1")
	for _, f := range []string{"operator.token", "runner/runner.yaml"} {
		if st, err := os.Stat(filepath.Join(d.devDir(), f)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", f, st, err)
		}
	}
	url := readFile(t, filepath.Join(d.devDir(), "hub.url"))
	if code := d.stop(end); code != exitOK {
		t.Errorf("dev ended with %d\n%s", code, d.err)
	}
	if code := s.do("job", "list"); code != exitUsage || !strings.Contains(s.err.String(), "tugline dev") {
		t.Errorf("after the stop: exit %d, %s", code, s.err)
	}
	d = newShell(t, "")
	d.environ = s.environ
	end = d.start("dev")
	eventually(t, "the hub again", func() bool { return strings.Contains(d.out.String(), "is ready at") })
	if again := readFile(t, filepath.Join(d.devDir(), "hub.url")); again != url {
		t.Errorf("the hub moved from %s to %s", url, again)
	}
	has(t, "the jobs", s.must("job", "list"), id)
	s.must("exec", "--", "true")
	if code := d.stop(end); code != exitOK {
		t.Errorf("dev ended with %d\n%s", code, d.err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHubRunAndARunnerThatJoins(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := filepath.Join(t.TempDir(), "hub")
	h := newShell(t, "")
	t.Chdir(filepath.Dir(dir))
	end := h.start("hub", "run", "--data-dir", "hub", "--listen", "0.0.0.0:0", "--bootstrap")
	eventually(t, "the ticket", func() bool { return strings.Contains(h.out.String(), "TUGLINE_TICKET=tug1_") })
	_, ticket, _ := strings.Cut(h.out.String(), "TUGLINE_TICKET=")
	ticket, command, _ := strings.Cut(ticket, " ")
	has(t, "the welcome", h.out.String(), "hub ready at https://", "--public-url https://", "export TUGLINE_HUB=", "export TUGLINE_CA_FILE="+dir, "$(cat "+dir)
	if !strings.HasPrefix(command, "tugline runner run --data-dir ") || strings.Contains(command, "tug1_") {
		t.Errorf("the command to paste shows its ticket to everybody: %s", command)
	}
	spot, err := readSpot(dir)
	if err != nil || spot.CAFile == "" {
		t.Fatalf("the hub's spot is %+v, %v", spot, err)
	}
	if strings.Contains(readFile(t, spot.CAFile), "PRIVATE") {
		t.Error("the CA's key is beside its certificate")
	}
	s := newShell(t, "", "TUGLINE_HUB="+spot.Hub, "TUGLINE_TOKEN="+spot.Token, "TUGLINE_CA_FILE="+spot.CAFile)
	r := newShell(t, "")
	r.in = strings.NewReader(ticket + "\n")
	runEnd := r.start("runner", "run", "--ticket", "-", "--name", "mini", "--label", "disk=fast", "--slots", "3")
	eventually(t, "the runner", func() bool {
		return s.do("runner", "get", "mini") == 0 && strings.Contains(s.out.String(), "mini online")
	})
	s.must("exec", "--require", "disk=fast", "--", "true")
	if code := r.stop(runEnd); code != exitOK {
		t.Errorf("the runner ended with %d\n%s", code, r.err)
	}
	again := newShell(t, "") // which gives no flags: they are remembered
	again.environ, r = r.environ, again
	runEnd = r.start("runner", "run")
	eventually(t, "the runner again", func() bool {
		return s.do("runner", "get", "mini") == 0 && strings.Contains(s.out.String(), "mini online")
	})
	has(t, "the runners", s.must("runner", "list"), "mini", "0/3")
	s.must("exec", "--require", "disk=fast", "--", "true")
	late := newShell(t, "", "TUGLINE_TICKET="+ticket)
	if code := late.do("runner", "run", "--data-dir", filepath.Join(t.TempDir(), "late")); code != exitUsage {
		t.Errorf("a ticket that is used up: exit %d, want 2", code)
	}
	if text := late.err.String(); !strings.Contains(text, "was used up by another runner") || strings.Contains(text, "ticket_used") {
		t.Errorf("a ticket that is used up: %s", text)
	}
	if code := s.do("job", "get", "01nosuchjob"); code != exitUsage {
		t.Errorf("a job that is not there: exit %d, want 2", code)
	}
	secret := strings.TrimSpace(s.must("token", "create", "--role", "viewer", "--name", "watch"))
	v := newShell(t, "", "TUGLINE_HUB="+spot.Hub, "TUGLINE_TOKEN="+secret, "TUGLINE_CA_FILE="+spot.CAFile)
	v.must("job", "list")
	if code := v.do("exec", "-d", "--", "true"); code != exitUnauthorised {
		t.Errorf("a viewer's submit: exit %d, want 5\n%s", code, v.err)
	}
	has(t, "the ticket", s.must("hub", "ticket", "--ttl", "1m"), "tug1_")
	s.must("hub", "set", "default_harness", "codex")
	has(t, "the status", s.must("hub", "status"), "default_harness = codex")
	has(t, "the audit", s.must("hub", "audit"), "COMMAND")
	s.must("runner", "cordon", "mini")
	has(t, "the runner", s.must("runner", "get", "mini"), "cordoned")
	has(t, "why", s.must("job", "explain", strings.TrimSpace(s.must("exec", "-d", "--", "true"))), "mini")
	s.must("runner", "remove", "mini", "--abandon-jobs")
	select {
	case code := <-runEnd:
		if code != exitStandDown {
			t.Errorf("the removed runner ended with %d, want 78\n%s", code, r.err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the removed runner goes on")
	}
	if code := h.stop(end); code != exitOK {
		t.Errorf("the hub ended with %d\n%s", code, h.err)
	}
	if code := h.do("runner", "run"); code != exitUsage {
		t.Errorf("a runner without a ticket: exit %d, want 2", code)
	}
	has(t, "the message", h.err.String(), "hub ticket")
}

func TestRunnerConfigCheck(t *testing.T) {
	s := newShell(t, "")
	dir := t.TempDir()
	has(t, "the defaults", s.must("runner", "config", "check", "--data-dir", dir), "permissions: workspace")
	has(t, "the message", s.err.String(), "the defaults are in force")
	file := filepath.Join(dir, "runner.yaml")
	if err := os.WriteFile(file, []byte(s.must("runner", "config", "example")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, "the example", s.must("runner", "config", "check", "--data-dir", dir, "--json"), `"permissions": "workspace"`)
	if err := os.WriteFile(file, []byte("slots: 100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.do("runner", "config", "check", "--data-dir", dir); code != exitUsage {
		t.Errorf("an invalid file: exit %d, want 2", code)
	}
	has(t, "the message", s.err.String(), "line 1", "0 to 16")
}

func TestHarnessParse(t *testing.T) {
	s := newShell(t, "")
	s.in = strings.NewReader("not what any agent writes\n")
	out := s.must("harness", "parse", "codex", "--exit", "1")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	has(t, "the last line", lines[len(lines)-1], `{"type":"outcome","class":`)
}

func TestWordsToItself(t *testing.T) {
	for _, args := range [][]string{{"git-credential"}, {"drive"}} {
		if code, ok := inner(args); !ok || code != exitUsage {
			t.Errorf("%q: %d, %v, want 2", args, code, ok)
		}
	}
	for _, args := range [][]string{{}, {"run"}, {"version"}} {
		if _, ok := inner(args); ok {
			t.Errorf("%q was taken for a word to itself", args)
		}
	}
}
