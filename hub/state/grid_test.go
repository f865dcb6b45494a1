package state

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const gridJob = fleet.JobID("job")

// situations bring a job, on runners r1 and r2, into every state, and into the same
// states by the ways that leave something behind.
var situations = append([]situation{
	{"queued", fleet.Queued, func(g *rig) { g.submit(gridJob) }},
	{"assigned", fleet.Assigned, func(g *rig) { g.submit(gridJob); g.assign(gridJob, "r1") }},
	{"preparing", fleet.Preparing, func(g *rig) {
		g.submit(gridJob)
		g.do(preparing(gridJob, g.assign(gridJob, "r1")))
	}},
	{"running", fleet.Running, func(g *rig) { g.submit(gridJob); g.run(gridJob, "r1") }},
	{"verifying", fleet.Verifying, func(g *rig) { g.submit(gridJob); g.do(g.finish(gridJob, g.run(gridJob, "r1"))) }},
	{"succeeded", fleet.Succeeded, func(g *rig) { g.submit(gridJob); g.do(g.judged(gridJob, g.run(gridJob, "r1"), fleet.Accept)) }},
	{"failed", fleet.Failed, func(g *rig) { g.submit(gridJob); g.do(g.judged(gridJob, g.run(gridJob, "r1"), fleet.Reject)) }},
	{"needs_review", fleet.NeedsReview, func(g *rig) { g.submit(gridJob); g.do(g.judged(gridJob, g.run(gridJob, "r1"), fleet.Ask)) }},
	{"cancelled", fleet.Cancelled, func(g *rig) { g.submit(gridJob); g.assign(gridJob, "r1"); g.do(&CancelJob{Job: gridJob}) }},
	{"blocked", fleet.Blocked, func(g *rig) {
		g.submit(gridJob)
		g.do(&DeclineAttempt{Job: gridJob, Fence: g.assign(gridJob, "r1"), Code: fleet.RepoMissing, Detail: "no such repository", Block: true})
	}},
	{"lost", fleet.Lost, func(g *rig) { g.submit(gridJob); lose(g, g.run(gridJob, "r1")) }},

	{"running, cancelling", fleet.Running, func(g *rig) { g.submit(gridJob); g.run(gridJob, "r1"); g.do(&CancelJob{Job: gridJob}) }},
	{"lost, cancelling", fleet.Lost, func(g *rig) {
		g.submit(gridJob)
		f := g.run(gridJob, "r1")
		g.do(&CancelJob{Job: gridJob})
		lose(g, f)
	}},
	{"lost, gone", fleet.Lost, func(g *rig) {
		g.submit(gridJob)
		g.do(&AttemptGone{Job: gridJob, Fence: g.run(gridJob, "r1")})
	}},
	{"queued for a rerun", fleet.Queued, func(g *rig) { g.submit(gridJob, rerun); lose(g, g.run(gridJob, "r1")) }},
	{"assigned for a rerun", fleet.Assigned, func(g *rig) {
		g.submit(gridJob, rerun)
		lose(g, g.run(gridJob, "r1"))
		g.assign(gridJob, "r2")
	}},
	{"blocked for a rerun", fleet.Blocked, func(g *rig) {
		g.submit(gridJob, rerun)
		lose(g, g.run(gridJob, "r1"))
		g.do(&BlockJob{Job: gridJob, Turn: 1, Code: "queue_timeout", Detail: "waited too long"})
	}},
	{"cancelled after a loss", fleet.Cancelled, func(g *rig) {
		g.submit(gridJob, rerun)
		lose(g, g.run(gridJob, "r1"))
		g.do(&CancelJob{Job: gridJob})
	}},
	{"abandoned", fleet.Cancelled, func(g *rig) { g.submit(gridJob); g.run(gridJob, "r1"); g.do(&CancelJob{Job: gridJob, Abandon: true}) }},

	{"returned by an epoch", fleet.Queued, func(g *rig) { g.submit(gridJob); g.assign(gridJob, "r1"); g.raise() }},
	{"and assigned again", fleet.Assigned, func(g *rig) {
		g.submit(gridJob)
		g.assign(gridJob, "r1")
		g.raise()
		g.assign(gridJob, "r2")
	}},
	{"and running again", fleet.Running, func(g *rig) {
		g.submit(gridJob)
		g.assign(gridJob, "r1")
		g.raise()
		g.run(gridJob, "r2")
	}},
	{"running since before", fleet.Running, func(g *rig) { g.submit(gridJob, push); g.run(gridJob, "r1"); g.raise() }},
	{"lost before", fleet.Lost, func(g *rig) { g.submit(gridJob); lose(g, g.run(gridJob, "r1")); g.raise() }},
	{"succeeded before", fleet.Succeeded, func(g *rig) {
		g.submit(gridJob, push)
		g.do(g.judged(gridJob, g.run(gridJob, "r1"), fleet.Accept))
		g.raise()
	}},
}, ruledSituations...)

