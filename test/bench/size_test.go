//go:build bench

package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// measureSize fills the queue to its bound and says what that takes.
func measureSize(t *testing.T, s *sheet, _ machine) {
	before := heap()
	m := state.New()
	entries := 0
	for n := range state.MaxQueue {
		c := &state.SubmitJob{ID: fleet.JobID(newID()), Spec: spec()}
		c.Spec.Repo = &fleet.Repo{URL: "https://git.example.com/team/project.git", Ref: "main"}
		e, err := state.Encode(state.Head{At: time.Now(), Actor: fmt.Sprintf("token-%d", n/state.MaxQueuePerUser)}, c)
		if err != nil {
			t.Fatal(err)
		}
		entries += len(e)
		if res, _, err := m.Apply(uint64(n+1), e); err != nil || res.Code != "" {
			t.Fatalf("submit %d: %v %v", n, res, err)
		}
	}
	used := heap() - before
	var n counter
	begin := time.Now()
	if err := m.Snapshot()(&n); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	runtime.KeepAlive(m)
	s.note("100,000 queued jobs: memory", "MiB", used/(1<<20))
	s.note("100,000 queued jobs: snapshot", "MiB", float64(n)/(1<<20))
	s.note("100,000 queued jobs: time to write the snapshot", "s", took.Seconds())
	s.note("bytes of a submit in the log", "B", float64(entries)/state.MaxQueue)
	s.note("bytes of a whole small job in the log, five entries", "B", logBytes(t))
}

// logBytes adds up the entries of a small job from submit to seal.
func logBytes(t *testing.T) (sum float64) {
	id, f, now := fleet.JobID(newID()), fleet.Fence{Epoch: 1, Index: 1e6}, time.Now().UTC()
	for _, c := range append([]state.Command{
		&state.SubmitJob{ID: id, Spec: spec()},
		&state.AssignJob{Job: id, Runner: fleet.RunnerID("r-" + newID()), Turn: 1, Slots: 8},
	}, reports(id, f, now)...) {
		b, err := state.Encode(state.Head{At: now, Actor: "hub"}, c)
		if err != nil {
			t.Fatal(err)
		}
		sum += float64(len(b))
	}
	return sum
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

type counter int64

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }
