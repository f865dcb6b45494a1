package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// explained gives what `job explain` says of a job.
func explained(m *mesh.Mesh, id string) (e api.Explanation) {
	m.T.Helper()
	m.JSON(&e, "job", "explain", id, "--json")
	return e
}

// waitsFor waits until a job is told to wait for a reason, at its one runner or for
// itself, and gives it. The command line must say the same.
func waitsFor(m *mesh.Mesh, id string, code fleet.Code, words ...string) (r api.RunnerReason) {
	m.T.Helper()
	var e api.Explanation
	m.Eventually(30*time.Second, "job "+id+" waits for "+string(code), func() bool {
		e = explained(m, id)
		if e.Code == code {
			r = api.RunnerReason{Code: e.Code, Detail: e.Summary, Until: e.Until, Change: e.Change}
			return true
		}
		for _, r = range e.Runners {
			if r.Code == code {
				return true
			}
		}
		return false
	})
	for _, w := range words {
		if !strings.Contains(r.Detail, w) {
			m.T.Errorf("job %s waits: %q; want %q in it", id, r.Detail, w)
		}
	}
	if e.Index == 0 || e.At.IsZero() {
		m.T.Errorf("job %s is explained from index %d as seen at %s; want both", id, e.Index, e.At)
	}
	if text := m.Run("job", "explain", id); !strings.Contains(text, "queued") {
		m.T.Errorf("job explain prints:\n%s", text)
	}
	if j := m.Job(id); j.State != fleet.Queued {
		m.T.Errorf("job %s waits for %s and is %s", id, code, j.State)
	}
	return r
}

// lowFloors lets automation run on whatever disk the tests are on.
func lowFloors(m *mesh.Mesh) {
	m.T.Helper()
	m.Run("hub", "set", "floor_select", "1MiB")
	m.Run("hub", "set", "floor_start", "1MiB")
}

// Automation has slots of its own, which the hub sets; people's jobs have the owner's.
// What runs occupies its place, whatever the limits become.
func TestSlotsOfAutomation(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.Slots = 1
	m.StartHub()
	lowFloors(m)
	m.StartRunner()
	m.Online()
	gate := filepath.Join(m.Dir, "gate")
	hold := m.Write(filepath.Join(m.Dir, "hold.sh"), `while [ ! -e "$1" ]; do sleep 0.05; done`)

	m.Run("runner", "slots", "r1", "--automation", "0")
	first := m.Detach("exec", "--automation", "nightly", "--", "sh", hold, gate)
	waitsFor(m, first, fleet.AutomationOff)
	m.Run("runner", "slots", "r1", "--automation", "2")
	m.State(first, fleet.Running, 30*time.Second)
	person := m.Detach("exec", "--", "sh", hold, gate)
	m.State(person, fleet.Running, 30*time.Second)
	second := m.Detach("exec", "--automation", "nightly", "--", "sh", hold, gate)
	m.State(second, fleet.Running, 30*time.Second)
	third := m.Detach("exec", "--automation", "weekly", "--", "true")
	waitsFor(m, third, fleet.NoSlot)
	crowd := m.Detach("exec", "--", "true")
	waitsFor(m, crowd, fleet.NoSlot)

	m.Run("runner", "slots", "r1", "--automation", "1")
	var r api.Runner
	m.JSON(&r, "runner", "get", "r1", "--json")
	if r.Slots.Base != 1 || r.Slots.Automation != 1 || r.Slots.Used != 3 {
		t.Errorf("after the limit was lowered there are slots %+v, %d used; want 1 and 1, and 3 that run on", r.Slots, r.Slots.Used)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, person, second, third, crowd} {
		if j := m.Ended(id, time.Minute); j.State != fleet.Succeeded {
			t.Errorf("job %s is %s (%s); want succeeded", id, j.State, j.Reason.Detail)
		}
	}
	for _, bad := range []string{"9", "-1", "x"} {
		if out, errs, code := m.Try("runner", "slots", "r1", "--automation", bad); code != 2 {
			t.Errorf("--automation %s: exit %d\n%s%s", bad, code, out, errs)
		}
	}
}

