package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// fill compares this node with the others, when it is asked to and now and then by
// itself, and fetches what it lacks.
func (r *Replica) fill(ctx context.Context) {
	rate := &pacer{rate: r.cfg.FillRate}
	whole := true
	for {
		every := r.cfg.Compare
		if !whole {
			every = min(every, compareSoon)
		}
		wait := time.NewTimer(every/2 + rand.N(every)) // jitter, so that nodes do not ask in step
		select {
		case <-ctx.Done():
		case <-r.compare:
		case <-wait.C:
		}
		wait.Stop()
		if ctx.Err() != nil {
			return
		}
		if len(r.view.Load().others) > 0 {
			whole = r.round(ctx, rate)
		}
	}
}

// compareSoon is when a comparison is repeated after which something was missing
// still, because a disk was full or a node went away.
const compareSoon = 20 * time.Second

// lack is what this node does not have and a peer has.
type lack struct {
	streams map[spool.Key]source
	blobs   map[fleet.Digest]source
}

// source is where to fetch something.
type source struct {
	holding // of a stream
	blob    blobInfo
	peers   []*peer
}

// round is one comparison with every node that can be asked, and the fetching of
// what it found. It says whether nothing is missing any more.
func (r *Replica) round(ctx context.Context, rate *pacer) (whole bool) {
	n := r.debts.begin()
	r.digests(ctx)
	r.record.forget(func(k spool.Key) bool { _, ok := r.spool.Peek(k); return !ok })
	want := r.cfg.Wanted()
	lacks := lack{map[spool.Key]source{}, map[fleet.Digest]source{}}
	v := r.view.Load()
	met := 0
	if v.voters[v.self] {
		met++
	}
	for _, p := range r.connected() {
		if err := r.compareWith(ctx, p, want, &lacks); err != nil {
			r.log.Debug("comparing with another node failed", "node", p.id, "err", err)
			continue
		}
		if v.voters[p.id] {
			met++
		}
	}
	lacking := int64(0)
	for _, s := range lacks.streams {
		lacking += r.missing(s.holding)
	}
	for _, s := range lacks.blobs {
		lacking += s.blob.Size
	}
	enough := met >= v.meeting()
	r.debts.end(n, lacking, enough)
	if len(lacks.streams) == 0 && len(lacks.blobs) == 0 {
		return enough
	}
	r.log.Info("fetching what other nodes have", "bytes", lacking, "streams", len(lacks.streams), "blobs", len(lacks.blobs))
	failed := 0
	settle := func(size int64, err error) {
		if err == nil {
			lacking -= size
			r.debts.end(n, lacking, enough)
			return
		}
		if failed++; failed == 1 {
			r.log.Warn("fetching from another node failed", "err", err)
		}
	}
	for _, s := range lacks.streams {
		size := r.missing(s.holding)
		settle(size, r.fetchStream(ctx, s, func(n int) error { return rate.wait(ctx, n) }))
	}
	for _, s := range lacks.blobs {
		settle(s.blob.Size, r.fetchAny(ctx, s, func(n int) error { return rate.wait(ctx, n) }))
	}
	return enough && failed == 0
}

// missing is how many bytes this node lacks of a finished stream.
func (r *Replica) missing(h holding) int64 {
	own, _ := r.spool.Peek(h.Key)
	if own.Sealed {
		return h.Size
	}
	return max(h.Size-own.Size, 0)
}

// digests has every sealed stream get a digest, which those from before there were
// other nodes lack.
func (r *Replica) digests(ctx context.Context) {
	var without []spool.Info
	r.spool.Each(func(i spool.Info) bool {
		if i.Sealed && i.Digest == "" && i.Size > 0 {
			without = append(without, i)
		}
		return true
	})
	for _, i := range without {
		if ctx.Err() != nil {
			return
		}
		if _, err := r.spool.SealSum(ctx, i.Key, i.Size); err != nil {
			r.log.Warn("summing a finished stream failed", "job", i.Key.Job, "fence", i.Key.Fence, "err", err)
		}
	}
}

