//go:build bench

package bench

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const workers = 256

// measureTask takes whole tasks through the log without a process: submit, assign,
// accept, finish with its verdict. The same number of workers does the like on a
// JetStream that syncs every write.
func measureTask(t *testing.T, s *sheet, _ machine) {
	other := jetstream(t)
	h := openHub(t)
	var runners []fleet.RunnerID
	for range workers / 8 {
		runners = append(runners, enrol(t, h))
	}
	one := func(w int) { task(t, h, runners[w/8]) }
	rate(workers, span/2, one) // warm
	var ours, ratio, cost []float64
	for i := range rounds {
		var r float64
		cost = append(cost, perCall(func() float64 { r = rate(workers, span, one); return r }))
		ours, ratio = append(ours, r), append(ratio, r/other[i])
	}
	s.note("JetStream R1, sync always: publish, pull, double ack", "/s", other...)
	bound := min(8000, 4*median(other))
	s.least("whole task without a process, 256 workers", "/s", bound, "≥ 8,000/s or ≥ 4 × JetStream", ours...)
	s.note("   ÷ JetStream", "", ratio...)
	s.note("   CPU a task: five entries, each waited for", "µs", cost...)
}

// task takes one job from its submit to the seal of its log.
func task(t *testing.T, h *hub.Hub, r fleet.RunnerID) {
	id := fleet.JobID(newID())
	propose(t, h, &state.SubmitJob{ID: id, Spec: spec()})
	f := propose(t, h, &state.AssignJob{Job: id, Runner: r, Turn: 1, Slots: 8}).Fence
	for _, c := range reports(id, f, time.Now().UTC()) {
		propose(t, h, c)
	}
}

// reports is what a runner has to say of a job that does nothing.
func reports(id fleet.JobID, f fleet.Fence, now time.Time) []state.Command {
	return []state.Command{
		&state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace},
		&state.FinishAttempt{
			Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, StartedAt: now, FinishedAt: now,
			Evidence: &fleet.Evidence{NoRepo: true}, Verdict: &fleet.Verdict{Decision: fleet.Accept, Reasons: []string{"exit code 0"}},
		},
		&state.SealLog{Job: id, Fence: f},
	}
}

// jetstream builds and runs the module of its own that measures JetStream.
func jetstream(t *testing.T) []float64 {
	t.Helper()
	program := filepath.Join(t.TempDir(), "jetstream")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "jetstream"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build jetstream: %v\n%s", err, out)
	}
	c := exec.Command(program, "-dir", t.TempDir(), "-workers", "256", "-rounds", strconv.Itoa(rounds), "-for", span.String())
	out, err := c.Output()
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	var figures struct {
		Rates []float64 `json:"tasks_per_second"`
	}
	if err := json.Unmarshal(out, &figures); err != nil {
		t.Fatal(err)
	}
	return figures.Rates
}
