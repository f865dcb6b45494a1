package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// One process at a time has a data directory, and one directory an identity: of a copy that
// is started elsewhere and of its original neither works on, until a person decides.
func TestOneRunnerOfAnIdentity(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	dir, other := filepath.Join(m.Dir, "runner"), filepath.Join(m.Dir, "copy")
	ended := func(p *mesh.Process, what string) {
		t.Helper()
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			t.Fatalf("%s goes on:\n%s", what, p.Said())
		}
	}

	second := m.Launch("second", "runner", "run", "--data-dir", dir, "--name", "r1")
	ended(second, "a second process on one directory")
	if said := second.Said(); second.ExitCode() != 1 || !strings.Contains(said, "another runner runs on this data directory") {
		t.Errorf("the second ended with %d:\n%s", second.ExitCode(), said)
	}
	if j := m.Ended(m.Detach("exec", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Errorf("beside it a job is %s", j.State)
	}

	if out, err := exec.Command("cp", "-a", dir, other).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if j := m.Ended(m.Detach("exec", "--", "true"), time.Minute); j.State != fleet.Succeeded { // the original goes on from there
		t.Errorf("a job of the original is %s", j.State)
	}
	copied := m.Launch("copy", "runner", "run", "--data-dir", other, "--name", "r1")
	ended(copied, "the copy")
	ended(m.Runner, "the original")
	for what, p := range map[string]*mesh.Process{"copy": copied, "original": m.Runner} {
		if p.ExitCode() != 78 {
			t.Errorf("the %s ended with %d:\n%s", what, p.ExitCode(), p.Said())
		}
	}
	waits := m.Detach("exec", "--", "true")
	m.Eventually(time.Minute, "it is told why nothing runs", func() bool {
		out, _, _ := m.Try("job", "explain", waits)
		return strings.Contains(out, "is refused until a person decides")
	})

	// A person removes the copy and says so.
	m.Run("runner", "trust", "r1")
	m.Runner = m.Launch("runner", "runner", "run", "--data-dir", dir, "--name", "r1")
	if j := m.Ended(waits, time.Minute); j.State != fleet.Succeeded {
		t.Errorf("after that the job is %s (%s)", j.State, j.Reason.Detail)
	}
}
