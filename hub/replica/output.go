package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Append is spool.Store.Append; what it returns is durable on a majority. Refused
// with fleet.Unavailable where no majority answers in time, the bytes may be there
// all the same: sending them again does no harm.
func (r *Replica) Append(ctx context.Context, k spool.Key, offset int64, data []byte) (int64, error) {
	if r.alone() {
		defer r.gate.RUnlock()
		return r.spool.Append(ctx, k, offset, data)
	}
	s, done, err := r.use(ctx, k)
	if err != nil {
		return 0, fmt.Errorf("append to %s: %w", k, err)
	}
	defer done()
	return s.append(s.ctx, offset, data)
}

// Seal is spool.Store.Seal; stream and seal are on a majority when it returns nil.
func (r *Replica) Seal(ctx context.Context, k spool.Key, length int64, digest fleet.Digest) error {
	if r.alone() {
		defer r.gate.RUnlock()
		return r.spool.Seal(ctx, k, length, digest)
	}
	s, done, err := r.use(ctx, k)
	if err != nil {
		return fmt.Errorf("seal %s: %w", k, err)
	}
	defer done()
	return s.finish(s.ctx, length, digest)
}

// SealEmpty is spool.Store.SealEmpty, once a majority has said that nothing was
// ever added.
func (r *Replica) SealEmpty(ctx context.Context, k spool.Key) error {
	if r.alone() {
		defer r.gate.RUnlock()
		return r.spool.SealEmpty(k)
	}
	_, done, err := r.use(ctx, k)
	if err != nil {
		return fmt.Errorf("seal %s: %w", k, err)
	}
	defer done()
	return r.spool.SealEmpty(k)
}

// Held gives how many bytes of the stream there are, all of them durable on a majority.
func (r *Replica) Held(ctx context.Context, k spool.Key) (int64, error) {
	if r.alone() {
		defer r.gate.RUnlock()
		n, _ := r.spool.Size(k)
		return n, nil
	}
	s, done, err := r.use(ctx, k)
	if err != nil {
		return 0, fmt.Errorf("find the end of %s: %w", k, err)
	}
	defer done()
	return s.await(s.ctx, s.inFile())
}

// used is a stream in use by a call, whose context is bounded.
type used struct {
	*stream
	ctx context.Context
}

// use opens a stream for one call, which ends with done.
func (r *Replica) use(ctx context.Context, k spool.Key) (u used, done func(), err error) {
	ctx, cancel := r.patient(ctx)
	t, err := r.enter(ctx)
	if err == nil {
		u.stream, err = t.open(ctx, k)
	}
	if err != nil {
		cancel()
		return used{}, nil, err
	}
	u.ctx = ctx
	return u, func() { u.leave(); cancel() }, nil
}

// Size returns how many bytes of the stream are durable on this node, and whether
// it is sealed here.
func (r *Replica) Size(k spool.Key) (end int64, sealed bool) { return r.spool.Size(k) }

// Acked returns how many bytes of the stream this node knows to be acknowledged: where it
// leads those that a majority holds, elsewhere, and of a stream to which nothing is added,
// those that lie on its own disk.
func (r *Replica) Acked(k spool.Key) int64 {
	n, _ := r.spool.Size(k)
	if t := r.leading(); t != nil {
		t.mu.Lock()
		s := t.streams[k]
		t.mu.Unlock()
		if s != nil && s.isOpen() {
			n = min(n, s.acknowledged())
		}
	}
	return n
}

// Usage returns the durable bytes and the number of streams on this node.
func (r *Replica) Usage() (bytes, streams int64) { return r.spool.Usage() }

// Longest returns the most bytes of the stream that this node or one that answers
// within a moment has.
func (r *Replica) Longest(ctx context.Context, k spool.Key) int64 {
	most, sealed := r.spool.Size(k)
	if sealed {
		return most
	}
	_, size := r.longer(ctx, k, most)
	return size
}

// longer finds a peer with more than size bytes of the stream; nil if none says so.
func (r *Replica) longer(ctx context.Context, k spool.Key, size int64) (best *peer, most int64) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	most = size
	ask(ctx, r.connected(), &message{Kind: kindRead, Key: k}, func(p *peer, a *message, err error) bool {
		if err != nil {
			return true
		}
		if a.Size > most {
			best, most = p, a.Size
		}
		return !a.Sealed
	})
	return best, most
}

