package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

func TestExecShowsOutputAndExitCode(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	out, errs, code := m.Try("exec", "--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 3")
	if code != 1 {
		t.Errorf("exit code %d; want 1, the job failed", code)
	}
	if out != "to stdout\n" {
		t.Errorf("stdout is %q; want just what the command wrote", out)
	}
	if !strings.Contains(errs, "to stderr\n") || !strings.Contains(errs, "exit code 3") {
		t.Errorf("stderr lacks the command's words or the verdict:\n%s", errs)
	}
	if _, errs, code := m.Try("exec", "--", "true"); code != 0 {
		t.Errorf("true: exit %d\n%s", code, errs)
	}
	id := strings.TrimSpace(m.Run("exec", "--detach", "--", "sh", "-c", "echo hello; exit 3"))
	j := m.Ended(id, 20*time.Second)
	if j.State != fleet.Failed || j.ExitCode == nil || *j.ExitCode != 3 || j.Verdict == nil || j.Attempt != 1 {
		t.Errorf("job is %s, exit code %v, verdict %v, attempt %d", j.State, j.ExitCode, j.Verdict, j.Attempt)
	}
	m.Eventually(10*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
	if got := m.Run("job", "logs", id); got != "hello\n" {
		t.Errorf("job logs printed %q; want hello", got)
	}
}

func TestArgvNeedsNoShell(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	out, _, code := m.Try("exec", "--", "printf", "%s|", "a b", "$HOME", "*", "ü", "")
	if want := "a b|$HOME|*|ü||"; code != 0 || out != want {
		t.Errorf("exit %d, stdout %q; want %q", code, out, want)
	}
	long := strings.Repeat("x", 50_000) // rides as a blob
	out, errs, code := m.Try("exec", "--", "sh", "-c", `printf '%s' "$1" | wc -c`, "sh", long)
	if code != 0 || strings.TrimSpace(out) != "50000" {
		t.Errorf("a long argv: exit %d, stdout %q, %s", code, out, errs)
	}
}

func TestCancelEndsEverything(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	id := m.Detach("exec", "--", "sh", "-c", "trap '' TERM INT; setsid sh -c 'trap \"\" TERM INT; sleep 300' & echo started; sleep 300")
	m.Eventually(20*time.Second, "it says started", func() bool {
		out, _, _ := m.Try("job", "logs", id)
		return out == "started\n"
	})
	m.Run("job", "cancel", id)
	if j := m.Ended(id, 40*time.Second); j.State != fleet.Cancelled {
		t.Errorf("job is %s; want cancelled", j.State)
	}
	for _, p := range m.Marked() {
		if strings.Contains(p, "sleep 300") {
			t.Errorf("survived the cancel: %s", p)
		}
	}
}

func TestADaemonDoesNotOutliveItsJob(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	m.Run("exec", "--", "sh", "-c", "setsid nohup sleep 300 >/dev/null 2>&1 & echo done")
	for _, p := range m.Marked() {
		if strings.Contains(p, "sleep 300") {
			t.Errorf("survived the job: %s", p)
		}
	}
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	_, errs, code := m.Try("exec", "--timeout", "1s", "--", "sleep", "60")
	if code != 1 || !strings.Contains(errs, "time limit") {
		t.Errorf("exit %d; want 1 and the time limit named:\n%s", code, errs)
	}
	_, errs, code = m.Try("exec", "--idle-timeout", "1s", "--", "sh", "-c", "echo a; sleep 60")
	if code != 1 || !strings.Contains(errs, "idle limit") {
		t.Errorf("exit %d; want 1 and the idle limit named:\n%s", code, errs)
	}
	_, errs, code = m.Try("exec", "--first-response-timeout", "1s", "--", "sleep", "60")
	if code != 1 || !strings.Contains(errs, "first-response limit") {
		t.Errorf("exit %d; want 1 and the limit of the first response named:\n%s", code, errs)
	}
	out, errs, code := m.Try("exec", "--first-response-timeout", "1s", "--", "sh", "-c", "echo a; sleep 2; echo b")
	if code != 0 || out != "a\nb\n" {
		t.Errorf("a command that answered in time: exit %d, %q\n%s", code, out, errs)
	}
}

func TestHubAwayIsExit4(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	_, errs, code := m.Try("job", "list", "--token", "tgl_some")
	if code != 4 || !strings.Contains(errs, m.Listen) {
		t.Errorf("exit %d; want 4 and the address named: %s", code, errs)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.StartHub()
	m.Write(filepath.Join(m.Dir, "runner", "secrets.yaml"), "DEPLOY_KEY: hunter2-hunter2\n")
	os.Chmod(filepath.Join(m.Dir, "runner", "secrets.yaml"), 0o600)
	m.StartRunner()
	m.Online()
	out, errs, code := m.Try("exec", "--secret", "DEPLOY_KEY", "--", "sh", "-c", `printf 'key=%s len=%s\n' "$DEPLOY_KEY" "${#DEPLOY_KEY}"`)
	if code != 0 || strings.Contains(out+errs, "hunter2") || !strings.Contains(out, "len=15") {
		t.Errorf("exit %d; want the secret given and masked: %q %s", code, out, errs)
	}
	_, errs, code = m.Try("exec", "--env", "API_KEY=abcdefghijkl", "--", "true")
	if code != 2 || !strings.Contains(errs, "--secret API_KEY") {
		t.Errorf("a key in --env: exit %d, %s; want 2 and the hint", code, errs)
	}
}
