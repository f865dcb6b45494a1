package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/shared/fleet"
)

// queue is a state with nothing in it but what a test puts there.
type queue struct {
	t *testing.T
	*state.Machine
	index uint64
	at    time.Time
}

func (q *queue) do(cmd state.Command) {
	q.t.Helper()
	q.index++
	b, err := state.Encode(state.Head{At: q.at, Actor: "hub"}, cmd)
	if err != nil {
		q.t.Fatal(err)
	}
	q.Begin()
	res, _, err := q.Apply(q.index, b)
	q.Commit()
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		q.t.Fatalf("%T: %v", cmd, err)
	}
}

func (q *queue) submit(id, on string) {
	q.t.Helper()
	q.do(&state.SubmitJob{ID: fleet.JobID(id), Spec: fleet.Spec{Kind: fleet.KindExec, Argv: []string{"true"}, Harness: "exec", On: on, Permissions: fleet.PermRead, OnLost: "hold"}})
}

func TestUnserved(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := &queue{t: t, Machine: state.New(), at: start}
	q.do(&state.InitCluster{Cluster: "c", Epoch: 1})
	gone := map[fleet.RunnerID]time.Duration{} // since when, after the start
	for _, name := range []string{"a", "b", "c"} {
		q.do(&state.CreateTicket{Hash: web.HashSecret(name), TTL: time.Hour, Uses: 1})
		q.do(&state.Enrol{ID: fleet.RunnerID("r-" + name), Ticket: web.HashSecret(name), Name: name, SignKey: []byte("s" + name), BoxKey: []byte("b")})
	}
	s := servers{since: start, silent: func(id fleet.RunnerID) (time.Time, bool) { d, ok := gone[id]; return start.Add(d), ok }}
	// A job names the runners that could take it.
	capable := func(j *fleet.Job, r *fleet.Runner) bool { return strings.Contains(j.Spec.On, r.Name) }
	look := func(d time.Duration) (out []string) {
		s.now, s.all = start.Add(d), q.View().Runners()
		for _, a := range unserved(q.View(), s, capable, s.now) {
			out = append(out, a.ID)
			if a.Kind != state.AlertUnserved || a.Text == "" || a.Runner != "" && "r-"+a.Name != string(a.Runner) {
				t.Errorf("after %s: %+v", d, a)
			}
		}
		return out
	}
	step := func(d time.Duration, want ...string) {
		t.Helper()
		if got := fmt.Sprint(look(d)); got != fmt.Sprint(want) {
			t.Errorf("after %s: %s; want %s", d, got, want)
		}
	}
	q.submit("j1", "ab")
	gone["r-a"], gone["r-b"], gone["r-c"] = 0, time.Minute, 0
	step(10 * time.Minute) // b went only nine minutes ago
	step(11*time.Minute, "unserved-r-a-j1-1", "unserved-r-b-j1-1")
	step(time.Hour, "unserved-r-a-j1-1", "unserved-r-b-j1-1")
	delete(gone, "r-b")
	step(time.Hour)
	q.at = start.Add(time.Hour)
	q.submit("j2", "c")
	q.submit("j3", "c") // asks for the same
	q.submit("j4", "x") // nobody could take it
	step(time.Hour + 9*time.Minute)
	step(time.Hour+10*time.Minute, "unserved-r-c-j2-1", "unserved--j4-1")
	s.since = start.Add(time.Hour + 5*time.Minute) // another node leads
	step(time.Hour + 10*time.Minute)
	step(time.Hour+15*time.Minute, "unserved-r-c-j2-1", "unserved--j4-1")
}
