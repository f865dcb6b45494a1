package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds one server-sent event in bytes.
const maxEvent = 16 << 20

var errEventSize = errors.New("an event of the hub is over 16 MiB")

// sseEvent is one server-sent event.
type sseEvent struct {
	id   string // the last one seen; ephemeral events have none of their own
	kind string
	data []byte
}

// sseReader reads server-sent events.
type sseReader struct {
	r     *bufio.Reader
	alive func() // called for every line, comments too
	id    string
}

func newSSE(r io.Reader, alive func()) *sseReader {
	return &sseReader{r: bufio.NewReaderSize(r, 64<<10), alive: alive}
}

// next gives the next event that carries data. The error is io.EOF where the stream
// ends between events, io.ErrUnexpectedEOF where it ends within one.
func (s *sseReader) next() (sseEvent, error) {
	var e sseEvent
	begun := false
	for {
		l, err := s.line()
		if err != nil {
			if errors.Is(err, io.EOF) && (begun || len(l) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return sseEvent{}, err
		}
		s.alive()
		if len(l) == 0 {
			if e.data != nil {
				e.id = s.id
				return e, nil
			}
			e, begun = sseEvent{}, false
			continue
		}
		name, value, _ := bytes.Cut(l, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			continue // a comment, which keeps the connection alive
		case "id":
			if !bytes.ContainsRune(value, 0) {
				s.id = string(value)
			}
		case "event":
			e.kind = string(value)
		case "data":
			if e.data == nil {
				e.data = []byte{}
			} else {
				e.data = append(e.data, '\n')
			}
			if len(e.data)+len(value) > maxEvent {
				return sseEvent{}, errEventSize
			}
			e.data = append(e.data, value...)
		}
		begun = true
	}
}

// line reads one line without its end, which is LF or CRLF.
func (s *sseReader) line() ([]byte, error) {
	var l []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if len(l)+len(part) > maxEvent {
			return nil, errEventSize
		}
		l = append(l, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return l, err
		}
		return bytes.TrimSuffix(l[:len(l)-1], []byte("\r")), nil
	}
}