const askTime = 2 * time.Second

// ask puts the same question to several peers at once and has f take up each
// answer, of which a refusal is one with its error and a connection that ended a nil
// one, until f says that it needs no more, all have answered, or ctx ends.
func ask(ctx context.Context, peers []*peer, m *message, f func(p *peer, a *message, err error) bool) {
	type answer struct {
		p   *peer
		m   *message
		err error
	}
	answers := make(chan answer, len(peers))
	n := 0
	for _, p := range peers {
		l := p.up()
		if l == nil {
			continue
		}
		n++
		q := *m
		l.send(&q, func(a *message, err error) { answers <- answer{p, a, err} })
	}
	for ; n > 0; n-- {
		select {
		case a := <-answers:
			if !f(a.p, a.m, a.err) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Delete removes a job's streams from this node, and does not fetch them from the
// others again while the replica runs.
func (r *Replica) Delete(job fleet.JobID) error {
	r.drop(string(job))
	return r.spool.Delete(job)
}

// DeleteUnused is blob.Store.DeleteUnused on this node, which does not fetch the
// blob from the others again while the replica runs, unless it is stored anew.
func (b *Blobs) DeleteUnused(d fleet.Digest, since time.Time) (freed int64, err error) {
	freed, err = b.r.blobs.DeleteUnused(d, since)
	if freed > 0 {
		b.r.drop(string(d))
	}
	return freed, err
}

// maxDropped bounds what is remembered of deletions. Beyond it all is forgotten:
// what was deleted here and not elsewhere is fetched once more.
const maxDropped = 200_000

func (r *Replica) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.dropped) >= maxDropped {
		clear(r.dropped)
	}
	r.dropped[name] = true
	r.drops.Store(true)
}

// anew forgets that something was deleted: there is something new of it.
func (r *Replica) anew(name string) {
	if !r.drops.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.dropped, name)
}

func (r *Replica) isDropped(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped[name]
}

// Reader is spool.Store.Reader, where what this node lacks comes from one that has
// it.
func (r *Replica) Reader(ctx context.Context, k spool.Key, from int64, follow bool) (io.ReadCloser, error) {
	if r.alone() {
		defer r.gate.RUnlock()
		return r.spool.Reader(ctx, k, from, follow)
	}
	if from < 0 {
		return r.spool.Reader(ctx, k, from, follow)
	}
	o := &output{r: r, key: k, next: from, follow: follow}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	return o, nil
}

// output reads a stream from here and, behind what is here, from the others. It
// keeps its context because io.Reader has no room for one.
type output struct {
	r      *Replica
	key    spool.Key
	next   int64
	follow bool
	ctx    context.Context
	cancel context.CancelCauseFunc
	part   io.ReadCloser // of a peer's copy, or nil
	asked  bool          // the others had no more; ask again after patience
	after  time.Duration
}

var errReaderClosed = errors.New("reader is closed")

// A follower of a stream that does not grow here asks the others so long after, and
// then after twice that, and so on.
const (
	lookAfter = time.Second
	lookMost  = 16 * time.Second
)

// Close ends a Read that waits, and all later ones.
func (o *output) Close() error {
	o.cancel(errReaderClosed)
	return nil
}

