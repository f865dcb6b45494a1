package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func readAll(t *testing.T, r *http.Request) []byte {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return b
}

// broken closes the connection without an answer.
func broken(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func TestRefusalsHaveTheirExitCodes(t *testing.T) {
	for _, c := range []struct {
		status     int
		code       fleet.Code
		read, give int
	}{
		{400, fleet.BadRequest, exitUsage, exitUsage},
		{401, fleet.Unauthorised, exitUnauthorised, exitUnauthorised},
		{403, fleet.Forbidden, exitUnauthorised, exitUnauthorised},
		{404, fleet.NotFound, exitUsage, exitUsage},
		{409, fleet.KeyReused, exitUsage, exitUsage},
		{409, fleet.Conflict, exitUsage, exitUsage},
		{413, fleet.TooLarge, exitUsage, exitUsage},
		{422, fleet.BadRequest, exitUsage, exitUsage},
		{429, fleet.QueueFull, exitUnreachable, exitUnreachable},
		{500, fleet.Internal, exitFailed, exitUnreachable},
		{503, fleet.Unavailable, exitUnreachable, exitUnreachable},
	} {
		var tries atomic.Int32
		refuse := func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			problem(w, c.status, c.code, "this is why")
		}
		srv := script(t, map[string]http.HandlerFunc{"GET /v1/jobs/x": refuse, "POST /v1/jobs": refuse})
		s := newShell(t, srv.URL)
		s.retryFor(300 * time.Millisecond)
		if got := s.do("exec", "-d", "--", "true"); got != c.give {
			t.Errorf("%d to a submit: exit %d, want %d\n%s", c.status, got, c.give, s.err)
		}
		has(t, "the message", s.err.String(), "this is why")
		final := c.status != 429 && c.status != 503
		if n := tries.Load(); final && n != 1 || !final && n < 2 {
			t.Errorf("%d was tried %d times", c.status, n)
		}
		if c.give == exitUnreachable {
			has(t, "the message", s.err.String(), "--idempotency-key 0")
		}
		if !final {
			continue // a read is as patient as it is
		}
		if got := s.do("job", "get", "x"); got != c.read {
			t.Errorf("%d to a read: exit %d, want %d\n%s", c.status, got, c.read, s.err)
		}
	}
}

// What is no id is told as that, before a hub is asked for something else.
func TestOddIDs(t *testing.T) {
	srv := script(t, nil)
	for _, args := range [][]string{
		{"job", "get", ".."}, {"runner", "get", "../runners"}, {"session", "show", "r1", "../../etc"}, {"hub", "release", "remove", "./x"},
		{"runner", "provision", "", "codex"}, {"token", "revoke", "a//b"},
	} {
		s := newShell(t, srv.URL)
		if code := s.do(args...); code != exitUsage {
			t.Errorf("%q: exit %d, want %d", args, code, exitUsage)
		}
		has(t, strings.Join(args, " "), s.err.String(), "is no id and no name")
	}
	for _, good := range []string{"/v1/jobs/x/events", "/v1/circuits/host:a%2Fb/reset", "/v1/budgets/automation:nightly"} {
		if id, odd := oddID(good); odd {
			t.Errorf("%s: %q is taken for no id", good, id)
		}
	}
}

func TestCreationIsRepeatedUnderOneKey(t *testing.T) {
	t.Parallel()
	var keys, bodies []string
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(readAll(t, r)))
		switch len(keys) {
		case 1:
			broken(w)
		case 2:
			problem(w, 503, fleet.OutcomeUnknown, "who knows")
		default:
			answer(w, 201, api.Job{ID: "01job"})
		}
	}})
	s := newShell(t, srv.URL)
	s.must("exec", "-d", "--", "true")
	if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("keys of the requests: %q, want three times the same", keys)
	}
	if bodies[1] != bodies[0] || bodies[2] != bodies[0] {
		t.Errorf("the body changed between tries: %q", bodies)
	}
	s.must("exec", "-d", "--idempotency-key", "mine", "--", "true")
	s.must("exec", "-d", "--", "true")
	if keys[3] != "mine" || keys[4] == keys[0] {
		t.Errorf("later keys are %q", keys[3:])
	}
}

