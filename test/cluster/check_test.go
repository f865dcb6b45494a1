package cluster

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// look is what can be seen of one hub node at a moment at which nothing moves.
type look struct {
	node    string
	leader  bool // of the log
	term    uint64
	index   uint64
	jobs    []*fleet.Job
	slots   map[fleet.RunnerID]int
	streams []copied
	blob    func(fleet.Digest) bool
}

// copied is a stream as a node has it: size bytes, and those that were not there at
// the look before.
type copied struct {
	stream
	size   int64
	sealed bool
	from   int64
	added  []byte
}

// checker holds looks against what must be so at every moment.
type checker struct {
	packed uint64 // commands beyond the entries that they came in, on one node
	plans  *plans
	wrong  func(format string, args ...any)

	leaders map[uint64]string // by term
	checked map[*fleet.Job]bool
	copies  map[string]map[stream]int64 // by node: bytes that were compared
}

func newChecker(p *plans, wrong func(string, ...any)) *checker {
	return &checker{plans: p, wrong: wrong, leaders: map[uint64]string{}, checked: map[*fleet.Job]bool{}, copies: map[string]map[stream]int64{}}
}

// promise is what somebody was told is there.
type promise struct {
	id    fleet.JobID
	index uint64 // an answer's X-Tugline-Index: a node that is so far has the job
	name  string // as its submitter called it
}

// check judges one look at all nodes that run.
func (c *checker) check(nodes []look, promised []promise) {
	for _, n := range nodes {
		c.oneLeader(n)
		c.jobsExist(n, promised)
		for _, j := range n.jobs {
			if !c.checked[j] { // records never change in place
				c.checked[j] = true
				c.oneFence(n, j)
				c.countedOnce(n, j)
			}
		}
		c.inSlots(n)
		c.prefixes(n)
	}
}

// oneLeader: a term has at most one leader.
func (c *checker) oneLeader(n look) {
	if !n.leader {
		return
	}
	if was, ok := c.leaders[n.term]; ok && was != n.node {
		c.wrong("%s and %s both led in term %d", was, n.node, n.term)
	}
	c.leaders[n.term] = n.node
}

// jobsExist: a node has every job that was acknowledged before the entry that it has
// come to, and once.
func (c *checker) jobsExist(n look, promised []promise) {
	have := map[fleet.JobID]bool{}
	names := map[string]fleet.JobID{}
	for _, j := range n.jobs {
		have[j.ID] = true
		name := nameOf(j)
		if other, ok := names[name]; ok {
			c.wrong("%s has two jobs that were submitted once as %s: %s and %s", n.node, name, other, j.ID)
		}
		names[name] = j.ID
	}
	for _, p := range promised {
		if p.index <= n.index && !have[p.id] {
			c.wrong("%s is at entry %d and lacks job %s, which was acknowledged at %d", n.node, n.index, p.id, p.index)
		}
	}
}

// nameKey is where an agent's job carries its name.
const nameKey = "WORK"

// nameOf is what the submitter of a job called it.
func nameOf(j *fleet.Job) string {
	if name := j.Spec.Env[nameKey]; name != "" {
		return name
	}
	if len(j.Spec.Argv) < 2 {
		return string(j.ID)
	}
	return j.Spec.Argv[1]
}

// oneFence: at most one attempt of a job may be waiting for its accept or run, and a
// job that is settled has none.
func (c *checker) oneFence(n look, j *fleet.Job) {
	var live []string
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			if a.State == fleet.AttemptRunning || a.State == fleet.AttemptAssigned {
				live = append(live, a.Fence.String())
			}
		}
	}
	if len(live) > 1 {
		c.wrong("job %s has the live fences %v on %s", j.ID, live, n.node)
	}
	if j.State == fleet.Queued && len(live) > 0 {
		c.wrong("job %s is queued and has the live fence %s on %s", j.ID, live[0], n.node)
	}
}

// countedOnce: what a runner reported once is recorded once.
func (c *checker) countedOnce(n look, j *fleet.Job) {
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			seen := map[string]bool{}
			for _, note := range a.Notes {
				if seen[note] {
					c.wrong("%q is recorded twice of attempt %s of job %s on %s", note, a.Fence, j.ID, n.node)
				}
				seen[note] = true
			}
			if a.Facts > len(c.plans.of(j.ID, a.Fence).notes)+2 { // two more are the hub's own, of the phase, and that its provider answered
				c.wrong("attempt %s of job %s counts %d facts on %s", a.Fence, j.ID, a.Facts, n.node)
			}
		}
	}
}

