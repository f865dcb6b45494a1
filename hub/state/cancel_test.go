package state

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func want(t *testing.T, g *rig, id fleet.JobID, f fleet.Fence) string {
	t.Helper()
	j := g.job(id)
	tu, a := j.Find(f)
	intent, reason := Want(j, tu, a)
	return strings.TrimSpace(intent + " " + reason)
}

// TestCancelBeforeAccept ends a job at once, and a later accept finds no permit.
func TestCancelBeforeAccept(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	g.do(&CancelJob{Job: "a"})
	if j := g.is("a", fleet.Cancelled); j.CancelActor != "t-person" || j.Turn().EndedAt == nil {
		t.Errorf("cancelled job is %+v", j)
	}
	g.repeated(&CancelJob{Job: "a"})
	g.submit("b")
	f := g.assign("b", "r1")
	g.do(preparing("b", f))
	g.do(&CancelJob{Job: "b"})
	g.is("b", fleet.Cancelled)
	if n := g.m.View().Held("r1"); n != 0 {
		t.Errorf("%d slots are held, want 0", n)
	}
	if w := want(t, g, "b", f); w != "stop cancelled" {
		t.Errorf("the hub wants %q, want a stop", w)
	}
	g.refused(fleet.CancelRequested, &AcceptAttempt{Job: "b", Fence: f})
	g.do(&AttemptGone{Job: "b", Fence: f})
	if w := want(t, g, "b", f); w != "forget" {
		t.Errorf("the hub wants %q, want forget", w)
	}
}

// TestCancelAccepted asks first; the runner's answer ends it.
func TestCancelAccepted(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	g.do(&CancelJob{Job: "a"})
	j := g.is("a", fleet.Running)
	if j.CancelRequestedAt == nil || j.Reason.Code != "cancelling" || want(t, g, "a", f) != "stop cancelled" {
		t.Errorf("cancelling job is %+v", j)
	}
	c := g.finish("a", f)
	c.Exit.Reason, c.Verdict = "stopped", &fleet.Verdict{Decision: fleet.Reject}
	g.do(c)
	g.is("a", fleet.Cancelled)
}

// TestFinishBeatsCancel: what was finished first stands, in both orders.
func TestFinishBeatsCancel(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	g.do(g.finish("a", f))
	if r := g.refused(fleet.Conflict, &CancelJob{Job: "a"}); !strings.Contains(r.Detail, "already finished") {
		t.Errorf("the refusal says %q", r.Detail)
	}
	if g.job("a").CancelRequestedAt != nil {
		t.Error("a refused cancel was recorded")
	}
	g.submit("b")
	f = g.run("b", "r1")
	g.do(&CancelJob{Job: "b"})
	g.do(&FollowUp{Job: "b", Prompt: digest("more")})
	g.do(g.judged("b", f, fleet.Accept)) // it had come to its end by itself
	if j := g.is("b", fleet.Succeeded); j.Paused == "" || len(j.FollowUps) != 1 {
		t.Errorf("a cancel must hold back the follow-ups: %+v", j)
	}
	g.refused(fleet.CancelRequested, &GrantPush{Job: "b", Fence: f, Ref: "refs/heads/x", SHA: "tip"})
}

// TestCancelOfRerun: a job that waits for a rerun is cancelled at once, and its lost
// attempt is stopped, not revived, when it comes back.
func TestCancelOfRerun(t *testing.T) {
	for _, assigned := range []bool{false, true} {
		g := newRig(t)
		g.enrol("r1")
		g.enrol("r2")
		g.submit(gridJob, rerun)
		f := g.run(gridJob, "r1")
		lose(g, f)
		if assigned {
			g.assign(gridJob, "r2")
		}
		g.do(&CancelJob{Job: gridJob})
		g.is(gridJob, fleet.Cancelled)
		if w := want(t, g, gridJob, f); w != "stop cancelled" {
			t.Errorf("the hub wants %q of the lost attempt", w)
		}
		if n := g.m.View().Held("r1"); n != 1 {
			t.Errorf("the lost attempt holds %d slots, want 1", n)
		}
		g.repeated(&ReviveAttempt{Job: gridJob, Fence: f})
		g.do(g.judged(gridJob, f, fleet.Accept))
		g.is(gridJob, fleet.Cancelled)
		if a := g.attempt(gridJob, f); a.State != fleet.AttemptFinished || a.Evidence == nil {
			t.Errorf("the late result was not kept: %+v", a)
		}
		if n := g.m.View().Held("r1") + g.m.View().Held("r2"); n != 0 {
			t.Errorf("%d slots are held, want 0", n)
		}
	}
}

// TestCancelLost: a cancel survives the loss, is never rerun, and ends when the
// processes are known to be gone.
func TestCancelLost(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit(gridJob, rerun)
	f := g.run(gridJob, "r1")
	g.do(&CancelJob{Job: gridJob})
	lose(g, f)
	if j := g.is(gridJob, fleet.Lost); j.Reason.Code != "cancel_requested" {
		t.Errorf("reason is %+v", j.Reason)
	}
	g.do(&ReviveAttempt{Job: gridJob, Fence: f})
	if g.is(gridJob, fleet.Running); want(t, g, gridJob, f) != "stop cancelled" {
		t.Errorf("a runner that returns is told %q", want(t, g, gridJob, f))
	}
	lose(g, f)
	g.do(&AttemptGone{Job: gridJob, Fence: f})
	g.is(gridJob, fleet.Cancelled)
}

// TestAbandon frees the slot without proof, also where the job has moved on.
func TestAbandon(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit(gridJob)
	f := g.run(gridJob, "r1")
	g.do(&CancelJob{Job: gridJob, Abandon: true})
	if j := g.is(gridJob, fleet.Cancelled); !strings.Contains(j.Reason.Detail, "processes unconfirmed") {
		t.Errorf("reason is %+v", j.Reason)
	}
	if n := g.m.View().Held("r1"); n != 0 {
		t.Errorf("%d slots are held, want 0", n)
	}
	if w := want(t, g, gridJob, f); w != "stop cancelled" {
		t.Errorf("the hub wants %q of an abandoned attempt", w)
	}
	g.do(g.judged(gridJob, f, fleet.Accept))
	g.is(gridJob, fleet.Cancelled)

	g.submit("b", rerun)
	lost := g.run("b", "r1")
	g.do(&LoseAttempt{Job: "b", Fence: lost})
	g.do(g.judged("b", g.run("b", "r2"), fleet.Accept))
	if n := g.m.View().Held("r1"); n != 1 {
		t.Fatalf("the superseded attempt holds %d slots, want 1", n)
	}
	g.refused(fleet.Conflict, &CancelJob{Job: "b"})
	g.do(&CancelJob{Job: "b", Abandon: true})
	g.is("b", fleet.Succeeded)
	if n := g.m.View().Held("r1"); n != 0 || g.job("b").CancelRequestedAt != nil {
		t.Errorf("%d slots are held, want 0", n)
	}
	g.refused(fleet.Conflict, &CancelJob{Job: "b", Abandon: true})
	g.refused(fleet.NotFound, &CancelJob{Job: "nobody"})
}
