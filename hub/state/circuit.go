package state

import (
	"cmp"
	"slices"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/hub/retry"
	"tugline.dev/tugline/shared/fleet"
)

const tableCircuits = "circuits"

// MaxCircuits bounds the circuits on record. Above it the one goes that matters least.
const MaxCircuits = 10_000

// countCircuits names the counter of circuits on record.
const countCircuits = "circuits"

// Circuits gives every circuit on record by id, closed ones that are still remembered
// included.
func (v View) Circuits() []*fleet.Circuit {
	var out []*fleet.Circuit
	each(v.tx, tableCircuits, "id", func(c *fleet.Circuit) bool { out = append(out, c); return true })
	return out
}

// Circuit gives one circuit by id.
func (v View) Circuit(id string) (*fleet.Circuit, bool) {
	c := first[fleet.Circuit](v.tx, tableCircuits, "id", id)
	return c, c != nil
}

func (t *txn) circuit(id string) *fleet.Circuit {
	if t.count(countCircuits) == 0 {
		return nil
	}
	return first[fleet.Circuit](t.Txn, tableCircuits, "id", id)
}

// moment is that of the present entry. Attempts that were assigned by earlier entries
// are older than it.
func (t *txn) moment() circuit.Moment {
	return circuit.Moment{Now: t.now(), Fence: fleet.Fence{Epoch: t.meta.Epoch, Index: t.index}}
}

// putCircuits records circuits as they have become.
func (t *txn) putCircuits(cs []*fleet.Circuit) {
	for _, c := range cs {
		was := t.circuit(c.ID)
		switch {
		case circuit.Blank(c):
			if was != nil {
				t.dropCircuit(was)
			}
			continue
		case was == nil:
			if t.count(countCircuits) >= MaxCircuits {
				t.dropCircuit(t.leastCircuit())
			}
			t.add(countCircuits, 1)
		}
		t.insert(tableCircuits, c)
		t.changed(Change{What: "circuit", Circuit: c})
	}
}

func (t *txn) dropCircuit(c *fleet.Circuit) {
	t.delete(tableCircuits, c)
	t.add(countCircuits, -1)
	t.changed(Change{What: "circuit", Circuit: c, Removed: true})
}

// leastCircuit gives the circuit that matters least: a closed one before a half-open
// one before an open one before a blocked one, and of those the one that changed
// longest ago.
func (t *txn) leastCircuit() *fleet.Circuit {
	rank := map[fleet.CircuitState]int{fleet.CircuitClosed: 0, fleet.CircuitHalf: 1, fleet.CircuitOpen: 2, fleet.CircuitBlocked: 3}
	return slices.MinFunc((View{t.Txn}).Circuits(), func(a, b *fleet.Circuit) int {
		return cmp.Or(cmp.Compare(rank[circuit.At(a, t.now())], rank[circuit.At(b, t.now())]), a.ChangedAt.Compare(b.ChangedAt), cmp.Compare(a.ID, b.ID))
	})
}

// seen gives an attempt as it matters to circuits; ok is false where its runner is no
// more, of which nothing is to be known.
func (t *txn) seen(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) (s circuit.Seen, f fleet.RunnerFacts, ok bool) {
	r := t.runner(a.Runner)
	if r == nil || r.Removed {
		return s, f, false
	}
	s = circuit.Seen{
		Automated: j.Spec.Automated(), Resumed: resumed(j, tu, a), FactsRev: r.FactsRev, Runner: a.Runner, Fence: a.Fence, Provider: a.Provider, Account: a.Account, Model: a.Requested, Probes: a.Probes,
		Detail: a.Detail, ResetAt: a.ResetAt, RetryAfter: a.RetryAfter, StatedEnd: a.StatedEnd, Class: a.Failure, Responded: a.Responded,
	}
	if a.Exit != nil {
		s.Exit = a.Exit.Reason
	}
	if j.Spec.Kind != fleet.KindAgent {
		s.Provider = ""
	} else if s.Provider == "" {
		ch := j.ChoiceOf(tu)
		ch.Harness, ch.Model = orElse(a.Harness, ch.Harness), orElse(a.Requested, ch.Model)
		s.Provider, s.Model = ch.Provider(), ch.Model
	}
	return s, r.Facts, true
}

// resumed says whether an attempt had a session to take up, of a turn before its own or of
// its own turn.
func resumed(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) bool {
	for _, t := range j.Turns {
		for _, b := range t.Attempts {
			switch {
			case b == a:
				return false
			case b.Runner != a.Runner || b.SessionID == "" || orElse(b.Harness, j.Spec.Harness) != orElse(a.Harness, j.Spec.Harness):
			case t != tu && !tu.Fresh, t == tu && retry.Resumes(b):
				return true
			}
		}
	}
	return false
}

// observe takes in how an attempt ended; it is called once, when everything about the
// end is on the attempt.
func (t *txn) observe(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	if s, _, ok := t.seen(j, tu, a); ok {
		t.putCircuits(circuit.Ended(t.circuit, s, t.moment()))
	}
}

// acceptedBy takes in that a runner accepted an attempt.
func (t *txn) acceptedBy(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	if s, _, ok := t.seen(j, tu, a); ok && len(a.Probes) > 0 {
		t.putCircuits(circuit.Accepted(t.circuit, s, t.moment()))
	}
}

