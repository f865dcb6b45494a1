package replica

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// What two nodes hold is compared in buckets: a sum over each bucket first, and
// what lies in it only where the sums differ.

const (
	buckets = 256

	ofStreams = 0 // sums over sealed streams
	ofBlobs   = 1 // sums over blobs

	unsealed = buckets // the list of streams that are not sealed
)

// bucketOf is the bucket of a job's streams; that of a blob is its digest's first byte.
func bucketOf(job fleet.JobID) uint64 {
	h := fnv.New32a()
	h.Write([]byte(job))
	return uint64(h.Sum32() % buckets)
}

// mark gives a number for an entry, so that equal sets have equal sums.
func mark(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// sums adds up each bucket of what this node holds. Streams that were sealed
// without a digest are left out until they have one.
func (r *Replica) sums(of uint64) ([]uint64, error) {
	out := make([]uint64, buckets)
	switch of {
	case ofStreams:
		r.spool.Each(func(i spool.Info) bool {
			if i.Sealed && i.Digest != "" {
				out[bucketOf(i.Key.Job)] += mark(i.Key.String(), string(i.Digest))
			}
			return true
		})
		return out, nil
	case ofBlobs:
		for bucket := range out {
			err := r.blobs.EachIn(byte(bucket), func(i blob.Info) bool {
				out[bucket] += mark(string(i.Digest), fmt.Sprint(i.Size))
				return true
			})
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("sums of %d: %w", of, fleet.BadRequest)
}

// listStreams gives a page of one bucket.
func (r *Replica) listStreams(m, a *message) {
	var all []holding
	r.spool.Each(func(i spool.Info) bool {
		in := i.Sealed && bucketOf(i.Key.Job) == m.Bucket
		if m.Bucket == unsealed {
			in = !i.Sealed
		}
		if in && i.Key.String() > m.After {
			all = append(all, holding{Key: i.Key, Stamp: r.record.stampOf(i.Key), Size: i.Size, Sealed: i.Sealed, Digest: i.Digest})
		}
		return true
	})
	slices.SortFunc(all, func(a, b holding) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	a.More = len(all) > maxEntries
	a.Holdings = all[:min(len(all), maxEntries)]
}

// listBlobs gives a page of one bucket.
func (r *Replica) listBlobs(m, a *message) error {
	var all []blobInfo
	err := r.blobs.EachIn(byte(m.Bucket), func(i blob.Info) bool {
		if string(i.Digest) > m.After {
			all = append(all, blobInfo{i.Digest, i.Size})
		}
		return true
	})
	slices.SortFunc(all, func(a, b blobInfo) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	a.More = len(all) > maxEntries
	a.Blobs = all[:min(len(all), maxEntries)]
	return err
}

// eachHolding calls f for every stream that a peer has in a bucket.
func eachHolding(ctx context.Context, l *link, bucket uint64, f func(holding)) error {
	after := ""
	for {
		a, err := l.call(ctx, &message{Kind: kindStreams, Bucket: bucket, After: after})
		if err != nil {
			return err
		}
		for _, h := range a.Holdings {
			f(h)
		}
		if !a.More || len(a.Holdings) == 0 {
			return nil
		}
		after = a.Holdings[len(a.Holdings)-1].Key.String()
	}
}

// eachBlob calls f for every blob that a peer has in a bucket.
func eachBlob(ctx context.Context, l *link, bucket uint64, f func(blobInfo)) error {
	after := ""
	for {
		a, err := l.call(ctx, &message{Kind: kindBlobs, Bucket: bucket, After: after})
		if err != nil {
			return err
		}
		for _, b := range a.Blobs {
			f(b)
		}
		if !a.More || len(a.Blobs) == 0 {
			return nil
		}
		after = string(a.Blobs[len(a.Blobs)-1].Digest)
	}
}

// differing gives the buckets in which a peer may have something that is not here.
func (r *Replica) differing(ctx context.Context, l *link, of uint64) ([]uint64, error) {
	a, err := l.call(ctx, &message{Kind: kindSums, Bucket: of})
	if err != nil {
		return nil, err
	}
	if len(a.Sums) != buckets {
		return nil, fmt.Errorf("%d sums: %w", len(a.Sums), errMalformed)
	}
	own, err := r.sums(of)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for i := range own {
		if own[i] != a.Sums[i] {
			out = append(out, uint64(i))
		}
	}
	return out, nil
}
