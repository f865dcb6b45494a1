package state

import (
	"slices"
	"time"

	"github.com/hashicorp/go-memdb"

	"tugline.dev/tugline/shared/fleet"
)

// View is one consistent state. What it returns is shared and must not be changed.
type View struct{ tx *memdb.Txn }

// View gives the state as of the last applied entry.
func (m *Machine) View() View { return View{m.current.Load().Txn(false)} }

// Meta gives what the cluster knows of itself.
func (v View) Meta() Meta { return *getMeta(v.tx) }

// Job gives one job.
func (v View) Job(id fleet.JobID) (*fleet.Job, bool) {
	j := first[fleet.Job](v.tx, tableJobs, "id", string(id))
	return j, j != nil
}

// Jobs walks jobs from the newest to the oldest, starting below the id before
// (empty: at the newest), until f says stop.
func (v View) Jobs(before fleet.JobID, f func(*fleet.Job) bool) {
	var it memdb.ResultIterator
	var err error
	if before == "" {
		it, err = v.tx.GetReverse(tableJobs, "id")
	} else {
		it, err = v.tx.ReverseLowerBound(tableJobs, "id", string(before))
	}
	if err != nil {
		panic("walk jobs: " + err.Error()) // a schema error
	}
	for row := it.Next(); row != nil; row = it.Next() {
		j := row.(*fleet.Job)
		if j.ID == before {
			continue
		}
		if !f(j) {
			return
		}
	}
}

// JobsOldest walks jobs from the oldest until f says stop.
func (v View) JobsOldest(f func(*fleet.Job) bool) { v.JobsAfter("", f) }

// JobsAfter does so from above an id on.
func (v View) JobsAfter(after fleet.JobID, f func(*fleet.Job) bool) {
	it, err := v.tx.LowerBound(tableJobs, "id", string(after))
	if err != nil {
		panic("walk jobs: " + err.Error()) // a schema error
	}
	for row := it.Next(); row != nil; row = it.Next() {
		if j := row.(*fleet.Job); j.ID != after && !f(j) {
			return
		}
	}
}

// JobsByPrefix gives the jobs whose id starts with the given text, at most n.
func (v View) JobsByPrefix(prefix string, n int) []*fleet.Job {
	var out []*fleet.Job
	each(v.tx, tableJobs, "id_prefix", func(j *fleet.Job) bool {
		out = append(out, j)
		return len(out) < n
	}, prefix)
	return out
}

// Queue walks the queued jobs in order until f says stop.
func (v View) Queue(f func(*fleet.Job) bool) {
	each(v.tx, tableQueue, "id", func(q *queued) bool { return f(q.Job) })
}

// Open is an attempt that still concerns its runner: assigned, running, lost and
// not known to be gone, or finished and not yet sealed and judged.
type Open struct {
	Job     *fleet.Job
	Turn    *fleet.Turn
	Attempt *fleet.Attempt
}

// Open walks every open attempt until f says stop.
func (v View) Open(f func(Open) bool) {
	each(v.tx, tableOpen, "id", func(o *opened) bool { return f(v.open(o)) })
}

// OpenAtRest walks the open attempts that occupy no slot until f says stop: those that
// have finished, or are known to be gone.
func (v View) OpenAtRest(f func(Open) bool) {
	each(v.tx, tableOpen, "id", func(o *opened) bool { return o.Holds || f(v.open(o)) })
}

// OpenOf gives the open attempts of one runner.
func (v View) OpenOf(r fleet.RunnerID) []Open {
	var out []Open
	each(v.tx, tableOpen, "id_prefix", func(o *opened) bool {
		out = append(out, v.open(o))
		return true
	}, opensOf(r))
	return out
}

func (v View) open(o *opened) Open {
	j, _ := v.Job(o.Job)
	t, a := j.Find(o.Fence)
	return Open{j, t, a}
}

// Held counts the slots of a runner that are occupied, from the job records.
func (v View) Held(r fleet.RunnerID) int {
	n := 0
	each(v.tx, tableOpen, "id_prefix", func(o *opened) bool {
		if o.Holds {
			n++
		}
		return true
	}, opensOf(r))
	return n
}

// Holder gives a job other than the given one that holds the concurrency key.
func (v View) Holder(key string, but fleet.JobID) (by fleet.JobID, held bool) {
	each(v.tx, tableHolds, "id_prefix", func(h *hold) bool {
		if h.Job != but {
			by, held = h.Job, true
		}
		return !held
	}, holdsOf(key))
	return by, held
}

// Runner gives one runner by id, removed ones included.
func (v View) Runner(id fleet.RunnerID) (*fleet.Runner, bool) {
	r := first[fleet.Runner](v.tx, tableRunners, "id", string(id))
	return r, r != nil
}

// FindRunner gives the runner with the given id or, among those not removed, name.
func (v View) FindRunner(s string) (*fleet.Runner, bool) {
	if r, ok := v.Runner(fleet.RunnerID(s)); ok && !r.Removed {
		return r, true
	}
	var found *fleet.Runner
	each(v.tx, tableRunners, "name", func(r *fleet.Runner) bool {
		if r.Name == s && !r.Removed {
			found = r
		}
		return found == nil
	}, s)
	return found, found != nil
}

