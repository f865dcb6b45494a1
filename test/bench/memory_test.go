//go:build bench

package bench

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
	"tugline.dev/tugline/test/mesh"
)

const (
	idleFor   = 30 * time.Second
	crowd     = 1000             // simulated runners
	givenBack = 10 * time.Second // a hub that has been quiet for some seconds gives garbage back
)

// measureMemory looks at processes that have nothing to do, and at a hub that many
// idle runners are connected to.
func measureMemory(t *testing.T, s *sheet, _ machine) {
	m := up(t, slots)
	<-time.After(idleFor)
	for _, p := range []struct {
		name, words string
		most        float64
	}{{"hub", "hub run", 30}, {"runner", "runner run", 16}} {
		all, anon := resident(t, pidOf(t, m, p.words))
		s.most("idle "+p.name+" after 30 s: resident", "MiB", p.most, fmt.Sprintf("≤ %.0f MiB", p.most), all/(1<<20))
		s.note("   idle "+p.name+", not backed by the binary's file", "MiB", anon/(1<<20))
	}
	t.Run("crowd", func(t *testing.T) {
		v := connect(t, m, "http://"+m.Listen, nil, func() {
			rate := allocates(t, m) / 1024
			s.most("hub with 1,000 idle runners, none of which beats: allocates", "KiB/s", 512, "≤ 512 KiB/s", rate)
		})
		s.most("hub's memory for a connected idle runner, plain", "KiB", 28, "≤ 28 KiB", v)
	})
	t.Run("tls", func(t *testing.T) {
		m, url, pool := tlsHub(t)
		v := connect(t, m, url, &tls.Config{RootCAs: pool}, func() {})
		s.most("hub's memory for a connected idle runner, TLS", "KiB", 52, "≤ 52 KiB", v)
	})
	t.Run("heartbeat", func(t *testing.T) { heartbeat(t, s) })
}

// tlsHub starts a hub that ends TLS itself.
func tlsHub(t *testing.T) (m *mesh.Mesh, url string, pool *x509.CertPool) {
	t.Helper()
	m = mesh.New(t)
	pool = certificate(t, m.Dir)
	url = "https://" + m.Listen
	m.Hub = m.Launch("hub", "hub", "run", "--data-dir", filepath.Join(m.Dir, "hub"), "--listen", m.Listen, "--bootstrap",
		"--tls-cert", filepath.Join(m.Dir, "cert.pem"), "--tls-key", filepath.Join(m.Dir, "key.pem"))
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer hc.CloseIdleConnections()
	m.Eventually(15*time.Second, "the hub is ready", func() bool {
		res, err := hc.Get(url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK && m.Token() != ""
	})
	return m, url, pool
}

// pidOf finds a process of the mesh by words of its command line.
func pidOf(t *testing.T, m *mesh.Mesh, words string) int {
	t.Helper()
	for _, line := range m.Marked() {
		pid, cmd, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(pid); err == nil && strings.Contains(cmd, words) {
			return n
		}
	}
	t.Fatalf("no process %q", words)
	return 0
}

// resident gives the resident bytes of a process, and those that no file backs.
func resident(t *testing.T, pid int) (all, anon float64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			all = n * 1024
		case "RssAnon:":
			anon = n * 1024
		}
	}
	return all, anon
}

// puppet is a runner of which only the connection is real.
type puppet struct {
	sign    ed25519.PrivateKey
	pub     *[32]byte
	priv    *[32]byte
	e       wire.Enrolled
	machine string
	key     []byte
	conn    *websocket.Conn
	seal    *wire.Sealer
	open    *wire.Opener
	slots   int
	from    net.Addr   // to connect from; nil: any
	say1    sync.Mutex // held while a frame is sealed and written
}

