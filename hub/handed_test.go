package hub

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestWhatIsKnownOutlivesLeaders: a cluster whose leader changes twice, once by its word and
// once by its end. No circuit, hold, limit or budget is lost; people are told of a full disk
// once, that it is over once, and of the next one not before half an hour has passed.
func TestWhatIsKnownOutlivesLeaders(t *testing.T) {
	t.Parallel()
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 2})
	b, c := a.join(t.TempDir(), k), a.join(t.TempDir(), k)
	nodes := []*node{a, b, c}
	a.eventually("all vote", func() bool { return a.roles() == "voter voter voter" })

	r := a.connect(a.ticketFor(1), 0)
	r.hear()
	three, hour := 3, a.hub.entries.now().Add(time.Hour)
	for _, cmd := range []state.Command{
		&state.SetSlots{ID: r.id, Automation: &three},
		&state.HoldRunner{ID: r.id, Hold: &fleet.Hold{Until: &hour, Reason: "new disk"}},
		&state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: r.id, Provider: "openai", For: time.Hour, Reason: "by hand"},
		&state.OpenCircuit{Scope: fleet.ScopeHost, Runner: r.id, Reason: "by hand too"},
		&state.SetBudget{Budget: fleet.Budget{Origin: fleet.Automation, Runs: 7, Window: time.Hour}},
	} {
		a.must(cmd)
	}
	room := fleet.Volume{Path: "/data", Known: true, Free: 40 << 30, Total: 100 << 30, Inodes: -1}
	low := room
	low.Free = 2 << 30
	tell := func(v fleet.Volume) {
		t.Helper()
		r.say(wire.Heartbeat{Slots: 2, Count: 1, Health: &fleet.Health{Workspace: v, Cache: v, UserIdle: -1}})
		r.hear()
	}
	told := func(n *node) (kinds []string) {
		for _, x := range n.hub.entries.View().Alerts(99) {
			kinds = append(kinds, x.Kind)
		}
		slices.Reverse(kinds)
		return kinds
	}
	changes := func(n *node, want int) func() bool {
		return func() bool {
			it, _ := n.hub.entries.View().Runner(r.id)
			return it.Health != nil && len(it.Health.Changes) == want
		}
	}
	tell(low)
	a.eventually("people are told of the disk", func() bool { return slices.Equal(told(a), []string{state.AlertDisk}) })
	was := a.hub.entries.View().Circuits()

	if code := a.call(http.MethodPost, "/v1/members/transfer", "", api.Transfer{To: b.hub.id.Node}, nil); code != http.StatusOK {
		t.Fatalf("transfer: %d", code)
	}
	leads := func(n *node) func() bool {
		return func() bool { return n.members().Leader == n.hub.id.Node && n.hub.vitals.Load() != nil }
	}
	b.eventually("the second node leads", leads(b))
	r.dial(b)
	r.hear()
	tell(low)
	tell(low)
	tell(room)
	b.eventually("that it is over is recorded", changes(b, 2))
	if got := told(b); !slices.Equal(got, []string{state.AlertDisk, state.AlertRecovered}) {
		t.Errorf("with the second leader people were told %v", got)
	}

	b.stop()
	var last *node
	a.eventually("another node leads", func() bool {
		for _, n := range nodes {
			if n != b && leads(n)() {
				last = n
			}
		}
		return last != nil
	})
	r.dial(last)
	r.hear()
	tell(low)
	last.eventually("that it is low again is recorded", changes(last, 3))
	v := last.hub.entries.View()
	if got := told(last); !slices.Equal(got, []string{state.AlertDisk, state.AlertRecovered}) {
		t.Errorf("with the third leader people were told %v", got)
	}
	it, _ := v.Runner(r.id)
	if h := it.Hold; it.AutomationSlots() != 3 || h == nil || h.Reason != "new disk" || !h.Until.Equal(hour) {
		t.Errorf("of the runner is known %d slots for automation, hold %+v", it.AutomationSlots(), h)
	}
	if cs := v.Circuits(); len(cs) != 2 || len(was) != 2 || cs[0].State != was[0].State || cs[1].State != was[1].State || cs[0].Since != was[0].Since || cs[1].Since != was[1].Since {
		t.Errorf("circuits %+v became %+v", was, cs)
	}
	if bs := v.Budgets(); len(bs) != 1 || bs[0].Runs != 7 {
		t.Errorf("budgets %+v", bs)
	}
}
