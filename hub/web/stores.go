package web

import (
	"context"
	"io"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Spool has the recorded output of attempts, as spool.Store has it, wherever in the
// cluster it lies.
type Spool interface {
	Reader(ctx context.Context, k spool.Key, from int64, follow bool) (io.ReadCloser, error)
	// Size tells of this node alone.
	Size(k spool.Key) (end int64, sealed bool)
	// Acked tells how much of it is known to be acknowledged.
	Acked(k spool.Key) int64
	// Longest also asks the other nodes.
	Longest(ctx context.Context, k spool.Key) int64
	Usage() (bytes, streams int64)
}

// Blobs has inputs and artifacts, as blob.Store has them, wherever in the cluster
// they lie. What it acknowledges survives whatever the cluster is to survive.
type Blobs interface {
	Open(ctx context.Context, d fleet.Digest) (io.ReadSeekCloser, int64, error)
	Stat(ctx context.Context, d fleet.Digest) (blob.Info, error)
	Renew(ctx context.Context, d fleet.Digest) (blob.Info, error)
	Put(ctx context.Context, d fleet.Digest, size int64, r io.Reader) error
	// Offset says which byte of an upload is wanted next; size for none.
	Offset(ctx context.Context, d fleet.Digest, size int64) (int64, error)
	// Add stores a part of an upload; whole says that it was the last and the blob
	// is there. Bytes that do not join are a *blob.GapError.
	Add(ctx context.Context, d fleet.Digest, size int64, part []byte, offset int64) (durable int64, whole bool, err error)
	Usage() (bytes, blobs int64)
}
