package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second // bounds every wait; none lasts that long unless it fails

// world is an interface over real sockets with a real state machine and real
// stores; only the log is a mutex.
type world struct {
	t      testing.TB
	srv    *Server
	http   *httptest.Server
	spool  *spool.Store
	blobs  *blob.Store
	tokens map[fleet.Role]string
	tell   func(change func()) // changes what is told of runners, where a test gave that

	mu      sync.Mutex
	machine *state.Machine
	index   uint64
	fail    error // of every proposal
	changes []change
	lost    uint64        // changes up to this index are no longer held
	grown   chan struct{} // closed at every change
	at      time.Time     // of entries; zero: now
}

type change struct {
	index uint64
	last  bool
	state.Change
}

func newWorld(t testing.TB, adjust ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, machine: state.New(), grown: make(chan struct{}), tokens: map[fleet.Role]string{}}
	var err error
	if w.spool, err = spool.Open(spool.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if w.blobs, err = blob.Open(blob.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	copies, err := replica.New(replica.Config{Self: "n-test", Dir: t.TempDir(), Spool: w.spool, Blobs: w.blobs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { copies.Close() })
	c := Config{
		Node: "n-test", Log: w, Feed: w, Spool: copies, Blobs: copies.Blobs(), Version: "test",
		Presence: func() []fleet.Presence { return nil },
		Status:   func() api.Status { return api.Status{Node: "n-test", Leader: "n-test"} },
		Ready:    func() error { return nil },
		Keys:     func() api.Keys { return api.Keys{Keys: []api.Key{}} },
		Ticket: func(secret string, until time.Time) (string, string) {
			return "tug1_" + secret + until.Format("_150405"), "join " + secret
		},
		HubTicket: func(secret string, _ time.Time) (string, string, error) {
			return "tughub1_" + secret, "join " + secret, nil
		},
		Guest:   func(secret string) []byte { sum := sha256.Sum256([]byte(secret)); return sum[:] },
		Cluster: &nodes{}, Archives: &nodes{},
		AcceptClock: func(context.Context, state.Head) (api.Clock, error) { return api.Clock{}, nil },
		Derive: func(text string, back int) []byte {
			if back > 0 {
				return nil
			}
			m := hmac.New(sha256.New, []byte("a key for tests"))
			m.Write([]byte(text))
			return m.Sum(nil)
		},
	}
	for _, f := range adjust {
		f(&c)
	}
	w.srv = New(c)
	w.http = httptest.NewServer(w.srv.Handler())
	t.Cleanup(func() {
		w.srv.Close()
		w.http.Close()
		w.spool.Close()
	})
	w.must(&state.InitCluster{Cluster: "c-test", Epoch: 1})
	for _, r := range []fleet.Role{fleet.RoleViewer, fleet.RoleOperator, fleet.RoleAdmin} {
		w.tokens[r] = "secret of the " + string(r)
		w.must(&state.CreateToken{Token: fleet.Token{ID: fleet.TokenID("t-" + r), Role: r, Hash: HashSecret(w.tokens[r])}})
	}
	return w
}

// ProposeAs applies a command at once, as a log with one voter would.
func (w *world) ProposeAs(_ context.Context, h state.Head, cmd state.Command) (state.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return state.Result{}, w.fail
	}
	h.At = time.Now()
	if !w.at.IsZero() {
		h.At = w.at
	}
	entry, err := state.Encode(h, cmd)
	if err != nil {
		return state.Result{}, err
	}
	w.index++
	res, changes, err := w.machine.Apply(w.index, entry)
	if err != nil {
		return res, err
	}
	for i, c := range changes {
		w.changes = append(w.changes, change{w.index, i == len(changes)-1, c})
	}
	close(w.grown)
	w.grown = make(chan struct{})
	return res, nil
}

func (w *world) View() state.View { return w.machine.View() }

func (w *world) must(cmd state.Command) state.Result {
	w.t.Helper()
	return w.mustAs("hub", cmd)
}

func (w *world) mustAs(actor string, cmd state.Command) state.Result {
	w.t.Helper()
	res, err := w.ProposeAs(context.Background(), state.Head{Actor: actor}, cmd)
	if err != nil || res.Code != "" {
		w.t.Fatalf("%T: %v %s %s", cmd, err, res.Code, res.Detail)
	}
	return res
}

// Subscribe makes the world a feed that holds every change, but for those that a
// test drops.
func (w *world) Subscribe(after uint64) (Subscription, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after < w.lost {
		return nil, errors.New("gone")
	}
	n := 0
	for n < len(w.changes) && w.changes[n].index <= after {
		n++
	}
	return &sub{w: w, next: n, closed: make(chan struct{})}, nil
}

type sub struct {
	w      *world
	next   int
	once   sync.Once
	closed chan struct{}
}

func (s *sub) Close() { s.once.Do(func() { close(s.closed) }) }

func (s *sub) Next(ctx context.Context) (uint64, bool, state.Change, error) {
	for {
		s.w.mu.Lock()
		grown, lost := s.w.grown, s.w.lost
		if s.next < len(s.w.changes) {
			c := s.w.changes[s.next]
			s.w.mu.Unlock()
			if c.index <= lost {
				return 0, false, state.Change{}, errors.New("too slow")
			}
			s.next++
			return c.index, c.last, c.Change, nil
		}
		s.w.mu.Unlock()
		select {
		case <-grown:
		case <-s.closed:
			return 0, false, state.Change{}, errors.New("closed")
		case <-ctx.Done():
			return 0, false, state.Change{}, context.Cause(ctx)
		}
	}
}

// drop forgets the changes up to now.
func (w *world) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = w.index
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request is a call to be made.
type request struct {
	method, path string
	role         fleet.Role // whose token; empty: none
	token        string     // in its place
	body         any        // string and []byte go as they are
	kind         string     // content type; default JSON where there is a body
	key          string
	header       map[string]string
}

func (w *world) do(r request) answer {
	w.t.Helper()
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	case []byte:
		body = bytes.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		body = bytes.NewReader(j)
	}
	req, err := http.NewRequest(r.method, w.http.URL+r.path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.role != "" {
		r.token = w.tokens[r.role]
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.kind == "" && body != nil {
		r.kind = "application/json"
	}
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	c := *w.http.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	return answer{res.StatusCode, res.Header, b}
}

// get decodes an answer that must be a success.
func get[T any](w *world, r request) T {
	w.t.Helper()
	var out T
	a := w.do(r)
	if a.status/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", r.method, r.path, a.status, a.body)
	}
	if len(a.body) > 0 {
		if err := json.Unmarshal(a.body, &out); err != nil {
			w.t.Fatalf("%s %s: %v in %s", r.method, r.path, err, a.body)
		}
	}
	return out
}

// refuses checks that an answer is a problem document with this status and code.
func (w *world) refuses(r request, status int, code fleet.Code) api.Problem {
	w.t.Helper()
	return checkProblem(w.t, fmt.Sprintf("%s %s", r.method, r.path), w.do(r), status, code)
}

func checkProblem(t testing.TB, what string, a answer, status int, code fleet.Code) api.Problem {
	t.Helper()
	var p api.Problem
	if a.status != status {
		t.Errorf("%s: status %d %.300s; want %d", what, a.status, a.body, status)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("%s: content type %q; want a problem document", what, ct)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Errorf("%s: %v in %.300s", what, err, a.body)
	}
	if p.Code != code || p.Status != a.status || p.Detail == "" || p.Title == "" || p.Type != "about:blank#"+string(code) {
		t.Errorf("%s: problem %+v; want code %s and all fields", what, p, code)
	}
	if wait := a.header.Get("Retry-After"); (a.status == 429 || a.status == 503) != (wait != "") {
		t.Errorf("%s: status %d with Retry-After %q", what, a.status, wait)
	}
	return p
}

func digestOf(b []byte) fleet.Digest {
	sum := sha256.Sum256(b)
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

// enrolled adds a runner of the given name.
func (w *world) enrolled(name string) fleet.RunnerID {
	w.t.Helper()
	secret := "ticket for " + name
	w.must(&state.CreateTicket{Hash: HashSecret(secret), TTL: time.Hour, Uses: 1})
	id := fleet.RunnerID("r-" + name)
	w.must(&state.Enrol{ID: id, Ticket: HashSecret(secret), Name: name, SignKey: []byte("sign " + name), BoxKey: []byte("box")})
	w.must(&state.UpdateRunner{ID: id, Facts: &fleet.RunnerFacts{Version: "1", OS: "linux", Arch: "amd64", Slots: 4, Permissions: fleet.PermFull, Harnesses: []fleet.HarnessInfo{{Name: "codex", SignedIn: "yes"}}}})
	return id
}

// submitted queues a command.
func (w *world) submitted(argv ...string) fleet.JobID {
	w.t.Helper()
	return get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: argv}}).ID
}

