package hub

import (
	"net"
	"net/http"
	"sync"
)

// silent holds the connections on which nothing was said yet. A planned stop does
// not wait for them, as the library would for some seconds.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool // the node stops; one that is only now accepted is closed too
}

func (s *silent) state(c net.Conn, st http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st != http.StateNew {
		delete(s.conns, c)
		return
	}
	if s.over {
		c.Close()
		return
	}
	if s.conns == nil {
		s.conns = map[net.Conn]struct{}{}
	}
	s.conns[c] = struct{}{}
}

func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.conns {
		c.Close()
	}
}
