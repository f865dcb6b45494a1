package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestHubTimeAccept(t *testing.T) {
	replies := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			answer(w, 200, api.Clock{Clock: time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC), StateTime: time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC), Accepted: true})
		},
		func(w http.ResponseWriter) {
			answer(w, 200, api.Clock{Clock: time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)})
		},
		func(w http.ResponseWriter) {
			problem(w, http.StatusForbidden, fleet.Forbidden, "this needs the role admin")
		},
	}
	n := 0
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/time/accept": func(w http.ResponseWriter, _ *http.Request) {
		replies[n](w)
		n++
	}})
	s := newShell(t, srv.URL)
	has(t, "accepted", s.must("hub", "time", "accept"), "goes by its clock", "2031-03-04", "2030-01-01")
	has(t, "nothing to accept", s.must("hub", "time", "accept"), "nothing to accept", "2031-03-04")
	if code := s.do("hub", "time", "accept"); code != exitUnauthorised || !strings.Contains(s.err.String(), "admin") {
		t.Errorf("without the role: exit %d, %s", code, s.err)
	}
}