type situation struct {
	name  string
	state fleet.State
	make  func(*rig)
}

// ruledSituations are those that only the rules lead to.
var ruledSituations = []situation{
	{"waits for a retry", fleet.Queued, func(g *rig) { g.submit(gridJob); g.do(g.refusal(gridJob, g.ruledRun(gridJob, "r1"))) }},
	{"fell forward", fleet.Queued, func(g *rig) {
		g.submit(gridJob, fallback)
		g.do(g.refusal(gridJob, g.ruledRun(gridJob, "r1")))
	}},
	{"and is given again", fleet.Assigned, func(g *rig) {
		g.submit(gridJob, fallback)
		g.do(g.refusal(gridJob, g.ruledRun(gridJob, "r1")))
		g.ruledAssign(gridJob, "r2")
	}},
	{"budget used up", fleet.Blocked, func(g *rig) {
		g.submit(gridJob, once)
		g.do(g.refusal(gridJob, g.ruledRun(gridJob, "r1")))
		g.now = g.now.Add(time.Hour)
		g.do(g.refusal(gridJob, g.ruledRun(gridJob, "r1")))
	}},
	{"waits for a rerun", fleet.Queued, func(g *rig) {
		g.submit(gridJob, rerun)
		g.do(&LoseAttempt{Job: gridJob, Fence: g.ruledRun(gridJob, "r1"), Rules: 1})
	}},
}

func fallback(s *fleet.Spec) { s.Fallbacks = []fleet.Choice{{Harness: "claude"}} }

func once(s *fleet.Spec) { s.Retries = new(int); *s.Retries = 1 }

func push(s *fleet.Spec) { s.Push = "refs/heads/x" }

func rerun(s *fleet.Spec) { s.OnLost = "rerun" }

func lose(g *rig, f fleet.Fence) {
	g.t.Helper()
	g.do(&LoseAttempt{Job: gridJob, Fence: f, Detail: "silent"})
}

func preparing(id fleet.JobID, f fleet.Fence) *RecordFacts {
	return &RecordFacts{Job: id, Fence: f, Facts: []Fact{{Kind: "phase", Value: []byte(`"preparing"`)}}}
}

// verdictOf gives a decision about the evidence as it is recorded.
func verdictOf(d fleet.Decision, a *fleet.Attempt) *DecideJob {
	c := &DecideJob{Verdict: fleet.Verdict{Decision: d, By: "gate"}}
	if a != nil {
		c.Evidence = a.Evidence
	}
	return c
}

