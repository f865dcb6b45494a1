package runner

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// The test binary is also the supervisor of jobs, git's credential helper, and a
// runner that can be killed.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == process.SuperviseCommand:
		os.Exit(process.Supervise(os.Args[2]))
	case len(os.Args) == 3 && os.Args[1] == CredentialCommand:
		os.Exit(GitCredential(os.Args[2], os.Stdin, os.Stdout))
	case os.Getenv(childVar) != "":
		os.Exit(childRunner())
	}
	goleak.VerifyTestMain(m)
}

const (
	testCluster = "c-test"
	patience    = 20 * time.Second
)

// testHub is the hub's real session server with a real state machine and real
// stores; only the log is a mutex.
type testHub struct {
	t      *testing.T
	srv    *hubsession.Server
	url    string // for runners; a test may put something in front
	srvURL string
	pass   http.HandlerFunc // of what is in front: to the hub
	spool  *spool.Store
	blobs  *blob.Store
	keys   atomic.Pointer[hubsession.Keys]

	mu       sync.Mutex
	machine  *state.Machine
	index    uint64
	commands []state.Command
	entries  [][]byte                  // the same as in a log
	rules    bool                      // commands are decided by the rules of placement
	refuse   func(state.Command) error // before it is committed
	verdict  func(*fleet.Job, *wire.Finished) *fleet.Verdict
}

func newHub(t *testing.T, adjust ...func(*hubsession.Config)) *testHub {
	t.Helper()
	h := &testHub{t: t, machine: state.New()}
	var err error
	if h.spool, err = spool.Open(spool.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if h.blobs, err = blob.Open(blob.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	copies, err := replica.New(replica.Config{Self: "n-test", Dir: t.TempDir(), Spool: h.spool, Blobs: h.blobs})
	if err != nil {
		t.Fatal(err)
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	master := make([]byte, 32)
	if _, err := rand.Read(master); err != nil {
		t.Fatal(err)
	}
	h.keys.Store(&hubsession.Keys{Cluster: testCluster, Masters: map[uint64][]byte{1: master}, Signing: priv, SigningID: "k1",
		Chain: []wire.SigningKey{{ID: "k1", Key: pub}}})
	c := hubsession.Config{
		Proposer: h, Spool: copies, Blobs: copies.Blobs(),
		Keys: h.keys.Load,
		Standing: func() hubsession.Standing {
			m := h.View().Meta()
			return hubsession.Standing{Epoch: m.Epoch, Term: 1, Index: m.Index}
		},
		Leading: func() bool { return true },
		Judge: func(j *fleet.Job, _ *fleet.Turn, f *wire.Finished) *fleet.Verdict {
			h.mu.Lock()
			judge := h.verdict
			h.mu.Unlock()
			if judge != nil {
				return judge(j, f)
			}
			if f.Exit.Code != 0 {
				return &fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"exit code"}}
			}
			return &fleet.Verdict{Decision: fleet.Accept, By: "gate", Reasons: []string{"exit code 0"}}
		},
		Logger: testLogger("HUB_LOG"),
	}
	for _, f := range adjust {
		f(&c)
	}
	if h.srv, err = hubsession.New(c); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	h.srv.Register(mux)
	ts := httptest.NewServer(mux)
	h.url, h.srvURL = ts.URL, ts.URL
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = h.srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ran
		ts.Close()
		_ = h.spool.Close()
	})
	h.must(&state.InitCluster{Cluster: testCluster, Epoch: 1})
	return h
}

func testLogger(env string) *slog.Logger {
	if os.Getenv(env) == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Propose applies a command at once, as a log with one voter would.
func (h *testHub) Propose(_ context.Context, cmd state.Command) (state.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		if err := h.refuse(cmd); err != nil {
			return state.Result{}, err
		}
	}
	if h.rules {
		cmd = state.WithRules(cmd, nil)
	}
	b, err := state.Encode(state.Head{At: time.Now(), Actor: "hub"}, cmd)
	if err != nil {
		return state.Result{}, err
	}
	h.index++
	h.commands, h.entries = append(h.commands, cmd), append(h.entries, b)
	res, _, err := h.machine.Apply(h.index, b)
	return res, err
}

