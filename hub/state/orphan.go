package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(ReportOrphan) })
	_ = register(func() Command { return new(SettleOrphan) })
)

// keepOrphans is how long an orphan is remembered after it was settled: its runner
// may be away for long and ask again.
const keepOrphans = 90 * 24 * time.Hour

// ReportOrphan records a finished attempt of an earlier epoch that no record knows,
// or completes what is recorded of it: the end of its streams, later evidence. What it
// says was checked against the order that its runner holds.
type ReportOrphan struct {
	Orphan fleet.Orphan `json:"orphan"`
}

func (*ReportOrphan) kind() Kind { return 24 }

func (c *ReportOrphan) apply(t *txn) Result {
	o := c.Orphan
	o.ID = o.Fence.String()
	if o.Job == "" || o.Runner == "" || o.Turn < 1 || o.Attempt < 1 {
		return refuse(fleet.BadRequest, "an orphan without a job, a runner, a turn or an attempt")
	}
	if o.Fence.Epoch >= t.meta.Epoch {
		return refuse(fleet.StaleFence, "there is no attempt %s, and its epoch is the cluster's: no record of it was lost", o.Fence)
	}
	if j := t.job(o.Job); j != nil {
		if _, a := j.Find(o.Fence); a != nil {
			return refuse(fleet.Conflict, "attempt %s of job %s is on record; it is no orphan", o.Fence, o.Job)
		}
	}
	was := t.orphan(o.ID)
	switch {
	case was != nil && (was.Job != o.Job || was.Runner != o.Runner):
		return refuse(fleet.Conflict, "orphan %s is of job %s on %s", was.ID, was.Job, was.RunnerName)
	case was != nil && was.Settled != "":
		return Result{ID: o.ID, Repeated: true}
	case was == nil && t.waitingOrphans() >= fleet.MaxOrphans:
		return refuse(fleet.OrphansFull, "%d orphans wait for a person, the bound; see `tugline job orphans`", fleet.MaxOrphans)
	}
	o.ReportedAt, o.Settled, o.SettledAt, o.SettledBy = t.now(), "", nil, ""
	if was != nil {
		o.ReportedAt = was.ReportedAt
		if was.Log.Sealed {
			o.Log = was.Log
		}
		if sameRow(was, &o) {
			return Result{ID: o.ID, Repeated: true}
		}
	}
	t.putOrphan(&o)
	return Result{ID: o.ID}
}

// SettleOrphan is a person's decision about an orphan. Adopted it becomes an attempt
// on record: of its job, if that is known and nothing else was accepted in its turn,
// else beside what the job has come to; of a new record under the job's own id if
// the job is unknown. Its evidence then decides as that of any attempt.
type SettleOrphan struct {
	ID    string `json:"id"`
	Adopt bool   `json:"adopt,omitempty"`
}

func (*SettleOrphan) kind() Kind { return 25 }

func (c *SettleOrphan) apply(t *txn) Result {
	was := t.orphan(c.ID)
	if was == nil {
		return refuse(fleet.NotFound, "there is no orphan %s", c.ID)
	}
	o := *was
	o.Settled, o.SettledAt, o.SettledBy = fleet.OrphanDiscarded, at(t.now()), t.head.Actor
	if c.Adopt {
		o.Settled = fleet.OrphanAdopted
	}
	switch {
	case was.Settled == o.Settled:
		return Result{ID: c.ID, Repeated: true, Job: t.job(was.Job)}
	case was.Settled != "":
		return refuse(fleet.Conflict, "orphan %s was %s already", c.ID, was.Settled)
	case !c.Adopt:
		t.putOrphan(&o)
		return Result{ID: c.ID}
	}
	res := t.adopt(&o)
	if res.Code == "" {
		t.putOrphan(&o)
		res.ID = c.ID
	}
	return res
}

// adopt makes an orphan an attempt of its job.
func (t *txn) adopt(o *fleet.Orphan) Result {
	a := &fleet.Attempt{
		N: 1, Fence: o.Fence, Runner: o.Runner, RunnerName: o.RunnerName, State: fleet.AttemptFinished, Gone: true,
		Phase: "finished", PhaseAt: t.now(), AssignedAt: o.AcceptedAt, AcceptedAt: at(o.AcceptedAt), StartedAt: o.StartedAt, FinishedAt: at(o.FinishedAt),
		Exit: &o.Exit, Failure: o.Failure, Detail: o.Detail, ResetAt: o.ResetAt, SessionID: o.SessionID, Model: o.RanModel, Usage: o.Usage,
		BaseCommit: o.Base, Evidence: o.Evidence, Log: o.Log,
		Notes: []string{"adopted by " + t.head.Actor + ": it ran under an epoch whose records were lost"},
	}
	j := t.job(o.Job)
	if j == nil {
		j = &fleet.Job{
			ID: o.Job, Seq: t.index, Spec: o.Spec, Actor: t.head.Actor, CreatedAt: o.CreatedAt,
			Turns: []*fleet.Turn{{N: 1, Prompt: o.Prompt, Model: o.Model, CreatedAt: o.CreatedAt, QueuedAt: o.CreatedAt, Attempts: []*fleet.Attempt{a}, Current: 1}},
		}
		t.become(j, fleet.Verifying, "verifying", "adopted; its evidence is being checked")
		return t.put(j)
	}
	j = j.Clone()
	tu := j.Turn()
	settles := tu.N == o.Turn && accepted(tu) == 0 && j.CancelRequestedAt == nil
	if o.Turn <= len(j.Turns) {
		tu = j.Turns[o.Turn-1]
	}
	if len(tu.Attempts) >= 2*MaxAttempts {
		return refuse(fleet.TooLarge, "turn %d of job %s has %d attempts, the bound", tu.N, j.ID, len(tu.Attempts))
	}
	switch j.State {
	case fleet.Queued, fleet.Assigned, fleet.Preparing, fleet.Blocked:
	default:
		settles = false
	}
	if settles {
		withdraw(tu, "the job's adopted attempt has a result")
	}
	a.N = len(tu.Attempts) + 1
	if o.Evidence != nil && o.Evidence.CommitCount > 0 {
		j.Pulled = false
	}
	if !settles {
		t.keepBeside(tu, a)
		return t.put(j)
	}
	tu.Attempts = append(tu.Attempts, a)
	tu.Current = a.N
	t.become(j, fleet.Verifying, "verifying", "adopted; its evidence is being checked")
	return t.put(j)
}

// keepBeside adds an attempt to a turn that belongs to others. The newest place is the
// pending one's, so the adopted one goes before it.
func (t *txn) keepBeside(tu *fleet.Turn, a *fleet.Attempt) {
	p := pending(tu)
	if p == nil {
		tu.Attempts = append(tu.Attempts, a)
		return
	}
	a.N = p.N
	if tu.Current == p.N {
		tu.Current++
	}
	p.N++
	tu.Attempts = append(tu.Attempts[:len(tu.Attempts)-1:len(tu.Attempts)-1], a, p)
}

func (t *txn) orphan(id string) *fleet.Orphan {
	return first[fleet.Orphan](t.Txn, tableOrphans, "id", id)
}

func (t *txn) putOrphan(o *fleet.Orphan) {
	t.insert(tableOrphans, o)
	t.changed(Change{What: "orphan", Orphan: o})
}

func (t *txn) waitingOrphans() int {
	n := 0
	each(t.Txn, tableOrphans, "id", func(o *fleet.Orphan) bool {
		if o.Settled == "" {
			n++
		}
		return true
	})
	return n
}