// moves are all commands that may concern a job, aimed at its first attempt.
var commandsOfGrid = []struct {
	name string
	make func(g *rig, j *fleet.Job, f fleet.Fence, a *fleet.Attempt) Command
}{
	{"submit again", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		return &SubmitJob{ID: gridJob, Spec: agentSpec()}
	}},
	{"assign", func(_ *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		return &AssignJob{Job: gridJob, Runner: "r2", Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Slots: 9}
	}},
	{"accept", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return &AcceptAttempt{Fence: f} }},
	{"decline", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &DeclineAttempt{Fence: f, Code: fleet.Storage}
	}},
	{"decline, block", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &DeclineAttempt{Fence: f, Code: fleet.RepoAuth, Block: true}
	}},
	{"return", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return &ReturnAttempt{Fence: f} }},
	{"fact: preparing", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return preparing(gridJob, f) }},
	{"finish", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return g.finish(gridJob, f) }},
	{"finish, accept", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return g.judged(gridJob, f, fleet.Accept)
	}},
	{"finish, reject", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return g.judged(gridJob, f, fleet.Reject)
	}},
	{"finish, ask", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return g.judged(gridJob, f, fleet.Ask)
	}},
	{"finish, stopped", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		c := g.judged(gridJob, f, fleet.Reject)
		c.Exit.Reason = "stopped"
		return c
	}},
	{"decide accept", func(_ *rig, _ *fleet.Job, f fleet.Fence, a *fleet.Attempt) Command { return verdictOf(fleet.Accept, a) }},
	{"decide reject", func(_ *rig, _ *fleet.Job, f fleet.Fence, a *fleet.Attempt) Command { return verdictOf(fleet.Reject, a) }},
	{"decide unknown", func(_ *rig, _ *fleet.Job, f fleet.Fence, a *fleet.Attempt) Command {
		return verdictOf(fleet.Unknown, a)
	}},
	{"seal", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &SealLog{Fence: f, Output: 9}
	}},
	{"evidence", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &UpdateEvidence{Fence: f, Evidence: g.finish(gridJob, f).Evidence}
	}},
	{"permit push", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &GrantPush{Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "tip"}
	}},
	{"permit credentials", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &GrantPush{Fence: f, Remote: "origin"}
	}},
	{"pushed", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &RecordPush{Fence: f, Ref: "refs/heads/x", SHA: "tip", Result: "pushed"}
	}},
	{"lose", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return &LoseAttempt{Fence: f} }},
	{"revive", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return &ReviveAttempt{Fence: f} }},
	{"gone", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return &AttemptGone{Fence: f} }},
	{"cancel", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &CancelJob{} }},
	{"cancel, abandon", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &CancelJob{Abandon: true} }},
	{"settle accept", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &SettleJob{Accept: true} }},
	{"settle reject", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &SettleJob{} }},
	{"retry", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &RetryJob{} }},
	{"retry, grant", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &RetryJob{Grant: true} }},
	{"block", func(_ *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		return &BlockJob{Turn: j.Turn().N, Code: "queue_timeout"}
	}},
	{"follow-up", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &FollowUp{} }},
	{"follow-up, fresh", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &FollowUp{Fresh: true} }},
	{"mark pulled", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &MarkPulled{} }},
	{"new journal", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		return &UpdateRunner{ID: "r1", JournalID: "new"}
	}},
	{"enrol anew", func(g *rig, _ *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		k := &CreateTicket{Hash: digest("anew"), TTL: 3600e9, Uses: 1, For: "r1"}
		g.do(k)
		return &Enrol{Ticket: k.Hash, SignKey: []byte("new"), BoxKey: []byte("new"), MachineID: "new"}
	}},
	{"remove runner", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &RemoveRunner{ID: "r1"} }},
	{"remove, abandon", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		return &RemoveRunner{ID: "r1", AbandonJobs: true}
	}},
	{"revoke runner", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &RevokeRunner{ID: "r1"} }},
	{"flag runner", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		why := "two hold it"
		return &FlagRunner{ID: "r1", Conflict: &why}
	}},
	{"raise epoch", func(g *rig, _ *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		return &RaiseEpoch{To: g.m.View().Meta().Epoch + 1, Cause: "restore"}
	}},
	{"renew", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &RenewAttempt{Fence: f, Epoch: g.m.View().Meta().Epoch}
	}},
	{"renew, permitted", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &RenewAttempt{Fence: f, Epoch: g.m.View().Meta().Epoch, Accepted: true}
	}},
	{"renew, other epoch", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &RenewAttempt{Fence: f, Epoch: g.m.View().Meta().Epoch + 1, Accepted: true}
	}},
	{"report orphan", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		g.raise()
		return &ReportOrphan{Orphan: g.orphan(gridJob, f)}
	}},
	{"adopt orphan", func(g *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		g.raise()
		return &SettleOrphan{ID: g.do(&ReportOrphan{Orphan: g.orphan(gridJob, fleet.Fence{Index: 7777})}).ID, Adopt: true}
	}},
	{"discard orphan", func(g *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		g.raise()
		return &SettleOrphan{ID: g.do(&ReportOrphan{Orphan: g.orphan(gridJob, fleet.Fence{Index: 7778})}).ID}
	}},
	{"expire", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		return &Expire{Jobs: []fleet.JobID{gridJob}, Limit: 9}
	}},
	{"pass deadline", func(g *rig, _ *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		g.try(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: at(g.now)}})
		return &PassDeadline{Runner: "r1"}
	}},
	{"pass it, cancel", func(g *rig, _ *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		g.try(&HoldRunner{ID: "r1", Hold: &fleet.Hold{Drain: true, Deadline: at(g.now), Cancel: true}})
		return &PassDeadline{Runner: "r1"}
	}},
}

