package replica

import (
	"sync"
	"time"
)

// Debt is what a node lacks of what the others have.
type Debt struct {
	Bytes int64
	// Known: Bytes is right. With 0 the node is whole: it has everything that was
	// acknowledged when it was told, and what came since is on its way to it.
	Known bool
	At    time.Time // when it was told; zero: never
	Full  bool      // its disk takes no more
}

// debts is what this node knows of its own.
type debts struct {
	mu      sync.Mutex
	begun   uint64 // comparisons
	ended   uint64 // the last that went well
	since   uint64 // only this one or a later one counts
	lacking int64  // when the last one ended, well or not
}

// begin numbers a comparison.
func (d *debts) begin() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun++
	return d.begun
}

// end records a comparison; whole says that enough nodes were compared with.
func (d *debts) end(n uint64, lacking int64, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lacking = lacking
	if whole {
		d.ended = n
	}
}

// doubt says that something may be missing which no comparison has looked at.
func (d *debts) doubt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = d.begun + 1
}

func (r *Replica) status() status {
	d := &r.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	return status{
		Full: r.cfg.Room() != nil, Known: d.ended > 0 && d.ended >= d.since, Lacking: d.lacking,
		Begun: d.begun, Ended: d.ended,
	}
}

// fresh is how long what a node told of itself is believed.
const fresh = 10 * time.Second

// Debt tells for every member what it lacks. Only the leader's answer is whole: it
// knows what it has yet to copy of the streams that are not sealed, while every
// node knows what it lacks of finished streams and blobs. So Known is false for
// other nodes where this one does not lead.
func (r *Replica) Debt() map[string]Debt {
	now := time.Now()
	st := r.status()
	v := r.view.Load()
	own := Debt{Bytes: st.Lacking, Known: st.Known || len(v.others) == 0, At: now, Full: st.Full}
	out := map[string]Debt{r.cfg.Self: own}
	t := r.leading()
	for _, id := range v.others {
		d := Debt{}
		if p := r.peer(id); p != nil {
			p.mu.Lock()
			l := p.link
			d = Debt{Bytes: p.status.Lacking + p.owed, At: p.heard, Full: p.status.Full}
			d.Known = l != nil && now.Sub(p.heard) < fresh && p.status.Known && p.need > 0 && p.status.Ended >= p.need
			p.mu.Unlock()
			if t == nil {
				d.Known = false
			} else {
				lag, known := t.lag(p, l)
				d.Bytes += lag
				d.Known = d.Known && known
			}
		}
		out[id] = d
	}
	return out
}

// lag is how many bytes of the streams that are not sealed have yet to be sent to a
// peer; false if the streams were not compared since it connected.
func (t *term) lag(p *peer, l *link) (bytes int64, known bool) {
	t.mu.Lock()
	known = l != nil && t.settled[p] == l
	t.mu.Unlock()
	for _, s := range t.all() {
		if !s.isOpen() {
			continue
		}
		s.mu.Lock()
		if c := s.copies[p.id]; c == nil || c.link != l || c.state != joined {
			bytes += s.end
			if c != nil && c.link == l {
				bytes -= c.size
			}
		} else if n := s.end - c.size; n > maxChunk || n > 0 && !c.busy && !c.queued {
			bytes += n
		}
		s.mu.Unlock()
	}
	return bytes, known
}
