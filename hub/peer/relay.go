package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	tellEvery  = 2 * time.Second  // presence goes to the followers
	maxChunk   = 512              // runners in one line
	maxLine    = 1 << 20          // bytes of a line
	maxSet     = maxLine - 64<<10 // of them about runners that are there
	maxQueue   = 64               // messages that wait for a follower
	maxPartial = 256 << 10        // bytes of a job's partial events in one line; more is dropped
	takeTime   = 5 * time.Second  // for a follower to take a message
)

// line is one line of the held stream: who is connected as the leader saw it, or
// partial events of a job. Clocks of two hosts are not compared: what happened when
// is told on the leader's monotonic clock, as time since it began to count.
type line struct {
	From  string        `json:"from"` // id of the leader
	Term  uint64        `json:"term"`
	Index uint64        `json:"index"` // that it had applied
	Clock time.Duration `json:"clock_ns"`

	Whole bool             `json:"whole,omitempty"` // what was told before is void
	More  bool             `json:"more,omitempty"`  // further lines belong to it
	Set   []sighting       `json:"set,omitempty"`   // new or changed
	Gone  []fleet.RunnerID `json:"gone,omitempty"`

	Job  fleet.JobID   `json:"job,omitempty"`
	Live []fleet.Event `json:"live,omitempty"`
}

// sighting is a runner's presence; its LastBeat is told as Beat, its HealthAt as
// Sampled. Most beats bring neither a new sample nor other caches, and those are the
// most of it: they are then left out.
type sighting struct {
	fleet.Presence
	Beat       time.Duration `json:"beat_ns,omitempty"`     // 0: never
	Sampled    time.Duration `json:"sampled_ns,omitempty"`  // 0: never
	KeepHealth bool          `json:"keep_health,omitempty"` // the sample is the one told before
	KeepCaches bool          `json:"keep_caches,omitempty"` // so are the caches
}

// sight gives a presence as it is told, by the leader's clock.
func (r *relay) sight(p fleet.Presence) sighting {
	s := sighting{Presence: p}
	if !p.LastBeat.IsZero() {
		s.Beat, s.LastBeat = max(p.LastBeat.Sub(r.base), 1), time.Time{}
	}
	if s.HealthAt = (time.Time{}); p.Health != nil {
		s.Sampled = max(p.HealthAt.Sub(r.base), 1)
	}
	return s
}

// since gives what is to be told to somebody who was told was; false: nothing.
func (s sighting) since(was sighting) (sighting, bool) {
	one, other := s, was
	if one.Automation != nil && other.Automation != nil && *one.Automation == *other.Automation {
		other.Automation = one.Automation
	}
	if one == other {
		return s, false
	}
	if s.Health != nil && s.Health == was.Health && s.Sampled == was.Sampled {
		s.KeepHealth, s.Health, s.Sampled = true, nil, 0
	}
	if s.Caches != "" && s.Caches == was.Caches {
		s.KeepCaches, s.Caches = true, ""
	}
	return s, true
}

// after completes what was told by what was told before.
func (s sighting) after(was sighting) sighting {
	if s.KeepHealth {
		s.KeepHealth, s.Health, s.Sampled = false, was.Health, was.Sampled
	}
	if s.KeepCaches {
		s.KeepCaches, s.Caches = false, was.Caches
	}
	return s
}

// relay is the leader's side of the stream: it works out once what has changed, and
// leaves it to each follower's queue.
type relay struct {
	base time.Time

	mu     sync.Mutex
	closed bool
	last   map[fleet.RunnerID]sighting
	subs   map[*follower]bool
}

// follower is one open stream. Its queue is closed when it is too slow for presence,
// or the stream has to end for another reason.
type follower struct {
	queue chan []byte
	fresh bool // it has heard nothing yet
}

func newRelay() *relay {
	return &relay{base: time.Now().Add(-time.Second), last: map[fleet.RunnerID]sighting{}, subs: map[*follower]bool{}}
}

func (r *relay) enter() (*follower, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	f := &follower{queue: make(chan []byte, maxQueue), fresh: true}
	r.subs[f] = true
	return f, true
}

func (r *relay) leave(f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(f)
}

// drop is called with mu held.
func (r *relay) drop(f *follower) {
	if r.subs[f] {
		delete(r.subs, f)
		close(f.queue)
	}
}

// clear ends all streams: this node does not lead any more.
func (r *relay) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.subs {
		r.drop(f)
	}
}

// heard says whether anybody listens.
func (r *relay) heard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.subs) > 0
}

