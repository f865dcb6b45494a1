package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	pingEvery = time.Second
	deadAfter = 5 * time.Second // without a word from the other side
	dialTime  = 5 * time.Second
	queued    = 256 // messages that wait to be written on one connection
)

// refusal is an answer with a code.
type refusal struct {
	node string
	code fleet.Code
	text string
}

func (e *refusal) Error() string { return fmt.Sprintf("node %s: %s: %s", e.node, e.code, e.text) }
func (e *refusal) Unwrap() error { return e.code }

// link is one connection to another node, for requests from here.
type link struct {
	node string
	conn net.Conn
	in   *bufio.Reader
	out  chan *message
	done chan struct{} // closed at the end
	once sync.Once

	mu    sync.Mutex
	last  uint64
	calls map[uint64]func(*message, error)
	heard time.Time
	err   error
}

var errHungUp = fmt.Errorf("the connection ended: %w", fleet.Unavailable)

// connect greets the other side and gives the connection.
func connect(conn net.Conn, self, node string) (*link, error) {
	conn.SetDeadline(time.Now().Add(dialTime))
	hello := &message{Kind: kindHello, Node: self, Length: version}
	if _, err := conn.Write(hello.append(nil)); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	m, err := readFrame(in, true)
	switch {
	case err != nil:
		return nil, err
	case m.Code != "":
		return nil, &refusal{node: node, code: m.Code, text: m.Text}
	case m.Kind != kindHello || m.Node != node || m.Length != version:
		return nil, fmt.Errorf("node %q of version %d answered instead of %s: %w", m.Node, m.Length, node, errMalformed)
	}
	conn.SetDeadline(time.Time{})
	return &link{
		node: node, conn: conn, in: in, out: make(chan *message, queued), done: make(chan struct{}),
		calls: map[uint64]func(*message, error){}, heard: time.Now(),
	}, nil
}

// run carries requests and answers until the connection ends or stop is closed.
func (l *link) run(stop <-chan struct{}) {
	var wg sync.WaitGroup
	wg.Go(func() { l.close(pump(l.conn, l.out, l.done)) })
	wg.Go(l.read)
	select {
	case <-stop:
		l.close(errHungUp)
	case <-l.done:
	}
	wg.Wait()
}

// close ends the connection; every call that waits fails.
func (l *link) close(err error) {
	l.once.Do(func() {
		l.conn.Close()
		l.mu.Lock()
		l.err = err
		calls := l.calls
		l.calls = nil
		l.mu.Unlock()
		for _, f := range calls {
			f(nil, errHungUp)
		}
		close(l.done)
	})
}

// pump writes messages until done is closed or the connection fails. What waits at
// the same time goes out together.
func pump(conn net.Conn, out <-chan *message, done <-chan struct{}) error {
	var b []byte
	for {
		select {
		case m := <-out:
			b = m.append(b[:0])
		case <-done:
			return errHungUp
		}
		for more := true; more && len(b) < 2*maxChunk; {
			select {
			case m := <-out:
				b = m.append(b)
			default:
				more = false
			}
		}
		if err := conn.SetWriteDeadline(time.Now().Add(deadAfter)); err != nil {
			return err
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if cap(b) > 4*maxChunk {
			b = nil
		}
	}
}

func (l *link) read() {
	for {
		m, err := readFrame(l.in, true)
		if err != nil {
			l.close(err)
			return
		}
		l.mu.Lock()
		f := l.calls[m.ID]
		delete(l.calls, m.ID)
		l.heard = time.Now()
		l.mu.Unlock()
		if f == nil {
			l.close(fmt.Errorf("answer to nothing: %w", errMalformed))
			return
		}
		if m.Code != "" {
			f(m, &refusal{node: l.node, code: m.Code, text: m.Text})
			continue
		}
		f(m, nil)
	}
}

// send sends a request and has f called, once, with its answer. f is quick.
func (l *link) send(m *message, f func(*message, error)) {
	l.mu.Lock()
	if l.calls == nil {
		l.mu.Unlock()
		f(nil, errHungUp)
		return
	}
	l.last++
	m.ID = l.last
	l.calls[m.ID] = f
	l.mu.Unlock()
	select {
	case l.out <- m:
	case <-l.done: // f was called
	}
}

// call sends a request and waits for its answer.
func (l *link) call(ctx context.Context, m *message) (*message, error) {
	type result struct {
		m   *message
		err error
	}
	got := make(chan result, 1)
	l.send(m, func(m *message, err error) { got <- result{m, err} })
	select {
	case a := <-got:
		return a.m, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("ask node %s: %w", l.node, context.Cause(ctx))
	}
}

// silent says how long nothing was heard.
func (l *link) silent() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard)
}

func codeOf(err error) fleet.Code {
	var c fleet.Code
	if errors.As(err, &c) {
		return c
	}
	return fleet.Internal
}