// What waiting does not mend is told at once: only a queue of the whole hub empties
// by itself.
func TestAFullQueueOfOneJobIsTold(t *testing.T) {
	var tries atomic.Int32
	full := func(status int, code fleet.Code) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			problem(w, status, code, "the job has 20 queued follow-ups, the bound")
		}
	}
	for _, c := range []struct {
		status int
		code   fleet.Code
		exit   int
	}{{409, fleet.Conflict, exitUsage}, {429, fleet.Internal, exitUnreachable}} {
		tries.Store(0)
		s := newShell(t, script(t, map[string]http.HandlerFunc{"POST /v1/jobs/{id}/follow-ups": full(c.status, c.code)}).URL)
		if code := s.do("job", "follow-up", "01job", "more"); code != c.exit || tries.Load() != 1 {
			t.Errorf("%d: exit %d after %d requests, want %d after one\n%s", c.status, code, tries.Load(), c.exit, s.err)
		}
		has(t, "the message", s.err.String(), "20 queued follow-ups")
	}
}

// A ticket has no key: it may be asked for again only while nothing was sent.
func TestTicketIsNotMadeTwice(t *testing.T) {
	var tries atomic.Int32
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/tickets": func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		broken(w)
	}})
	if code := newShell(t, srv.URL).do("hub", "ticket"); code != exitUnreachable || tries.Load() != 1 {
		t.Errorf("exit %d after %d requests, want 4 after one", code, tries.Load())
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	var first time.Time
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		if first.IsZero() {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			problem(w, 429, fleet.QueueFull, "full")
			return
		}
		if d := time.Since(first); d < 950*time.Millisecond {
			t.Errorf("came back after %v, want a second", d)
		}
		answer(w, 201, api.Job{ID: "01job"})
	}})
	newShell(t, srv.URL).must("exec", "-d", "--", "true")
}

func TestUnreachableIsExit4(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	s := newShell(t, srv.URL)
	s.retryFor(100 * time.Millisecond)
	if code := s.do("run", "-d", "x"); code != exitUnreachable {
		t.Errorf("exit %d, want 4", code)
	}
	has(t, "the message", s.err.String(), "cannot be reached", "is the hub running?", "--idempotency-key 0")
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	for _, u := range []string{tls.URL, strings.Replace(tls.URL, "https", "http", 1)} {
		s = newShell(t, u)
		if code := s.do("job", "get", "x"); code == exitOK {
			t.Errorf("%s: exit 0", u)
		}
	}
	s = newShell(t, tls.URL)
	if code := s.do("job", "get", "x"); code != exitUnreachable {
		t.Errorf("unknown CA: exit %d, want 4", code)
	}
	has(t, "the message", s.err.String(), "not trusted here", "--ca-file")
}

func TestSomethingElseAtTheURL(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/jobs" {
			_, _ = io.WriteString(w, "<html>welcome</html>")
			return
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer srv.Close()
	s := newShell(t, srv.URL)
	if code := s.do("job", "list"); code != exitFailed {
		t.Errorf("a page instead of JSON: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "cannot be read")
	if code := s.do("job", "get", "x"); code != exitFailed {
		t.Errorf("a stranger's refusal: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "not how a Tugline hub refuses")
}

func TestInterruptWhileTryingPrintsTheKey(t *testing.T) {
	asked := make(chan struct{}, 1)
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		problem(w, 503, fleet.Unavailable, "not now")
	}})
	s := newShell(t, srv.URL)
	s.retryFor(time.Minute)
	go func() {
		<-asked
		s.signals <- os.Interrupt
	}()
	if code := s.do("exec", "--", "true"); code != exitInterrupted {
		t.Errorf("exit %d, want 130", code)
	}
	has(t, "the message", s.err.String(), "--idempotency-key 0")
}

func TestTheNotice(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	srv := script(t, map[string]http.HandlerFunc{"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) < 5 {
			problem(w, 503, fleet.Unavailable, "the hub has no leader")
			return
		}
		answer(w, 201, api.Job{ID: "01job"})
	}})
	s := newShell(t, srv.URL)
	s.retryFor(20 * time.Second)
	s.must("exec", "-d", "--", "true")
	if n := strings.Count(s.err.String(), "trying again for up to"); n != 1 {
		t.Errorf("the user was told %d times that it is tried again, want once:\n%s", n, s.err)
	}
}
