package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxConns    = 64  // from other nodes, at once
	maxRequests = 256 // of one connection, at once
	maxHeld     = inFlight + 4*maxFrame
)

// Serve answers other nodes until ctx ends or the listener fails; it closes the
// listener. A connection with a method Peer is served only under the name that it
// proves.
func (r *Replica) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer l.Close()
	context.AfterFunc(ctx, func() { l.Close() })
	conns := make(chan struct{}, maxConns)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept a node that copies: %w", err)
		}
		select {
		case conns <- struct{}{}:
		default:
			conn.Close() // it comes again
			continue
		}
		wg.Go(func() {
			defer func() { <-conns }()
			defer conn.Close()
			if err := r.serve(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
				r.log.Debug("connection of a node that copies ended", "err", err)
			}
		})
	}
}

// guest is a connection from another node.
type guest struct {
	r    *Replica
	node string
	out  chan *message
	done chan struct{}
}

// serve answers one connection.
func (r *Replica) serve(ctx context.Context, conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(dialTime))
	in := bufio.NewReaderSize(conn, 64<<10)
	hello, err := readFrame(in, false)
	if err != nil {
		return err
	}
	a := hello.answer()
	a.Node, a.Length = r.cfg.Self, version
	proven, proves := conn.(interface{ Peer() string })
	switch {
	case hello.Kind != kindHello:
		return errMalformed
	case hello.Length != version:
		a.Code, a.Text = fleet.ProtocolVersion, fmt.Sprintf("version %d, where %d is spoken", hello.Length, version)
	case proves && proven.Peer() != hello.Node:
		a.Code, a.Text = fleet.Forbidden, "the connection is another node's"
	case !slices.Contains(r.view.Load().others, hello.Node):
		a.Code, a.Text = fleet.Forbidden, "not a member of the cluster"
		r.MembersChanged() // it may have been let in a moment ago
	}
	if _, err := conn.Write(a.append(nil)); err != nil || a.Code != "" {
		return err
	}
	conn.SetDeadline(time.Time{})
	g := &guest{r: r, node: hello.Node, out: make(chan *message, queued), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() { conn.Close(); close(g.done) })
	wg.Go(func() {
		pump(conn, g.out, g.done)
		cancel()
	})
	return g.read(ctx, conn, in, &wg)
}

// read takes requests and has each answered on its own, so that the disk can do
// them together. What is in hand is bounded, in number and in bytes.
func (g *guest) read(ctx context.Context, conn net.Conn, in *bufio.Reader, wg *sync.WaitGroup) error {
	slots := make(chan struct{}, maxRequests)
	held := newWeight(maxHeld)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(2 * deadAfter)); err != nil {
			return err
		}
		m, err := readFrame(in, false)
		if err != nil {
			return err
		}
		if !slices.Contains(g.r.view.Load().others, g.node) {
			return fmt.Errorf("node %s is a member no more: %w", g.node, fleet.Forbidden)
		}
		n := int64(len(m.Data)) + 1<<10
		if m.Kind == kindRead || m.Kind == kindBlob {
			n += min(m.Length, maxChunk)
		}
		if !held.take(ctx, n) {
			return context.Cause(ctx)
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wg.Go(func() {
			defer func() { <-slots; held.give(n) }()
			a := m.answer()
			err := g.handle(ctx, m, a)
			a.Promised = g.r.record.promise()
			if err != nil {
				a.Code, a.Text = codeOf(err), err.Error()
				var gap *spool.GapError
				if errors.As(err, &gap) {
					a.Size = gap.Want
				}
			}
			select {
			case g.out <- a:
			case <-g.done:
			}
		})
	}
}

// handle does what a request asks for.
func (g *guest) handle(ctx context.Context, m, a *message) error {
	r := g.r
	if requests[m.Kind]&fBallot != 0 && m.Ballot != (Ballot{}) {
		if err := r.obey(m.Ballot, g.node); err != nil {
			return err
		}
	}
	switch m.Kind {
	case kindPing:
		a.Status = r.status()
	case kindProbe:
		if len(m.Keys) > maxKeys {
			return fmt.Errorf("%d streams at once: %w", len(m.Keys), fleet.TooLarge)
		}
		for _, k := range m.Keys {
			unlock := r.locks.hold(k)
			a.Holdings = append(a.Holdings, r.holding(k))
			unlock()
		}
	case kindJoin:
		return r.join(ctx, m, a)
	case kindAppend:
		return r.accept(ctx, m, a)
	case kindSeal:
		return r.acceptSeal(ctx, m, a)
	case kindSum:
		d, err := r.spool.Sum(ctx, m.Key, m.Offset, m.Offset+m.Length)
		a.Digest = d
		return err
	case kindRead:
		i, _ := r.spool.Peek(m.Key)
		a.Size, a.Sealed = i.Size, i.Sealed
		a.Data = make([]byte, max(min(m.Length, maxChunk, i.Size-m.Offset), 0))
		if len(a.Data) == 0 {
			return nil
		}
		n, err := r.spool.ReadAt(m.Key, a.Data, m.Offset)
		a.Data = a.Data[:n]
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	case kindBlob:
		return r.readBlob(m, a)
	case kindHold:
		return g.hold(ctx, m)
	case kindSums:
		var err error
		a.Sums, err = r.sums(m.Bucket)
		return err
	case kindStreams:
		r.listStreams(m, a)
	case kindBlobs:
		return r.listBlobs(m, a)
	case kindCompare:
		r.debts.doubt()
		a.Status = r.status()
		poke(r.compare)
	default:
		return fmt.Errorf("kind %d: %w", m.Kind, errMalformed)
	}
	return nil
}

