package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
)

var three = []string{"n-a", "n-b", "n-c"}

// handOn has a node hand on a request that is not from a socket.
func handOn(n *node, method, body, key string) (int, string, error) {
	r := httptest.NewRequest(method, "/v1/jobs", strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	err := n.Forward(w, r)
	return w.Code, w.Body.String(), err
}

func TestForwardIsTransparent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	type got struct {
		method, uri, host, from, key, body string
		header                             http.Header
		forwarded                          bool
	}
	seen := make(chan got, 1)
	c.nodes["n-a"].handle(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen <- got{r.Method, r.RequestURI, r.Host, r.RemoteAddr, r.Header.Get("Idempotency-Key"), string(b), r.Header, c.nodes["n-a"].Forwarded(r)}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "made")
	})
	req, err := http.NewRequest("POST", c.nodes["n-b"].public.URL+"/v1/a%2Fb?x=1&y=%20", strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "hub.example"
	for k, v := range map[string]string{
		"Idempotency-Key": "k1", "Authorization": "Bearer x", "X-Forwarded-For": "203.0.113.9",
		byHeader: "n-evil", clientHeader: "203.0.113.9:1", keyHeader: "other", // a client's own mean nothing
	} {
		req.Header.Set(k, v)
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	if res.StatusCode != 201 || string(b) != "made" || res.Header.Get("X-Answer") != "yes" {
		t.Errorf("answer %d %q %v", res.StatusCode, b, res.Header)
	}
	g := <-seen
	if g.method != "POST" || g.uri != "/v1/a%2Fb?x=1&y=%20" || g.host != "hub.example" || g.body != "a body" || !g.forwarded {
		t.Errorf("the leader was asked %+v", g)
	}
	if g.key != "k1" || g.header.Get("Authorization") != "Bearer x" {
		t.Errorf("headers %v; want those of the client", g.header)
	}
	if !strings.HasPrefix(g.from, "127.0.0.1:") || g.header.Get("X-Forwarded-For") != "" {
		t.Errorf("the client seems to be at %s, %q; want the address that connected", g.from, g.header.Get("X-Forwarded-For"))
	}
	for _, k := range []string{byHeader, clientHeader, keyHeader} {
		if v := g.header.Get(k); v != "" {
			t.Errorf("%s: %q reaches the handler", k, v)
		}
	}
}

// TestOneHop: what was handed to a node that does not lead stops there.
func TestOneHop(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	a, b := c.nodes["n-a"], c.nodes["n-b"]
	for _, n := range []*node{a, b} { // each believes that the other leads
		n.leading.Store(false)
		n.handle(func(w http.ResponseWriter, r *http.Request) {
			err := n.Forward(w, r)
			if !errors.Is(err, fleet.Unavailable) {
				t.Errorf("a second hop ended in %v, want a refusal", err)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	}
	a.leader.Store(&b.id)
	b.leader.Store(&a.id)
	for range 3 {
		status, _, err := handOn(a, "POST", "x", "k")
		if status != http.StatusServiceUnavailable || err != nil {
			t.Errorf("answer %d, %v", status, err)
		}
	}
	if a.asked() != 0 || b.asked() != 3 {
		t.Errorf("asked %d and %d times; want none and 3", a.asked(), b.asked())
	}
}

func TestNobodyLeads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	b := c.nodes["n-b"]
	for _, leader := range []string{"", b.id} { // in an election; before the barrier of its own term
		b.leader.Store(&leader)
		if _, _, err := handOn(b, "POST", "x", ""); !errors.Is(err, fleet.Unavailable) {
			t.Errorf("with leader %q: %v, want unavailable", leader, err)
		}
	}
}

// TestBroken: whether it may have been done is told apart from that it was not, and
// nothing is sent a second time, with a key or without, on a new connection or a
// pooled one.
func TestBroken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	a, b := c.nodes["n-a"], c.nodes["n-b"]
	drop := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}
	fine := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") }
	for _, body := range []string{"", "a body"} {
		for _, key := range []string{"", "k"} {
			a.handle(fine)
			if _, text, err := handOn(b, "POST", body, key); err != nil || text != "fine" { // leaves a pooled connection
				t.Fatalf("%q %v", text, err)
			}
			a.handle(drop)
			before := a.asked()
			if _, _, err := handOn(b, "POST", body, key); !errors.Is(err, fleet.OutcomeUnknown) || errors.Is(err, fleet.Unavailable) {
				t.Errorf("body %q key %q, cut after it was sent: %v; want outcome unknown", body, key, err)
			}
			if n := a.asked() - before; n != 1 {
				t.Errorf("body %q key %q: asked %d times, want once", body, key, n)
			}
		}
	}
	if _, _, err := handOn(b, "GET", "", ""); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("a read that was cut: %v; want unavailable", err)
	}
	c.cable.cut("n-a")
	b.wire.CloseIdleConnections()
	before := a.asked()
	if _, _, err := handOn(b, "POST", "x", "k"); !errors.Is(err, fleet.Unavailable) || errors.Is(err, fleet.OutcomeUnknown) {
		t.Errorf("not reached: %v; want unavailable", err)
	}
	if a.asked() != before {
		t.Error("it was reached")
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.nodes["n-a"].handle(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	if _, _, err := handOn(c.nodes["n-b"], "PUT", strings.Repeat("x", maxBody+1), ""); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("a body of a told length: %v", err)
	}
	r := httptest.NewRequest("PUT", "/", io.LimitReader(zeros{}, maxBody+1))
	r.ContentLength = -1
	if err := c.nodes["n-b"].Forward(httptest.NewRecorder(), r); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("a body of no told length: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestHung: a leader that takes a request and says nothing costs a bounded wait.
func TestHung(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three, func(_ *node, cfg *Config) { cfg.Patience = 100 * time.Millisecond })
	c.nodes["n-a"].handle(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for method, want := range map[string]fleet.Code{"POST": fleet.OutcomeUnknown, "DELETE": fleet.OutcomeUnknown, "GET": fleet.Unavailable} {
		if _, _, err := handOn(c.nodes["n-b"], method, "", ""); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %s", method, err, want)
		}
	}
}

// TestLeaderMoves: what is with a node that does not lead any more gets a moment,
// and then its client is told.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	a, b := c.nodes["n-a"], c.nodes["n-b"]
	taken, answer := make(chan struct{}), make(chan struct{})
	a.handle(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does a server notice that a client left
		taken <- struct{}{}
		select {
		case <-answer:
			io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	type end struct {
		text string
		err  error
	}
	post := func() chan end {
		done := make(chan end, 1)
		go func() {
			_, text, err := handOn(b, "POST", "x", "k")
			done <- end{text, err}
		}()
		<-taken
		return done
	}
	one := post()
	c.elect("n-c")
	answer <- struct{}{} // it had committed before it lost the lead
	if e := <-one; e.err != nil || e.text != "done" {
		t.Errorf("a leader that still answers: %q %v", e.text, e.err)
	}
	c.elect("n-a")
	two := post()
	c.elect("n-c")
	begun := time.Now()
	if e := <-two; !errors.Is(e.err, fleet.OutcomeUnknown) {
		t.Errorf("a former leader that hangs: %v, want outcome unknown", e.err)
	}
	if took := time.Since(begun); took < leaveTime/2 || took > 3*leaveTime {
		t.Errorf("it took %s, want about %s", took, leaveTime)
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	b := c.nodes["n-b"]
	for range maxHandedOn {
		b.bounds.short <- struct{}{}
	}
	if _, _, err := handOn(b, "POST", "x", ""); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("beyond the bound: %v, want unavailable", err)
	}
	r := httptest.NewRequest("GET", "/v1/runners/r-1/link", nil)
	if err := b.ForwardLasting(httptest.NewRecorder(), r); err != nil {
		t.Errorf("the requests of people take the room of runners: %v", err)
	}
	<-b.bounds.short
	if _, _, err := handOn(b, "POST", "x", ""); err != nil {
		t.Errorf("within the bound: %v", err)
	}
}

// TestStreams: an event gets to the client when it was written, not when a buffer is full.
func TestStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	next := make(chan struct{})
	c.nodes["n-a"].handle(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for i := 0; ; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if rc.Flush() != nil {
				return
			}
			select {
			case <-next:
			case <-r.Context().Done():
				close(next)
				return
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", c.nodes["n-b"].public.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	for i := range 3 {
		if in.Scan(); in.Text() != fmt.Sprintf("data: %d", i) {
			t.Fatalf("line %q after %d, %v", in.Text(), i, in.Err())
		}
		in.Scan()
		next <- struct{}{}
	}
	leave()
	select {
	case <-next: // the leader hears that the client left
	case <-time.After(patience):
		t.Error("the leader's handler goes on after the client left")
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	from := make(chan string, 2)
	ended := make(chan error, 2)
	c.nodes["n-a"].handle(func(w http.ResponseWriter, r *http.Request) {
		from <- r.RemoteAddr
		u := websocket.Upgrader{Subprotocols: []string{"tugline.v1"}}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		for {
			kind, b, err := conn.ReadMessage()
			if err != nil {
				ended <- err
				return
			}
			if err := conn.WriteMessage(kind, append([]byte("echo "), b...)); err != nil {
				ended <- err
				return
			}
		}
	})
	open := func() *websocket.Conn {
		d := websocket.Dialer{Subprotocols: []string{"tugline.v1"}}
		conn, res, err := d.Dial("ws"+strings.TrimPrefix(c.nodes["n-b"].public.URL, "http")+"/v1/runners/r-1/link", nil)
		if err != nil {
			t.Fatalf("%v %v", err, res)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetReadDeadline(time.Now().Add(patience))
		if conn.Subprotocol() != "tugline.v1" {
			t.Errorf("subprotocol %q", conn.Subprotocol())
		}
		return conn
	}
	conn := open()
	if a := <-from; a != conn.LocalAddr().String() {
		t.Errorf("the leader sees %s, want %s", a, conn.LocalAddr())
	}
	big := strings.Repeat("x", 100<<10)
	for _, m := range []string{"hello", big} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(m)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := conn.ReadMessage(); err != nil || string(b) != "echo "+m {
			t.Fatalf("%.20q, %v", b, err)
		}
	}
	conn.Close()
	<-ended // the leader hears of it
	conn = open()
	c.elect("n-c")
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("a connection to a former leader that says nothing goes on")
	}
	<-ended
}

// TestWebSocketRefused: a refusal of the upgrade comes back as it is.
func TestWebSocketRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.nodes["n-a"].handle(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	_, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(c.nodes["n-b"].public.URL, "http")+"/", nil)
	if err == nil || res == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("%v %v", res, err)
	}
}

// TestStopEndsWhatIsHandedOn: a node that stops keeps nobody waiting.
func TestStopEndsWhatIsHandedOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	taken := make(chan struct{})
	c.nodes["n-a"].handle(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(taken)
		<-r.Context().Done()
	})
	b := c.nodes["n-b"]
	done := make(chan error, 1)
	go func() {
		_, _, err := handOn(b, "POST", "x", "")
		done <- err
	}()
	<-taken
	b.Close()
	if err := <-done; !errors.Is(err, fleet.OutcomeUnknown) {
		t.Errorf("%v, want outcome unknown", err)
	}
	if _, _, err := handOn(b, "POST", "x", ""); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("after the end: %v, want unavailable", err)
	}
}
