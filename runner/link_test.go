package runner

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// front puts a proxy before the hub that may meddle with requests.
func (h *testHub) front(t *testing.T, meddle func(w http.ResponseWriter, r *http.Request) (answered bool)) {
	t.Helper()
	target, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	h.pass = proxy.ServeHTTP
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meddle(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(ts.Close)
	h.url = ts.URL
}

// Where no WebSocket gets through, the runner turns to plain requests by itself.
func TestFallsBackToPlainRequests(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.front(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/link") {
			http.Error(w, "no upgrade here", http.StatusForbidden)
			return true
		}
		return false
	})
	r := h.newRunner()
	if p, _ := h.srv.PresenceOf(r.id); p.Transport != "http" {
		t.Errorf("transport %q", p.Transport)
	}
	h.holds(t, r)
}

// A hub that is away for long behind a proxy that says so is no WebSocket that does not get
// through: once it is back the runner has one again.
func TestAHubThatIsAwayIsNoBrokenWebSocket(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var away atomic.Bool
	var refused atomic.Int32
	h.front(t, func(w http.ResponseWriter, r *http.Request) bool {
		if away.Load() {
			if strings.HasSuffix(r.URL.Path, "/link") {
				refused.Add(1)
			}
			http.Error(w, "nobody there", []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}[refused.Load()%3])
			return true
		}
		return false
	})
	var line cable
	r := h.newRunner(func(c *Config) { c.Dial = line.dial })
	away.Store(true)
	line.pull(true)
	eventually(t, "the runner to be refused again and again", func() bool { return refused.Load() > upgradeTries })
	away.Store(false)
	h.holds(t, r)
	if p, _ := h.srv.PresenceOf(r.id); p.Transport != "ws" {
		t.Errorf("transport %q", p.Transport)
	}
}