// obey promises not to accept anything of an older leader; an older one is refused,
// and one that claims another's term.
func (r *Replica) obey(b Ballot, node string) error {
	ok, err := r.record.raise(b, node)
	if err != nil {
		return err
	}
	if t := r.leading(); t != nil && r.record.promise().Compare(t.ballot) > 0 {
		t.end(errDeposed)
	}
	if !ok {
		return errDeposed
	}
	return nil
}

// join has this node's copy of a stream stand under the leader's ballot. It does
// once the copy is all that the leader found and nothing else; until then its size
// is the answer, and what is missing is to be sent.
func (r *Replica) join(ctx context.Context, m, a *message) error {
	unlock := r.locks.hold(m.Key)
	defer unlock()
	if r.record.promise().Compare(m.Ballot) > 0 {
		return errDeposed
	}
	h := r.holding(m.Key)
	a.Size = h.Size
	switch c := h.Stamp.Ballot.Compare(m.Stamp); {
	case c > 0:
		return fmt.Errorf("the copy stands under a later ballot: %w", fleet.Internal)
	case c == 0 && !h.Stamp.Mixed && !m.Fill:
		return nil
	}
	// Two copies under one ballot are each the beginning of one thing.
	alike := !m.Fill && (h.Size == 0 || !h.Sealed && !h.Stamp.Mixed && h.Stamp == m.Prior)
	base := min(h.Size, m.Floor)
	if !alike {
		base = m.Offset
		if m.Digest == "" || base > h.Size || base > m.Floor && !m.Fill {
			return fmt.Errorf("the copies have to be compared: %w", fleet.Conflict)
		}
		if d, err := r.spool.Sum(ctx, m.Key, 0, base); err != nil {
			return err
		} else if d != m.Digest {
			return fmt.Errorf("the copies differ before %d: %w", base, fleet.Conflict)
		}
	}
	if base < m.Floor && h.Stamp != m.Prior || m.Fill {
		st := stamp{Ballot: h.Stamp.Ballot, Mixed: true}
		if m.Fill {
			st.Ballot = Ballot{}
		}
		if err := r.record.set(m.Key, st); err != nil {
			return err
		}
	}
	if base < h.Size || h.Sealed {
		if base < h.Size {
			r.log.Info("output that was never acknowledged is cut", "job", m.Key.Job, "fence", m.Key.Fence, "at", base, "size", h.Size)
		}
		if err := r.spool.Cut(m.Key, base); err != nil {
			return err
		}
	}
	a.Size = base
	if base < m.Floor {
		return nil
	}
	return r.record.set(m.Key, stamp{Ballot: m.Stamp})
}

// accept adds what the leader sent.
func (r *Replica) accept(ctx context.Context, m, a *message) (err error) {
	unlock := r.locks.share(m.Key)
	defer unlock()
	if r.record.promise().Compare(m.Ballot) > 0 {
		return errDeposed
	}
	st := r.record.stampOf(m.Key)
	if m.Fill && st.Ballot.Compare(m.Stamp) > 0 || !m.Fill && st != (stamp{Ballot: m.Stamp}) {
		return fmt.Errorf("the copy does not stand under this ballot: %w", fleet.Conflict)
	}
	r.anew(string(m.Key.Job))
	if a.Size, err = r.spool.Append(ctx, m.Key, m.Offset, m.Data); errors.Is(err, fleet.DiskFull) {
		r.debts.doubt()
	}
	return err
}

// acceptSeal finishes this node's copy.
func (r *Replica) acceptSeal(ctx context.Context, m, a *message) error {
	unlock := r.locks.hold(m.Key)
	defer unlock()
	if r.record.promise().Compare(m.Ballot) > 0 {
		return errDeposed
	}
	if r.record.stampOf(m.Key) != (stamp{Ballot: m.Stamp}) {
		return fmt.Errorf("the copy does not stand under this ballot: %w", fleet.Conflict)
	}
	a.Size = m.Length
	return r.spool.Seal(ctx, m.Key, m.Length, m.Digest)
}

// weight bounds bytes in hand.
type weight struct {
	mu    sync.Mutex
	free  int64
	freed chan struct{}
}

func newWeight(n int64) *weight { return &weight{free: n, freed: make(chan struct{}, 1)} }

// take waits until n bytes are free; there is one who takes.
func (w *weight) take(ctx context.Context, n int64) bool {
	for {
		w.mu.Lock()
		if w.free >= n {
			w.free -= n
			w.mu.Unlock()
			return true
		}
		w.mu.Unlock()
		select {
		case <-w.freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *weight) give(n int64) {
	w.mu.Lock()
	w.free += n
	w.mu.Unlock()
	poke(w.freed)
}
