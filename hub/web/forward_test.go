package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub/state"
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

// led is another node that leads; it is told of every time that somebody asks.
type led chan struct{}

func (l led) Leading() bool {
	select {
	case l <- struct{}{}:
	default:
	}
	return false
}
func (led) Forwarded(*http.Request) bool { return false }
func (led) Forward(http.ResponseWriter, *http.Request) error {
	return fleet.Unavailable
}

// TestJobThatIsOnItsWay: who has the id of a new job from one node may ask another,
// which does not have the job yet. One that was not made lately is not waited for.
func TestJobThatIsOnItsWay(t *testing.T) {
	asked := make(led, 1)
	w := newWorld(t, func(c *Config) { c.Peers = asked })
	for _, part := range []string{"", "/artifacts"} {
		id := strings.ToLower(ulid.Make().String())
		answer := make(chan answer, 1)
		for len(asked) > 0 {
			<-asked
		}
		go func() {
			answer <- w.do(request{method: "GET", path: "/v1/jobs/" + id + part, role: fleet.RoleViewer})
		}()
		<-asked
		<-time.After(50 * time.Millisecond) // or it would find the job at once
		w.must(&state.SubmitJob{ID: fleet.JobID(id), Spec: fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"true"}, Permissions: fleet.PermWorkspace, OnLost: "hold"}})
		if a := <-answer; a.status != http.StatusOK {
			t.Errorf("GET a job%s that comes in a moment: %d %s", part, a.status, a.body)
		}
	}
	begun := time.Now()
	old := ulid.MustNew(ulid.Timestamp(begun.Add(-time.Hour)), ulid.DefaultEntropy()).String()
	for _, id := range []string{old, ulid.MustNew(ulid.Timestamp(begun.Add(time.Hour)), ulid.DefaultEntropy()).String(), "01m8q42g", "none"} {
		w.refuses(request{method: "GET", path: "/v1/jobs/" + id, role: fleet.RoleViewer}, 404, fleet.NotFound)
	}
	if took := time.Since(begun); took > ownWriteTime/2 {
		t.Errorf("jobs that were not made lately were waited for: %v", took)
	}
	w.refuses(request{method: "GET", path: "/v1/jobs/" + ulid.Make().String(), role: fleet.RoleViewer}, 404, fleet.NotFound)
	if took := time.Since(begun); took < ownWriteTime || took > ownWriteTime+5*time.Second {
		t.Errorf("a job that never came was waited for: %v, want %v", took, ownWriteTime)
	}
}