// connect enrols a crowd, connects it, has each beat, and gives the KiB that the hub
// has grown by for each between the two. While they are still connected it calls then.
func connect(t *testing.T, m *mesh.Mesh, url string, conf *tls.Config, then func()) float64 {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, MaxIdleConnsPerHost: 16}}
	defer hc.CloseIdleConnections()
	secret := ticketOf(t, &client{t, url, "Bearer " + m.Token(), hc}, crowd)
	crowdOf := make([]*puppet, crowd)
	side(t, crowd, func(i int) error {
		p, err := enrolPuppet(hc, url, secret, i)
		crowdOf[i] = p
		return err
	})
	hc.CloseIdleConnections()
	pid := pidOf(t, m, "hub run")
	<-time.After(givenBack)
	before, _ := resident(t, pid)
	side(t, crowd, func(i int) error { return crowdOf[i].link(url, conf) })
	for range 3 {
		side(t, crowd, func(i int) error { return crowdOf[i].beat() })
	}
	<-time.After(givenBack)
	after, _ := resident(t, pid)
	then()
	for _, p := range crowdOf {
		p.conn.Close()
	}
	return (after - before) / crowd / 1024
}

// allocates gives the bytes a second that an idle hub allocates, without those of being
// asked.
func allocates(t *testing.T, m *mesh.Mesh) float64 {
	t.Helper()
	c := newClient(t, m)
	c.allocated() // the first look costs more than others
	zero := c.allocated().bytes
	one := c.allocated().bytes
	<-time.After(givenBack)
	return max(0, c.allocated().bytes-one-(one-zero)) / givenBack.Seconds()
}

// side runs n calls, sixteen at a time.
func side(t *testing.T, n int, f func(int) error) {
	t.Helper()
	if err := several(n, f); err != nil {
		t.Fatal(err)
	}
}

// ticketOf makes a ticket for a number of runners, and gives its secret.
func ticketOf(t *testing.T, c *client, uses int) string {
	t.Helper()
	var k api.Ticket
	c.call(http.MethodPost, "/v1/tickets", api.TicketRequest{Uses: uses}, &k)
	parsed, err := wire.ParseTicket(k.Ticket)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Secret
}

func enrolPuppet(hc *http.Client, url, secret string, i int) (*puppet, error) {
	p := &puppet{machine: fmt.Sprint("m", i), slots: 2}
	pub, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	p.sign = sign
	if p.pub, p.priv, err = box.GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	b, err := json.Marshal(wire.Enrol{Secret: secret, Name: fmt.Sprintf("p%d", i), SignKey: pub, BoxKey: p.pub[:], MachineID: p.machine})
	if err != nil {
		return nil, err
	}
	res, err := hc.Post(url+wire.EnrolPath, "application/json", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return nil, fmt.Errorf("enrol: %s", res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&p.e); err != nil {
		return nil, err
	}
	p.key, err = wire.OpenBox(p.pub[:], p.priv[:], p.e.HMACKey)
	return p, err
}

func (p *puppet) link(url string, conf *tls.Config) error {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, TLSClientConfig: conf, HandshakeTimeout: 30 * time.Second}
	d.NetDialContext = (&net.Dialer{LocalAddr: p.from}).DialContext
	conn, res, err := d.Dial("ws"+strings.TrimPrefix(url, "http")+wire.LinkPath(p.e.Runner), nil)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	res.Body.Close()
	p.conn = conn
	_, challenge, err := conn.ReadMessage()
	if err != nil {
		return err
	}
	f, err := wire.OpenPlain(challenge)
	if err != nil {
		return err
	}
	var c wire.Challenge
	if err := wire.Decode(f.Body, &c); err != nil {
		return err
	}
	nonce, err := wire.NewNonce(rand.Reader)
	if err != nil {
		return err
	}
	hello, err := wire.SealHello(p.key, challenge, wire.Hello{
		Version: wire.Version, Runner: p.e.Runner, Generation: p.e.Generation, Nonce: nonce, Cluster: p.e.Cluster, Epoch: p.e.Epoch,
		MachineID: p.machine, JournalID: "j", JournalCount: 1, Name: p.e.Name, Time: time.Now().UTC(),
		Facts: fleet.RunnerFacts{Version: "bench", OS: "linux", Arch: "amd64", Slots: p.slots, Permissions: fleet.PermFull,
			Harnesses: []fleet.HarnessInfo{{Name: "exec", SignedIn: "yes"}}},
	})
	if err != nil {
		return err
	}
	key, err := wire.DeriveSession(p.key, c.Nonce, nonce, p.e.Cluster, p.e.Runner)
	if err != nil {
		return err
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, hello); err != nil {
		return err
	}
	p.seal, p.open = wire.NewSealer(key, wire.LinkUp), wire.NewOpener(key, wire.LinkDown)
	_, err = p.until(wire.TypeWelcome)
	return err
}

