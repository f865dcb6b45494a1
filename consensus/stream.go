package consensus

import (
	"net"
	"sync"
	"time"
)

// stream is a Transport that closes with itself every connection that came through
// it.
type stream struct {
	Transport
	mu     sync.Mutex
	open   map[*tracked]bool
	closed bool
}

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) { return s.track(s.Transport.Accept()) }

// Dial implements Transport.
func (s *stream) Dial(id string, timeout time.Duration) (net.Conn, error) {
	return s.track(s.Transport.Dial(id, timeout))
}

func (s *stream) track(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	t := &tracked{c, s}
	s.open[t] = true
	return t, nil
}

// Close implements net.Listener.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed = true
	for t := range s.open {
		t.Conn.Close()
	}
	clear(s.open)
	s.mu.Unlock()
	return s.Transport.Close()
}

type tracked struct {
	net.Conn
	stream *stream
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.stream.mu.Lock()
	delete(t.stream.open, t)
	t.stream.mu.Unlock()
	return t.Conn.Close()
}