// compareWith adds what one peer has and this node lacks.
func (r *Replica) compareWith(ctx context.Context, p *peer, want Wanted, lacks *lack) error {
	l := p.up()
	if l == nil {
		return errHungUp
	}
	streams, err := r.differing(ctx, l, ofStreams)
	if err != nil {
		return err
	}
	for _, b := range streams {
		err := eachHolding(ctx, l, b, func(h holding) {
			if h.Digest == "" || h.Size == 0 || !want.job(h.Key.Job) || r.isDropped(string(h.Key.Job)) || !r.lacks(h) {
				return
			}
			s, ok := lacks.streams[h.Key]
			switch {
			case !ok || h.Stamp.Ballot.Compare(s.Stamp.Ballot) > 0:
				s = source{holding: h, peers: []*peer{p}}
			case s.Digest == h.Digest:
				s.peers = append(s.peers, p)
			}
			lacks.streams[h.Key] = s
		})
		if err != nil {
			return err
		}
	}
	blobs, err := r.differing(ctx, l, ofBlobs)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		err := eachBlob(ctx, l, b, func(b blobInfo) {
			if !want.blob(b.Digest) || r.isDropped(string(b.Digest)) {
				return
			}
			if _, err := r.blobs.Stat(b.Digest); errors.Is(err, fleet.BlobMissing) {
				s := lacks.blobs[b.Digest]
				s.blob, s.peers = b, append(s.peers, p)
				lacks.blobs[b.Digest] = s
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lacks says whether a peer's finished stream is to be taken over: one that is not
// finished here, and not one of a later ballot.
func (r *Replica) lacks(h holding) bool {
	own := r.holding(h.Key)
	c := h.Stamp.Ballot.Compare(own.Stamp.Ballot)
	if own.Sealed {
		return c > 0 && (own.Size != h.Size || own.Digest != h.Digest)
	}
	return c >= 0
}

// fetchStream takes a finished stream over from the first peer that gives it.
func (r *Replica) fetchStream(ctx context.Context, s source, pace func(int) error) (err error) {
	for _, p := range s.peers {
		l := p.up()
		if l == nil {
			err = errors.Join(err, errHungUp)
			continue
		}
		c, e := r.receive(ctx, l, s.holding, pace)
		if e == nil {
			return r.place(c, s.holding)
		}
		err = errors.Join(err, e)
	}
	return err
}

// place puts a stream that was fetched in its place, if it still is to be there.
func (r *Replica) place(c *spool.Received, h holding) error {
	unlock := r.locks.hold(h.Key)
	defer unlock()
	if !r.lacks(h) || r.isDropped(string(h.Key.Job)) {
		c.Discard()
		return nil
	}
	if err := c.Place(); err != nil {
		return err
	}
	if h.Stamp.Ballot == r.record.stampOf(h.Key).Ballot {
		return nil
	}
	return r.record.set(h.Key, stamp{Ballot: h.Stamp.Ballot})
}

// fetchAny copies a blob from the first peer that gives it.
func (r *Replica) fetchAny(ctx context.Context, s source, pace func(int) error) (err error) {
	for _, p := range s.peers {
		e := r.fetchBlob(ctx, p, s.blob, pace, r.blobs.Put)
		if e == nil {
			return nil
		}
		err = errors.Join(err, e)
	}
	return err
}

func (w Wanted) job(j fleet.JobID) bool   { return w.Job == nil || w.Job(j) }
func (w Wanted) blob(d fleet.Digest) bool { return w.Blob == nil || w.Blob(d) }

// pacer keeps something below a rate.
type pacer struct {
	rate int64     // bytes a second
	next time.Time // when the next may go
}

// wait returns when n more bytes may go.
func (p *pacer) wait(ctx context.Context, n int) error {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(seconds(float64(n) / float64(p.rate)))
	if d <= 0 {
		return context.Cause(ctx)
	}
	return pause(ctx, d)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
