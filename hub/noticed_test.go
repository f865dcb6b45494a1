package hub

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// earlier makes a term of a node that has led for so long.
func (n *node) earlier(d time.Duration) *term {
	l := newTerm(n.hub)
	l.since, l.began = l.since.Add(-d), l.began.Add(-d)
	return l
}

// alerted gives the kinds of alert on record about a runner, newest first.
func (n *node) alerted(r fleet.RunnerID) (out []string) {
	for _, a := range n.hub.entries.View().Alerts(fleet.MaxAlerts) {
		if a.Runner == r {
			out = append(out, a.Kind)
		}
	}
	return out
}

// TestWhoIsMissedIsToldOf: a machine that was there, and does not come back to a hub that
// was started anew, is told as offline once; that it comes back is told too. Work that only
// it could take is told of for itself, and once.
func TestWhoIsMissedIsToldOf(t *testing.T) {
	dir, clock := t.TempDir(), &turned{}
	run := func(first bool) *node {
		return startWith(t, Config{Dir: dir, Bootstrap: first, uptime: clock.up}, clock.now)
	}
	n := run(true)
	r := n.connect(n.ticketFor(1), 0)
	r.hear()
	n.stop()
	n = run(false)
	n.submit()
	clock.sleep(fleet.IdleAlertAfter + time.Minute)
	n.eventually("the hub's time follows the clock", func() bool { return n.hub.entries.timely() == nil })

	early, late := n.earlier(time.Minute), n.earlier(fleet.IdleAlertAfter+time.Minute)
	early.missing(t.Context())
	early.unserved(t.Context())
	if got := n.alerted(r.id); len(got) != 0 {
		t.Errorf("after a minute of a new leader people are told %v", got)
	}
	for range 2 {
		late.missing(t.Context())
		late.unserved(t.Context())
	}
	if got := n.alerted(r.id); len(got) != 2 || got[0] != state.AlertUnserved || got[1] != state.AlertOffline {
		t.Errorf("people are told %v, want that it is offline, and that there is work for it", got)
	}
	r.dial(n)
	r.hear()
	late.missing(t.Context())
	if got := n.alerted(r.id); len(got) != 3 || got[0] != state.AlertRecovered {
		t.Errorf("when it is back people are told %v", got)
	}
	late.unserved(t.Context())
	if got := n.alerted(r.id); len(got) != 3 {
		t.Errorf("of work that it has taken people are told %v", got)
	}
}

// TestATrialWithoutLifeIsGivenUp: the one job that tries a circuit, and that its runner does
// not show for the length of a lease, lets another one try.
func TestATrialWithoutLifeIsGivenUp(t *testing.T) {
	clock := &turned{}
	n := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true, uptime: clock.up}, clock.now)
	r := n.connect(n.ticketFor(1), 0)
	r.hear()
	well := func() {
		room := fleet.Volume{Path: "/data", Known: true, Free: 90 << 30, Total: 100 << 30, Inodes: -1}
		docker := fleet.Docker{State: fleet.DockerReady, Version: "27", Compose: "2.30.0", Verified: true}
		r.say(wire.Heartbeat{Slots: 2, Count: 1, Health: &fleet.Health{Workspace: room, Cache: room, Docker: docker}})
		r.hear()
	}
	given := func(id fleet.JobID) *fleet.Attempt {
		t.Helper()
		well()
		n.must(&state.SubmitJob{ID: id, Spec: fleet.Spec{Kind: fleet.KindExec, Argv: []string{"true"}, Harness: "exec", Permissions: fleet.PermRead, OnLost: "hold", Needs: &fleet.Needs{Docker: true}}})
		var a *fleet.Attempt
		n.eventually("job "+string(id)+" is given to the runner", func() bool {
			j, _ := n.hub.entries.View().Job(id)
			if j.State == fleet.Assigned {
				a = j.Turn().Attempts[0]
			}
			return a != nil
		})
		n.must(&state.AcceptAttempt{Job: id, Fence: a.Fence, Rules: 1})
		return a
	}
	one := given("j-1")
	n.must(&state.FinishAttempt{Job: "j-1", Fence: one.Fence, Class: fleet.ClassDocker, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Verdict: &fleet.Verdict{Decision: fleet.Reject}, Rules: 1})
	circuit := func() *fleet.Circuit {
		t.Helper()
		cs := n.hub.entries.View().Circuits()
		if len(cs) != 1 || cs[0].Class != fleet.CircuitDocker {
			t.Fatalf("circuits %+v; want one of Docker", cs)
		}
		return cs[0]
	}
	circuit()
	clock.sleep(fleet.HostFaultPause + time.Minute)
	two := given("j-2")
	if p := circuit().Probe; p == nil || p.Job != "j-2" || p.Fence != two.Fence {
		t.Fatalf("it is tried by %+v, want the second job", p)
	}
	l := newTerm(n.hub)
	l.trials[two.Fence] = time.Now().Add(time.Minute - fleet.ProbeLease)
	if l.tick(t.Context()); circuit().Probe == nil {
		t.Error("the lease was taken back before its time")
	}
	l.trials[two.Fence] = time.Now().Add(-time.Second - fleet.ProbeLease)
	if l.tick(t.Context()); circuit().Probe != nil {
		t.Errorf("after the length of a lease it is still tried by %+v", circuit().Probe)
	}
}