func (h *testHub) View() state.View { return h.machine.View() }

func (h *testHub) must(cmd state.Command) state.Result {
	h.t.Helper()
	res, err := h.Propose(h.t.Context(), cmd)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		h.t.Fatalf("propose %T: %v", cmd, err)
	}
	return res
}

// proposed counts the commands of one type.
func proposed[T state.Command](h *testHub) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, c := range h.commands {
		if _, ok := c.(T); ok {
			n++
		}
	}
	return n
}

func (h *testHub) ticket() string {
	h.t.Helper()
	secret, err := wire.NewSecret(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	h.must(&state.CreateTicket{Hash: wire.SecretHash(secret), TTL: time.Minute, Uses: 1})
	return wire.Ticket{Hubs: []string{h.url}, Cluster: testCluster, Secret: secret, ExpiresAt: time.Now().Add(time.Minute), Plain: true}.String()
}

// submit puts a job in the queue.
func (h *testHub) submit(spec fleet.Spec, adjust ...func(*state.SubmitJob)) fleet.JobID {
	h.t.Helper()
	if spec.Kind == "" {
		spec.Kind, spec.Harness = fleet.KindExec, "exec"
	}
	if spec.Permissions == "" {
		spec.Permissions = fleet.PermWorkspace
	}
	if spec.OnLost == "" {
		spec.OnLost = "hold"
	}
	s := &state.SubmitJob{ID: fleet.JobID(strings.ToLower(ulid.Make().String())), Spec: spec}
	for _, f := range adjust {
		f(s)
	}
	h.must(s)
	return s.ID
}

// assign gives a job to a runner and nudges it.
func (h *testHub) assign(j fleet.JobID, r fleet.RunnerID) fleet.Fence {
	h.t.Helper()
	turn := h.job(j).Turn()
	res := h.must(&state.AssignJob{Job: j, Runner: r, Turn: turn.N, Attempts: len(turn.Attempts), Choice: turn.Choice, Slots: 1000, Base: 1000, Automation: 1000})
	h.srv.Nudge(r)
	return res.Fence
}

// run is submit and assign.
func (h *testHub) run(r fleet.RunnerID, argv ...string) (fleet.JobID, fleet.Fence) {
	h.t.Helper()
	j := h.submit(fleet.Spec{Argv: argv})
	return j, h.assign(j, r)
}

func (h *testHub) job(id fleet.JobID) *fleet.Job {
	h.t.Helper()
	j, ok := h.View().Job(id)
	if !ok {
		h.t.Fatalf("there is no job %s", id)
	}
	return j
}

func (h *testHub) attempt(id fleet.JobID, f fleet.Fence) *fleet.Attempt {
	h.t.Helper()
	_, a := h.job(id).Find(f)
	if a == nil {
		h.t.Fatalf("job %s has no attempt %s", id, f)
	}
	return a
}

// ends waits until a job has reached a state.
func (h *testHub) ends(id fleet.JobID, want fleet.State) {
	h.t.Helper()
	eventually(h.t, "job "+string(id)+" to be "+string(want), func() bool { return h.job(id).State == want }, func() any {
		j := h.job(id)
		return []any{j.State, j.Reason, j.Turn().Attempts[len(j.Turn().Attempts)-1]}
	})
}

func (h *testHub) sealed(id fleet.JobID, f fleet.Fence) {
	h.t.Helper()
	eventually(h.t, "the log of job "+string(id)+" to be sealed", func() bool { return h.attempt(id, f).Log.Sealed }, func() any { return h.attempt(id, f) })
}

// stream reads what the hub holds of a stream.
func (h *testHub) stream(id fleet.JobID, f fleet.Fence, name wire.Stream) []byte {
	h.t.Helper()
	key := spool.Key{Job: id, Fence: f, Name: spool.Name(name)}
	var out []byte
	buf := make([]byte, 1<<20)
	for {
		n, err := h.spool.ReadAt(key, buf, int64(len(out)))
		out = append(out, buf[:n]...)
		if n == 0 || err != nil {
			return out
		}
	}
}

// text gives the bytes of one kind of a job's output.
func (h *testHub) text(id fleet.JobID, f fleet.Fence, kind fleet.FrameKind) string {
	h.t.Helper()
	var out []byte
	for b := h.stream(id, f, wire.StreamOutput); len(b) > 0; {
		fr, n, err := fleet.DecodeFrame(b)
		if err != nil {
			h.t.Fatalf("output of job %s: %v after %d bytes", id, err, len(out))
		}
		if fr.Kind == kind {
			out = append(out, fr.Payload...)
		}
		b = b[n:]
	}
	return string(out)
}

func (h *testHub) put(b []byte) fleet.Digest {
	h.t.Helper()
	sum := sha256.Sum256(b)
	d := fleet.Digest(hex.EncodeToString(sum[:]))
	u, _, err := h.blobs.Upload(h.t.Context(), d, int64(len(b)))
	if err == nil {
		_, err = u.WriteAt(h.t.Context(), b, 0)
	}
	if err == nil {
		err = u.Commit(h.t.Context())
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

func eventually(t testing.TB, what string, ok func() bool, show ...func() any) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-end:
			for _, s := range show {
				t.Logf("now: %+v", s())
			}
			t.Fatalf("waited %s for: %s", patience, what)
		case <-tick.C:
		}
	}
}

