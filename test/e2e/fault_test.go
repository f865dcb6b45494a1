package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// line is a TCP line between runner and hub that can lose what the hub says.
type line struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	lose  int // the piece from the hub, counted over all connections, at which the line breaks instead; 0: never
	seen  int
	down  bool
	noWS  bool // answer upgrades as a proxy would that does not know them
	conns map[net.Conn]bool
}

// between puts a line in front of the hub; call it before the hub starts.
func between(m *mesh.Mesh) *line {
	m.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.T.Fatal(err)
	}
	x := &line{l: l, to: m.Listen, conns: map[net.Conn]bool{}}
	m.Public = "http://" + l.Addr().String()
	m.T.Cleanup(func() { l.Close(); x.cut() })
	go x.serve()
	return x
}

func (x *line) serve() {
	for {
		a, err := x.l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", x.to)
		x.mu.Lock()
		down := x.down
		x.mu.Unlock()
		if err != nil || down {
			a.Close()
			if b != nil {
				b.Close()
			}
			continue
		}
		x.mu.Lock()
		x.conns[a], x.conns[b] = true, true
		x.mu.Unlock()
		go x.up(a, b)
		go x.back(b, a)
	}
}

// up carries what the runner says, unless it asks for an upgrade that is not to be.
func (x *line) up(from, to net.Conn) {
	defer x.close(from, to)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			x.mu.Lock()
			refuse := x.noWS
			x.mu.Unlock()
			if refuse && strings.Contains(string(buf[:n]), "Upgrade: websocket") {
				io.WriteString(from, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// back carries what the hub says, until the piece that is to be lost.
func (x *line) back(from, to net.Conn) {
	defer x.close(from, to)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			x.mu.Lock()
			x.seen++
			lost := x.lose > 0 && x.seen == x.lose
			x.mu.Unlock()
			if lost {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (x *line) close(cs ...net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cs {
		c.Close()
		delete(x.conns, c)
	}
}

// cut breaks every connection.
func (x *line) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		c.Close()
	}
}

// set changes what the line does and starts counting anew.
func (x *line) set(f func(*line)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = 0
	f(x)
}

// TestALostReplyAtEveryStep loses, one job after the other, the first, second, third …
// thing that the hub says to the runner, whatever it is: the reply with the order,
// the permit, the acknowledgement of output, of the end, of the seal. Every job must
// end once, with its output whole.
func TestALostReplyAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			m := mesh.New(t)
			x := between(m)
			m.Extra = []string{"--transport", transport}
			m.StartHub()
			m.StartRunner()
			m.Online()
			steps := 14
			for k := 1; k <= steps; k++ {
				ran := filepath.Join(m.Dir, fmt.Sprintf("ran-%d", k))
				x.set(func(x *line) { x.lose = k })
				id := m.Detach("exec", "--", "sh", "-c", `echo once >> "$1"; echo one; echo two >&2; echo three`, "sh", ran)
				j := m.Ended(id, 60*time.Second)
				if j.State != fleet.Succeeded {
					t.Errorf("step %d: job is %s (%s)", k, j.State, j.Reason.Detail)
				}
				if b, _ := os.ReadFile(ran); string(b) != "once\n" {
					t.Errorf("step %d: the command ran as %q; want once", k, b)
				}
				m.Eventually(30*time.Second, "the log is sealed", func() bool { return m.Job(id).Log.Sealed })
				out, errs, _ := m.Try("job", "logs", id)
				if out != "one\nthree\n" || !strings.Contains(errs, "two\n") {
					t.Errorf("step %d: the log is %q and %q", k, out, errs)
				}
			}
		})
	}
}

func TestALineThatIsCutAgainAndAgain(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	x := between(m)
	m.StartHub()
	m.StartRunner()
	m.Online()
	argv, ran := counting(m)
	id := m.Detach(append([]string{"exec", "--"}, argv...)...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 12 {
			<-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond)
			x.cut()
		}
	}()
	<-done
	checkCounted(m, id, ran)
}

func TestHTTPWhereUpgradesAreRefused(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	x := between(m)
	x.set(func(x *line) { x.noWS = true })
	m.StartHub()
	m.StartRunner()
	m.Online()
	if out, errs, code := m.Try("exec", "--", "echo", "over http"); code != 0 || out != "over http\n" {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	if out := m.Run("runner", "get", "r1", "--json"); !strings.Contains(out, `"transport": "http"`) && !strings.Contains(out, `"transport":"http"`) {
		t.Errorf("the runner does not say that it came over http: %s", out)
	}
}
