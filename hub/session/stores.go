package session

import (
	"context"
	"io"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Spool keeps the output of attempts, as spool.Store does. What it acknowledges
// survives whatever the cluster is to survive; fleet.Unavailable says that it could
// not be made to in time, and may be tried again.
type Spool interface {
	Append(ctx context.Context, k spool.Key, offset int64, data []byte) (durable int64, err error)
	Seal(ctx context.Context, k spool.Key, length int64, digest fleet.Digest) error
	SealEmpty(ctx context.Context, k spool.Key) error
	// Held gives how many bytes of the stream there are, all of them acknowledged.
	Held(ctx context.Context, k spool.Key) (int64, error)
}

// Blobs keeps blobs in the same way.
type Blobs interface {
	Open(ctx context.Context, d fleet.Digest) (io.ReadSeekCloser, int64, error)
	// Renew says that a blob is there, and that it is about to be named.
	Renew(ctx context.Context, d fleet.Digest) (blob.Info, error)
	// Offset says which byte of an upload is wanted next; size for none.
	Offset(ctx context.Context, d fleet.Digest, size int64) (int64, error)
	// Add stores a part of an upload; whole says that it was the last and the blob
	// is there. Bytes that do not join are a *blob.GapError.
	Add(ctx context.Context, d fleet.Digest, size int64, part []byte, offset int64) (durable int64, whole bool, err error)
}
