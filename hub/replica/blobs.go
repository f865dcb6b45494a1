package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/shared/fleet"
)

// Blobs are the node's blobs: a blob.Store whose answers hold for a majority.
type Blobs struct{ r *Replica }

// Blobs gives them.
func (r *Replica) Blobs() *Blobs { return &Blobs{r} }

// Usage returns the bytes and the number of blobs on this node.
func (b *Blobs) Usage() (bytes, blobs int64) { return b.r.blobs.Usage() }

// Put is blob.Store.Put; the blob is on a majority when it returns nil.
func (b *Blobs) Put(ctx context.Context, d fleet.Digest, size int64, in io.Reader) error {
	r := b.r
	if size < 0 || size > maxChunk {
		// Not under the gate: whoever sends may take long, and a new member waits at it.
		if err := r.blobs.Put(ctx, d, size, in); err != nil {
			return err
		}
		if r.alone() {
			r.gate.RUnlock()
			return nil
		}
		return r.spread(ctx, d, size, nil, nil)
	}
	// A small one goes to the other nodes while this one writes it.
	data, err := io.ReadAll(io.LimitReader(in, size+1))
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	if int64(len(data)) != size {
		return r.blobs.Put(ctx, d, size, bytes.NewReader(data)) // which says what is wrong
	}
	if r.alone() {
		defer r.gate.RUnlock()
		return r.blobs.Put(ctx, d, size, bytes.NewReader(data))
	}
	return r.spread(ctx, d, size, data, func() error { return r.blobs.Put(ctx, d, size, bytes.NewReader(data)) })
}

// spread has the other nodes store a blob that this node has, or stores meanwhile,
// and returns when a majority of the voters has it. Nodes that are not needed for
// that go on by themselves.
func (r *Replica) spread(ctx context.Context, d fleet.Digest, size int64, data []byte, local func() error) error {
	r.anew(string(d))
	ctx, cancel := r.patientFor(ctx, size)
	defer cancel()
	v := r.view.Load()
	peers := r.connected()
	votes := make(chan error, len(peers)+1)
	reached := map[string]bool{}
	for _, p := range peers {
		l := p.up()
		if l == nil {
			continue
		}
		reached[p.id] = true
		m := &message{Kind: kindHold, Digest: d, Length: size, Data: data}
		p.owe(size)
		l.send(m, func(a *message, err error) {
			if err != nil {
				p.missed()
			}
			p.owe(-size)
			switch {
			case !v.voters[p.id]:
			case err != nil:
				votes <- err
			default:
				votes <- nil
			}
		})
	}
	for _, id := range v.others {
		if p := r.peer(id); p != nil && !reached[id] {
			p.missed()
		}
	}
	have, left := 0, 0
	for id := range v.voters {
		if reached[id] {
			left++
		}
	}
	if local != nil {
		if err := local(); err != nil {
			return err // whatever stands elsewhere is a whole blob that nobody names
		}
	}
	if v.voters[v.self] {
		have++
	}
	var last error
	for have < v.majority() {
		if have+left < v.majority() {
			if last == nil {
				last = errNoMajority
			}
			return fmt.Errorf("copy blob %s to a majority: %w", d, errors.Join(fleet.Unavailable, last))
		}
		select {
		case err := <-votes:
			left--
			if err == nil {
				have++
			} else {
				last = err
			}
		case <-ctx.Done():
			return fmt.Errorf("copy blob %s to a majority: %w", d, context.Cause(ctx))
		}
	}
	return nil
}

// patientFor allows for the time that so many bytes take on a slow network.
func (r *Replica) patientFor(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	const slowest = 4 << 20 // bytes a second
	return context.WithTimeoutCause(ctx, r.cfg.Patience+seconds(float64(size)/slowest), errNoMajority)
}

// Renew is blob.Store.Renew, on a majority: whoever is told that the blob is there
// may name it in a record. One that only other nodes have is fetched.
func (b *Blobs) Renew(ctx context.Context, d fleet.Digest) (blob.Info, error) {
	r := b.r
	if r.alone() {
		defer r.gate.RUnlock()
		return r.blobs.Renew(d)
	}
	info, err := r.blobs.Renew(d)
	if errors.Is(err, fleet.BlobMissing) {
		if err = r.obtain(ctx, d); err == nil {
			info, err = r.blobs.Renew(d)
		}
	}
	if err != nil {
		return blob.Info{}, err
	}
	return info, r.spread(ctx, d, info.Size, nil, nil)
}

// Stat is blob.Store.Stat, for a blob on any node that answers within a moment.
func (b *Blobs) Stat(ctx context.Context, d fleet.Digest) (blob.Info, error) {
	info, err := b.r.blobs.Stat(d)
	if !errors.Is(err, fleet.BlobMissing) {
		return info, err
	}
	p, size := b.r.whoHas(ctx, d)
	if p == nil {
		return blob.Info{}, err
	}
	return blob.Info{Digest: d, Size: size}, nil
}