// beat sends a heartbeat and waits for its reply.
func (p *puppet) beat() error {
	if err := p.say(wire.TypeHeartbeat, p.heartbeat()); err != nil {
		return err
	}
	_, err := p.until(wire.TypeHeartbeatReply)
	return err
}

func (p *puppet) heartbeat() wire.Heartbeat {
	return wire.Heartbeat{Full: true, Epoch: p.e.Epoch, Slots: p.slots, Count: 1}
}

// say sends a message.
func (p *puppet) say(typ wire.Type, message any) error {
	body, err := wire.Encode(message)
	if err != nil {
		return err
	}
	p.say1.Lock()
	defer p.say1.Unlock()
	return p.conn.WriteMessage(websocket.BinaryMessage, p.seal.Seal(typ, body))
}

// orders gives what the hub wants next, which it is asked for as soon as it calls.
func (p *puppet) orders() ([]wire.Desired, error) {
	for {
		_, b, err := p.conn.ReadMessage()
		if err != nil {
			return nil, err
		}
		f, err := p.open.Open(b)
		if err != nil {
			return nil, err
		}
		switch f.Type {
		case wire.TypeNudge:
			if err := p.say(wire.TypeHeartbeat, p.heartbeat()); err != nil {
				return nil, err
			}
		case wire.TypeHeartbeatReply:
			var r wire.HeartbeatReply
			if err := wire.Decode(f.Body, &r); err != nil {
				return nil, err
			}
			return r.Desired, nil
		}
	}
}

func (p *puppet) until(typ wire.Type) ([]byte, error) {
	p.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		_, b, err := p.conn.ReadMessage()
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		f, err := p.open.Open(b)
		if err != nil {
			return nil, fmt.Errorf("open %q: %w", b, err)
		}
		if f.Type == typ {
			return f.Body, nil
		}
		if f.Type == wire.TypeGoodbye {
			return nil, fmt.Errorf("the hub says goodbye: %s", f.Body)
		}
	}
}

// certificate writes a certificate for loopback and gives the pool that trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for name, b := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: priv}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool
}

var nsPerOp = regexp.MustCompile(`(?m)^Benchmark(Heartbeat|Echo)\S*\s+\d+\s+([\d.]+) ns/op`)

// heartbeat holds the time of a heartbeat, both ends included, against an echo of the
// same bytes, as the benchmarks of hub/session measure them.
func heartbeat(t *testing.T, s *sheet) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "session.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "tugline.dev/tugline/hub/session").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string][]float64{}
	var out []byte
	for range rounds { // both in each round, so that they see the same machine
		var err error
		c := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", "^Benchmark(Heartbeat|Echo)$", "-test.benchtime", "500ms", "-test.cpu", "1")
		if out, err = c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, m := range nsPerOp.FindAllStringSubmatch(string(out), -1) {
			v, _ := strconv.ParseFloat(m[2], 64)
			got[m[1]] = append(got[m[1]], v/1000)
		}
	}
	if len(got["Heartbeat"]) != rounds || len(got["Echo"]) != rounds {
		t.Fatalf("unexpected output:\n%s", out)
	}
	var ratio []float64
	for i := range rounds {
		ratio = append(ratio, got["Heartbeat"][i]/got["Echo"][i])
	}
	s.note("heartbeat and reply, both ends, one CPU", "µs", got["Heartbeat"]...)
	s.note("bare WebSocket + JSON + HMAC echo", "µs", got["Echo"]...)
	s.most("heartbeat ÷ bare echo", "", 1.4, "≤ 1.40", ratio...)
}
