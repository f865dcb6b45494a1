package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	askEvery  = time.Second
	askTime   = 2 * time.Second
	maxAsked  = 32       // nodes that are asked at once
	maxStatus = 64 << 10 // bytes of what a node says of itself
)

// Facts is what a node says of itself.
type Facts struct {
	ID       string        `json:"id"`
	Leader   string        `json:"leader,omitempty"` // as it knows
	Term     uint64        `json:"term"`
	Applied  uint64        `json:"applied"` // index of the newest command that its state has
	Entry    uint64        `json:"entry"`   // newest entry of the log that its state has; 0: as Applied
	Last     uint64        `json:"last"`    // newest entry on its disk
	Version  string        `json:"version"`
	Kinds    int           `json:"kinds"` // newest generation of commands that it can decode
	DiskFree int64         `json:"disk_free"`
	DiskFull bool          `json:"disk_full,omitempty"` // it takes no new bytes
	Draining bool          `json:"draining,omitempty"`  // it is about to be stopped, and does not lead
	Debt     int64         `json:"debt"`                // bytes of output and blobs that it lacks
	Uptime   time.Duration `json:"uptime_ns"`
	Stalled  bool          `json:"stalled,omitempty"` // the disk under its log is too slow for a leader's
	Wall     time.Time     `json:"wall"`              // set when the answer leaves
}

// Sample is what is known of one node.
type Sample struct {
	ID    string
	Facts Facts     // as it answered last
	Heard time.Time // when that was, by this node's monotonic clock; zero: never
	// Offset is how far its wall clock is ahead of this node's; wrong by half of
	// Trip at most.
	Offset, Trip time.Duration
	Err          error // of the last try, nil where it answered
}

// polls is what the nodes answered.
type polls struct {
	mu   sync.Mutex
	all  map[string]Sample
	busy map[string]bool
}

func newPolls() *polls { return &polls{all: map[string]Sample{}, busy: map[string]bool{}} }

func (p *Peers) answerStatus(w http.ResponseWriter, _ *http.Request) {
	f := p.cfg.Facts()
	f.ID, f.Wall = p.cfg.Self, p.cfg.Wall()
	b, err := json.Marshal(f)
	if err != nil {
		p.refuseWith(w, "status", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // who went away asks again
}

// ask asks all members every second while this node leads, or nobody does.
func (p *Peers) ask(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		if p.cfg.Leading() || p.cfg.Leader() == "" {
			p.askAll(ctx, &wg)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// askAll begins to ask every member that is not being asked already, and forgets
// those who are none any more.
func (p *Peers) askAll(ctx context.Context, wg *sync.WaitGroup) {
	members := p.cfg.Members()
	p.polls.mu.Lock()
	defer p.polls.mu.Unlock()
	maps.DeleteFunc(p.polls.all, func(id string, _ Sample) bool { return !slices.Contains(members, id) })
	for _, id := range members {
		if id == p.cfg.Self || p.polls.busy[id] || len(p.polls.busy) >= maxAsked {
			continue
		}
		p.polls.busy[id] = true
		wg.Go(func() {
			s := p.sample(ctx, id)
			p.polls.mu.Lock()
			defer p.polls.mu.Unlock()
			delete(p.polls.busy, id)
			if was := p.polls.all[id]; s.Err != nil {
				was.ID, was.Err = id, s.Err
				s = was
			}
			p.polls.all[id] = s
		})
	}
}

// sample asks one node.
func (p *Peers) sample(ctx context.Context, id string) Sample {
	f, asked, answered, err := p.status(ctx, id)
	if err != nil {
		return Sample{ID: id, Err: err}
	}
	trip := answered.Sub(asked)
	return Sample{ID: id, Facts: f, Heard: answered, Trip: trip, Offset: f.Wall.Sub(p.cfg.Wall().Add(trip/2 - time.Since(asked)))}
}

// status asks a node what it says of itself, and tells when it did and was answered.
func (p *Peers) status(ctx context.Context, id string) (f Facts, asked, answered time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	// The time to connect is no part of the trip.
	var mu sync.Mutex
	trace := &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { mu.Lock(); asked = time.Now(); mu.Unlock() },
		GotFirstResponseByte: func() { mu.Lock(); answered = time.Now(); mu.Unlock() },
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "http://"+id+"/status", nil)
	if err != nil {
		return f, asked, answered, err
	}
	res, err := p.calls.Do(req)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return f, asked, answered, fmt.Errorf("ask node %s how it is: %v: %w", id, err, fleet.Unavailable)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		_, err := readAnswer(res)
		return f, asked, answered, err
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil && f.ID != id {
		err = fmt.Errorf("it calls itself %q", f.ID)
	}
	if err != nil {
		return Facts{}, asked, answered, fmt.Errorf("read what node %s says: %w", id, err)
	}
	return f, asked, answered, nil
}

// Samples gives what is known of every member, by id; of this node as it is now.
// Only the leader, or everyone while nobody leads, keeps the others' current.
func (p *Peers) Samples() []Sample {
	f, now := p.cfg.Facts(), time.Now()
	f.ID, f.Wall = p.cfg.Self, p.cfg.Wall()
	out := []Sample{{ID: p.cfg.Self, Facts: f, Heard: now}}
	p.polls.mu.Lock()
	for _, id := range p.cfg.Members() {
		if id == p.cfg.Self {
			continue
		}
		s, ok := p.polls.all[id]
		if !ok {
			s = Sample{ID: id, Err: ErrNotAsked}
		}
		out = append(out, s)
	}
	p.polls.mu.Unlock()
	slices.SortFunc(out, func(a, b Sample) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// ErrNotAsked says that a member was not asked yet: nobody knows how it is.
var ErrNotAsked = errors.New("it has not been asked yet")