// Open is blob.Store.Open. A blob that only other nodes have is fetched and stored
// first.
func (b *Blobs) Open(ctx context.Context, d fleet.Digest) (io.ReadSeekCloser, int64, error) {
	f, size, err := b.r.blobs.Open(d)
	if !errors.Is(err, fleet.BlobMissing) {
		return f, size, err
	}
	if err := b.r.obtain(ctx, d); err != nil {
		return nil, 0, err
	}
	return b.r.blobs.Open(d)
}

// whoHas finds a peer that has a blob, and its size.
func (r *Replica) whoHas(ctx context.Context, d fleet.Digest) (best *peer, size int64) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ask(ctx, r.connected(), &message{Kind: kindBlob, Digest: d}, func(p *peer, a *message, err error) bool {
		if err != nil {
			return true
		}
		best, size = p, a.Size
		return false
	})
	return best, size
}

// obtain fetches a blob from a peer.
func (r *Replica) obtain(ctx context.Context, d fleet.Digest) error {
	p, size := r.whoHas(ctx, d)
	if p == nil {
		return fmt.Errorf("blob %s is on no hub node that answers: %w", d, fleet.BlobMissing)
	}
	return r.fetchBlob(ctx, p, blobInfo{d, size}, nil, r.blobs.Put)
}

// fetchBlob copies a blob from a peer, verified, into the store.
func (r *Replica) fetchBlob(ctx context.Context, p *peer, b blobInfo, pace func(int) error, store func(context.Context, fleet.Digest, int64, io.Reader) error) error {
	l := p.up()
	if l == nil {
		return errHungUp
	}
	in := fetch(ctx, l, 0, b.Size, pace, func(off, n int64) *message {
		return &message{Kind: kindBlob, Digest: b.Digest, Offset: off, Length: n}
	})
	defer in.Close()
	if err := store(ctx, b.Digest, b.Size, in); err != nil {
		return fmt.Errorf("fetch from node %s: %w", p.id, err)
	}
	return nil
}

// readBlob answers for a range of a blob; of length 0 it tells the size.
func (r *Replica) readBlob(m, a *message) error {
	f, size, err := r.blobs.Open(m.Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	a.Size = size
	a.Data = make([]byte, max(min(m.Length, maxChunk, size-m.Offset), 0))
	if len(a.Data) == 0 {
		return nil
	}
	if _, err := f.Seek(m.Offset, io.SeekStart); err != nil {
		return err
	}
	_, err = io.ReadFull(f, a.Data)
	return err
}

// hold stores a blob that another node has, and answers when it is durable.
func (g *guest) hold(ctx context.Context, m *message) error {
	r := g.r
	if info, err := r.blobs.Renew(m.Digest); err == nil {
		if info.Size != m.Length {
			return fmt.Errorf("blob %s has %d bytes here: %w", m.Digest, info.Size, fleet.BlobDigest)
		}
		return nil
	} else if !errors.Is(err, fleet.BlobMissing) {
		return err
	}
	if err := r.cfg.Room(); err != nil {
		return err
	}
	r.anew(string(m.Digest))
	if int64(len(m.Data)) == m.Length {
		return r.blobs.Put(ctx, m.Digest, m.Length, bytes.NewReader(m.Data))
	}
	p := r.peer(g.node)
	if p == nil || p.up() == nil {
		return fmt.Errorf("no connection to fetch blob %s: %w", m.Digest, fleet.Unavailable)
	}
	return r.fetchBlob(ctx, p, blobInfo{m.Digest, m.Length}, nil, r.blobs.Put)
}

// Offset says which byte of an upload of size bytes is wanted next; size if none is,
// because the blob is stored, on a majority, and renewed.
func (b *Blobs) Offset(ctx context.Context, d fleet.Digest, size int64) (int64, error) {
	info, err := b.Renew(ctx, d)
	if err == nil {
		return info.Size, nil
	}
	if !errors.Is(err, fleet.BlobMissing) {
		return 0, err
	}
	_, offset, err := b.r.blobs.Upload(ctx, d, size)
	return offset, err
}

// Add stores a part of an upload of size bytes and, when that is whole, makes it a
// blob; whole says that it is one, on a majority. Parts are on this node only:
// whoever loses it goes on where the next one says, at worst at the beginning. It
// returns, with or without an error, how many bytes of the upload are durable. The
// errors are those of blob.Upload.WriteAt and Commit, and fleet.Unavailable.
func (b *Blobs) Add(ctx context.Context, d fleet.Digest, size int64, part []byte, offset int64) (durable int64, whole bool, err error) {
	info, err := b.Renew(ctx, d)
	if err == nil {
		return info.Size, true, nil
	}
	if !errors.Is(err, fleet.BlobMissing) {
		return 0, false, err
	}
	u, durable, err := b.r.blobs.Upload(ctx, d, size)
	if err != nil {
		return 0, false, err
	}
	if durable < size || size == 0 {
		if durable, err = u.WriteAt(ctx, part, offset); err != nil {
			return durable, false, err
		}
	}
	if durable < size {
		return durable, false, nil
	}
	if err := u.Commit(ctx); err != nil {
		return 0, false, err
	}
	if b.r.alone() {
		defer b.r.gate.RUnlock()
		return size, true, nil
	}
	if err := b.r.spread(ctx, d, size, nil, nil); err != nil {
		return 0, false, err
	}
	return size, true, nil
}
