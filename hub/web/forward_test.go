package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// TestIndexOnOneNode: a node that is alone says how new its answers are, and waits
// for nothing.
func TestIndexOnOneNode(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	for _, path := range []string{"/v1/jobs/" + string(id), "/v1/jobs/" + string(id) + "?consistent=true", "/v1/jobs/" + string(id) + "/explain"} {
		a := w.do(request{method: "GET", path: path, role: fleet.RoleViewer, header: map[string]string{api.IndexHeader: "999999"}})
		if got := a.header.Get(api.IndexHeader); a.status != 200 || got != "5" {
			t.Errorf("GET %s: %d as of %q, want 5", path, a.status, got)
		}
	}
	a := w.do(request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}})
	if got := a.header.Get(api.IndexHeader); a.status != 201 || got != "6" {
		t.Errorf("a write: %d as of %q, want 6", a.status, got)
	}
	if r := get[api.Status](w, request{method: "GET", path: "/v1/status", role: fleet.RoleViewer}); r.From != "n-test" || r.Age != 0 {
		t.Errorf("presence from %q, %d ms ago", r.From, r.Age)
	}
}

// slow is a writer that remembers the deadline of its connection.
type slow struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *slow) SetWriteDeadline(at time.Time) error { s.deadline = at; return nil }

// TestNoDeadlineIsLeft: a request is not cut by the deadline of one before it on the
// same connection.
func TestNoDeadlineIsLeft(t *testing.T) {
	w := newWorld(t)
	s := &slow{httptest.NewRecorder(), time.Now()}
	w.srv.Handler().ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if !s.deadline.IsZero() {
		t.Errorf("the answer must be out by %s", s.deadline)
	}
}
