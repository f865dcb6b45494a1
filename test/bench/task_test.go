//go:build bench

package bench

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const workers = 256

// measureTask takes whole tasks through the log without a process: submit, assign,
// accept, finish with its verdict, seal. The same number of workers does the like on a
// JetStream that syncs every write, turn by turn.
func measureTask(t *testing.T, s *sheet, _ machine) {
	other := jetstream(t, 1, span)
	h := openHub(t)
	var runners []fleet.RunnerID
	for range workers / 8 {
		runners = append(runners, enrol(t, h))
	}
	one := func(w int) { task(t, h, runners[w/8]) }
	other() // warm
	rate(workers, span, one)
	var ours, theirs, ratio, cost []float64
	for range rounds {
		var r float64
		o := other()
		cost = append(cost, perCall(func() float64 { r = rate(workers, span, one); return r }))
		ours, theirs, ratio = append(ours, r), append(theirs, o), append(ratio, r/o)
	}
	s.note("JetStream R1, sync always: publish, pull, double ack", "/s", theirs...)
	s.note("whole task without a process, 256 workers", "/s", ours...)
	s.note("   CPU a task: five entries, each waited for", "µs", cost...)
	// Either of the two does; the ratio is what a busy machine leaves to compare.
	if median(ours) >= 8000 {
		s.least("whole task, against 8,000/s", "/s", 8000, "≥ 8,000/s, or ≥ 4 × JetStream", ours...)
	} else {
		s.least("whole task ÷ JetStream", "", 4, "≥ 4 × JetStream, or ≥ 8,000/s", ratio...)
	}
}

// task takes one job from its submit to the seal of its log.
func task(t *testing.T, h *hub.Hub, r fleet.RunnerID) {
	if err := tryTask(h, r); err != nil {
		t.Error(err)
	}
}

// tryTask is task where a leader may be lost.
func tryTask(h *hub.Hub, r fleet.RunnerID) error {
	id := fleet.JobID(newID())
	if _, err := commit(h, &state.SubmitJob{ID: id, Spec: spec()}); err != nil {
		return err
	}
	res, err := commit(h, &state.AssignJob{Job: id, Runner: r, Turn: 1, Slots: 8})
	if err != nil {
		return err
	}
	return report(h, id, res.Fence)
}

// report commits all that a runner has to say of a job that does nothing.
func report(h *hub.Hub, id fleet.JobID, f fleet.Fence) error {
	for _, c := range reports(id, f, time.Now().UTC()) {
		if _, err := commit(h, c); err != nil {
			return err
		}
	}
	return nil
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

// jetstream builds and starts the module of its own that measures JetStream, and gives
// a function that has it measure one round.
func jetstream(t *testing.T, replicas int, span time.Duration) func() float64 {
	t.Helper()
	ask := module(t, "jetstream", "-dir", t.TempDir(), "-workers", strconv.Itoa(workers), "-for", span.String(), "-replicas", strconv.Itoa(replicas))
	return func() float64 {
		v, err := strconv.ParseFloat(strings.TrimSpace(ask("go")), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