// Runners gives all runners that are not removed, by id.
func (v View) Runners() []*fleet.Runner {
	var out []*fleet.Runner
	each(v.tx, tableRunners, "id", func(r *fleet.Runner) bool {
		if !r.Removed {
			out = append(out, r)
		}
		return true
	})
	return out
}

// TokenByHash gives the token whose secret has the given hash.
func (v View) TokenByHash(h fleet.Digest) (*fleet.Token, bool) {
	k := first[fleet.Token](v.tx, tableTokens, "hash", string(h))
	return k, k != nil
}

// Token gives one token by id.
func (v View) Token(id fleet.TokenID) (*fleet.Token, bool) {
	k := first[fleet.Token](v.tx, tableTokens, "id", string(id))
	return k, k != nil
}

// ActorName gives the name of the token that an actor is, empty where it has none or the
// actor is no token.
func (v View) ActorName(actor string) string {
	if k, ok := v.Token(fleet.TokenID(actor)); ok && actor != "" {
		return k.Name
	}
	return ""
}

// Tokens gives all tokens by id.
func (v View) Tokens() []*fleet.Token {
	var out []*fleet.Token
	each(v.tx, tableTokens, "id", func(k *fleet.Token) bool { out = append(out, k); return true })
	return out
}

// Ticket gives the ticket whose secret has the given hash.
func (v View) Ticket(h fleet.Digest) (*fleet.Ticket, bool) {
	k := first[fleet.Ticket](v.tx, tableTickets, "id", string(h))
	return k, k != nil
}

// Nodes gives the hub nodes of the cluster, by id.
func (v View) Nodes() []*fleet.HubNode {
	return slices.DeleteFunc(v.AllNodes(), (*fleet.HubNode).Removed)
}

// AllNodes gives the hub nodes on record, removed ones included, by id.
func (v View) AllNodes() []*fleet.HubNode {
	var out []*fleet.HubNode
	each(v.tx, tableNodes, "id", func(n *fleet.HubNode) bool { out = append(out, n); return true })
	return out
}

// Node gives one hub node by id, removed ones included.
func (v View) Node(id string) (*fleet.HubNode, bool) {
	n := first[fleet.HubNode](v.tx, tableNodes, "id", id)
	return n, n != nil
}

// Guests gives the tickets by whose guest key a hub node may knock at the given time:
// unused ones until their end, used ones for the same node a day longer.
func (v View) Guests(now time.Time) []*fleet.Ticket {
	return v.guests(now, func(k *fleet.Ticket) bool { return k.Role == fleet.TicketHub })
}

// RunnerGuests gives the runners' tickets by whose guest key somebody may ask to be
// enrolled through the tunnel, for as long.
func (v View) RunnerGuests(now time.Time) []*fleet.Ticket {
	return v.guests(now, func(k *fleet.Ticket) bool { return k.Role != fleet.TicketHub && len(k.Guest) > 0 })
}

func (v View) guests(now time.Time, of func(*fleet.Ticket) bool) []*fleet.Ticket {
	var out []*fleet.Ticket
	each(v.tx, tableTickets, "id", func(k *fleet.Ticket) bool {
		used := len(k.Admitted)+len(k.Consumed) > 0
		if of(k) && (k.Uses > 0 && !now.After(k.ExpiresAt) || used && !now.After(k.ExpiresAt.Add(fleet.GuestGracePeriod))) {
			out = append(out, k)
		}
		return true
	})
	return out
}

// Orphans gives the orphans on record by id, settled ones included.
func (v View) Orphans() []*fleet.Orphan {
	var out []*fleet.Orphan
	each(v.tx, tableOrphans, "id", func(o *fleet.Orphan) bool { out = append(out, o); return true })
	return out
}

// Orphan gives one orphan by id, which is its fence as text.
func (v View) Orphan(id string) (*fleet.Orphan, bool) {
	o := first[fleet.Orphan](v.tx, tableOrphans, "id", id)
	return o, o != nil
}

// Audit gives the newest n audit records below the index before (0: the newest).
func (v View) Audit(before uint64, n int) []*Audit {
	var out []*Audit
	v.AuditBefore(before, func(a *Audit) bool {
		if len(out) < n {
			out = append(out, a)
		}
		return len(out) < n
	})
	return out
}

// AuditBefore walks audit records from the newest to the oldest, below the index before
// (0: from the newest), until f says stop.
func (v View) AuditBefore(before uint64, f func(*Audit) bool) {
	it, err := v.tx.GetReverse(tableAudit, "id")
	if before > 0 {
		it, err = v.tx.ReverseLowerBound(tableAudit, "id", order(before, ""))
	}
	if err != nil {
		panic("walk audit: " + err.Error())
	}
	for row := it.Next(); row != nil; row = it.Next() {
		if a := row.(*Audit); a.Index != before && !f(a) {
			return
		}
	}
}

// Count gives a counter of the state: "jobs", "queued", "idem", and with ":ACTOR"
// behind the last two, those of one token.
func (v View) Count(name string) int {
	if c := first[count](v.tx, tableCounts, "id", name); c != nil {
		return c.N
	}
	return 0
}

func sortKinds(k []Kind) { slices.Sort(k) }
