package replica

import (
	"encoding/binary"
	"fmt"
	"io"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// Between two nodes, each side that wants something opens a connection, says hello,
// and sends requests; each is answered once, in any order. A frame is a length of
// four bytes and so many bytes of message. A message is its kind, its id and then
// the fields that the tables below name for the kind, always all of them and in the
// order of the constants. The version stands in hello: a node that does not know it
// says so and hangs up.
const (
	version  = 1
	maxChunk = 256 << 10         // bytes of content in one message
	maxFrame = maxChunk + 64<<10 // bytes of a message

	maxKeys    = 256 // streams asked for at once
	maxEntries = 512 // entries of a list in one message
	maxText    = 512 // bytes of an error's text or a name
)

type kind byte

const (
	kindHello   kind = 1 + iota
	kindPing         // who leads, if the sender does; the answer says how the node is
	kindProbe        // promise to the ballot, and say what is held of some streams
	kindJoin         // have a copy stand under the leader's ballot
	kindAppend       // add bytes to a copy
	kindSeal         // finish a copy
	kindSum          // digest of a range of a stream
	kindRead         // bytes of a stream
	kindBlob         // bytes of a blob
	kindHold         // store a blob, or renew it; content that is not in the message is fetched
	kindSums         // digests over all that is held, in buckets
	kindStreams      // what is held of streams: one bucket of the sealed ones, or all others
	kindBlobs        // one bucket of the blobs
	kindCompare      // compare yourself with the others soon
	kinds
)

type field uint32

const (
	fBallot field = 1 << iota
	fKey
	fStamp
	fPrior
	fFill
	fFloor
	fOffset
	fLength
	fDigest
	fBucket
	fAfter
	fNode
	fKeys
	fData

	fSize
	fSealed
	fMore
	fHoldings
	fBlobInfos
	fSums
	fStatus
)

var requests = [kinds]field{
	kindHello:   fNode | fLength,
	kindPing:    fBallot,
	kindProbe:   fBallot | fKeys,
	kindJoin:    fBallot | fKey | fStamp | fPrior | fFloor | fOffset | fDigest | fFill,
	kindAppend:  fBallot | fKey | fStamp | fFill | fOffset | fData,
	kindSeal:    fBallot | fKey | fStamp | fLength | fDigest,
	kindSum:     fKey | fOffset | fLength,
	kindRead:    fKey | fOffset | fLength,
	kindBlob:    fDigest | fOffset | fLength,
	kindHold:    fDigest | fLength | fFill | fData,
	kindSums:    fBucket,
	kindStreams: fBucket | fAfter,
	kindBlobs:   fBucket | fAfter,
	kindCompare: 0,
}

var replies = [kinds]field{
	kindHello:   fNode | fLength,
	kindPing:    fStatus,
	kindProbe:   fHoldings,
	kindJoin:    fSize,
	kindAppend:  fSize,
	kindSeal:    fSize,
	kindSum:     fDigest,
	kindRead:    fSize | fSealed | fData,
	kindBlob:    fSize | fData,
	kindHold:    0,
	kindSums:    fSums,
	kindStreams: fMore | fHoldings,
	kindBlobs:   fMore | fBlobInfos,
	kindCompare: fStatus,
}

// holding is what a node has of a stream.
type holding struct {
	Key    spool.Key
	Stamp  stamp
	Size   int64 // durable bytes
	Sealed bool
	Digest fleet.Digest // of a sealed stream; empty if it was never summed
}

// blobInfo is a stored blob.
type blobInfo struct {
	Digest fleet.Digest
	Size   int64
}

// status is how a node is.
type status struct {
	Full    bool   // its disk takes no more
	Known   bool   // Lacking is right: a comparison ended, and nothing was missed since it began
	Lacking int64  // bytes that others have and it has not
	Begun   uint64 // comparisons with the others that it began since it started
	Ended   uint64 // the last one that ended well
}

// message is a request or an answer; which fields count depends on its kind.
type message struct {
	Kind  kind
	ID    uint64
	Reply bool
	// Of answers only. With a code all fields but Size are missing.
	Code     fleet.Code
	Text     string
	Promised Ballot // the highest ballot that the node obeys

	Ballot Ballot    // who speaks
	Key    spool.Key // which stream
	Stamp  Ballot    // under which the copy is to stand
	Prior  stamp     // under which the leader found what it goes on from
	Fill   bool      // bytes from before the stamp; a join that must be compared; a blob that must be stored already
	Floor  int64     // bytes that the leader found
	Offset int64
	Length int64
	Digest fleet.Digest
	Bucket uint64
	After  string
	Node   string
	Keys   []spool.Key
	Data   []byte

	Size     int64
	Sealed   bool
	More     bool
	Holdings []holding
	Blobs    []blobInfo
	Sums     []uint64
	Status   status
}

// answer begins the answer to a request.
func (m *message) answer() *message { return &message{Kind: m.Kind, ID: m.ID, Reply: true} }

// append writes the message with its length before it.
func (m *message) append(b []byte) []byte {
	at := len(b)
	w := writer{append(b, 0, 0, 0, 0)}
	w.byte(byte(m.Kind))
	w.uint(m.ID)
	has := requests[m.Kind]
	if m.Reply {
		has = replies[m.Kind]
		w.string(string(m.Code))
		w.ballot(m.Promised)
		if m.Code != "" {
			w.string(fleet.CutText(m.Text, maxText))
			has = fSize
		}
	}
	m.fields(&w, has)
	binary.BigEndian.PutUint32(w.b[at:], uint32(len(w.b)-at-4))
	return w.b
}

func (m *message) fields(w *writer, has field) {
	put := func(f field, write func()) {
		if has&f != 0 {
			write()
		}
	}
	put(fBallot, func() { w.ballot(m.Ballot) })
	put(fKey, func() { w.key(m.Key) })
	put(fStamp, func() { w.ballot(m.Stamp) })
	put(fPrior, func() { w.stamp(m.Prior) })
	put(fFill, func() { w.bool(m.Fill) })
	put(fFloor, func() { w.int(m.Floor) })
	put(fOffset, func() { w.int(m.Offset) })
	put(fLength, func() { w.int(m.Length) })
	put(fDigest, func() { w.digest(m.Digest) })
	put(fBucket, func() { w.uint(m.Bucket) })
	put(fAfter, func() { w.string(m.After) })
	put(fNode, func() { w.string(m.Node) })
	put(fKeys, func() { list(w, m.Keys, w.key) })
	put(fData, func() { w.bytes(m.Data) })
	put(fSize, func() { w.int(m.Size) })
	put(fSealed, func() { w.bool(m.Sealed) })
	put(fMore, func() { w.bool(m.More) })
	put(fHoldings, func() { list(w, m.Holdings, w.holding) })
	put(fBlobInfos, func() { list(w, m.Blobs, func(i blobInfo) { w.digest(i.Digest); w.int(i.Size) }) })
	put(fSums, func() { list(w, m.Sums, w.fixed) })
	put(fStatus, func() {
		w.bool(m.Status.Full)
		w.bool(m.Status.Known)
		w.int(m.Status.Lacking)
		w.uint(m.Status.Begun)
		w.uint(m.Status.Ended)
	})
}

func list[T any](w *writer, vs []T, put func(T)) {
	w.uint(uint64(len(vs)))
	for _, v := range vs {
		put(v)
	}
}

// parse reads a message without its length. Data is part of b.
func parse(b []byte, reply bool) (*message, error) {
	r := reader{b: b}
	m := &message{Kind: kind(r.byte()), Reply: reply}
	if m.Kind == 0 || m.Kind >= kinds {
		return nil, fmt.Errorf("kind %d: %w", m.Kind, errMalformed)
	}
	m.ID = r.uint()
	has := requests[m.Kind]
	if reply {
		has = replies[m.Kind]
		m.Code = fleet.Code(r.string(maxText))
		m.Promised = r.ballot()
		if m.Code != "" {
			m.Text = r.string(maxText)
			has = fSize
		}
	}
	m.take(&r, has)
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("message of kind %d: %w", m.Kind, err)
	}
	return m, nil
}

