//go:build bench

package bench

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
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
	var ours, ratio []float64
	for i := range rounds {
		r := rate(workers, span, one)
		ours, ratio = append(ours, r), append(ratio, r/other[i])
	}
	s.note("JetStream R1, sync always: publish, pull, double ack", "/s", other...)
	bound := min(8000, 4*median(other))
	s.least("whole task without a process, 256 workers", "/s", bound, "≥ 8,000/s or ≥ 4 × JetStream", ours...)
	s.note("   ÷ JetStream", "", ratio...)
}

func task(t *testing.T, h *hub.Hub, r fleet.RunnerID) {
	id := fleet.JobID(newID())
	propose(t, h, &state.SubmitJob{ID: id, Spec: spec()})
	f := propose(t, h, &state.AssignJob{Job: id, Runner: r, Turn: 1, Slots: 8}).Fence
	propose(t, h, &state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace})
	now := time.Now().UTC()
	propose(t, h, &state.FinishAttempt{
		Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, StartedAt: now, FinishedAt: now,
		Evidence: &fleet.Evidence{NoRepo: true}, Verdict: &fleet.Verdict{Decision: fleet.Accept, Reasons: []string{"exit code 0"}},
	})
	propose(t, h, &state.SealLog{Job: id, Fence: f})
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
	c := exec.Command(program, "-dir", t.TempDir(), "-workers", "256", "-rounds", "3", "-for", span.String())
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
