package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"tugline.dev/tugline/shared/api"
)

// dead is the URL of a hub that does not run.
func dead(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	return srv.URL
}

func TestTheNextHubIsAskedWhenOneFails(t *testing.T) {
	var refused, indexes atomic.Int32
	without := script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, _ *http.Request) {
			refused.Add(1)
			w.Header().Set("Retry-After", "2")
			answer(w, http.StatusServiceUnavailable, api.Problem{Code: "unavailable", Detail: "no hub leads"})
		},
	})
	with := script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(api.IndexHeader, "17")
			answer(w, http.StatusCreated, api.Job{ID: "01jq8zzzzzzzzzzzzzzzzzzzzz"})
		},
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(api.IndexHeader) == "17" {
				indexes.Add(1)
			}
			answer(w, http.StatusOK, api.Jobs{Jobs: []api.Job{}})
		},
	})
	s := newShell(t, dead(t)+", "+without.URL+","+with.URL)
	if out := s.must("exec", "--detach", "--", "true"); !strings.Contains(out, "01jq8zzzzzzzzzzzzzzzzzzzzz") {
		t.Errorf("it printed %q", out)
	}
	if refused.Load() != 1 {
		t.Errorf("the hub that takes nothing was asked %d times; want once", refused.Load())
	}
	c, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.create(t.Context(), "/v1/jobs", newKey(), api.Submit{}, actPatience); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(t.Context(), "/v1/jobs", nil, nil); err != nil || indexes.Load() != 1 {
		t.Errorf("after a creation it read with %v; the newest entry it knew was told %d times, want once", err, indexes.Load())
	}
}

func TestAllHubsGone(t *testing.T) {
	one, two := dead(t), dead(t)
	s := newShell(t, one+","+two)
	if code := s.do("job", "list"); code != exitUnreachable || !strings.Contains(s.err.String(), "none of the hubs "+one+", "+two) {
		t.Errorf("exit %d, %s", code, s.err)
	}
}

func TestAContextKeepsTheOtherNodes(t *testing.T) {
	gone := dead(t)
	var self string
	hub := script(t, map[string]http.HandlerFunc{
		"GET /v1/members": func(w http.ResponseWriter, _ *http.Request) {
			removed := api.Member{ID: "n-3", URL: "http://three.test", Role: "removed"}
			removed.RemovedAt = new(removed.JoinedAt)
			answer(w, http.StatusOK, api.Members{Members: []api.Member{{ID: "n-1", URL: self}, {ID: "n-2", URL: gone}, removed}})
		},
		"GET /v1/jobs": func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, api.Jobs{Jobs: []api.Job{}}) },
	})
	self = hub.URL
	s := newShell(t, "")
	s.must("context", "add", "c", "--hub", self, "--token", "tgl_c")
	spot, err := s.spot()
	if err != nil || spot.Hub != self || len(spot.Others) != 1 || spot.Others[0] != gone {
		t.Fatalf("kept %+v, %v; want the node of the cluster that is not removed beside the one given", spot, err)
	}
	has(t, "the list", s.must("context", "list"), self+" and 1 more")

	s.app.hub = gone + "," + self
	if spot, err := s.spot(); err != nil || spot.Token != "tgl_c" || spot.Hub != gone {
		t.Errorf("with both given: %+v, %v; want the token that is kept for them", spot, err)
	}
	s.must("job", "list")
	s.app.hub = gone + ",http://evil.test"
	if _, err := s.spot(); exitCode(err) != exitUnauthorised {
		t.Errorf("with a stranger among them: %v; want no token", err)
	}
}
