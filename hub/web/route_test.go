package web

import (
	"strings"
	"testing"
)

// The page needs no credential, and the interface keeps its own paths.
func TestPageIsServed(t *testing.T) {
	w := newWorld(t)
	browser := map[string]string{"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
	for _, path := range []string{"/", "/jobs/01arz3ndektsv4rrffq69g5fav", "/runners?state=online"} {
		a := w.do(request{method: "GET", path: path, header: browser})
		if a.status != 200 || !strings.Contains(string(a.body), "<title>") || !strings.Contains(a.header.Get("Content-Security-Policy"), "script-src 'self'") || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %.100s", path, a.status, a.header, a.body)
		}
	}
	for _, path := range []string{"/openapi.json", "/healthz", "/v1/jobs"} {
		a := w.do(request{method: "GET", path: path, header: browser})
		if strings.Contains(string(a.body), "<title>") || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %d %v %.100s", path, a.status, a.header, a.body)
		}
	}
}