// ruledCommands are commands under the rules.
var ruledCommands = []struct {
	name string
	make func(g *rig, j *fleet.Job, f fleet.Fence, a *fleet.Attempt) Command
}{
	{"assign, ruled", func(g *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		g.now = g.now.Add(time.Hour)
		return &AssignJob{Job: gridJob, Runner: "r2", Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Rules: 1, Base: 9, Choice: j.Turn().Choice}
	}},
	{"assign too soon", func(_ *rig, j *fleet.Job, _ fleet.Fence, _ *fleet.Attempt) Command {
		return &AssignJob{Job: gridJob, Runner: "r2", Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Rules: 1, Base: 9, Choice: j.Turn().Choice}
	}},
	{"accept, ruled", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &AcceptAttempt{Fence: f, Rules: 1}
	}},
	{"decline, ruled", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &DeclineAttempt{Fence: f, Code: fleet.Storage, Rules: 1}
	}},
	{"finish, refused", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command { return g.refusal(gridJob, f) }},
	{"finish, no Docker", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		c := g.refusal(gridJob, f)
		c.Class = fleet.ClassDocker
		return c
	}},
	{"finish, acted", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		c := g.refusal(gridJob, f)
		c.Acted = true
		return c
	}},
	{"finish, stalled", func(g *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		c := g.refusal(gridJob, f)
		c.Class = fleet.ClassStalled
		return c
	}},
	{"lose, ruled", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &LoseAttempt{Job: gridJob, Fence: f, Rules: 1}
	}},
	{"gone, ruled", func(_ *rig, _ *fleet.Job, f fleet.Fence, _ *fleet.Attempt) Command {
		return &AttemptGone{Job: gridJob, Fence: f, Rules: 1}
	}},
	{"retry, ruled", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command { return &RetryJob{Job: gridJob, Rules: 1} }},
	{"retry, whole budget", func(*rig, *fleet.Job, fleet.Fence, *fleet.Attempt) Command {
		return &RetryJob{Job: gridJob, Grant: true, Rules: 1}
	}},
}

// aim names the job and the fence in commands that leave them open.
func aim(c Command, f fleet.Fence) Command {
	switch c := c.(type) {
	case *AcceptAttempt:
		c.Job = gridJob
	case *DeclineAttempt:
		c.Job = gridJob
	case *ReturnAttempt:
		c.Job = gridJob
	case *DecideJob:
		c.Job, c.Fence = gridJob, f
	case *SealLog:
		c.Job = gridJob
	case *UpdateEvidence:
		c.Job = gridJob
	case *GrantPush:
		c.Job = gridJob
	case *RecordPush:
		c.Job = gridJob
	case *LoseAttempt:
		c.Job = gridJob
	case *ReviveAttempt:
		c.Job = gridJob
	case *AttemptGone:
		c.Job = gridJob
	case *RenewAttempt:
		c.Job = gridJob
	case *CancelJob:
		c.Job = gridJob
	case *SettleJob:
		c.Job = gridJob
	case *RetryJob:
		c.Job = gridJob
	case *BlockJob:
		c.Job = gridJob
	case *FollowUp:
		c.Job = gridJob
	case *MarkPulled:
		c.Job = gridJob
	}
	return c
}

