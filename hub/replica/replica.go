// Package replica keeps recorded output and blobs on all nodes of a cluster.
//
// It stands before the stores of one node and has their methods; on the node that
// leads, what it acknowledges is durable on a majority of the voters, each of which
// has the stream from its first byte. Everybody may read: what is not here is
// fetched from a node that has it. In the background each node compares what it has
// with the others and fetches what it lacks, mends what its disk has damaged, and
// tells how much is missing. With no other node every call goes straight to the
// store.
//
// Guarantees, as long as a majority of the voters keeps what it has made durable:
//
//   - an acknowledged byte, seal or blob is found by every later leader, and no
//     other byte takes its place;
//   - a stream's copies are beginnings of one another, save for bytes that were
//     never acknowledged, and those are cut before more is acknowledged;
//   - a slow, full or dead follower holds nobody up while a majority answers, and
//     takes no memory: what it lacks is read from the disk when it takes it.
//
// Not guaranteed: that readers see only acknowledged bytes. What a leader has on
// its own disk is shown at once, and if that leader is lost, the same bytes come
// again from the runner. Parts of an unfinished upload are on the leader only; the
// sender asks the next one where to go on. Deleting is each node's own act. How the
// copies agree, and why that is safe, is told in DESIGN.md.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Member is a node of the cluster.
type Member struct {
	ID    string
	Voter bool // counts towards a majority
}

// Wanted says what a node is to have. A nil function wants everything.
type Wanted struct {
	Job  func(fleet.JobID) bool  // the output of a job
	Blob func(fleet.Digest) bool // a blob: one that no record names may go any time
}

// Config is what a replica is made of.
type Config struct {
	Self    string       // id of this node; required
	Dir     string       // for its own small file; required
	Spool   *spool.Store // required
	Blobs   *blob.Store  // required
	Members func() []Member
	// Dial reaches the port of another node that Serve listens on there.
	Dial func(ctx context.Context, id string) (net.Conn, error)
	// Wanted is called at the beginning of each comparison with the other nodes.
	// What is not wanted is not fetched and is no debt; without it, what retention
	// deletes here would come back from there. Default: everything.
	Wanted func() Wanted
	Room   func() error // says that the disk is full; default: never
	// Broken is told when a write of the own file finds that the disk fails
	// (durable.Broken), each time. Default: nobody.
	Broken func(error)
	// Patience is how long a call waits for a majority before it is refused with
	// fleet.Unavailable; default 10 s.
	Patience  time.Duration
	Compare   time.Duration // between comparisons with the other nodes; default 3 min
	FillRate  int64         // bytes a second that are fetched in the background; default 32 MiB
	ScrubRate int64         // bytes a second that are read again; default 4 MiB
	// ScrubEvery is the pause after everything was read again, give or take the half of
	// it. Default 6 h.
	ScrubEvery time.Duration
	Logger     *slog.Logger // default: discard
}

func (c *Config) validate() error {
	switch {
	case c.Self == "" || c.Dir == "":
		return errors.New("replica: Self or Dir is missing")
	case c.Spool == nil || c.Blobs == nil:
		return errors.New("replica: Spool or Blobs is missing")
	}
	if c.Members == nil {
		self := []Member{{ID: c.Self, Voter: true}}
		c.Members = func() []Member { return self }
	}
	if c.Dial == nil {
		c.Dial = func(context.Context, string) (net.Conn, error) { return nil, fleet.Unavailable }
	}
	if c.Wanted == nil {
		c.Wanted = func() Wanted { return Wanted{} }
	}
	if c.Room == nil {
		c.Room = func() error { return nil }
	}
	if c.Broken == nil {
		c.Broken = func(error) {}
	}
	if c.Patience <= 0 {
		c.Patience = 10 * time.Second
	}
	if c.Compare <= 0 {
		c.Compare = 3 * time.Minute
	}
	if c.FillRate <= 0 {
		c.FillRate = 32 << 20
	}
	if c.ScrubEvery <= 0 {
		c.ScrubEvery = 6 * time.Hour
	}
	if c.ScrubRate <= 0 {
		c.ScrubRate = 4 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Replica is one node's part. All methods may be called from many goroutines.
type Replica struct {
	cfg    Config
	log    *slog.Logger
	spool  *spool.Store
	blobs  *blob.Store
	record *record
	locks  locks

	// gate is held for reading by calls that go straight to the stores because
	// there is no other node, and for writing where that changes.
	gate  sync.RWMutex
	view  atomic.Pointer[view]
	drops atomic.Bool // there was something in dropped
	// leads says that lead is not nil, without the lock.
	leads atomic.Bool

	mu      sync.Mutex
	peers   map[string]*peer
	running context.Context // of Run; nil before and after
	wg      sync.WaitGroup  // of what Run owns
	lead    *term           // nil: not leading
	turned  chan struct{}   // closed and replaced when lead changes
	dropped map[string]bool // jobs and blobs that were deleted here

	changed chan struct{} // the members may have changed
	compare chan struct{} // compare soon
	debts   debts
}

// New opens the replica's own file. It starts nothing.
func New(c Config) (*Replica, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	r := &Replica{
		cfg: c, log: c.Logger, spool: c.Spool, blobs: c.Blobs,
		peers: map[string]*peer{}, turned: make(chan struct{}), dropped: map[string]bool{},
		changed: make(chan struct{}, 1), compare: make(chan struct{}, 1),
	}
	var err error
	if r.record, err = openRecord(c.Dir, func(k spool.Key) bool { _, ok := r.spool.Peek(k); return ok }); err != nil {
		return nil, fmt.Errorf("open the record of ballots in %s: %w", c.Dir, err)
	}
	r.record.broken = c.Broken
	r.view.Store(newView(c.Self, c.Members()))
	return r, nil
}

// Close gives up the replica's own file; the stores stay open. Call it after Run
// and Serve have returned.
func (r *Replica) Close() error {
	r.record.close()
	return nil
}

// Run keeps the connections to the other nodes, fetches what is missing and checks
// what is there, until ctx ends. It returns nil.
func (r *Replica) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.running = ctx
	r.mu.Unlock()
	r.tend(r.view.Load())
	r.wg.Go(func() { r.fill(ctx) })
	r.wg.Go(func() { r.scrub(ctx) })
	look := time.NewTicker(time.Second)
	defer look.Stop()
	tidy := time.NewTicker(idleFor)
	defer tidy.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.changed:
			r.look()
		case <-look.C:
			r.look()
		case <-tidy.C:
			if t := r.leading(); t != nil {
				t.tidy(time.Now())
			}
		}
	}
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	r.tend(&view{})
	r.wg.Wait()
	return nil
}

// MembersChanged has the replica ask for the members at once, not within a second.
func (r *Replica) MembersChanged() { poke(r.changed) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
