package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// counting is a command that says that it began, writes numbered lines for about
// three seconds, and says that it ended, each also to a file, so that a second run
// of it would show.
func (m *mesh) counting() (argv []string, ran string) {
	ran = filepath.Join(m.dir, "ran")
	script := m.write(filepath.Join(m.dir, "count.sh"), `echo began >> "$1"
i=0
while [ $i -lt 30 ]; do echo "line $i"; i=$((i+1)); sleep 0.1; done
echo ended >> "$1"
`)
	return []string{"sh", script, ran}, ran
}

func (m *mesh) checkCounted(id, ran string) {
	m.t.Helper()
	j := m.ended(id, 60*time.Second)
	if j.State != fleet.Succeeded {
		m.t.Errorf("job is %s (%s); want succeeded", j.State, j.Reason.Detail)
	}
	if b, _ := os.ReadFile(ran); string(b) != "began\nended\n" {
		m.t.Errorf("the command ran as %q; want once, whole", b)
	}
	m.eventually(20*time.Second, "the log is sealed", func() bool { return m.job(id).Log.Sealed })
	out := m.run("job", "logs", id)
	want := ""
	for i := range 30 {
		want += "line " + itoa(i) + "\n"
	}
	if out != want {
		m.t.Errorf("the log is %d bytes, want %d:\n%s", len(out), len(want), out)
	}
	if len(j.Turns) != 1 || len(j.Turns[0].Attempts) != 1 {
		m.t.Errorf("%d turns, %d attempts; want one of each", len(j.Turns), len(j.Turns[0].Attempts))
	}
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + string(rune('0'+i%10))
}

func (m *mesh) midway(argv []string) string {
	m.t.Helper()
	id := m.detach(append([]string{"exec", "--"}, argv...)...)
	m.eventually(20*time.Second, "it is midway", func() bool {
		out, _, _ := m.try("job", "logs", id)
		return strings.Contains(out, "line 5\n")
	})
	return id
}

func TestHubKilledMidJob(t *testing.T) {
	m := up(t)
	argv, ran := m.counting()
	id := m.midway(argv)
	m.hub.kill()
	m.startHub()
	m.checkCounted(id, ran)
}

func TestRunnerKilledMidJob(t *testing.T) {
	m := up(t)
	argv, ran := m.counting()
	id := m.midway(argv)
	m.runner.kill()
	m.startRunner()
	m.checkCounted(id, ran)
}

func TestBothKilledMidJob(t *testing.T) {
	m := up(t)
	argv, ran := m.counting()
	id := m.midway(argv)
	m.runner.kill()
	m.hub.kill()
	m.startHub()
	m.startRunner()
	m.checkCounted(id, ran)
}

func TestRunnerAwayUntilTheJobHasEnded(t *testing.T) {
	m := up(t)
	argv, ran := m.counting()
	id := m.midway(argv)
	m.runner.kill()
	m.eventually(20*time.Second, "the command ends on its own", func() bool {
		b, _ := os.ReadFile(ran)
		return strings.HasSuffix(string(b), "ended\n")
	})
	m.startRunner()
	m.checkCounted(id, ran)
}

func TestSupervisorKilledIsLostNotDone(t *testing.T) {
	m := up(t)
	argv, ran := m.counting()
	id := m.midway(argv)
	pids := m.supervisors()
	if len(pids) != 1 {
		t.Fatalf("%d supervisors; want 1", len(pids))
	}
	syscall.Kill(pids[0], syscall.SIGKILL)
	j := m.ended(id, 60*time.Second)
	if j.State != fleet.Lost {
		t.Errorf("job is %s (%s); want lost: nobody knows how it ended", j.State, j.Reason.Detail)
	}
	if b, _ := os.ReadFile(ran); strings.Contains(string(b), "ended") {
		t.Errorf("the command went on to its end without its supervisor: %q", b)
	}
	m.eventually(20*time.Second, "the slot is free again", func() bool {
		_, _, code := m.try("exec", "--", "true")
		return code == 0
	})
}

func TestUnacceptedWorkGoesBackToTheQueue(t *testing.T) {
	m := up(t)
	m.runner.kill()
	id := m.detach("exec", "--", "true")
	if j := m.job(id); j.State.Ended() {
		t.Fatalf("job is %s without a runner", j.State)
	}
	m.startRunner()
	if j := m.ended(id, 90*time.Second); j.State != fleet.Succeeded {
		t.Errorf("job is %s; want succeeded once the runner is back", j.State)
	}
}
