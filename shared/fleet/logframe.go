package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A job's recorded output is one byte stream, a sequence of frames. The runner spools it, the hub stores it and
// the log API decodes it, all in this form and all by offset into this stream:
//
//	offset  size  field
//	0       1     kind: 1 standard output, 2 standard error, 3 mark
//	1       3     reserved, 0
//	4       4     payload length n in bytes, big endian, at most 65,536
//	8       8     when the bytes were read, milliseconds since 1970 UTC, big endian
//	16      n     payload: the bytes as the job wrote them, or the JSON of a Mark
//
// The stream only grows: bytes once written never change. A writer that was killed may leave an incomplete frame
// at the end of the stream, nowhere else. Frames of one kind, joined, are exactly what the job wrote to that
// stream up to the first mark; the order between the two streams is the order in which they were read.
const (
	// FrameHeaderSize is the length of a frame's header in bytes.
	FrameHeaderSize = 16
	// MaxFramePayload is the greatest length of a frame's payload in bytes.
	MaxFramePayload = 64 << 10
	// maxMarkReason bounds Mark.Reason in bytes, so that a mark always fits its frame.
	maxMarkReason = 4 << 10
)

// A FrameKind says what a frame carries.
type FrameKind uint8

const (
	FrameStdout FrameKind = 1 // bytes of standard output
	FrameStderr FrameKind = 2 // bytes of standard error
	FrameMark   FrameKind = 3 // a Mark: output is missing here
)

var (
	// ErrShort says that the bytes end before the frame does: more of the stream is needed.
	ErrShort = errors.New("incomplete log frame")
	// ErrBadFrame says that the bytes are not a frame; nothing after them can be decoded.
	ErrBadFrame = errors.New("malformed log frame")
)