// inSlots: no runner is given more than it has room for.
func (c *checker) inSlots(n look) {
	held := map[fleet.RunnerID]int{}
	for _, j := range n.jobs {
		for _, t := range j.Turns {
			for _, a := range t.Attempts {
				if a.HoldsSlot() && j.Spec.Origin.Kind != fleet.Automation {
					held[a.Runner]++
				}
			}
		}
	}
	for r, k := range held {
		if k > n.slots[r] {
			c.wrong("runner %s holds %d attempts in %d slots on %s", r, k, n.slots[r], n.node)
		}
	}
}

// prefixes: what a node has of a stream is how the stream begins.
func (c *checker) prefixes(n look) {
	for _, s := range n.streams {
		if len(s.added) == 0 {
			continue
		}
		want := c.plans.of(s.job, s.fence).stream(s.name)
		end := s.from + int64(len(s.added))
		if end > int64(len(want)) || !bytes.Equal(want[s.from:end], s.added) {
			c.wrong("%s of attempt %s of job %s is not as it was written, from %d to %d on %s", s.name, s.fence, s.job, s.from, end, n.node)
		}
	}
}

// onMajority: what was acknowledged of a stream is on as many nodes as it takes.
func (c *checker) onMajority(nodes []look, acked map[stream]int64) {
	have := map[stream][]int64{}
	for _, n := range nodes {
		for _, s := range n.streams {
			have[s.stream] = append(have[s.stream], s.size)
		}
	}
	down := hubCount - len(nodes) // they may have it
	for k, size := range acked {
		copies := down
		for _, s := range have[k] {
			if s >= size {
				copies++
			}
		}
		if copies <= hubCount/2 {
			c.wrong("%d bytes of %s of attempt %s of job %s were acknowledged, and of %d nodes that run %d have them", size, k.name, k.fence, k.job, len(nodes), copies-down)
		}
	}
}

// blobsOnMajority: a blob that was just acknowledged is on as many nodes as it takes.
// Each is looked for once, for that costs a look at the disk.
func (c *checker) blobsOnMajority(nodes []look, stored map[fleet.Digest]bool) {
	for d, fresh := range stored {
		if !fresh {
			continue
		}
		stored[d] = false
		copies := hubCount - len(nodes)
		for _, n := range nodes {
			if n.blob(d) {
				copies++
			}
		}
		if copies <= hubCount/2 {
			c.wrong("blob %s was acknowledged, and of %d nodes that run %d have it", d, len(nodes), copies-hubCount+len(nodes))
		}
	}
}

// lookAt looks at a node that runs. bytes says whether its streams are read again from
// the beginning, or only what came since the look before.
func (c *checker) lookAt(w *world, node string, in hub.Insides, whole bool) look {
	st, v := in.Status(), in.View()
	c.packed = max(c.packed, v.Meta().Index-min(v.Meta().Index, st.AppliedIndex))
	n := look{node: node, leader: st.State == "leader", term: st.Term, index: v.Meta().Index, slots: w.slots()}
	v.JobsOldest(func(j *fleet.Job) bool { n.jobs = append(n.jobs, j); return true })
	n.blob = func(d fleet.Digest) bool {
		_, err := in.Blobs.Stat(d)
		return err == nil
	}
	if c.copies[node] == nil || whole {
		c.copies[node] = map[stream]int64{}
	}
	compared := c.copies[node]
	in.Spool.Each(func(i spool.Info) bool {
		k := stream{i.Key.Job, i.Key.Fence, wire.Stream(i.Key.Name)}
		s := copied{stream: k, size: i.Size, sealed: i.Sealed, from: min(compared[k], i.Size)}
		if s.from < i.Size {
			s.added = make([]byte, i.Size-s.from)
			if m, err := in.Spool.ReadAt(i.Key, s.added, s.from); err != nil && err != io.EOF {
				s.added = s.added[:m]
			}
			compared[k] = s.from + int64(len(s.added))
		}
		n.streams = append(n.streams, s)
		return true
	})
	return n
}

// same compares what two nodes have come to.
func same(a, b look) error {
	if len(a.jobs) != len(b.jobs) {
		return fmt.Errorf("%s has %d jobs and %s %d", a.node, len(a.jobs), b.node, len(b.jobs))
	}
	for i := range a.jobs {
		x, y := a.jobs[i], b.jobs[i]
		if x.ID != y.ID || x.State != y.State || !slices.Equal(fences(x), fences(y)) {
			return fmt.Errorf("%s has job %s %s, and %s has job %s %s", a.node, x.ID, x.State, b.node, y.ID, y.State)
		}
	}
	return nil
}

func fences(j *fleet.Job) (out []string) {
	for _, t := range j.Turns {
		for _, a := range t.Attempts {
			out = append(out, fmt.Sprint(a.Fence, a.State, a.Facts, a.Log.Sealed, a.Log.Bytes))
		}
	}
	return out
}
