package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// sleeps says whether the command of a job is still there.
func sleeps(m *mesh.Mesh, what string) bool {
	for _, p := range m.Marked() {
		if strings.Contains(p, what) {
			return true
		}
	}
	return false
}

func started(m *mesh.Mesh, argv ...string) string {
	m.T.Helper()
	id := m.Detach(append([]string{"exec", "--"}, argv...)...)
	m.State(id, fleet.Running, 20*time.Second)
	m.Eventually(20*time.Second, "it says started", func() bool {
		out, _, _ := m.Try("job", "logs", id)
		return strings.Contains(out, "started\n")
	})
	return id
}

// A job whose directory was deleted under a dead runner is lost and its process is
// ended; the runner lives and works.
func TestDeletedAttemptDirectory(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	id := started(m, "sh", "-c", "echo started; exec sleep 301")
	m.Runner.Kill()
	if err := os.RemoveAll(filepath.Join(m.Dir, "runner", "attempts", id)); err != nil {
		t.Fatal(err)
	}
	m.StartRunner()
	if j := m.Ended(id, 60*time.Second); j.State != fleet.Lost {
		t.Errorf("job is %s (%s); want lost", j.State, j.Reason.Detail)
	}
	if sleeps(m, "sleep 301") {
		t.Error("the job's process goes on although the job is lost")
	}
	if _, errs, code := m.Try("exec", "--", "true"); code != 0 {
		t.Errorf("the next job: exit %d: %s", code, errs)
	}
}

// A data directory that was set back is refused until a person trusts it; then what
// was launched since is ended before its slot is free.
func TestRestoredDataDirectory(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	dir, old := filepath.Join(m.Dir, "runner"), filepath.Join(m.Dir, "old")
	m.Run("exec", "--", "true")
	m.Runner.Stop()
	if out, err := exec.Command("cp", "-a", dir, old).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v %s", err, out)
	}
	m.StartRunner()
	m.Online()
	id := started(m, "sh", "-c", "echo started; (setsid sleep 303 &); exec sleep 302")
	// A journal that went back is known by its counter, which heartbeats carry.
	since := time.Now()
	m.Eventually(20*time.Second, "a heartbeat after the start", func() bool {
		var r api.Runner
		m.JSON(&r, "runner", "get", "r1", "--json")
		return r.LastBeat != nil && r.LastBeat.After(since)
	})
	m.Runner.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", old, dir).CombinedOutput(); err != nil {
		t.Fatalf("restore: %v %s", err, out)
	}
	m.StartRunner()
	m.Eventually(20*time.Second, "the conflict shows", func() bool {
		out, _, _ := m.Try("runner", "list", "--json")
		return strings.Contains(out, "went back")
	})
	m.Run("runner", "trust", "r1")
	m.Runner.Stop() // it stands down by itself, and is started again by a person
	m.StartRunner()
	m.Eventually(20*time.Second, "the runner is taken back", func() bool {
		out, _, _ := m.Try("runner", "list", "--json")
		return strings.Contains(out, `"online"`)
	})
	if j := m.Ended(id, 60*time.Second); j.State != fleet.Lost {
		t.Errorf("job is %s (%s); want lost", j.State, j.Reason.Detail)
	}
	if sleeps(m, "sleep 302") || sleeps(m, "sleep 303") {
		t.Error("the job's processes go on although the job is lost")
	}
	if _, errs, code := m.Try("exec", "--", "true"); code != 0 {
		t.Errorf("the next job: exit %d: %s", code, errs)
	}
}

// A supervisor that hangs keeps a job neither from being cancelled nor from its time
// limit.
func TestHungSupervisors(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	id := started(m, "sh", "-c", "echo started; (setsid sleep 305 &); exec sleep 304")
	limited := m.Detach("exec", "--timeout", "3s", "--", "sh", "-c", "echo started; exec sleep 307")
	m.Eventually(20*time.Second, "both run", func() bool { return sleeps(m, "sleep 305") && sleeps(m, "sleep 307") })
	for _, pid := range m.Supervisors() {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	m.Run("job", "cancel", id)
	if j := m.Ended(id, 40*time.Second); j.State != fleet.Cancelled {
		t.Errorf("job is %s (%s); want cancelled", j.State, j.Reason.Detail)
	}
	if sleeps(m, "sleep 304") || sleeps(m, "sleep 305") {
		t.Error("the job's processes go on although the job is cancelled")
	}
	m.Eventually(10*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
	if out := m.Run("job", "logs", id); out != "started\n" {
		t.Errorf("the log is %q", out)
	}
	j := m.Ended(limited, 60*time.Second)
	if j.State != fleet.Failed || !strings.Contains(j.Reason.Detail, "limit") {
		t.Errorf("job is %s (%s); want failed by its time limit", j.State, j.Reason.Detail)
	}
	if sleeps(m, "sleep 307") {
		t.Error("the job's process goes on beyond its time limit")
	}
}