func (r *relay) close() {
	r.clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// tell gives every follower what changed since it was told last.
func (r *relay) tell(stamp line, all []fleet.Presence) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp.Clock = time.Since(r.base)
	now := make(map[fleet.RunnerID]sighting, len(all))
	whole := make([]sighting, 0, len(all))
	var set []sighting
	for _, p := range all {
		s := r.sight(p)
		now[p.Runner] = s
		whole = append(whole, s)
		if news, is := s.since(r.last[p.Runner]); is {
			set = append(set, news)
		}
	}
	var gone []fleet.RunnerID
	for id := range r.last {
		if _, still := now[id]; !still {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	r.last = now
	var first, change []byte // for those who know nothing, and for the others
	for f := range r.subs {
		var err error
		switch {
		case f.fresh && first == nil:
			stamp.Whole = true
			first, err = encode(stamp, whole, nil)
			stamp.Whole = false
		case !f.fresh && change == nil:
			change, err = encode(stamp, set, gone)
		}
		if err != nil {
			return err
		}
		b := change
		if f.fresh {
			b, f.fresh = first, false
		}
		select {
		case f.queue <- b:
		default: // what it would miss now, it would miss for good
			r.drop(f)
		}
	}
	return nil
}

// live passes partial events on to those who keep up; they remember nothing anyway.
func (r *relay) live(stamp line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subs) == 0 {
		return
	}
	stamp.Clock = time.Since(r.base)
	b, err := json.Marshal(stamp)
	if err != nil || len(b) > maxPartial {
		return
	}
	b = append(b, '\n')
	for f := range r.subs {
		if !f.fresh && len(f.queue) < maxQueue/2 {
			f.queue <- b
		}
	}
}

// encode writes one message, in lines that each stay within bounds.
func encode(stamp line, set []sighting, gone []fleet.RunnerID) ([]byte, error) {
	var out []byte
	for first := true; first || len(set) > 0 || len(gone) > 0; first = false {
		l := struct {
			line
			Set []json.RawMessage `json:"set,omitempty"`
		}{line: stamp}
		l.Whole = stamp.Whole && first
		for size := 0; len(set) > 0 && len(l.Set) < maxChunk; set = set[1:] {
			b, err := json.Marshal(set[0])
			if err != nil {
				return nil, err
			}
			if size += len(b) + 1; size > maxSet && len(l.Set) > 0 {
				break
			}
			l.Set = append(l.Set, b)
		}
		l.Gone, gone = gone[:min(len(gone), maxChunk)], gone[min(len(gone), maxChunk):]
		l.More = len(set) > 0 || len(gone) > 0
		b, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		out = append(append(out, b...), '\n')
	}
	return out, nil
}

// stamp is what every line says.
func (p *Peers) stamp() line {
	f := p.cfg.Facts()
	return line{From: p.cfg.Self, Term: f.Term, Index: f.Applied}
}

// tell relays presence while this node leads.
func (p *Peers) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.tellNow()
		}
	}
}

func (p *Peers) tellNow() {
	if !p.cfg.Leading() {
		p.relay.clear()
		return
	}
	if !p.relay.heard() {
		return
	}
	if err := p.relay.tell(p.stamp(), p.cfg.Presence()); err != nil {
		p.log.Error("relay presence", "err", err)
	}
}

// Live relays partial events of a job to the followers. It never waits: who cannot
// keep up misses some.
func (p *Peers) Live(job fleet.JobID, events []fleet.Event) {
	if len(events) == 0 {
		return
	}
	l := p.stamp()
	l.Job, l.Live = job, events
	p.relay.live(l)
}

// streamPresence is GET /presence: held while this node leads.
func (p *Peers) streamPresence(w http.ResponseWriter, r *http.Request) {
	f, ok := (*follower)(nil), false
	if p.cfg.Leading() {
		f, ok = p.relay.enter()
	}
	if !ok {
		refuse(w, fleet.Unavailable, "this node does not lead")
		return
	}
	defer p.relay.leave(f)
	p.tellNow()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	for {
		select {
		case <-r.Context().Done():
			return
		case b, open := <-f.queue:
			if !open {
				return
			}
			_ = rc.SetWriteDeadline(time.Now().Add(takeTime)) // where the writer has deadlines
			if _, err := w.Write(b); err != nil {
				return
			}
			if err := rc.Flush(); err != nil {
				return
			}
		}
	}
}

// lines reads lines of a stream.
func lines(res *http.Response) *bufio.Scanner {
	s := bufio.NewScanner(res.Body)
	s.Buffer(make([]byte, 0, 16<<10), maxLine)
	return s
}

func byRunner(a, b fleet.Presence) int { return strings.Compare(string(a.Runner), string(b.Runner)) }
