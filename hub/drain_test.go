package hub

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestWhatHasNotBegunGoesBack: an automation's assignment when its runner is held and when
// its disk fills up, and any at the deadline of a drain; all at no cost. Once that is
// over the runner is given work again.
func TestWhatHasNotBegunGoesBack(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), true)
	r := n.connect(n.ticketFor(1), 0)
	r.hear()
	room := fleet.Volume{Path: "/data", Known: true, Free: 40 << 30, Total: 100 << 30, Inodes: -1}
	tell := func(v fleet.Volume) {
		r.say(wire.Heartbeat{Slots: 2, Count: 1, Health: &fleet.Health{Workspace: v, Cache: v, Memory: &fleet.Memory{Total: 8 << 30, Available: 4 << 30}}})
		r.hear()
	}
	submit := func(id fleet.JobID, origin string) {
		n.must(&state.SubmitJob{ID: id, Spec: fleet.Spec{Kind: fleet.KindExec, Argv: []string{"true"}, Harness: "exec", Permissions: fleet.PermRead, OnLost: "hold", Origin: fleet.Origin{Kind: origin}}})
	}
	stands := func(id fleet.JobID, s fleet.State, attempts int) func() bool {
		return func() bool {
			j, ok := n.hub.entries.View().Job(id)
			return ok && j.State == s && len(j.Turn().Attempts) == attempts
		}
	}
	tell(room)
	submit("j-auto", fleet.Automation)
	n.eventually("it is given to the runner", stands("j-auto", fleet.Assigned, 1))
	n.must(&state.HoldRunner{ID: r.id, Hold: &fleet.Hold{}})
	n.eventually("it goes back from a runner that is held", stands("j-auto", fleet.Queued, 1))
	n.must(&state.HoldRunner{ID: r.id})
	submit("j-next", fleet.Automation)
	n.eventually("another one is given to the runner", stands("j-next", fleet.Assigned, 1))
	low := room
	low.Free = 2 << 30
	tell(low)
	n.eventually("it goes back from a full disk", stands("j-next", fleet.Queued, 1))

	submit("j-person", fleet.Manual)
	n.eventually("a person's is given to it", stands("j-person", fleet.Assigned, 1))
	deadline := n.hub.entries.now().Add(time.Second)
	n.must(&state.HoldRunner{ID: r.id, Hold: &fleet.Hold{Drain: true, Deadline: &deadline}})
	n.eventually("it goes back at the deadline", stands("j-person", fleet.Queued, 1))
	if at := n.stateTime(); at.Before(deadline) {
		t.Errorf("it went back at %s, before the deadline at %s", at, deadline)
	}
	until := n.hub.entries.now().Add(time.Second)
	n.must(&state.HoldRunner{ID: r.id, Hold: &fleet.Hold{Until: &until}})
	n.eventually("the hold ends by itself", func() bool { it, _ := n.hub.entries.View().Runner(r.id); return it.Hold == nil })
	submit("j-later", fleet.Manual)
	n.eventually("another one is given to the runner then", stands("j-later", fleet.Assigned, 1))
	j, _ := n.hub.entries.View().Job("j-person")
	if a := j.Turn().Attempts[0]; a.State != fleet.AttemptReturned {
		t.Errorf("its first attempt is %s; want it returned, at no cost", a.State)
	}
}
