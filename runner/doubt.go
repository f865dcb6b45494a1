package runner

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/wire"
)

const (
	// doubtAfter is how long a hub may leave something unanswered before the others are
	// asked whether it leads still. A hub that was cut off says nothing, and the silence
	// that ends a session is much longer.
	doubtAfter = 2 * time.Second
	doubtEvery = time.Second
	askTime    = 2 * time.Second // for one hub to say who leads
)

var errMoved = errors.New("another hub leads now")

// send is the transport's; what is to be answered begins a wait.
func (s *session) send(typ wire.Type, body []byte) error {
	switch typ {
	case wire.TypeHeartbeat, wire.TypeReport, wire.TypeOutput, wire.TypePermit:
		s.wait()
	}
	return s.transport.send(typ, body)
}

// wait notes that the hub owes a word.
func (s *session) wait() {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if s.owes.IsZero() {
		s.owes = time.Now()
	}
}

// spoke notes that the hub said something.
func (s *session) spoke() {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	s.owes = time.Time{}
}

// silent says since when the hub owes a word; 0: it does not.
func (s *session) silent() time.Duration {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if s.owes.IsZero() {
		return 0
	}
	return time.Since(s.owes)
}

// doubts ends a session whose hub says nothing while another one leads.
func (l *link) doubts(ctx context.Context, s *session) {
	tick := time.NewTicker(doubtEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.silent() >= doubtAfter && l.moved(ctx, s) {
			s.end(errMoved)
			return
		}
	}
}

// moved asks the other hubs who leads. One that does not answer, or knows no other
// leader than the one that is silent, says nothing against it.
func (l *link) moved(ctx context.Context, s *session) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var work sync.WaitGroup
	said := make(chan string, maxHubs)
	for _, base := range l.known() {
		if base != s.base {
			work.Go(func() { said <- l.whoLeads(ctx, base) })
		}
	}
	go func() { work.Wait(); close(said) }()
	moved := false
	for leader := range said {
		if leader != "" && leader != s.base {
			moved = true
			cancel()
		}
	}
	return moved
}

// whoLeads asks one hub for the leader's URL; "" is no answer.
func (l *link) whoLeads(ctx context.Context, base string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+wire.LinkPath(l.id.Runner), nil)
	if err != nil {
		return ""
	}
	res, err := l.net.client.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxEnrol))
	switch p := pointed(res, b); {
	case err != nil:
		return ""
	case p.alive && len(p.hubs) > 0 && res.Header.Get(wire.LeaderHeader) != "":
		return strings.TrimSuffix(p.hubs[0], "/")
	case res.StatusCode == http.StatusBadRequest && res.Header.Get(wire.CodeHeader) == "":
		return base // it would take a WebSocket there
	}
	return ""
}