// responded takes in that the provider completed its first response in an attempt.
func (t *txn) responded(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	if s, _, ok := t.seen(j, tu, a); ok {
		t.putCircuits(circuit.Responded(t.circuit, s, t.moment()))
	}
}

// lostRunner takes in that an accepted attempt was lost on its runner.
func (t *txn) lostRunner(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt) {
	if s, facts, ok := t.seen(j, tu, a); ok {
		t.putCircuits(circuit.Lost(t.circuit, s, facts, t.moment()))
	}
}

// hostFault takes in that a machine could not carry an attempt: disk, memory or docker.
func (t *txn) hostFault(j *fleet.Job, tu *fleet.Turn, a *fleet.Attempt, class fleet.CircuitClass) {
	if s, _, ok := t.seen(j, tu, a); ok {
		t.putCircuits(circuit.HostFault(t.circuit, s, class, t.moment()))
	}
}

// hostClass gives the class of circuit that a decline with a code opens, if it does.
func hostClass(code fleet.Code) (fleet.CircuitClass, bool) {
	switch code {
	case fleet.Storage, fleet.DiskFull:
		return fleet.CircuitDisk, true
	case fleet.MemoryLow:
		return fleet.CircuitMemory, true
	case fleet.DockerMissing:
		return fleet.CircuitDocker, true
	}
	return "", false
}

// leaseProbes refuses an assignment that circuits do not let pass, and gives the
// attempt those that it is to try: ids must name every half-open one that is in its
// way. Of the attempt the runner and what it is started with must be set.
func (t *txn) leaseProbes(j *fleet.Job, a *fleet.Attempt, ids []string) Result {
	if t.count(countCircuits) == 0 {
		return Result{}
	}
	r := t.runner(a.Runner)
	if r == nil {
		return refuse(fleet.RunnerUnknown, "there is no runner %s", a.Runner)
	}
	ask := circuit.AskOf(j, r)
	var cs []*fleet.Circuit
	for _, p := range ask.Prefixes() {
		each(t.Txn, tableCircuits, "id_prefix", func(c *fleet.Circuit) bool { cs = append(cs, c); return true }, p)
	}
	answer := circuit.NewSet(cs).Passes(ask, t.now())
	switch {
	case answer.Verdict == circuit.No:
		return refuse(fleet.CircuitRefuses, "%s %s", r.Name, answer.Detail)
	case answer.Verdict == circuit.Pass:
		return Result{}
	}
	m := t.moment()
	m.Fence = a.Fence
	var out []*fleet.Circuit
	for _, id := range answer.Probes {
		if !slices.Contains(ids, id) {
			return refuse(fleet.Conflict, "circuit %s is half open, and the job was not to try it", id)
		}
		out = append(out, circuit.Lease(t.circuit(id), j.ID, m))
	}
	t.putCircuits(out)
	a.Probes = answer.Probes
	return Result{}
}

// freeProbes takes the leases of attempts back that are no longer under way.
func (t *txn) freeProbes(j *fleet.Job) {
	for _, tu := range j.Turns {
		for _, a := range tu.Attempts {
			if len(a.Probes) > 0 && a.State != fleet.AttemptAssigned && a.State != fleet.AttemptRunning {
				for _, id := range a.Probes {
					t.release(id, a.Fence)
				}
			}
		}
	}
}

// release takes a lease back without a verdict, and says whether there was one.
func (t *txn) release(id string, f fleet.Fence) bool {
	c := circuit.Release(t.circuit(id), f, t.moment())
	if c == nil {
		return false
	}
	t.putCircuits([]*fleet.Circuit{c})
	return true
}

// credentials closes what refused credentials of a runner have blocked, where it now
// says that it has others.
func (t *txn) credentials(r fleet.RunnerID, old, now fleet.RunnerFacts) {
	var out []*fleet.Circuit
	t.circuitsOf(r, func(c *fleet.Circuit) {
		if d := circuit.Renewed(c, old, now, t.moment()); d != nil {
			out = append(out, d)
		}
	})
	t.putCircuits(out)
}

// forgetRunner drops the circuits of a runner that is no more.
func (t *txn) forgetRunner(r fleet.RunnerID) {
	var out []*fleet.Circuit
	t.circuitsOf(r, func(c *fleet.Circuit) { out = append(out, c) })
	for _, c := range out {
		t.dropCircuit(c)
	}
}

// circuitsOf walks the circuits that are over one runner alone.
func (t *txn) circuitsOf(r fleet.RunnerID, f func(*fleet.Circuit)) {
	if t.count(countCircuits) == 0 {
		return
	}
	for _, s := range []fleet.Scope{fleet.ScopeHost, fleet.ScopeModel, fleet.ScopeProvider} {
		each(t.Txn, tableCircuits, "id_prefix", func(c *fleet.Circuit) bool { f(c); return true }, circuit.Of(s, r))
	}
}

// expireCircuits drops at most limit circuits of which nothing is left to know.
func (t *txn) expireCircuits(limit int) {
	var out []*fleet.Circuit
	each(t.Txn, tableCircuits, "id", func(c *fleet.Circuit) bool {
		if len(out) < limit && circuit.Forgettable(c, t.now()) {
			out = append(out, c)
		}
		return len(out) < limit
	})
	for _, c := range out {
		t.dropCircuit(c)
	}
}
