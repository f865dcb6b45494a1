package state

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func (g *rig) followUp(id fleet.JobID, prompt string) {
	g.t.Helper()
	g.do(&FollowUp{Job: id, Prompt: digest(prompt)})
}

// TestFollowUpsInOrder: each waits for the turn before it, and goes to the runner
// that holds the session.
func TestFollowUpsInOrder(t *testing.T) {
	for _, end := range []fleet.Decision{fleet.Accept, fleet.Reject, fleet.Ask} {
		for _, late := range []bool{false, true} {
			g := newRig(t)
			g.enrol("r1")
			g.submit("a")
			f := g.run("a", "r1")
			g.followUp("a", "two")
			g.followUp("a", "three")
			if late {
				g.do(g.finish("a", f))
				g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: end}, Evidence: g.attempt("a", f).Evidence})
			} else {
				g.do(g.judged("a", f, end))
			}
			j := g.is("a", fleet.Queued)
			tu := j.Turn()
			if tu.N != 2 || tu.Prompt != digest("two") || tu.On != "r1" || len(j.FollowUps) != 1 || j.Paused != "" {
				t.Fatalf("after %s the newest turn is %+v", end, tu)
			}
			if old := j.Turns[0]; old.State != (fleet.Verdict{Decision: end}).State() || old.EndedAt == nil {
				t.Errorf("the first turn is %+v", old)
			}
			g.do(g.judged("a", g.run("a", "r1"), fleet.Accept))
			g.do(g.judged("a", g.run("a", "r1"), fleet.Accept))
			if j := g.is("a", fleet.Succeeded); len(j.Turns) != 3 || len(j.FollowUps) != 0 {
				t.Errorf("job is %+v", j)
			}
			g.followUp("a", "four")
			g.is("a", fleet.Queued)
		}
	}
}

// TestFollowUpsPause: after a cancel, a loss and a block they wait and say why.
func TestFollowUpsPause(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"cancel": func(g *rig) { g.assign(gridJob, "r1"); g.do(&CancelJob{Job: gridJob}) },
		"cancel of a running turn": func(g *rig) {
			f := g.run(gridJob, "r1")
			g.do(&CancelJob{Job: gridJob})
			c := g.judged(gridJob, f, fleet.Reject)
			c.Exit.Reason = "stopped"
			g.do(c)
		},
		"loss":  func(g *rig) { lose(g, g.run(gridJob, "r1")) },
		"block": func(g *rig) { g.do(&BlockJob{Job: gridJob, Turn: 1, Code: "queue_timeout"}) },
		"decline that blocks": func(g *rig) {
			g.do(&DeclineAttempt{Job: gridJob, Fence: g.assign(gridJob, "r1"), Block: true})
		},
	} {
		g := newRig(t)
		g.enrol("r1")
		g.submit(gridJob)
		g.followUp(gridJob, "two")
		end(g)
		j := g.job(gridJob)
		if !j.State.Ended() || j.Paused == "" || len(j.FollowUps) != 1 || len(j.Turns) != 1 {
			t.Errorf("%s: job is %s with %d turns, paused %q", name, j.State, len(j.Turns), j.Paused)
		}
		g.do(&RetryJob{Job: gridJob})
		if j := g.is(gridJob, fleet.Queued); j.Paused != "" {
			t.Errorf("%s: a retried job says %q", name, j.Paused)
		}
		g.do(g.judged(gridJob, g.run(gridJob, "r1"), fleet.Accept))
		if j := g.is(gridJob, fleet.Queued); len(j.Turns) != 2 {
			t.Errorf("%s: the follow-up did not run after the retry", name)
		}
	}
}

// TestFollowUpAfterCancel goes on, since whoever asks can see the end.
func TestFollowUpAfterCancel(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	g.do(&CancelJob{Job: "a"})
	g.followUp("a", "two")
	if j := g.is("a", fleet.Queued); j.CancelRequestedAt != nil || j.Turn().On != "" {
		t.Errorf("job is %+v", j)
	}
	g.run("a", "r1")
}

