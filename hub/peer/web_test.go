package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const token = "the operator's secret"

// office is a cluster whose nodes carry the real interface over real states; only the
// log is a list that all see at once, but for those that are held back.
type office struct {
	*cluster
	nodes map[string]*desk

	mu      sync.Mutex
	entries [][]byte
}

// desk is a node of it.
type desk struct {
	*node
	web     *web.Server
	url     string
	machine *state.Machine
	feed    *consensus.Feed
	spool   *spool.Store
	office  *office

	confirm func(context.Context) error // of the leader
	have    int                         // entries applied; under office.mu
	held    bool
}

func newOffice(t testing.TB) *office {
	o := &office{nodes: map[string]*desk{}}
	o.cluster = newCluster(t, three, func(n *node, cfg *Config) {
		d := &desk{node: n, machine: state.New(), feed: consensus.NewFeed(1024), office: o, confirm: func(context.Context) error { return nil }}
		o.nodes[n.id] = d
		var err error
		if d.spool, err = spool.Open(spool.Config{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		blobs, err := blob.Open(blob.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Facts = func() Facts { return Facts{Term: n.term.Load(), Applied: d.View().Meta().Index} }
		// Each keeps its own copies and asks none but the leader.
		copies, err := replica.New(replica.Config{Self: n.id, Dir: t.TempDir(), Spool: d.spool, Blobs: blobs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { copies.Close() })
		d.web = web.New(web.Config{
			Node: n.id, Log: d, Feed: d, Spool: copies, Blobs: copies.Blobs(), Peers: n2p{n}, Version: "test",
			Presence: func() []fleet.Presence { all, _, _ := n.Peers.Presence(); return all },
			Seen:     func() (string, time.Duration) { _, from, age := n.Peers.Presence(); return from, age },
			Status:   func() api.Status { return api.Status{Node: n.id, Leader: *n.leader.Load()} },
			Ready:    func() error { return n.Ready() },
			Ticket:   func(secret string, _ time.Time) (string, string) { return secret, "join" },
			Derive:   func(string, int) []byte { return make([]byte, 32) },
			Consistent: func(ctx context.Context) error {
				return d.confirm(ctx)
			},
		})
		t.Cleanup(func() { d.web.Close(); d.spool.Close(); d.feed.Close() })
		n.handle(d.web.Handler().ServeHTTP)
	})
	for _, d := range o.nodes {
		srv := newPublic(t, d.web.Handler())
		d.url = srv.URL
	}
	for _, cmd := range []state.Command{
		&state.InitCluster{Cluster: "c-test", Epoch: 1},
		&state.CreateToken{Token: fleet.Token{ID: "t-1", Role: fleet.RoleAdmin, Hash: web.HashSecret(token)}},
	} {
		if _, err := o.nodes["n-a"].ProposeAs(context.Background(), state.Head{Actor: "hub"}, cmd); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// n2p gives the service of a node once it is made.
type n2p struct{ n *node }

func (p n2p) Leading() bool                                        { return p.n.leading.Load() }
func (p n2p) Forwarded(r *http.Request) bool                       { return p.n.Forwarded(r) }
func (p n2p) Forward(w http.ResponseWriter, r *http.Request) error { return p.n.Forward(w, r) }

func (d *desk) View() state.View { return d.machine.View() }

func (d *desk) ProposeAs(_ context.Context, h state.Head, cmd state.Command) (state.Result, error) {
	if !d.leading.Load() {
		return state.Result{}, fmt.Errorf("not the leader: %w", fleet.Unavailable)
	}
	h.At = time.Now()
	entry, err := state.Encode(h, cmd)
	if err != nil {
		return state.Result{}, err
	}
	d.office.mu.Lock()
	defer d.office.mu.Unlock()
	d.office.entries = append(d.office.entries, entry)
	var own state.Result
	for _, n := range d.office.nodes {
		if n.held {
			continue
		}
		res, err := n.catchUp()
		if err != nil {
			return res, err
		}
		if n == d {
			own = res
		}
	}
	return own, nil
}

// catchUp is called with the office's mu held; it gives the newest result.
func (d *desk) catchUp() (res state.Result, err error) {
	for d.have < len(d.office.entries) {
		d.have++
		var changes []state.Change
		if res, changes, err = d.machine.Apply(uint64(d.have), d.office.entries[d.have-1]); err != nil {
			return res, err
		}
		events := make([]any, len(changes))
		for i, c := range changes {
			events[i] = c
		}
		d.feed.Publish(uint64(d.have), events...)
	}
	return res, nil
}

func (o *office) hold(id string, held bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes[id].held = held
	if !held {
		if _, err := o.nodes[id].catchUp(); err != nil {
			o.t.Error(err)
		}
	}
}

func (d *desk) Subscribe(after uint64) (web.Subscription, error) {
	s, err := d.feed.Subscribe(after)
	return feedSub{s}, err
}

type feedSub struct{ *consensus.Subscription }

func (s feedSub) Next(ctx context.Context) (uint64, bool, state.Change, error) {
	e, err := s.Subscription.Next(ctx)
	if err != nil {
		return 0, false, state.Change{}, err
	}
	return e.Index, e.Last, e.Data.(state.Change), nil
}

// ask sends a request to a node's public address.
func (o *office) ask(id, method, path, body string, header ...string) (int, http.Header, []byte) {
	o.t.Helper()
	req, err := http.NewRequest(method, o.nodes[id].url+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client(o.t).Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return res.StatusCode, res.Header, b
}

const job = `{"kind":"exec","argv":["true"]}`

func (o *office) submit(id string, header ...string) (fleet.JobID, uint64) {
	o.t.Helper()
	status, h, b := o.ask(id, "POST", "/v1/jobs", job, header...)
	var j api.Job
	if err := json.Unmarshal(b, &j); err != nil || status != 201 {
		o.t.Fatalf("submit to %s: %d %s", id, status, b)
	}
	index, err := strconv.ParseUint(h.Get(api.IndexHeader), 10, 64)
	if err != nil {
		o.t.Fatalf("the answer to a write names no index: %v", h)
	}
	return j.ID, index
}

func (o *office) problem(id, method, path, body string, code fleet.Code, header ...string) api.Problem {
	o.t.Helper()
	status, h, b := o.ask(id, method, path, body, header...)
	var p api.Problem
	if err := json.Unmarshal(b, &p); err != nil || p.Code != code || p.Status != status || h.Get("Content-Type") != "application/problem+json" {
		o.t.Errorf("%s %s on %s: %d %s; want a problem %s", method, path, id, status, b, code)
	}
	return p
}

// TestAnyNode: a writer finds its own write on the node that it asked, reads are
// served where they are asked, and what must be current comes from the leader.
func TestAnyNode(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	id, index := o.submit("n-b")
	if index != 3 {
		t.Errorf("index %d, want 3", index)
	}
	status, h, b := o.ask("n-b", "GET", "/v1/jobs/"+string(id), "")
	if status != 200 || h.Get(api.IndexHeader) != "3" || len(h.Values("Cache-Control")) != 1 {
		t.Errorf("read back: %d %v %s", status, h, b)
	}
	again, _ := o.submit("n-c", "Idempotency-Key", "k")
	if same, _ := o.submit("n-b", "Idempotency-Key", "k"); same != again {
		t.Error("a key means something else on another node")
	}
	o.hold("n-b", true)
	late, index := o.submit("n-c")
	o.problem("n-b", "GET", "/v1/jobs/"+string(late), "", fleet.NotFound)
	if status, h, b := o.ask("n-b", "GET", "/v1/jobs/"+string(late)+"?consistent", ""); status != 200 || h.Get(api.IndexHeader) != strconv.FormatUint(index, 10) || len(h.Values(api.IndexHeader)) != 1 {
		t.Errorf("a consistent read from a node that is behind: %d %v %s", status, h, b)
	}
	var e api.Explanation
	if status, _, b := o.ask("n-b", "GET", "/v1/jobs/"+string(late)+"/explain", ""); status != 200 || json.Unmarshal(b, &e) != nil || e.Index != index || e.At.IsZero() {
		t.Errorf("explain from a node that is behind: %d %s", status, b)
	}
	done := make(chan int, 1)
	go func() {
		status, _, _ := o.ask("n-b", "GET", "/v1/jobs/"+string(late), "", api.IndexHeader, strconv.FormatUint(index, 10))
		done <- status
	}()
	o.hold("n-b", false)
	if status := <-done; status != 200 {
		t.Errorf("a read that waits for an index: %d", status)
	}
	o.problem("n-b", "GET", "/v1/jobs/x1", "", fleet.BadRequest, api.IndexHeader, "soon")
	if status, _, b := o.ask("n-b", "POST", "/v1/nothing", "{}"); status != 404 {
		t.Errorf("what no node has is refused here: %d %s", status, b)
	}
}

// TestNotConfirmed: a leader that the others don't confirm answers no consistent read.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	id, _ := o.submit("n-a")
	o.nodes["n-a"].confirm = func(context.Context) error { return errors.New("no quorum") }
	for _, n := range []string{"n-a", "n-b"} {
		o.problem(n, "GET", "/v1/jobs/"+string(id)+"?consistent=1", "", fleet.Unavailable)
		if status, _, b := o.ask(n, "GET", "/v1/jobs/"+string(id)+"?consistent=false", ""); status != 200 {
			t.Errorf("a plain read: %d %s", status, b)
		}
	}
}

// TestProblemsOfForwarding: the client is told what to do.
func TestProblemsOfForwarding(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	drop := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	})
	o.nodes["n-a"].handle(drop)
	if p := o.problem("n-b", "POST", "/v1/jobs", job, fleet.OutcomeUnknown, "Idempotency-Key", "key-7"); !strings.Contains(p.Detail, "key-7") {
		t.Errorf("%q does not name the key", p.Detail)
	}
	if p := o.problem("n-b", "POST", "/v1/jobs", job, fleet.OutcomeUnknown); !strings.Contains(p.Detail, "Idempotency-Key") {
		t.Errorf("%q does not say what is missing", p.Detail)
	}
	o.problem("n-b", "GET", "/v1/jobs?consistent", "", fleet.Unavailable)
	o.nodes["n-a"].handle(o.nodes["n-a"].web.Handler().ServeHTTP)
	o.nodes["n-a"].leading.Store(false) // and the others don't know yet
	if p := o.problem("n-b", "POST", "/v1/jobs", job, fleet.Unavailable); !strings.Contains(p.Detail, "nothing was done") {
		t.Errorf("%q", p.Detail)
	}
	nobody := ""
	o.nodes["n-b"].leader.Store(&nobody)
	o.problem("n-b", "POST", "/v1/jobs", job, fleet.Unavailable)
	o.problem("n-b", "GET", "/readyz", "", fleet.Unavailable)
}

// TestPresenceIsShown: a follower says whose view it shows, and that there is none.
func TestPresenceIsShown(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	a := o.nodes["n-a"]
	for _, cmd := range []state.Command{
		&state.CreateTicket{Hash: web.HashSecret("ticket"), TTL: time.Hour, Uses: 1},
		&state.Enrol{ID: "r-1", Ticket: web.HashSecret("ticket"), Name: "one", SignKey: []byte("s"), BoxKey: []byte("b")},
	} {
		if res, err := a.ProposeAs(t.Context(), state.Head{Actor: "hub"}, cmd); err != nil || res.Code != "" {
			t.Fatal(err, res)
		}
	}
	job, _ := o.submit("n-a")
	show := func(id string) (r api.Runner) {
		_, _, b := o.ask(id, "GET", "/v1/runners/one", "")
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		return r
	}
	if r := show("n-b"); r.State != "unknown" || r.From != "" {
		t.Errorf("before the leader was heard: %+v", r)
	}
	if _, _, b := o.ask("n-b", "GET", "/v1/jobs/"+string(job), ""); !strings.Contains(string(b), "is unknown") {
		t.Errorf("why a job waits is told without knowing: %s", b)
	}
	a.see(fleet.Presence{Runner: "r-1", Connected: true, LastBeat: time.Now(), Interval: 5 * time.Second, Slots: 2})
	until(t, "the runner is online on the followers", func() bool { return show("n-b").State == "online" && show("n-c").State == "online" })
	if r := show("n-b"); r.From != "n-a" || r.Age < 0 || r.Age > 10_000 || r.Slots.Offered != 2 {
		t.Errorf("%+v; want the view of the leader", r)
	}
	if r := show("n-a"); r.From != "n-a" || r.Age != 0 {
		t.Errorf("on the leader %+v", r)
	}
	if _, _, b := o.ask("n-c", "GET", "/readyz", ""); string(b) != "ready\n" {
		t.Errorf("a follower that hears the leader: %s", b)
	}
	if status, _, b := o.ask("n-c", "GET", "/v1/status", ""); status != 200 || !strings.Contains(string(b), `"presence_from":"n-a"`) || !strings.Contains(string(b), `"runners_online":1`) {
		t.Errorf("status %d %s", status, b)
	}
}

// events reads a stream of events from a node.
type events struct {
	in   *bufio.Scanner
	last string
	body io.Closer
}

func (o *office) events(id, path, last string) *events {
	o.t.Helper()
	req, err := http.NewRequest("GET", o.nodes[id].url+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := client(o.t).Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 {
		b, _ := io.ReadAll(res.Body)
		o.t.Fatalf("%s on %s: %d %s", path, id, res.StatusCode, b)
	}
	return &events{in: bufio.NewScanner(res.Body), last: last, body: res.Body}
}

// next gives the next event; comments are passed over.
func (e *events) next(t testing.TB) (ev api.Event) {
	t.Helper()
	for e.in.Scan() {
		line := e.in.Text()
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			e.last = id
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				t.Fatal(err)
			}
			return ev
		}
	}
	t.Fatalf("the stream ended: %v", e.in.Err())
	return ev
}

// TestStreamGoesOnElsewhere: a reader that was cut goes on at another node, without
// a gap or a repeat, and where that node is behind it waits.
func TestStreamGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	stream := o.events("n-b", "/v1/events", "")
	var want, got []fleet.JobID
	submit := func(n int) {
		for range n {
			id, _ := o.submit("n-a")
			want = append(want, id)
		}
	}
	submit(3)
	for range 3 {
		got = append(got, stream.next(t).Job.ID)
	}
	o.hold("n-c", true)
	submit(2)
	for range 2 {
		got = append(got, stream.next(t).Job.ID)
	}
	stream.body.Close()
	submit(2)
	opened := make(chan *events, 1)
	go func() { opened <- o.events("n-c", "/v1/events", stream.last) }()
	select {
	case <-opened:
		t.Error("a node that has not seen the event goes on from it")
	case <-time.After(50 * time.Millisecond):
	}
	o.hold("n-c", false)
	o.elect("n-c")
	stream = <-opened
	for range 2 {
		ev := stream.next(t)
		if ev.Job == nil {
			t.Fatalf("event %+v; want a job", ev)
		}
		got = append(got, ev.Job.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// TestJobStreamGoesOnElsewhere: so does the stream of one job, and what a node lacks
// of its output comes from the leader.
func TestJobStreamGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	a := o.nodes["n-a"]
	must := func(cmd state.Command) state.Result {
		t.Helper()
		res, err := a.ProposeAs(t.Context(), state.Head{Actor: "hub"}, cmd)
		if err != nil || res.Code != "" {
			t.Fatalf("%T: %v %s", cmd, err, res.Detail)
		}
		return res
	}
	must(&state.CreateTicket{Hash: web.HashSecret("ticket"), TTL: time.Hour, Uses: 1})
	must(&state.Enrol{ID: "r-1", Ticket: web.HashSecret("ticket"), Name: "one", SignKey: []byte("s"), BoxKey: []byte("b")})
	id, _ := o.submit("n-a")
	f := must(&state.AssignJob{Job: id, Runner: "r-1", Turn: 1, Slots: 10}).Fence
	must(&state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace})
	key := spool.Key{Job: id, Fence: f, Name: spool.Output}
	write := func(text string, ids ...string) (end int64) {
		t.Helper()
		for _, n := range ids {
			at, _ := o.nodes[n].spool.Size(key)
			var err error
			if end, err = o.nodes[n].spool.Append(t.Context(), key, at, fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, At: 1, Payload: []byte(text)})); err != nil {
				t.Fatal(err)
			}
		}
		return end
	}
	write("one", three...)
	path := "/v1/jobs/" + string(id) + "/events"
	stream := o.events("n-a", path, "")
	read := func() string {
		for {
			if ev := stream.next(t); ev.Output != nil {
				return ev.Output.Text
			}
		}
	}
	if got := read(); got != "one" {
		t.Fatalf("%q", got)
	}
	stream.body.Close()
	write("two", three...)
	stream = o.events("n-b", path, stream.last)
	if got := read(); got != "two" {
		t.Errorf("on another node %q, want what comes next", got)
	}
	stream.body.Close()
	end := write("three", "n-a") // the others never get it
	must(&state.FinishAttempt{Job: id, Fence: f, Class: fleet.ClassOK, Exit: fleet.Exit{Reason: "exited"}, StartedAt: time.Now(), FinishedAt: time.Now(), Output: end,
		Verdict: &fleet.Verdict{Decision: fleet.Accept, By: "gate"}})
	if err := a.spool.Seal(t.Context(), key, end, ""); err != nil {
		t.Fatal(err)
	}
	must(&state.SealLog{Job: id, Fence: f, Output: end})
	stream = o.events("n-c", path+"?until_ended=true", stream.last)
	if got := read(); got != "three" {
		t.Errorf("from a node that lacks it %q", got)
	}
	if status, _, b := o.ask("n-c", "GET", "/v1/jobs/"+string(id)+"/log", ""); status != 200 || string(b) != "onetwothree" {
		t.Errorf("the log from a node that lacks some of it: %d %q", status, b)
	}
	nobody := ""
	o.nodes["n-c"].leader.Store(&nobody)
	o.problem("n-c", "GET", "/v1/jobs/"+string(id)+"/log", "", fleet.Unavailable)
}

// TestBehindForGood: a node that does not come to an event within a while says so,
// and does not call it gone.
func TestBehindForGood(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.submit("n-a")
	o.problem("n-b", "GET", "/v1/events", "", fleet.Unavailable, "Last-Event-ID", "1-99")
}
