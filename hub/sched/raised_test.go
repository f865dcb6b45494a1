package sched

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestRaisedEpoch: what waited when the epoch was raised may have been begun by a runner
// whose record of it is lost. It is given to nobody until the runners had time to say
// so, and then not while one of them runs it.
func TestRaisedEpoch(t *testing.T) {
	g := newRig(t)
	g.do(&state.InitCluster{Cluster: "c", Epoch: 1})
	g.runner("r1", 4)
	g.runner("r2", 4)
	g.job("given")
	expect(t, g.pick(), "given>r1")
	g.place(g.pick())
	g.job("waits")
	g.do(&state.RaiseEpoch{To: 2, Cause: "recover"})
	g.job("new")

	explained := func(id fleet.JobID, want string) {
		t.Helper()
		if e := g.look(0, nil).Explain(g.get(id)); !strings.Contains(e.Summary, want) {
			t.Errorf("job %s is explained by %q; want %q in it", id, e.Summary, want)
		}
	}
	g.now = start.Add(29 * time.Second)
	p := g.pick()
	expect(t, p, "new>r1")
	if want := start.Add(fleet.AcceptDeadline); !p.Next.Equal(want) {
		t.Errorf("looks again at %s, want %s", p.Next, want)
	}
	explained("given", "epoch was raised to 2 (recover)")
	explained("new", "can take it")

	stray := g.seen["r1"]
	stray.Strays = "other waits"
	g.seen["r1"] = stray
	explained("waits", "box-r1 already runs it")
	g.now = start.Add(31 * time.Second)
	expect(t, g.pick(), "given>r1 new>r2") // r1 offered four slots and none is taken any more

	stray.Connected, stray.LastBeat = false, g.now // it went away with it
	g.seen["r1"] = stray
	g.now = g.now.Add(fleet.LostAfter)
	expect(t, g.pick(), "given>r2 new>r2")
	g.now = g.now.Add(time.Second)
	expect(t, g.pick(), "given>r2 waits>r2 new>r2")
	// Another node leads, and has not heard all runners yet.
	expect(t, g.led(g.now.Add(-29*time.Second)).Pick(), "new>r2")
	expect(t, g.led(g.now.Add(-30*time.Second)).Pick(), "given>r2 waits>r2 new>r2")
	stray.Connected, stray.Strays = true, ""
	g.seen["r1"] = stray
	expect(t, g.pick(), "given>r1 waits>r2 new>r1")
}
