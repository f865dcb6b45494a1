package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// withCalls gives every node some calls.
func withCalls(n *node, cfg *Config) {
	cfg.Calls = map[string]Call{
		"keys": {Do: func(_ context.Context, from string, sealed []byte) ([]byte, error) {
			return []byte(n.id + " has " + string(sealed) + " of " + from), nil
		}},
		"record": {AtLeader: true, Do: func(_ context.Context, from string, body []byte) ([]byte, error) {
			return []byte(n.id + " noted " + from), nil
		}},
		"refuse": {Do: func(context.Context, string, []byte) ([]byte, error) {
			return nil, fmt.Errorf("the key is of another cluster: %w", fleet.ClusterMismatch)
		}},
		"fail": {Do: func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("a secret path") }},
		"large": {Do: func(context.Context, string, []byte) ([]byte, error) {
			return make([]byte, maxAnswer+1), nil
		}},
	}
	cfg.Join = func(_ context.Context, guest string, body []byte) ([]byte, error) {
		if string(body) == "used" {
			return nil, fmt.Errorf("the ticket was used: %w", fleet.TicketUsed)
		}
		return []byte(n.id + " welcomes " + guest + " with " + string(body)), nil
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three, withCalls)
	b := c.nodes["n-b"]
	ctx := t.Context()
	if got, err := b.Call(ctx, "n-c", "keys", []byte("k")); err != nil || string(got) != "n-c has k of n-b" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := b.CallLeader(ctx, "record", nil); err != nil || string(got) != "n-a noted n-b" {
		t.Errorf("from a follower: %q, %v", got, err)
	}
	if got, err := c.nodes["n-a"].CallLeader(ctx, "record", nil); err != nil || string(got) != "n-a noted n-a" {
		t.Errorf("on the leader: %q, %v", got, err)
	}
	for what, want := range map[string]struct {
		err  func() error
		code fleet.Code
	}{
		"a call for the leader elsewhere": {func() error { _, err := b.Call(ctx, "n-c", "record", nil); return err }, fleet.Unavailable},
		"a refusal":                       {func() error { _, err := b.Call(ctx, "n-c", "refuse", nil); return err }, fleet.ClusterMismatch},
		"a failure":                       {func() error { _, err := b.Call(ctx, "n-c", "fail", nil); return err }, fleet.Internal},
		"an unknown name":                 {func() error { _, err := b.Call(ctx, "n-c", "no/such", nil); return err }, fleet.NotFound},
		"too much":                        {func() error { _, err := b.Call(ctx, "n-c", "keys", make([]byte, maxCall+1)); return err }, fleet.TooLarge},
		"too much back":                   {func() error { _, err := b.Call(ctx, "n-c", "large", nil); return err }, fleet.TooLarge},
		"a node that is not there":        {func() error { _, err := b.Call(ctx, "n-x", "keys", nil); return err }, fleet.Unavailable},
	} {
		err := want.err()
		if !errors.Is(err, want.code) {
			t.Errorf("%s: %v, want %s", what, err, want.code)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s tells too much: %v", what, err)
		}
	}
	nobody := ""
	b.leader.Store(&nobody)
	if _, err := b.CallLeader(ctx, "record", nil); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("without a leader: %v", err)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three, withCalls)
	guest := end{c.cable, ""}
	to := func(id string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) { return guest.Dial(ctx, id, PortJoin) }
	}
	for _, id := range three { // the leader decides, whoever is asked
		got, err := Join(t.Context(), to(id), []byte("a request"))
		if err != nil || string(got) != "n-a welcomes 127.0.0.1 with a request" {
			t.Errorf("asking %s: %q, %v", id, got, err)
		}
		if _, err := Join(t.Context(), to(id), []byte("used")); !errors.Is(err, fleet.TicketUsed) || !strings.Contains(err.Error(), "was used") {
			t.Errorf("asking %s with a used ticket: %v", id, err)
		}
	}
	if _, err := Join(t.Context(), to("n-b"), bytes.Repeat([]byte("x"), maxRequest+1)); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("a large request: %v", err)
	}
	if _, err := Join(t.Context(), to("n-x"), nil); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("nobody there: %v", err)
	}
}

// TestGuestsReachNothingElse asks as a guest for what nodes may have.
func TestGuestsReachNothingElse(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three, withCalls)
	guest := end{c.cable, ""}
	ask := func(port int, method, path string, header ...string) int {
		tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return guest.Dial(ctx, "n-a", port) }}
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://n-a"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	before := c.nodes["n-a"].asked()
	for _, path := range []string{"/status", "/presence", "/calls/keys", "/join", "/v1/jobs"} {
		for _, method := range []string{"GET", "POST"} {
			if st := ask(Port, method, path, byHeader, "n-b"); st != http.StatusForbidden {
				t.Errorf("%s %s on the nodes' port: %d", method, path, st)
			}
			if st := ask(PortJoin, method, path, byHeader, "n-b"); st != http.StatusNotFound && !(path == "/join" && method == "POST") {
				t.Errorf("%s %s on the join port: %d", method, path, st)
			}
		}
	}
	if n := c.nodes["n-a"].asked() - before; n != 0 {
		t.Errorf("the handler was asked %d times", n)
	}
	c.cable.mu.Lock()
	addr := c.cable.at[fmt.Sprintf("n-a:%d", PortJoin)]
	c.cable.mu.Unlock()
	if got := raw(t, addr, "\nPOST /join HTTP/1.1\nHost: x\nX: "+strings.Repeat("x", 16<<10)+"\n\n"); strings.Contains(got, " 200 ") {
		t.Errorf("large headers: %.80s", got)
	}
}

// TestGuestsAreFew: connections beyond the bound are closed, and room comes back.
func TestGuestsAreFew(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	few := newLimited(l, 1)
	defer few.Close()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := few.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("a second guest got in, %d", n)
	}
	first.Close()
	first.Close()
	dial()
	(<-accepted).Close()
	few.Close()
	<-accepted
}