// testRunner is a runner of the test's own process.
type testRunner struct {
	*Runner
	t    *testing.T
	dir  string
	id   fleet.RunnerID
	stop context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

// newRunner enrols and runs one, and waits until it is connected.
func (h *testHub) newRunner(adjust ...func(*Config)) *testRunner {
	h.t.Helper()
	cfg := Config{Dir: h.t.TempDir(), Name: "box", Slots: 4, Ticket: h.ticket(), Self: self(h.t), Version: "test", Logger: testLogger("RUNNER_LOG")}
	for _, f := range adjust {
		f(&cfg)
	}
	return h.restart(cfg)
}

func (h *testHub) restart(cfg Config) *testRunner {
	h.t.Helper()
	r, err := New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.connected(r)
}

// connected runs one that was made, and waits until it is connected.
func (h *testHub) connected(r *Runner) *testRunner {
	h.t.Helper()
	cfg := r.cfg
	before := "" // the session of an earlier life, which the hub may not have given up yet
	if id, err := loadIdentity(cfg.Dir); err == nil && id != nil {
		p, _ := h.srv.PresenceOf(id.Runner)
		before = p.Session
	}
	ctx, cancel := context.WithCancel(context.Background())
	tr := &testRunner{Runner: r, t: h.t, dir: cfg.Dir, stop: cancel, done: make(chan error, 1)}
	go func() { tr.done <- r.Run(ctx) }()
	h.t.Cleanup(func() { tr.end() })
	eventually(h.t, "the runner to be enrolled", func() bool {
		id, err := loadIdentity(cfg.Dir)
		if err == nil && id != nil {
			tr.id = id.Runner
		}
		return tr.id != ""
	})
	eventually(h.t, "the runner to be connected", func() bool {
		p, ok := h.srv.PresenceOf(tr.id)
		return ok && p.Connected && p.Full && p.Session != before
	})
	return tr
}

// end stops it and gives what Run said.
func (r *testRunner) end() error {
	r.once.Do(func() {
		r.stop()
		select {
		case r.err = <-r.done:
		case <-time.After(patience):
			r.t.Error("the runner does not stop")
		}
	})
	return r.err
}

func self(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// cable is a network that can be cut.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	dials int
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	c.dials++
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[net.Conn]bool{}
	}
	c.conns[conn] = true
	return conn, nil
}

// pull cuts every connection; joined says whether new ones are possible.
func (c *cable) pull(joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = !joined
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

func itoa(i int) string { return strconv.Itoa(i) }