// TestGrid applies every command to a job in every state. The table is in
// testdata/grid.txt: the job's state after it with the states of its attempts, or
// the code of the refusal.
func TestGrid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	used := map[Kind]bool{}
	for _, s := range situations {
		fmt.Fprintf(&out, "%s\n", s.name)
		for _, c := range slices.Concat(commandsOfGrid, ruledCommands) {
			g := newRig(t)
			g.enrol("r1")
			g.enrol("r2")
			s.make(g)
			j := g.is(gridJob, s.state)
			var a *fleet.Attempt
			f := fleet.Fence{Epoch: 9, Index: 9}
			if as := j.Turn().Attempts; len(as) > 0 {
				a, f = as[0], as[0].Fence
			}
			cmd := aim(c.make(g, j, f, a), f)
			used[cmd.kind()] = true
			before := describe(g)
			res := g.try(cmd)
			after := describe(g)
			switch {
			case res.Code != "" && after != before:
				t.Errorf("%s of a %s job: refused with %s, and yet %s became %s", c.name, s.name, res.Code, before, after)
			case res.Code != "":
				after = "- " + string(res.Code)
			case res.Repeated:
				after = "= repeated"
			}
			fmt.Fprintf(&out, "  %-19s %s\n", c.name, after)
			if snap := snapshot(t, g.m); !bytes.Equal(snap, snapshot(t, restored(t, snap))) {
				t.Errorf("%s of a %s job: a restored snapshot differs", c.name, s.name)
			}
		}
	}
	golden(t, "grid.txt", out.Bytes())
	for _, s := range fleet.States {
		if !slices.ContainsFunc(situations, func(x situation) bool { return x.state == s }) {
			t.Errorf("state %s is not in the grid", s)
		}
	}
	for _, k := range Kinds() {
		switch kinds[k]().(type) {
		case *InitCluster, *Set, *CreateToken, *RevokeToken, *CreateTicket, *ActivateKeys, *SilenceRunner, *AdmitNode, *UpdateNode, *RemoveNode,
			*SetSlots, *HoldRunner, *RecordHealth, *SettleAlert, *RaiseAlert, *ResetCircuit, *OpenCircuit, *ReleaseProbe, *SetBudget,
			*AddRelease, *RemoveRelease, *SetRing, *WantRelease, *RecordProgress, *MoveRelease,
			*QueueProvision, *DeliverProvision, *EndProvision, *CancelProvision,
			*SignIn, *SignOut, *AddPasskey, *RemovePasskey: // know nothing of jobs
		default:
			if !used[k] {
				t.Errorf("command %T is not in the grid", kinds[k]())
			}
		}
	}
}

func describe(g *rig) string {
	j, ok := g.m.View().Job(gridJob)
	if !ok {
		return "deleted"
	}
	s := string(j.State)
	if j.CancelRequestedAt != nil && j.State != fleet.Cancelled {
		s += " (cancel asked)"
	}
	for _, tu := range j.Turns {
		s += " |"
		for _, a := range tu.Attempts {
			s += " " + string(a.State)
			if tu.Current == a.N {
				s += "*"
			}
			if a.Gone && a.State != fleet.AttemptFinished {
				s += ",gone"
			}
			if a.Stop != "" && a.State != fleet.AttemptFinished && !a.Gone {
				s += ",stop"
			}
		}
	}
	if len(j.FollowUps) > 0 {
		s += fmt.Sprintf(" + %d waiting", len(j.FollowUps))
	}
	return s
}
