package replica

import (
	"context"
	"errors"
	"math/rand/v2"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// scrub reads everything finished again, slowly, and has another node's copy take
// the place of what the disk has changed. With no other node it does nothing.
func (r *Replica) scrub(ctx context.Context) {
	for {
		if pause(ctx, r.cfg.ScrubEvery/2+rand.N(r.cfg.ScrubEvery)) != nil {
			return
		}
		r.Scrub(ctx)
	}
}

// Scrub is one look at everything that is finished on this node's disk, at
// Config.ScrubRate. It gives how many damaged things it found and how many of them
// were mended from other nodes.
func (r *Replica) Scrub(ctx context.Context) (damaged, mended int) {
	if len(r.view.Load().others) == 0 {
		return 0, 0
	}
	rate := &pacer{rate: r.cfg.ScrubRate}
	pace := func(n int) error { return rate.wait(ctx, n) }
	took := func(what string, err, mend error) {
		damaged++
		if mend == nil {
			mended++
			r.log.Error("the disk damaged something; it was mended from another node", "what", what, "err", err)
			return
		}
		r.debts.doubt()
		r.log.Error("the disk damaged something and no other node gives it", "what", what, "err", err)
	}
	var streams []spool.Key
	r.spool.Each(func(i spool.Info) bool {
		if i.Sealed && i.Digest != "" {
			streams = append(streams, i.Key)
		}
		return true
	})
	for _, k := range streams {
		if err := r.spool.Check(ctx, k, pace); err != nil && ctx.Err() == nil {
			took(k.String(), err, r.mendStream(ctx, k))
		}
	}
	var blobs []fleet.Digest
	if err := r.blobs.Each(func(i blob.Info) bool { blobs = append(blobs, i.Digest); return true }); err != nil {
		r.log.Warn("taking stock of blobs failed", "err", err)
	}
	for _, d := range blobs {
		if err := r.blobs.Check(ctx, d, pace); err != nil && ctx.Err() == nil && !errors.Is(err, fleet.BlobMissing) {
			took("blob "+string(d), err, r.mendBlob(ctx, d))
		}
	}
	return damaged, mended
}

// mendStream takes a finished stream from a peer whose bytes have the digest that
// it was sealed with.
func (r *Replica) mendStream(ctx context.Context, k spool.Key) (err error) {
	own := r.holding(k)
	if !own.Sealed {
		return nil // it is another by now
	}
	err = fleet.NotFound
	for _, p := range r.connected() {
		l := p.up()
		if l == nil {
			continue
		}
		c, e := r.receive(ctx, l, own, nil)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		unlock := r.locks.hold(k)
		defer unlock()
		if now := r.holding(k); now != own {
			c.Discard()
			return nil
		}
		return c.Place()
	}
	return err
}

// mendBlob takes a blob from a peer that has it as it was.
func (r *Replica) mendBlob(ctx context.Context, d fleet.Digest) (err error) {
	err = fleet.BlobMissing
	for _, p := range r.connected() {
		l := p.up()
		if l == nil {
			continue
		}
		a, e := l.call(ctx, &message{Kind: kindBlob, Digest: d})
		if e == nil {
			e = r.fetchBlob(ctx, p, blobInfo{d, a.Size}, nil, r.blobs.Mend)
		}
		if e == nil {
			return nil
		}
		err = errors.Join(err, e)
	}
	return err
}
