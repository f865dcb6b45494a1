package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// fetchTime bounds one file that is brought from another node.
const fetchTime = 2 * time.Minute

// openCopies puts the stores of output and files behind what keeps them on all nodes.
func (h *Hub) openCopies() (err error) {
	c := replica.Config{
		Self: h.id.Node, Dir: filepath.Join(h.cfg.Dir, "replica"), Spool: h.spool, Blobs: h.blobs,
		Wanted: h.wanted, Room: h.disk.room, Broken: h.disk.broke, ScrubEvery: h.cfg.Scrub, Logger: h.log,
	}
	if h.network != nil {
		c.Dial = func(ctx context.Context, id string) (net.Conn, error) { return h.network.Dial(ctx, id, portCopies) }
		c.Members = h.copyMembers
	}
	h.copies, err = replica.New(c)
	return err
}

// copyMembers are the nodes as the log's group has them.
func (h *Hub) copyMembers() []replica.Member {
	members, err := h.node.Members()
	if err != nil {
		return []replica.Member{{ID: h.id.Node, Voter: true}}
	}
	out := make([]replica.Member, 0, len(members))
	for _, m := range members {
		out = append(out, replica.Member{ID: m.ID, Voter: m.Voter})
	}
	return out
}

// wanted says what of the output and the files this node is to have: what a record
// still names.
func (h *Hub) wanted() replica.Wanted {
	v := h.entries.View()
	named := map[fleet.Digest]bool{}
	jobs := map[fleet.JobID]bool{}
	s := stockOf(v)
	for _, j := range s.jobs {
		kept := append(inputs(j), precious(j)...)
		if !s.settled(j) || s.now.Sub(endOf(j)) < h.cfg.Retention.Output {
			jobs[j.ID] = true
			kept = append(kept, outputs(j)...)
		}
		for _, b := range kept {
			named[b] = true
		}
	}
	orphaned(v, jobs, named)
	return replica.Wanted{
		Job:  func(id fleet.JobID) bool { return jobs[id] },
		Blob: func(d fleet.Digest) bool { return named[d] },
	}
}

// orphaned adds what orphans that wait for a person have.
func orphaned(v state.View, jobs map[fleet.JobID]bool, named map[fleet.Digest]bool) {
	for _, o := range v.Orphans() {
		if o.Settled == fleet.OrphanDiscarded {
			continue
		}
		jobs[o.Job] = true
		if e := o.Evidence; e != nil {
			named[e.Patch], named[e.Bundle] = true, true
			for _, f := range e.Artifacts {
				named[f.Digest] = true
			}
		}
	}
	delete(named, "")
}

// serveCopies copies to and from the other nodes until ctx ends.
func (h *Hub) serveCopies(ctx context.Context) error {
	l, err := h.network.Listen(portCopies)
	if err != nil {
		return fmt.Errorf("listen for copies: %w", err)
	}
	defer l.Close()
	return h.copies.Serve(ctx, l)
}

// leadCopies has this node find out what was acknowledged by those who led before,
// before anything is acknowledged in this term.
func (h *Hub) leadCopies(ctx context.Context) error {
	t, err := h.provenTerm(ctx)
	if err != nil {
		return err
	}
	m := h.entries.View().Meta()
	err = h.copies.Lead(ctx, replica.Term{Epoch: max(m.Epoch, h.seenEpoch(), 1), Term: t, Since: m.Index})
	if err == nil || ctx.Err() != nil {
		return err
	}
	h.log.Error("this node leads the log and may not lead the copies of output", "err", err)
	h.giveAway(ctx, err)
	<-ctx.Done()
	return context.Cause(ctx)
}

// provenTerm gives the log's term in which this node leads: one that was read while
// another node took over would have the real leader refused.
func (h *Hub) provenTerm(ctx context.Context) (t uint64, err error) {
	err = awaitEvery(ctx, settleLook, func() error {
		t = h.node.Status().Term
		if err := h.node.VerifyLeader(ctx); err != nil {
			h.log.Debug("leadership is not confirmed", "err", err)
			return err
		}
		if now := h.node.Status().Term; now != t {
			return fmt.Errorf("term %d has begun", now)
		}
		return nil
	})
	if err != nil {
		return 0, context.Cause(ctx)
	}
	return t, nil
}

// fetchFile has a file brought here that another node may have: a verdict waits for
// it. It does not wait itself, and is asked again as long as the verdict waits.
func (h *Hub) fetchFile(d fleet.Digest) {
	select {
	case h.missed <- d:
	default:
	}
}

// fetchFiles brings files here, one after the other, until ctx ends.
func (h *Hub) fetchFiles(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-h.missed:
			if h.fetchOne(ctx, d) {
				h.poke()
			}
		}
	}
}

func (h *Hub) fetchOne(ctx context.Context, d fleet.Digest) bool {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	r, _, err := h.copies.Blobs().Open(ctx, d)
	if err != nil {
		if !errors.Is(err, fleet.BlobMissing) {
			h.log.Debug("no node gave a file that a verdict waits for", "err", err)
		}
		return false
	}
	r.Close()
	return true
}

// unknownDebt is how a node tells the others that it does not know yet what it lacks.
const unknownDebt = 1

// debt is how many bytes of output and files this node lacks, or unknownDebt.
func (h *Hub) debt() int64 { return owed(h.copies.Debt()[h.id.Node]) }

func owed(d replica.Debt) int64 {
	if d.Bytes == 0 && !d.Known {
		return unknownDebt
	}
	return d.Bytes
}
