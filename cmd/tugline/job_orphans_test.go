package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestOrphans(t *testing.T) {
	var asked []string
	o := api.Orphan{ID: "1-4711", State: "waiting", Job: "01jlost", RunnerName: "studio", FinishedAt: time.Now().Add(-time.Hour), Failure: fleet.ClassOK, Commits: 2, LogBytes: 2048, RescueRef: "refs/tugline/rescue/x"}
	none := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
		var out any = o
		if r.Method == http.MethodGet {
			out = api.Orphans{Orphans: []api.Orphan{o}}
			if none {
				out = api.Orphans{}
			}
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	s := newShell(t, srv.URL)
	for _, c := range []struct {
		args []string
		code int
		asks string
		says []string
	}{
		{[]string{"job", "orphans"}, 0, "GET /v1/orphans", []string{"1-4711", "01jlost", "studio", "2 commits, 2.0 KiB of output, more may come", "job orphans adopt 1-4711`", "job orphans discard 1-4711 --yes`"}},
		{[]string{"job", "orphans", "list", "--all"}, 0, "GET /v1/orphans?all=true", []string{"1-4711"}},
		{[]string{"job", "orphans", "--json"}, 0, "GET /v1/orphans", []string{`"rescue_ref"`}},
		{[]string{"job", "orphans", "adopt", "1-4711"}, 0, "POST /v1/orphans/1-4711/adopt", []string{"is an attempt of job 01jlost now"}},
		{[]string{"job", "orphans", "discard", "1-4711"}, 2, "", []string{"add --yes"}},
		{[]string{"job", "orphans", "discard", "1-4711", "--yes"}, 0, "POST /v1/orphans/1-4711/discard", []string{"is discarded", "refs/tugline/rescue/x on studio keeps its work"}},
		{[]string{"job", "orphans", "adopt"}, 2, "", []string{"needs ID"}},
		{[]string{"job", "orphans", "dance"}, 2, "", nil},
	} {
		asked = nil
		code := s.do(c.args...)
		text := s.out.String() + s.err.String()
		if code != c.code || strings.Join(asked, ", ") != c.asks {
			t.Errorf("%q gave %d and asked %q; want %d and %q\n%s", c.args, code, asked, c.code, c.asks, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q:\n%s", c.args, want, text)
			}
		}
	}
	none = true
	if s.do("job", "orphans"); !strings.Contains(s.out.String(), "No orphan waits") {
		t.Errorf("with none it says %q", s.out.String())
	}
}