// TestFollowUpMoves only with a fresh session, and blocks where its runner is no more.
func TestFollowUpMoves(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	g.submit("a")
	f := g.run("a", "r1")
	g.refused(fleet.BadRequest, &FollowUp{Job: "a", On: "r2"})
	g.refused(fleet.NotFound, &FollowUp{Job: "a", On: "r9", Fresh: true})
	g.do(&FollowUp{Job: "a", On: "r2", Fresh: true, Model: "m2"})
	g.do(g.judged("a", f, fleet.Accept))
	if tu := g.is("a", fleet.Queued).Turn(); tu.On != "r2" || !tu.Fresh || tu.Model != "m2" {
		t.Errorf("turn is %+v", tu)
	}
	f = g.run("a", "r2")
	g.followUp("a", "three")
	g.followUp("a", "four")
	g.do(g.finish("a", f))
	g.do(&RemoveRunner{ID: "r2"})
	g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Accept}})
	j := g.is("a", fleet.Blocked)
	if j.Reason.Code != string(fleet.SessionGone) || j.Paused == "" || len(j.FollowUps) != 1 {
		t.Errorf("job is %+v", j)
	}
	g.do(&FollowUp{Job: "a", Fresh: true}) // in order: the one that waits is next, and cannot run either
	if j := g.is("a", fleet.Blocked); len(j.Turns) != 4 {
		t.Errorf("job has %d turns", len(j.Turns))
	}
	g.do(&FollowUp{Job: "a", Fresh: true})
	if tu := g.is("a", fleet.Queued).Turn(); tu.On != "" {
		t.Errorf("a fresh turn is bound to %q", tu.On)
	}
}

// TestFollowUpBounds: so many, and only of an agent's job.
func TestFollowUpBounds(t *testing.T) {
	g := newRig(t)
	g.submit("a")
	for range fleet.MaxFollowUps {
		g.followUp("a", "more")
	}
	g.refused(fleet.QueueFull, &FollowUp{Job: "a"})
	g.submit("x", func(s *fleet.Spec) { s.Kind = fleet.KindExec })
	g.refused(fleet.BadRequest, &FollowUp{Job: "x"})
}

// TestSettle: a person's word is final, and late evidence finds it settled.
func TestSettle(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	for _, accept := range []bool{true, false} {
		id := fleet.JobID("a")
		if accept {
			id = "b"
		}
		g.submit(id)
		f := g.run(id, "r1")
		g.do(g.finish(id, f))
		ev := g.attempt(id, f).Evidence
		g.do(&DecideJob{Job: id, Fence: f, Verdict: fleet.Verdict{Decision: fleet.Unknown, Reasons: []string{"the bundle is missing"}}, Evidence: ev})
		g.is(id, fleet.NeedsReview)
		g.do(&SettleJob{Job: id, Accept: accept})
		state := map[bool]fleet.State{true: fleet.Succeeded, false: fleet.Failed}[accept]
		if v := g.is(id, state).Turn().Verdict; v.By != "t-person" || len(v.Reasons) != 2 {
			t.Errorf("verdict is %+v", v)
		}
		g.refused(fleet.NotCurrent, &DecideJob{Job: id, Fence: f, Verdict: fleet.Verdict{Decision: fleet.Accept}, Evidence: ev})
		g.refused(fleet.Conflict, &SettleJob{Job: id, Accept: true})
		g.is(id, state)
	}
}

// TestRetryOfASuccess: what is said to a person who wants it once more fits the job.
func TestRetryOfASuccess(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	for kind, want := range map[fleet.Kind]string{fleet.KindExec: "new job", fleet.KindAgent: "follow-up"} {
		id := g.submit(fleet.JobID("job-"+string(kind)), func(s *fleet.Spec) { s.Kind = kind })
		g.do(g.judged(id, g.run(id, "r1"), fleet.Accept))
		if r := g.refused(fleet.Conflict, &RetryJob{Job: id}); !strings.Contains(r.Detail, want) {
			t.Errorf("%s: %q; want a word of a %s", kind, r.Detail, want)
		}
	}
}