func (m *message) take(r *reader, has field) {
	get := func(f field, read func()) {
		if has&f != 0 {
			read()
		}
	}
	get(fBallot, func() { m.Ballot = r.ballot() })
	get(fKey, func() { m.Key = r.key() })
	get(fStamp, func() { m.Stamp = r.ballot() })
	get(fPrior, func() { m.Prior = r.stamp() })
	get(fFill, func() { m.Fill = r.bool() })
	get(fFloor, func() { m.Floor = r.int() })
	get(fOffset, func() { m.Offset = r.int() })
	get(fLength, func() { m.Length = r.int() })
	get(fDigest, func() { m.Digest = r.digest() })
	get(fBucket, func() { m.Bucket = r.uint() })
	get(fAfter, func() { m.After = r.string(maxText) })
	get(fNode, func() { m.Node = r.string(maxText) })
	get(fKeys, func() { m.Keys = takeList(r, 4, r.key) })
	get(fData, func() { m.Data = r.data() })
	get(fSize, func() { m.Size = r.int() })
	get(fSealed, func() { m.Sealed = r.bool() })
	get(fMore, func() { m.More = r.bool() })
	get(fHoldings, func() { m.Holdings = takeList(r, 11, r.holding) })
	get(fBlobInfos, func() { m.Blobs = takeList(r, 2, func() blobInfo { return blobInfo{r.digest(), r.int()} }) })
	get(fSums, func() { m.Sums = takeList(r, 8, r.fixed) })
	get(fStatus, func() { m.Status = status{r.bool(), r.bool(), r.int(), r.uint(), r.uint()} })
}

// takeList reads elements that each take at least size bytes, so that no count
// can ask for more memory than the message has.
func takeList[T any](r *reader, size int, one func() T) []T {
	n := r.count(size)
	if n == 0 {
		return nil
	}
	vs := make([]T, n)
	for i := range vs {
		vs[i] = one()
	}
	return vs
}

// readFrame reads one message. It is only memory of its own.
func readFrame(r io.Reader, reply bool) (*message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("message of %d bytes: %w", n, errMalformed)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return parse(b, reply)
}
