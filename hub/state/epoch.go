package state

import (
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

var (
	_ = register(func() Command { return new(RaiseEpoch) })
	_ = register(func() Command { return new(RenewAttempt) })
)

// maxEpochs bounds the raises that are remembered; the oldest go first.
const maxEpochs = 64

// StopEpoch is the reason with which an unaccepted attempt was returned because the
// epoch was raised. Whether its runner had been permitted to start, in records that
// are lost, only the runner knows.
const StopEpoch = "epoch_raised"

// RaiseEpoch ends every authority that was given before it. Records may be missing
// that were there once: an attempt that is not accepted here goes back to the queue
// at no cost, an accepted one goes on and is renewed by its runner before it may have
// an effect outside of it.
type RaiseEpoch struct {
	To    uint64          `json:"to"`
	Cause string          `json:"cause"`           // recover, restore
	Nodes []fleet.HubNode `json:"nodes,omitempty"` // all hub nodes that the cluster goes on with; none: those on record
}

func (*RaiseEpoch) kind() Kind { return 46 }

func (c *RaiseEpoch) apply(t *txn) Result {
	m := &t.meta
	switch {
	case c.To == m.Epoch && len(m.Epochs) > 0 && m.Epochs[len(m.Epochs)-1].Cause == c.Cause:
		return Result{ID: m.Cluster, Repeated: true}
	case c.To <= m.Epoch:
		return refuse(fleet.StaleEpoch, "the cluster's epoch is %d already; it can only be raised", m.Epoch)
	}
	for i := range c.Nodes {
		if bad := soundNode(&c.Nodes[i]); bad.Code != "" {
			return bad
		}
	}
	e := fleet.Epoch{Epoch: c.To, At: t.now(), Index: t.index, Cause: c.Cause}
	var opens []Open
	(View{t.Txn}).Open(func(o Open) bool { opens = append(opens, o); return true })
	for _, o := range opens {
		j := t.job(o.Job.ID).Clone() // as the attempts before it left the job
		tu, a := j.Find(o.Attempt.Fence)
		switch {
		case a == pending(j.Turn()):
			a.State, a.Stop, a.FinishedAt = fleet.AttemptReturned, StopEpoch, at(t.now())
			a.Detail = "the cluster's epoch was raised before it was accepted: " + c.Cause
			keepCurrent(tu, a)
			t.requeue(j, StopEpoch, "%s: %s", a.RunnerName, a.Detail)
			t.put(j)
			e.Returned++
		case a.State == fleet.AttemptRunning || a.State == fleet.AttemptLost:
			e.Open++
		}
	}
	if len(c.Nodes) > 0 {
		t.regroup(c.Nodes, c.Cause)
	}
	m.Epoch = c.To
	m.Epochs = append(slices.Clone(m.Epochs), e)
	if n := len(m.Epochs) - maxEpochs; n > 0 {
		m.Epochs = m.Epochs[n:]
	}
	t.changed(Change{What: "epoch"})
	return Result{ID: m.Cluster}
}

// regroup makes the given nodes all that the cluster has.
func (t *txn) regroup(nodes []fleet.HubNode, cause string) {
	for _, was := range (View{t.Txn}).Nodes() {
		if !slices.ContainsFunc(nodes, func(n fleet.HubNode) bool { return n.ID == was.ID }) {
			t.removeNode(was, "the cluster went on without it: "+cause)
		}
	}
	for _, n := range nodes {
		n.RemovedAt, n.RemovedWhy = nil, ""
		if was := t.node(n.ID); was != nil {
			n.JoinedAt = was.JoinedAt
		} else if n.JoinedAt.IsZero() {
			n.JoinedAt = t.now()
		}
		t.putNode(&n)
	}
}

// RenewAttempt records that a runner took a raised epoch up for an attempt that it
// has, and may go on with it. With Accepted it says too that it had been permitted to
// start: an attempt that went back to the queue only because the record of that was
// lost is then the current one again, unless another was accepted meanwhile.
type RenewAttempt struct {
	Job      fleet.JobID `json:"job"`
	Fence    fleet.Fence `json:"fence"`
	Epoch    uint64      `json:"epoch"`
	Accepted bool        `json:"accepted,omitempty"`
}

func (*RenewAttempt) kind() Kind { return 23 }

func (c *RenewAttempt) apply(t *txn) Result {
	j, tu, a, bad := t.attempt(c.Job, c.Fence)
	if a == nil {
		return bad
	}
	switch {
	case c.Epoch != t.meta.Epoch:
		return refuse(fleet.StaleEpoch, "attempt %s was renewed for epoch %d, and the cluster's is %d", c.Fence, c.Epoch, t.meta.Epoch)
	case MayRegain(j, tu, a) && c.Accepted:
		t.regain(j, tu, a)
		a.Epoch = c.Epoch
		return t.put(j)
	case a.AcceptedAt == nil:
		return refuse(fleet.StaleFence, "attempt %s of job %s is not accepted, and goes on no more", c.Fence, c.Job)
	case a.Authority() >= c.Epoch:
		return Result{ID: string(j.ID), Repeated: true, Job: j}
	case !Renewable(t.meta.Epoch, j, tu, a):
		return refuse(fleet.NotCurrent, "attempt %s of job %s is not the current one, or was given up", c.Fence, c.Job)
	}
	a.Epoch = c.Epoch
	return t.put(j)
}

// Renewable says whether an attempt was authorised before the given epoch and may be
// renewed in it: it is the current one, and nobody wants it stopped.
func Renewable(epoch uint64, j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	if a.AcceptedAt == nil || a.Authority() >= epoch || tu != j.Turn() || tu.Current != a.N || a.Stop != "" {
		return false
	}
	switch a.State {
	case fleet.AttemptRunning:
		return true
	case fleet.AttemptLost:
		return !a.Gone
	case fleet.AttemptFinished: // what is left to do under it is a push
		return j.Spec.Push != "" && j.State != fleet.Cancelled
	}
	return false
}

// MayRegain says whether an attempt that was returned by a raised epoch would become
// the current one again if its runner had begun it: no other one was accepted since.
func MayRegain(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	if a.State != fleet.AttemptReturned || a.Stop != StopEpoch || a.Gone || tu != j.Turn() || j.CancelRequestedAt != nil {
		return false
	}
	switch j.State {
	case fleet.Queued, fleet.Assigned, fleet.Preparing, fleet.Blocked:
	default:
		return false
	}
	for _, later := range tu.Attempts[a.N:] {
		if later.AcceptedAt != nil {
			return false
		}
	}
	return true
}

// regain takes an attempt for accepted that was returned by a raised epoch.
func (t *txn) regain(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	withdraw(tu, "an attempt that was thought not to have begun had begun")
	if cur := j.Current(); cur != nil && cur != a && cur.State == fleet.AttemptLost {
		cur.Stop = string(fleet.Superseded)
	}
	a.State, a.Stop, a.Detail, a.FinishedAt, a.AcceptedAt = fleet.AttemptRunning, "", "", nil, at(t.now())
	tu.Current = a.N
	t.become(j, fleet.Running, "running", "on %s, which had begun before the epoch was raised", a.RunnerName)
}