func (o *output) Read(p []byte) (int, error) {
	for {
		if o.ctx.Err() != nil {
			return 0, context.Cause(o.ctx)
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, sealed, err := o.here(p)
		if n > 0 || err != nil {
			return n, err
		}
		if !o.asked {
			if n, err := o.there(p); n > 0 {
				return n, err
			}
			o.asked = o.part == nil
		}
		switch {
		case sealed, !o.follow:
			return 0, io.EOF
		}
		if err := o.wait(); err != nil {
			return 0, err
		}
	}
}

// here reads from this node's own copy.
func (o *output) here(p []byte) (n int, sealed bool, err error) {
	i, ok := o.r.spool.Peek(o.key)
	_, sealed = o.r.spool.Size(o.key) // also of one that is sealed without ever having been there
	if !ok || i.Size <= o.next {
		return 0, sealed, nil
	}
	n, err = o.r.spool.ReadAt(o.key, p[:min(int64(len(p)), i.Size-o.next)], o.next)
	if n > 0 {
		o.stop()
		o.next += int64(n)
		o.after = 0
		return n, sealed, nil
	}
	if err != nil {
		// The disk does not give what it took; another node may.
		if n, _ := o.there(p); n > 0 {
			return n, false, nil
		}
	}
	return 0, sealed, err
}

// there reads from a peer that has more; 0 if none is known.
func (o *output) there(p []byte) (int, error) {
	if o.part == nil {
		if i, _ := o.r.spool.Peek(o.key); i.Sealed && i.Size <= o.next {
			return 0, nil
		}
		best, size := o.r.longer(o.ctx, o.key, o.next)
		if best == nil {
			return 0, nil
		}
		l := best.up()
		if l == nil {
			return 0, nil
		}
		o.part = o.r.remote(o.ctx, l, o.key, o.next, size, nil)
	}
	n, err := o.part.Read(p)
	o.next += int64(n)
	if err != nil {
		o.stop()
	}
	return n, nil
}

func (o *output) stop() {
	if o.part != nil {
		o.part.Close()
		o.part = nil
	}
}

// wait returns when this node's copy may have grown, or it is time to ask again.
func (o *output) wait() error {
	o.after = min(max(2*o.after, lookAfter), lookMost)
	ctx, cancel := context.WithTimeout(o.ctx, o.after)
	defer cancel()
	in, err := o.r.spool.Reader(ctx, o.key, o.next, true)
	if err != nil {
		return err
	}
	defer in.Close()
	var b [1]byte
	_, err = in.Read(b[:])
	switch {
	case o.ctx.Err() != nil:
		return context.Cause(o.ctx)
	case err == nil, err == io.EOF:
		return nil
	case ctx.Err() != nil:
		o.asked = false
		return nil
	}
	return err
}

// remote reads a range of a peer's copy, some parts ahead of whoever reads.
func (r *Replica) remote(ctx context.Context, l *link, k spool.Key, from, to int64, pace func(int) error) io.ReadCloser {
	return fetch(ctx, l, from, to, pace, func(off, n int64) *message {
		return &message{Kind: kindRead, Key: k, Offset: off, Length: n}
	})
}

const ahead = 4 // parts that are asked for before they are read

// fetched reads the parts of something from a peer in order.
type fetched struct {
	ctx    context.Context
	cancel context.CancelFunc
	parts  chan chan part
	now    []byte
	err    error
	wg     sync.WaitGroup
}

type part struct {
	data []byte
	err  error
}

// fetch asks a peer for the parts of something that has at least to bytes.
func fetch(ctx context.Context, l *link, from, to int64, pace func(int) error, request func(off, n int64) *message) *fetched {
	f := &fetched{parts: make(chan chan part, ahead)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() {
		defer close(f.parts)
		for off := from; off < to; {
			n := min(maxChunk, to-off)
			if pace != nil {
				if err := pace(int(n)); err != nil {
					return
				}
			}
			got := make(chan part, 1)
			select {
			case f.parts <- got:
			case <-f.ctx.Done():
				return
			}
			l.send(request(off, n), func(a *message, err error) {
				switch {
				case err != nil:
					got <- part{err: err}
				case int64(len(a.Data)) != n:
					got <- part{err: fmt.Errorf("node %s gave %d bytes instead of %d: %w", l.node, len(a.Data), n, io.ErrUnexpectedEOF)}
				default:
					got <- part{data: a.Data}
				}
			})
			off += n
		}
	})
	return f
}

func (f *fetched) Read(p []byte) (int, error) {
	for len(f.now) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.now, f.err = f.next()
	}
	n := copy(p, f.now)
	f.now = f.now[n:]
	return n, nil
}

func (f *fetched) next() ([]byte, error) {
	select {
	case got, ok := <-f.parts:
		if !ok {
			if f.ctx.Err() != nil {
				return nil, context.Cause(f.ctx)
			}
			return nil, io.EOF
		}
		select {
		case p := <-got:
			return p.data, p.err
		case <-f.ctx.Done():
		}
	case <-f.ctx.Done():
	}
	return nil, context.Cause(f.ctx)
}

// Close ends the asking.
func (f *fetched) Close() error {
	f.cancel()
	f.wg.Wait()
	return nil
}
