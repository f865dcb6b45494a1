package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// counting is a command that says that it began, writes numbered lines for about
// three seconds, and says that it ended, each also to a file, so that a second run
// of it would show.
func counting(m *mesh.Mesh) (argv []string, ran string) {
	ran = filepath.Join(m.Dir, "ran")
	script := m.Write(filepath.Join(m.Dir, "count.sh"), `echo began >> "$1"
i=0
while [ $i -lt 30 ]; do echo "line $i"; i=$((i+1)); sleep 0.1; done
echo ended >> "$1"
`)
	return []string{"sh", script, ran}, ran
}

func checkCounted(m *mesh.Mesh, id, ran string) {
	m.T.Helper()
	j := m.Ended(id, 60*time.Second)
	if j.State != fleet.Succeeded {
		m.T.Errorf("job is %s (%s); want succeeded", j.State, j.Reason.Detail)
	}
	if b, _ := os.ReadFile(ran); string(b) != "began\nended\n" {
		m.T.Errorf("the command ran as %q; want once, whole", b)
	}
	m.Eventually(20*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
	out := m.Run("job", "logs", id)
	want := ""
	for i := range 30 {
		want += "line " + itoa(i) + "\n"
	}
	if out != want {
		m.T.Errorf("the log is %d bytes, want %d:\n%s", len(out), len(want), out)
	}
	if len(j.Turns) != 1 || len(j.Turns[0].Attempts) != 1 {
		m.T.Errorf("%d turns, %d attempts; want one of each", len(j.Turns), len(j.Turns[0].Attempts))
	}
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + string(rune('0'+i%10))
}

func midway(m *mesh.Mesh, argv []string) string {
	m.T.Helper()
	id := m.Detach(append([]string{"exec", "--"}, argv...)...)
	m.Eventually(20*time.Second, "it is midway", func() bool {
		out, _, _ := m.Try("job", "logs", id)
		return strings.Contains(out, "line 5\n")
	})
	return id
}

func TestHubKilledMidJob(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	argv, ran := counting(m)
	id := midway(m, argv)
	m.Hub.Kill()
	m.StartHub()
	checkCounted(m, id, ran)
}

func TestRunnerKilledMidJob(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	argv, ran := counting(m)
	id := midway(m, argv)
	m.Runner.Kill()
	m.StartRunner()
	checkCounted(m, id, ran)
}

func TestBothKilledMidJob(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	argv, ran := counting(m)
	id := midway(m, argv)
	m.Runner.Kill()
	m.Hub.Kill()
	m.StartHub()
	m.StartRunner()
	checkCounted(m, id, ran)
}

func TestRunnerAwayUntilTheJobHasEnded(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	argv, ran := counting(m)
	id := midway(m, argv)
	m.Runner.Kill()
	m.Eventually(20*time.Second, "the command ends on its own", func() bool {
		b, _ := os.ReadFile(ran)
		return strings.HasSuffix(string(b), "ended\n")
	})
	m.StartRunner()
	checkCounted(m, id, ran)
}

func TestSupervisorKilledIsLostNotDone(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	argv, ran := counting(m)
	id := midway(m, argv)
	pids := m.Supervisors()
	if len(pids) != 1 {
		t.Fatalf("%d supervisors; want 1", len(pids))
	}
	syscall.Kill(pids[0], syscall.SIGKILL)
	j := m.Ended(id, 60*time.Second)
	if j.State != fleet.Lost {
		t.Errorf("job is %s (%s); want lost: nobody knows how it ended", j.State, j.Reason.Detail)
	}
	if b, _ := os.ReadFile(ran); strings.Contains(string(b), "ended") {
		t.Errorf("the command went on to its end without its supervisor: %q", b)
	}
	m.Eventually(20*time.Second, "the slot is free again", func() bool {
		_, _, code := m.Try("exec", "--", "true")
		return code == 0
	})
}

func TestUnacceptedWorkGoesBackToTheQueue(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	m.Runner.Kill()
	id := m.Detach("exec", "--", "true")
	if j := m.Job(id); j.State.Ended() {
		t.Fatalf("job is %s without a runner", j.State)
	}
	m.StartRunner()
	if j := m.Ended(id, 90*time.Second); j.State != fleet.Succeeded {
		t.Errorf("job is %s; want succeeded once the runner is back", j.State)
	}
}
