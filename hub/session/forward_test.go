package session

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const carriedMark = "X-Carried" // stands for what only another node can say

// behind has a runner of the hub reach it by way of a follower from now on. The
// count is of the requests that were handed on.
func behind(t *testing.T, h *hub, adjust ...func(*Config)) *atomic.Int64 {
	t.Helper()
	leader, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	carried := new(atomic.Int64)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(leader) }}
	f := newHub(t, append([]func(*Config){func(c *Config) {
		c.Leading = func() bool { return false }
		c.Leader = func() string { return "https://leader.example" }
		c.Hubs = func() []string { return []string{"https://hub-1.example", "https://leader.example"} }
		c.URL = "https://hub-1.example"
		c.Forwarded = func(r *http.Request) bool { return r.Header.Get(carriedMark) != "" }
		c.Forward = func(w http.ResponseWriter, r *http.Request) error {
			carried.Add(1)
			proxy.ServeHTTP(w, r)
			return nil
		}
	}}, adjust...)...)
	h.url = f.url
	return carried
}

// TestExchangeByWayOfAFollower: a whole session over plain requests, and the blobs
// that belong to it.
func TestExchangeByWayOfAFollower(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	carried := behind(t, h)
	k := a.exchange()
	a.beat(k)
	job, fence := h.assign(a.id)
	a.beat(k)
	input := []byte("an artifact")
	if res, body := a.blobCall(k, http.MethodPut, digest(input), "", input); res.StatusCode != http.StatusCreated {
		t.Errorf("a blob for job %s, %s: %d %s", job, fence, res.StatusCode, body)
	}
	if p, ok := h.srv.PresenceOf(a.id); !ok || !p.Connected || p.Transport != transportHTTP {
		t.Errorf("the leader sees %+v", p)
	}
	if n := carried.Load(); n < 5 {
		t.Errorf("%d requests were handed on", n)
	}
}

// TestLinkByWayOfAFollower: a runner is pointed to the leader, unless it has the same
// address.
func TestLinkByWayOfAFollower(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	direct := h.url
	carried := behind(t, h)
	client := *h.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, r := range []struct{ method, path string }{{"GET", wire.LinkPath(a.id)}, {"POST", wire.EnrolPath}} {
		req, err := http.NewRequest(r.method, h.url+r.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var p wire.Problem
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusTemporaryRedirect || res.Header.Get(wire.LeaderHeader) != "https://leader.example" || p.Leader != "https://leader.example" || len(p.Hubs) != 2 {
			t.Errorf("%s %s: %d %+v; want the way to the leader", r.method, r.path, res.StatusCode, p)
		}
	}
	if carried.Load() != 0 {
		t.Error("something was handed on")
	}
	h.url = direct
	carried = behind(t, h, func(c *Config) { c.URL = "https://leader.example" })
	k := a.link()
	a.beat(k)
	if p, ok := h.srv.PresenceOf(a.id); !ok || !p.Connected || p.Transport != transportLink {
		t.Errorf("the leader sees %+v", p)
	}
	if status, body := h.newAgent().enrol(h.ticket()); status != http.StatusCreated {
		t.Errorf("enrolment: %d %s", status, body)
	}
	if carried.Load() != 2 {
		t.Errorf("%d requests were handed on, want 2", carried.Load())
	}
}

// TestHandedOnOnce: what another node handed on stops at a node that does not lead,
// and what could not be handed on is told as it is.
func TestHandedOnOnce(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	fail := fmt.Errorf("no answer came: %w", fleet.OutcomeUnknown)
	tried := 0
	behind(t, h, func(c *Config) {
		c.Forward = func(http.ResponseWriter, *http.Request) error { tried++; return fail }
	})
	ask := func(mark string) (int, wire.Problem) {
		req, err := http.NewRequest("POST", h.url+wire.ExchangePath(a.id)+"?channel=open", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(carriedMark, mark)
		res, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var p wire.Problem
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, p
	}
	if status, p := ask("yes"); status != http.StatusServiceUnavailable || p.Code != fleet.Unavailable || tried != 0 {
		t.Errorf("handed on twice: %d %+v, tried %d times", status, p, tried)
	}
	if status, p := ask(""); status != http.StatusServiceUnavailable || p.Code != fleet.OutcomeUnknown || tried != 1 {
		t.Errorf("without an answer: %d %+v, tried %d times", status, p, tried)
	}
}