// Answers of exchanges get lost: the same request again gets the same answer, and a
// job is none the worse.
func TestLostAnswersOfExchanges(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	n := 0
	seen := make(chan struct{}, 1)
	seen <- struct{}{}
	h.front(t, func(w http.ResponseWriter, r *http.Request) bool {
		<-seen
		n++
		lose := n%5 == 3 && strings.HasSuffix(r.URL.Path, "/exchange") && r.URL.Query().Get("channel") != wire.ChannelOpen
		seen <- struct{}{}
		if !lose {
			return false
		}
		// It reaches the hub, but its answer does not come back.
		target, _ := url.Parse(h.srvURL)
		body, err := io.ReadAll(r.Body)
		if err == nil {
			req, _ := http.NewRequestWithContext(r.Context(), r.Method, target.String()+r.URL.RequestURI(), bytes.NewReader(body))
			req.Header = r.Header.Clone()
			if res, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	r := h.newRunner(func(c *Config) { c.Transport = "http" })
	j, f := h.run(r.id, "/bin/sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.03; done")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got := h.text(j, f, fleet.FrameStdout); got != "1\n2\n3\n4\n5\n" {
		t.Errorf("output %q", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// A second holder of the same identity is refused, and so is the first: neither
// comes back by itself.
func TestCopiedDirectoryStandsDown(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	cfg := Config{Dir: t.TempDir(), Name: "box", Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG")}
	r := h.restart(cfg)
	copied := cfg
	copied.Dir = t.TempDir()
	for _, name := range []string{"identity.json", "journal.log"} {
		b, err := os.ReadFile(filepath.Join(cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied.Dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.holds(t, r) // the original moves on
	c, err := New(copied)
	if err != nil {
		t.Fatal(err)
	}
	var away *StandDown
	if err := c.Run(t.Context()); !errors.As(err, &away) || !errors.Is(err, fleet.ClonedIdentity) {
		t.Errorf("the copy's Run = %v, want to be sent away as a clone", err)
	}
	select {
	case err := <-r.done:
		r.once.Do(func() { r.err = err })
		if !errors.As(err, &away) {
			t.Errorf("the original's Run = %v, want to be sent away", err)
		}
	case <-time.After(patience):
		t.Error("the original goes on")
	}
}

func TestNewerSessionSupersedes(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	h.srv.EndAll(fleet.Superseded, "a newer session took over")
	select {
	case err := <-r.done:
		r.once.Do(func() { r.err = err })
		var away *StandDown
		if !errors.As(err, &away) || away.Code != fleet.Superseded {
			t.Errorf("Run = %v, want to stand down", err)
		}
	case <-time.After(patience):
		t.Error("the superseded runner goes on")
	}
}

func TestOneRunnerADirectory(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	second, err := New(Config{Dir: r.dir, Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("second Run = %v, want ErrLocked", err)
	}
}

// The answer to an enrolment is lost: the same keys ask again and are the same runner.
func TestEnrolmentMayBeRepeated(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	direct := h.url
	first := true
	h.front(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != wire.EnrolPath || !first {
			return false
		}
		first = false
		res, err := http.Post(direct+wire.EnrolPath, "application/json", r.Body)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	r := h.newRunner()
	if n := proposed[*state.Enrol](h); n != 2 {
		t.Errorf("%d enrolments reached the hub, want 2", n)
	}
	h.holds(t, r)
	http.DefaultClient.CloseIdleConnections()
}

func TestWithoutTicketOrIdentity(t *testing.T) {
	r, err := New(Config{Dir: t.TempDir(), Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, ErrNotEnrolled) || !errors.Is(err, fleet.TicketInvalid) || !strings.HasSuffix(err.Error(), "give it in TUGLINE_TICKET") {
		t.Errorf("Run = %v, want what to do", err)
	}
	for _, c := range []Config{{}, {Dir: "x", Name: "a b"}, {Dir: "x", Slots: 65}, {Dir: "x", Transport: "udp"}, {Dir: "x", Ticket: "nonsense"}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) is fine", c)
		}
	}
}

// A desired set that is older than one already seen is passed over whole.
func TestOlderDesiredSetIsPassedOver(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	s, err := r.link.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a desired set to be seen", func() bool { return r.journal.Desired().Index > 0 })
	seen := r.journal.Desired()
	f := fleet.Fence{Epoch: 1, Index: 1 << 40}
	line := []wire.Desired{{Job: "j", Fence: f, Intent: wire.IntentRun, Accepted: true}}
	if err := r.reconcile(s, wire.HeartbeatReply{Epoch: seen.Epoch, Term: seen.Term, Index: seen.Index - 1, Desired: line}); err != nil {
		t.Fatal(err)
	}
	if r.journal.PendingOf(f) {
		t.Error("an older set was obeyed")
	}
	if err := r.reconcile(s, wire.HeartbeatReply{Epoch: seen.Epoch, Term: seen.Term + 1, Index: 1, Desired: line}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a newer set to be obeyed", func() bool { return r.answeredFor(f) })
}

func (r *Runner) answeredFor(f fleet.Fence) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered[f]
}

// Orders that are forged, changed or of another runner never begin anything.
func TestForgedOrdersAreDeclined(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	s, err := r.link.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := r.journal.Desired()
	f := fleet.Fence{Epoch: 1, Index: 1 << 40}
	body := []byte(`{"job":"j","fence":"` + f.String() + `","spec":{"kind":"exec","harness":"exec","argv":["true"]}}`)
	d := wire.Desired{Job: "j", Fence: f, Intent: wire.IntentRun, Body: body,
		Order: &wire.Signed{Key: "k1", Order: []byte(`{"id":"x","kind":"assign"}`), Sig: make([]byte, 64)}}
	set := wire.HeartbeatReply{Epoch: seen.Epoch, Term: seen.Term, Index: seen.Index + 1, Desired: []wire.Desired{d}}
	if err := r.reconcile(s, set); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.journal.Attempt(f); ok {
		t.Error("a forged order was taken on")
	}
	set.Desired[0].Order, set.Desired[0].Intent = nil, wire.IntentStop
	if err := r.reconcile(s, set); err != nil {
		t.Fatal(err)
	}
}

// A blob whose transfer breaks goes on from where it broke; a wrong one is refused.
func TestFetchGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	big := []byte(`["/bin/sh","-c","echo ok","` + strings.Repeat("0123456789abcdef", 4000) + `"]`)
	breaks := 0
	h.front(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet || breaks >= 2 {
			return false
		}
		breaks++
		from := 0
		if rng := r.Header.Get("Range"); rng != "" {
			from = len(big) / 4
			if rng != "bytes="+itoa(from)+"-" {
				t.Errorf("range %q, want from %d", rng, from)
			}
			w.Header().Set("Content-Range", "bytes "+itoa(from)+"-"+itoa(len(big)-1)+"/"+itoa(len(big)))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", itoa(len(big)))
		}
		_, _ = w.Write(big[from : from+len(big)/4])
		w.(http.Flusher).Flush()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return true
	})
	r := h.newRunner()
	j := h.submit(fleet.Spec{ArgvBlob: h.put(big)})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	if got := h.text(j, f, fleet.FrameStdout); got != "ok\n" || breaks != 2 {
		t.Errorf("output %q after %d breaks, want the command as it was stored and 2 breaks", got, breaks)
	}
}

// A hub is believed only with a certificate from the pinned key.
func TestPinnedTrust(t *testing.T) {
	ca, leaf := certificates(t)
	other, _ := certificates(t)
	pin := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	wrong := sha256.Sum256(other.RawSubjectPublicKeyInfo)
	ts := httptest.NewUnstartedServer(http.NotFoundHandler())
	ts.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}}
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.StartTLS()
	defer ts.Close()
	get := func(id *identity) error {
		n, err := newNetwork(id, id.pins, nil)
		if err != nil {
			return err
		}
		defer n.close()
		res, err := n.client.Get(ts.URL)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	}
	if err := get(&identity{Trust: wire.TrustPin, Pin: pin[:]}); err != nil {
		t.Errorf("the pinned hub is refused: %v", err)
	}
	if err := get(&identity{Trust: wire.TrustPin, Pin: wrong[:], Pins: [][]byte{pin[:]}}); err != nil {
		t.Errorf("a hub with the second of two pinned keys is refused: %v", err)
	}
	if err := get(&identity{Trust: wire.TrustPin, Pin: pin[:], Pins: [][]byte{nil}}); err == nil {
		t.Error("a pin that is none is taken")
	}
	if err := get(&identity{Trust: wire.TrustPin, Pin: wrong[:]}); err == nil {
		t.Error("a hub with another key is believed")
	}
	if err := get(&identity{Trust: wire.TrustSystem}); err == nil {
		t.Error("a private hub is believed by the system's roots")
	}
	// The CA's public certificate beside somebody else's leaf proves nothing.
	_, stranger := certificates(t)
	if err := verifyPin([]*x509.Certificate{stranger.Leaf, ca}, [][]byte{wrong[:], pin[:]}, time.Now()); err == nil {
		t.Error("a leaf that the pinned key did not sign is believed")
	}
}

// A machine whose clock is behind reaches its hub, and learns the time there. One that
// is ahead can't tell a wrong clock from an old certificate, and names both.
func TestPinnedTrustWithAWrongClock(t *testing.T) {
	ca, leaf := certificates(t)
	pin := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	chain, now := []*x509.Certificate{leaf.Leaf, ca}, time.Now()
	for _, at := range []time.Time{time.Unix(0, 0), now.AddDate(0, 0, -1), now} {
		if err := verifyPin(chain, [][]byte{pin[:]}, at); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
	later := now.AddDate(1, 0, 0)
	err := verifyPin(chain, [][]byte{pin[:]}, later)
	for _, want := range []string{leaf.Leaf.NotAfter.UTC().Format(time.RFC3339), later.UTC().Format(time.RFC3339)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a year ahead: %v, want %s in it", err, want)
		}
	}
	_, stranger := certificates(t)
	if err := verifyPin([]*x509.Certificate{stranger.Leaf, ca}, [][]byte{pin[:]}, time.Unix(0, 0)); err == nil {
		t.Error("a clock that is behind has a stranger believed")
	}
}

func certificates(t *testing.T) (ca *x509.Certificate, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	lt := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	lder, err := x509.CreateCertificate(rand.Reader, lt, ca, leafKey.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(lder)
	if err != nil {
		t.Fatal(err)
	}
	return ca, tls.Certificate{Certificate: [][]byte{lder, der}, PrivateKey: leafKey, Leaf: parsed}
}

// A hub that lost bytes of a log that is not sealed yet gets them again.
func TestLostBytesAreSentAgainBeforeTheSeal(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	hold := make(chan struct{})
	h.mu.Lock()
	h.refuse = func(c state.Command) error {
		if _, ok := c.(*state.SealLog); ok {
			select {
			case <-hold:
			default:
				return fleet.Unavailable
			}
		}
		return nil
	}
	h.mu.Unlock()
	r := h.newRunner()
	j, f := h.run(r.id, "/bin/sh", "-c", "echo one; echo two >&2")
	h.ends(j, fleet.Succeeded)
	eventually(t, "the seal to be asked for", func() bool { return r.journal.PendingOf(f, "sealed") })
	if err := h.spool.Delete(j); err != nil {
		t.Fatal(err)
	}
	close(hold)
	h.sealed(j, f)
	if got := h.text(j, f, fleet.FrameStdout) + h.text(j, f, fleet.FrameStderr); got != "one\ntwo\n" {
		t.Errorf("output %q", got)
	}
	r.forgets(f)
}

// A hub that is away for a while is found again, with everything that is owed to it.
func TestHubAwayForAWhile(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	c := &cable{}
	r := h.newRunner(func(cfg *Config) { cfg.Dial = c.dial })
	j, f := h.run(r.id, "/bin/sh", "-c", "sleep 0.2; echo done")
	eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil })
	c.pull(false)
	eventually(t, "the result to be in the outbox", func() bool { return r.journal.PendingOf(f, "finished") })
	c.pull(true)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.forgets(f)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.newRunner()
	done := make(chan error, 1)
	go func() { done <- r.end() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(patience):
		t.Error("Run does not end")
	}
	if _, err := r.link.current(canceled(t)); err == nil {
		t.Error("there is a session after the end")
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
