package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// Sizes of a frame in bytes. A frame is
//
//	version 1 | type 1 | sequence 8 | body length 4 | body | MAC 32
//
// with numbers in big-endian order. A frame with sequence 0 is plain: only a
// challenge and a goodbye before the session may be, and they carry no MAC. A
// hello has sequence 0 too but ends in a MAC by the runner's key.
const (
	HeaderSize = 14
	MACSize    = sha256.Size
	MaxBody    = 1 << 20
	MaxFrame   = HeaderSize + MaxBody + MACSize
	MaxChunk   = 256 << 10 // bytes of a stream in one output frame
)

// Direction says which of a session's sequences a frame belongs to. It is part of
// what the MAC covers, so that no frame can be reflected or moved to another.
type Direction uint8

// The directions: a WebSocket link has one each way; the HTTP fallback has two
// channels with one each way. Numbers are append-only.
const (
	LinkUp   Direction = 1 // runner → hub
	LinkDown Direction = 2 // hub → runner
	PushUp   Direction = 3
	PushDown Direction = 4
	PollUp   Direction = 5
	PollDown Direction = 6
)

// SessionKey authenticates the frames of one session.
type SessionKey [32]byte

// Frame is a frame taken apart. Body aliases the bytes it was read from.
type Frame struct {
	Version int
	Type    Type
	Seq     uint64
	Body    []byte
	mac     []byte
}

// Seal builds one authenticated frame. seq is from 1; body is at most MaxBody,
// which the caller has seen to: Encode and EncodeOutput refuse more.
func Seal(key SessionKey, dir Direction, typ Type, seq uint64, body []byte) []byte {
	return append(header(typ, seq, body, MACSize), frameMAC(key[:], dir, typ, seq, body)...)
}

// Plain builds a frame without MAC, for a challenge or a goodbye before a session.
func Plain(typ Type, body []byte) []byte { return header(typ, 0, body, 0) }

// header gives header and body, with room for a trailer.
func header(typ Type, seq uint64, body []byte, trailer int) []byte {
	f := make([]byte, 0, HeaderSize+len(body)+trailer)
	f = append(f, Version, byte(typ))
	f = binary.BigEndian.AppendUint64(f, seq)
	f = binary.BigEndian.AppendUint32(f, uint32(len(body)))
	return append(f, body...)
}

// frameMAC covers direction, version, type, sequence and body; the domain and the
// fixed widths keep any two different frames apart.
func frameMAC(key []byte, dir Direction, typ Type, seq uint64, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("tugline frame v1\x00"))
	m.Write([]byte{byte(dir), Version, byte(typ)})
	m.Write(binary.BigEndian.AppendUint64(nil, seq))
	m.Write(body)
	return m.Sum(nil)
}

// Split takes the first frame off b and gives the rest. Nothing is verified but
// form and bounds. Errors: protocol_version, too_large, bad_request.
func Split(b []byte) (Frame, []byte, error) {
	if len(b) < HeaderSize {
		return Frame{}, nil, fmt.Errorf("frame of %d bytes is shorter than its header: %w", len(b), fleet.BadRequest)
	}
	if b[0] != Version {
		return Frame{}, nil, fmt.Errorf("frame of protocol version %d, this side speaks %d: %w", b[0], Version, fleet.ProtocolVersion)
	}
	f := Frame{Version: int(b[0]), Type: Type(b[1]), Seq: binary.BigEndian.Uint64(b[2:10])}
	n := binary.BigEndian.Uint32(b[10:14])
	if n > MaxBody {
		return Frame{}, nil, fmt.Errorf("frame body of %d bytes, at most %d: %w", n, MaxBody, fleet.TooLarge)
	}
	end, trailer := HeaderSize+int(n), 0
	if f.Seq > 0 || f.Type == TypeHello {
		trailer = MACSize
	}
	if len(b) < end+trailer {
		return Frame{}, nil, fmt.Errorf("frame is cut short at %d of %d bytes: %w", len(b), end+trailer, fleet.BadRequest)
	}
	f.Body, f.mac = b[HeaderSize:end:end], b[end:end+trailer:end+trailer]
	return f, b[end+trailer:], nil
}

// OpenPlain reads a frame that comes without MAC: a challenge, or a goodbye from a
// hub that has no session with this runner. What it says is worth only what the
// transport is worth.
func OpenPlain(b []byte) (Frame, error) {
	f, rest, err := Split(b)
	switch {
	case err != nil:
		return Frame{}, err
	case len(rest) > 0:
		return Frame{}, fmt.Errorf("%d bytes after the frame: %w", len(rest), fleet.BadRequest)
	case f.Seq != 0 || (f.Type != TypeChallenge && f.Type != TypeGoodbye):
		return Frame{}, fmt.Errorf("frame of type %d and sequence %d where a plain one was due: %w", f.Type, f.Seq, fleet.BadSequence)
	}
	return f, nil
}

// Sealer seals the frames of one direction of a session with a sequence from 1.
// It is not safe for use by several goroutines.
type Sealer struct {
	key SessionKey
	dir Direction
	seq uint64
}

// NewSealer starts the sequence of a direction.
func NewSealer(key SessionKey, dir Direction) *Sealer { return &Sealer{key: key, dir: dir} }

// Seal gives the next frame.
func (s *Sealer) Seal(typ Type, body []byte) []byte {
	s.seq++
	return Seal(s.key, s.dir, typ, s.seq, body)
}

// Opener verifies the frames of one direction of a session. Each must carry the
// number after the one before: a repeat, a gap or a wrong MAC ends it for good, and
// every later call gives the same error. It is not safe for use by several
// goroutines.
type Opener struct {
	key SessionKey
	dir Direction
	seq uint64
	err error
}

// NewOpener starts the sequence of a direction.
func NewOpener(key SessionKey, dir Direction) *Opener { return &Opener{key: key, dir: dir} }

// Seq gives the number of the last frame that was opened.
func (o *Opener) Seq() uint64 { return o.seq }

// Open verifies b, which is exactly one frame. The frame aliases b. A type that
// this version does not know is no error. Errors: those of Split, bad_signature,
// bad_sequence.
func (o *Opener) Open(b []byte) (Frame, error) {
	if o.err != nil {
		return Frame{}, o.err
	}
	f, rest, err := Split(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the frame: %w", len(rest), fleet.BadRequest)
	}
	if err == nil {
		err = o.check(f)
	}
	if err != nil {
		o.err = err
		return Frame{}, err
	}
	o.seq = f.Seq
	return f, nil
}

// OpenAll verifies b as a row of frames, the body of an exchange. One bad frame
// spoils the row and the session.
func (o *Opener) OpenAll(b []byte) ([]Frame, error) {
	if o.err != nil {
		return nil, o.err
	}
	var frames []Frame
	for len(b) > 0 {
		f, rest, err := Split(b)
		if err == nil {
			err = o.check(f)
		}
		if err != nil {
			o.err = err
			return nil, err
		}
		o.seq = f.Seq
		frames, b = append(frames, f), rest
	}
	return frames, nil
}

// check verifies MAC, then sequence: nothing of an unauthenticated frame is believed.
func (o *Opener) check(f Frame) error {
	if f.Seq == 0 || !hmac.Equal(f.mac, frameMAC(o.key[:], o.dir, f.Type, f.Seq, f.Body)) {
		return fmt.Errorf("frame of type %d and sequence %d does not verify: %w", f.Type, f.Seq, fleet.BadSignature)
	}
	if f.Seq != o.seq+1 {
		return fmt.Errorf("frame has sequence %d after %d: %w", f.Seq, o.seq, fleet.BadSequence)
	}
	return nil
}
