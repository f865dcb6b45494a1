package consensus

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// newTransport is raft's transport for cfg: without a Transport one that reaches
// nobody. A node's address is its id.
func newTransport(cfg Config, log hclog.Logger) raft.Transport {
	if cfg.Transport == nil {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(cfg.NodeID))
		return trans
	}
	s := &stream{Transport: cfg.Transport, id: address(cfg.NodeID), open: map[*tracked]bool{}}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: 3, Timeout: 5 * time.Second, Logger: log,
	})
}

func closeTransport(trans raft.Transport) {
	if c, ok := trans.(raft.WithClose); ok {
		c.Close()
	}
}

// stream gives a Transport the node's id as its address, and closes with itself
// every connection that came through it: raft leaves accepted ones open.
type stream struct {
	Transport
	id     address
	mu     sync.Mutex
	open   map[*tracked]bool
	closed bool
}

type address string

func (address) Network() string  { return "node" }
func (a address) String() string { return string(a) }

func (s *stream) Addr() net.Addr { return s.id }

func (s *stream) Accept() (net.Conn, error) {
	c, err := s.Transport.Accept()
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

// Dial implements raft.StreamLayer.
func (s *stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := s.Transport.Dial(string(addr), timeout)
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

func (s *stream) track(c net.Conn) (net.Conn, error) {
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

func (t *tracked) Close() error {
	t.stream.mu.Lock()
	delete(t.stream.open, t)
	t.stream.mu.Unlock()
	return t.Conn.Close()
}