// running has a job accepted by a runner and gives its fence.
func (w *world) running(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	w.t.Helper()
	j, _ := w.View().Job(id)
	f := w.must(&state.AssignJob{Job: id, Runner: r, Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Slots: 10}).Fence
	w.must(&state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace})
	return f
}

// write appends frames to an attempt's output, and gives the new end.
func (w *world) write(id fleet.JobID, f fleet.Fence, frames ...fleet.Frame) int64 {
	w.t.Helper()
	var b []byte
	for _, fr := range frames {
		b = fleet.AppendFrame(b, fr)
	}
	return w.append(id, f, spool.Output, b)
}

func (w *world) append(id fleet.JobID, f fleet.Fence, n spool.Name, b []byte) int64 {
	w.t.Helper()
	k := spool.Key{Job: id, Fence: f, Name: n}
	end, _ := w.spool.Size(k)
	end, err := w.spool.Append(context.Background(), k, end, b)
	if err != nil {
		w.t.Fatal(err)
	}
	return end
}

// finished ends an attempt and, with seal, its log.
func (w *world) finished(id fleet.JobID, f fleet.Fence, code int, seal bool) {
	w.t.Helper()
	out, _ := w.spool.Size(spool.Key{Job: id, Fence: f, Name: spool.Output})
	ev, _ := w.spool.Size(spool.Key{Job: id, Fence: f, Name: spool.Events})
	v := &fleet.Verdict{Decision: fleet.Accept, By: "gate", Reasons: []string{"exit code 0"}}
	if code != 0 {
		v = &fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"exit code"}}
	}
	zone := time.FixedZone("far east", 9*3600)
	w.must(&state.FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Code: code, Reason: "exited"}, Class: fleet.ClassOK,
		StartedAt: time.Now().In(zone), FinishedAt: time.Now().In(zone), Output: out, Events: ev, Verdict: v})
	if seal {
		w.sealed(id, f)
	}
}

func (w *world) sealed(id fleet.JobID, f fleet.Fence) {
	w.t.Helper()
	ends := map[spool.Name]int64{}
	for _, n := range []spool.Name{spool.Output, spool.Events} {
		k := spool.Key{Job: id, Fence: f, Name: n}
		ends[n], _ = w.spool.Size(k)
		if err := w.spool.Seal(context.Background(), k, ends[n], ""); err != nil {
			w.t.Fatal(err)
		}
	}
	w.must(&state.SealLog{Job: id, Fence: f, Output: ends[spool.Output], Events: ends[spool.Events]})
}

func out(text string) fleet.Frame {
	return fleet.Frame{Kind: fleet.FrameStdout, At: 1_700_000_000_000, Payload: []byte(text)}
}