func (k FrameKind) String() string {
	switch k {
	case FrameStdout:
		return "stdout"
	case FrameStderr:
		return "stderr"
	case FrameMark:
		return "mark"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

func (k FrameKind) valid() bool { return k >= FrameStdout && k <= FrameMark }

// A Frame is one piece of a job's recorded output.
type Frame struct {
	Kind FrameKind
	// At is when the bytes were read, in milliseconds since 1970 UTC; not negative.
	At int64
	// Payload of a decoded frame aliases the buffer that it was decoded from.
	Payload []byte
}

// Reasons of a Mark.
const (
	MarkOutputCap  = "output_cap"  // from here on output is dropped: the job's cap is reached
	MarkDiskLow    = "disk_low"    // from here on output is dropped: the disk is nearly full
	MarkWriteError = "write_error" // some output was dropped: it could not be written
	MarkResumed    = "resumed"     // recording goes on after a gap
	MarkEnd        = "end"         // the last frame of a stream that lacks output
)

// A Mark stands in the stream where output is missing.
type Mark struct {
	// DroppedBytes counts the job's output bytes that are missing up to this place, over the whole stream.
	DroppedBytes int64 `json:"dropped_bytes"`
	// Reason is one of the Mark constants; a reader shows one that it does not know as it is.
	Reason string `json:"reason"`
}

// MarkAt makes the frame of a mark.
func MarkAt(at int64, m Mark) Frame {
	m.Reason = m.Reason[:min(len(m.Reason), maxMarkReason)]
	payload, err := json.Marshal(m)
	if err != nil {
		panic("fleet: encode mark: " + err.Error()) // a number and a string always encode
	}
	return Frame{Kind: FrameMark, At: at, Payload: payload}
}

// Mark decodes the payload of a mark frame. The error wraps ErrBadFrame.
func (f Frame) Mark() (Mark, error) {
	if f.Kind != FrameMark {
		return Mark{}, fmt.Errorf("%w: %v is not a mark", ErrBadFrame, f.Kind)
	}
	var m Mark
	if err := json.Unmarshal(f.Payload, &m); err != nil {
		return Mark{}, fmt.Errorf("%w: mark: %w", ErrBadFrame, err)
	}
	return m, nil
}

// PutFrameHeader writes the header of a frame with n payload bytes to dst, which has room for FrameHeaderSize.
// n is at most MaxFramePayload; a negative time is written as 0.
func PutFrameHeader(dst []byte, kind FrameKind, n int, at int64) {
	_ = dst[FrameHeaderSize-1]
	dst[0], dst[1], dst[2], dst[3] = byte(kind), 0, 0, 0
	binary.BigEndian.PutUint32(dst[4:], uint32(n))
	binary.BigEndian.PutUint64(dst[8:], uint64(max(at, 0)))
}

// AppendFrame appends the encoding of a frame. A payload above MaxFramePayload becomes several frames of the
// same kind and time.
func AppendFrame(dst []byte, f Frame) []byte {
	for {
		n := min(len(f.Payload), MaxFramePayload)
		var head [FrameHeaderSize]byte
		PutFrameHeader(head[:], f.Kind, n, f.At)
		dst = append(append(dst, head[:]...), f.Payload[:n]...)
		if f.Payload = f.Payload[n:]; len(f.Payload) == 0 {
			return dst
		}
	}
}

// DecodeFrame decodes the frame at the start of b and gives its encoded length. The error is ErrShort if b ends
// too early, or wraps ErrBadFrame. It accepts exactly what AppendFrame writes of valid frames.
func DecodeFrame(b []byte) (f Frame, n int, err error) {
	if len(b) < FrameHeaderSize {
		return Frame{}, 0, ErrShort
	}
	size, err := frameSize(b[:FrameHeaderSize])
	if err != nil {
		return Frame{}, 0, err
	}
	n = FrameHeaderSize + size
	if len(b) < n {
		return Frame{}, 0, ErrShort
	}
	at := int64(binary.BigEndian.Uint64(b[8:]))
	return Frame{Kind: FrameKind(b[0]), At: at, Payload: b[FrameHeaderSize:n:n]}, n, nil
}

// frameSize checks a header and gives the length of its payload.
func frameSize(head []byte) (int, error) {
	size := binary.BigEndian.Uint32(head[4:])
	switch {
	case !FrameKind(head[0]).valid():
		return 0, fmt.Errorf("%w: kind %d", ErrBadFrame, head[0])
	case head[1]|head[2]|head[3] != 0:
		return 0, fmt.Errorf("%w: reserved bytes are set", ErrBadFrame)
	case size > MaxFramePayload:
		return 0, fmt.Errorf("%w: payload of %d bytes", ErrBadFrame, size)
	case head[8]&0x80 != 0:
		return 0, fmt.Errorf("%w: time out of range", ErrBadFrame)
	}
	return int(size), nil
}

// A FrameReader decodes frames from a stream. It reads no byte beyond the frames that it returns.
type FrameReader struct {
	r      io.Reader
	buf    []byte
	offset int64
	err    error
}

// NewFrameReader reads frames from r, which starts at the border of a frame. It reads in small pieces: give it a
// buffered reader where a read is costly.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r} }

// Next gives the next frame, whose payload is valid until the call after it. The error is io.EOF at the end of
// the stream, io.ErrUnexpectedEOF if the stream ends within a frame, or wraps ErrBadFrame or the reader's error.
// Once it failed it goes on failing.
func (fr *FrameReader) Next() (Frame, error) {
	if fr.err != nil {
		return Frame{}, fr.err
	}
	f, n, err := fr.next()
	fr.offset += int64(n)
	fr.err = err
	return f, err
}

func (fr *FrameReader) next() (Frame, int, error) {
	if fr.buf == nil {
		fr.buf = make([]byte, FrameHeaderSize, 4<<10)
	}
	fr.buf = fr.buf[:FrameHeaderSize]
	if _, err := io.ReadFull(fr.r, fr.buf); err != nil {
		return Frame{}, 0, err
	}
	size, err := frameSize(fr.buf)
	if err != nil {
		return Frame{}, 0, err
	}
	if need := FrameHeaderSize + size; need > cap(fr.buf) {
		fr.buf = append(make([]byte, 0, FrameHeaderSize+MaxFramePayload), fr.buf...)
	}
	fr.buf = fr.buf[:FrameHeaderSize+size]
	if _, err := io.ReadFull(fr.r, fr.buf[FrameHeaderSize:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, 0, err
	}
	return DecodeFrame(fr.buf)
}

// Offset is the number of bytes of the whole frames that Next has returned.
func (fr *FrameReader) Offset() int64 { return fr.offset }
