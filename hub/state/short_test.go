package state

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// TestShortWays: what is kept beside the database says the same as a view of it.
func TestShortWays(t *testing.T) {
	g := newRig(t)
	same := func(when string, m *Machine) {
		t.Helper()
		if d := cmp.Diff(m.View().Nodes(), m.Nodes()); d != "" {
			t.Errorf("%s the nodes differ (-view +kept):\n%s", when, d)
		}
		var want, got []fleet.Fence
		m.View().Open(func(o Open) bool {
			if !o.Attempt.HoldsSlot() {
				want = append(want, o.Attempt.Fence)
			}
			return true
		})
		m.View().OpenAtRest(func(o Open) bool { got = append(got, o.Attempt.Fence); return true })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s the attempts at rest differ (-view +kept):\n%s", when, d)
		}
	}
	same("at first", g.m)
	g.do(&UpdateNode{Node: hubNode("n-1")})
	same("with a node", g.m)
	if len(g.m.Nodes()) != 1 {
		t.Fatal("no node is kept")
	}
	g.enrol("r1")
	for _, id := range []fleet.JobID{jobID(1), jobID(2)} {
		g.submit(id)
		f := g.run(id, "r1")
		same("with a running attempt", g.m)
		if id == jobID(2) {
			g.do(g.finish(id, f))
		}
	}
	same("with a finished attempt", g.m)
	var b bytes.Buffer
	if err := g.m.Snapshot()(&b); err != nil {
		t.Fatal(err)
	}
	m := New()
	if err := m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	same("restored", m)
	if len(m.Nodes()) != 1 {
		t.Error("a restored machine keeps no node")
	}
}
