package session

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = "c-test"

// patience bounds every wait of the tests; none lasts that long unless it fails.
const patience = 10 * time.Second

// hub is a server over real sockets with a real state machine and real stores;
// only the log is a mutex.
type hub struct {
	t      testing.TB
	srv    *Server
	url    string
	spool  *spool.Store
	blobs  *blob.Store
	client *http.Client
	keys   atomic.Pointer[Keys]

	mu       sync.Mutex
	machine  *state.Machine
	index    uint64
	commands []state.Command
	fail     func(state.Command) error // before it is committed
	leading  bool
	live     []fleet.Event
	freed    int
}

// newHub starts one; adjust may change its configuration.
func newHub(t testing.TB, adjust ...func(*Config)) *hub {
	t.Helper()
	h := &hub{t: t, machine: state.New(), leading: true}
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
	t.Cleanup(func() { copies.Close() })
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.keys.Store(&Keys{
		Cluster: testCluster, Masters: map[uint64][]byte{1: random(t, 32)},
		Signing: priv, SigningID: "k1", Chain: []wire.SigningKey{{ID: "k1", Key: pub}},
	})
	c := Config{
		Proposer: h, Spool: copies, Blobs: copies.Blobs(),
		Keys: h.keys.Load,
		Standing: func() Standing {
			m := h.View().Meta()
			return Standing{Epoch: m.Epoch, Term: 1, Index: m.Index}
		},
		Leading: func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.leading },
		Judge: func(j *fleet.Job, _ *fleet.Turn, f *wire.Finished) *fleet.Verdict {
			if j.Spec.Kind != fleet.KindExec {
				return nil
			}
			v := fleet.Verdict{Decision: fleet.Accept, By: "gate", Reasons: []string{"exit code 0"}}
			if f.Exit.Code != 0 {
				v = fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"exit code"}}
			}
			return &v
		},
		OnLive: func(_ fleet.JobID, e []fleet.Event) { h.mu.Lock(); h.live = append(h.live, e...); h.mu.Unlock() },
		OnFree: func() { h.mu.Lock(); h.freed++; h.mu.Unlock() },
	}
	if os.Getenv("SESSION_LOG") != "" {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, f := range adjust {
		f(&c)
	}
	if h.srv, err = New(c); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	h.srv.Register(mux)
	ts := httptest.NewServer(mux)
	h.url, h.client = ts.URL, ts.Client()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); h.srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ran
		ts.Close()
		h.spool.Close()
	})
	h.must(&state.InitCluster{Cluster: testCluster, Epoch: 1})
	return h
}

// Propose applies a command at once, as the log of one voter would.
func (h *hub) Propose(_ context.Context, cmd state.Command) (state.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		if err := h.fail(cmd); err != nil {
			return state.Result{}, err
		}
	}
	cmd = state.WithRules(cmd, h.machine.Nodes())
	b, err := state.Encode(state.Head{At: time.Now(), Actor: "hub"}, cmd)
	if err != nil {
		return state.Result{}, err
	}
	h.index++
	h.commands = append(h.commands, cmd)
	res, _, err := h.machine.Apply(h.index, b)
	return res, err
}

func (h *hub) View() state.View { return h.machine.View() }

func (h *hub) must(cmd state.Command) state.Result {
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

// proposed counts the commands of one type that were committed.
func proposed[T state.Command](h *hub) int {
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

func (h *hub) job(id fleet.JobID) *fleet.Job {
	h.t.Helper()
	j, ok := h.View().Job(id)
	if !ok {
		h.t.Fatalf("there is no job %s", id)
	}
	return j
}

// assign submits a job and gives it to a runner.
func (h *hub) assign(r fleet.RunnerID, adjust ...func(*state.SubmitJob)) (fleet.JobID, fleet.Fence) {
	h.t.Helper()
	s := &state.SubmitJob{ID: fleet.JobID(strings.ToLower(ulid.Make().String())), Spec: fleet.Spec{
		Kind: fleet.KindExec, Harness: "exec", Permissions: fleet.PermWorkspace, Argv: []string{"true"}, OnLost: "hold"}}
	for _, f := range adjust {
		f(s)
	}
	h.must(s)
	res := h.must(&state.AssignJob{Job: s.ID, Runner: r, Turn: 1, Slots: 1000, Base: 1000})
	return s.ID, res.Fence
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-end:
			t.Fatalf("waited %s for: %s", patience, what)
		case <-tick.C:
		}
	}
}

func random(t testing.TB, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func digest(b []byte) fleet.Digest {
	sum := sha256.Sum256(b)
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

// ticket makes a join ticket and gives its secret.
func (h *hub) ticket(adjust ...func(*state.CreateTicket)) string {
	h.t.Helper()
	secret, err := wire.NewSecret(rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	c := &state.CreateTicket{Hash: wire.SecretHash(secret), TTL: time.Minute, Uses: 1}
	for _, f := range adjust {
		f(c)
	}
	h.must(c)
	return secret
}