// A runner is held, with an end or without; a drain acts at its deadline.
func TestHeldRunner(t *testing.T) {
	t.Parallel()
	m := mesh.Up(t)
	m.Run("runner", "cordon", "r1", "--reason", "backup runs")
	id := m.Detach("exec", "--", "true")
	if r := waitsFor(m, id, fleet.Cordoned, "backup runs"); !strings.Contains(r.Change, "tugline runner resume") {
		t.Errorf("what would change it: %q", r.Change)
	}
	m.Hub.Kill()
	m.StartHub()
	m.Online()
	waitsFor(m, id, fleet.Cordoned, "backup runs")
	m.Run("runner", "resume", "r1")
	m.Ended(id, 30*time.Second)

	runs := started(m, "sh", "-c", `echo started; echo kept > $TUGLINE_ARTIFACTS/note; sleep 307`)
	m.Run("runner", "drain", "r1", "--deadline", "2s", "--then", "cancel", "--reason", "moves house")
	next := m.Detach("exec", "--", "true")
	if j := m.Ended(runs, time.Minute); j.State != fleet.Cancelled {
		t.Errorf("at the deadline the running job is %s (%s); want cancelled", j.State, j.Reason.Detail)
	} else if !strings.Contains(j.Reason.Detail, "the deadline of the drain of r1 has passed: moves house") {
		t.Errorf("it is cancelled with the words %q", j.Reason.Detail)
	}
	if sleeps(m, "sleep 307") {
		t.Error("the command of the cancelled job is still there")
	}
	waitsFor(m, next, fleet.Cordoned, "moves house")
	m.Run("runner", "resume", "r1")
	if j := m.Ended(next, 30*time.Second); j.State != fleet.Succeeded {
		t.Errorf("after the drain the next job is %s", j.State)
	}
}

// Circuits and budgets are on record: a hub that is killed comes back with them.
func TestCircuitAndBudgetOutliveTheHub(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.StartHub()
	lowFloors(m)
	m.StartRunner()
	m.Online()
	m.Run("budget", "set", "automation:nightly", "--max-runs", "1", "--window", "24h")
	if j := m.Ended(m.Detach("exec", "--automation", "nightly", "--", "true"), 30*time.Second); j.State != fleet.Succeeded {
		t.Fatalf("the first run of the budget is %s (%s)", j.State, j.Reason.Detail)
	}
	spent := m.Detach("exec", "--automation", "nightly", "--", "true")
	waitsFor(m, spent, fleet.BudgetSpent, "automation:nightly")

	var k api.Circuit
	m.JSON(&k, "circuit", "open", "--runner", "r1", "--reason", "video call", "--json")
	kept := m.Detach("exec", "--", "true")
	waitsFor(m, kept, fleet.CircuitRefuses, "video call")
	m.Hub.Kill()
	m.StartHub()
	m.Online()
	waitsFor(m, spent, fleet.BudgetSpent, "automation:nightly")
	waitsFor(m, kept, fleet.CircuitRefuses, "video call")
	m.Run("circuit", "reset", k.Key, "--repaired", "the call is over")
	if j := m.Ended(kept, 30*time.Second); j.State != fleet.Succeeded {
		t.Errorf("after the reset the job is %s", j.State)
	}
	m.Run("budget", "remove", "automation:nightly")
	if j := m.Ended(spent, 30*time.Second); j.State != fleet.Succeeded {
		t.Errorf("without the budget the job is %s", j.State)
	}
	if out := m.Run("hub", "audit", "--json"); !strings.Contains(out, "the call is over") {
		t.Errorf("the audit does not name what was repaired:\n%s", out)
	}
}
