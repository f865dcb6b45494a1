//go:build installers && linux

package installers

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

// proxyAddress is where the proxies call the nodes from, so that what they say of their
// clients can be told from where they are themselves.
const proxyAddress = "127.0.0.77"

// proxy is a reverse proxy that ends TLS in front of all nodes of a cluster, with the
// configuration that installers/hub/proxy gives as a sample.
type proxy struct {
	t       *testing.T
	dir     string
	listen  string
	nodes   []*mesh.Node
	said    *os.File
	process *exec.Cmd
}

// replace puts what this place needs into a sample. Each must be there.
func replace(t *testing.T, sample string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(sample, pairs[i]) {
			t.Fatalf("the sample has no %q", pairs[i])
		}
		sample = strings.ReplaceAll(sample, pairs[i], pairs[i+1])
	}
	return sample
}

// certify makes a CA and the proxy's certificate from it, as files.
func (p *proxy) certify() {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of the test"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: begin, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	sign := func(c *x509.Certificate) string {
		b, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, key)
		if err != nil {
			p.t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b}))
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	write(p.t, p.path("ca.pem"), sign(ca), 0o644)
	cert := sign(leaf)
	write(p.t, p.path("cert.pem"), cert, 0o644)
	write(p.t, p.path("cert.key"), secret, 0o600)
	write(p.t, p.path("both.pem"), cert+secret, 0o600)
}

func (p *proxy) path(name string) string { return filepath.Join(p.dir, name) }

// nginx starts nginx with the sample; more is changed in it first.
func (p *proxy) nginx(more ...string) {
	p.t.Helper()
	pairs := []string{"listen 443 ssl", "listen " + p.listen + " ssl", "server_name hub.example.com", "server_name localhost",
		"/etc/ssl/hub.example.com.pem", p.path("cert.pem"), "/etc/ssl/hub.example.com.key", p.path("cert.key"),
		"proxy_http_version 1.1;", "proxy_http_version 1.1; proxy_bind " + proxyAddress + ";"}
	for i, n := range p.nodes {
		pairs = append(pairs, "10.0.0."+strconv.Itoa(i+1)+":7440", n.Listen)
	}
	sample := read(p.t, filepath.Join(root, "installers/hub/proxy/nginx.conf"))
	write(p.t, p.path("hub.conf"), replace(p.t, sample, append(pairs, more...)...), 0o644)
	write(p.t, p.path("nginx.conf"), `user root;
worker_processes 1;
daemon off;
pid `+p.path("nginx.pid")+`;
error_log `+p.path("error.log")+`;
events { worker_connections 512; }
http {
    log_format told '$status $request_method $request_uri $request_time $upstream_addr';
    access_log `+p.path("access.log")+` told;
    client_body_temp_path `+p.path("body")+`;
    proxy_temp_path `+p.path("temp")+`;
    include `+p.path("hub.conf")+`;
}
`, 0o644)
	p.run("nginx", "-e", p.path("error.log"), "-c", p.path("nginx.conf"))
}

// haproxy starts HAProxy with the sample.
func (p *proxy) haproxy() {
	p.t.Helper()
	pairs := []string{"bind :443", "bind " + p.listen, "/etc/ssl/hub.example.com.both.pem", p.path("both.pem"),
		"default-server check", "default-server source " + proxyAddress + " check"}
	for i, n := range p.nodes {
		pairs = append(pairs, "10.0.0."+strconv.Itoa(i+1)+":7440", n.Listen)
	}
	sample := read(p.t, filepath.Join(root, "installers/hub/proxy/haproxy.cfg"))
	write(p.t, p.path("haproxy.cfg"), replace(p.t, sample, pairs...), 0o644)
	p.run("haproxy", "-db", "-f", p.path("haproxy.cfg"))
}

func (p *proxy) run(name string, args ...string) {
	p.t.Helper()
	var err error
	if p.said, err = os.Create(p.path(name + ".said")); err != nil {
		p.t.Fatal(err)
	}
	p.process = exec.Command(name, args...)
	p.process.Stdout, p.process.Stderr = p.said, p.said
	p.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.process.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.stop)
	eventually(p.t, 20*time.Second, name+" listens", func() bool {
		c, err := net.Dial("tcp", p.listen)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (p *proxy) stop() {
	if p.process == nil {
		return
	}
	syscall.Kill(-p.process.Process.Pid, syscall.SIGKILL)
	p.process.Wait()
	p.process = nil
	p.said.Close()
	if p.t.Failed() {
		for _, name := range []string{"nginx.said", "haproxy.said", "error.log", "access.log"} {
			if b, err := os.ReadFile(p.path(name)); err == nil {
				p.t.Logf("--- %s:\n%s", name, tail(string(b)))
			}
		}
	}
}

// behind is a mesh that knows the cluster by the proxy's URL alone.
func behind(t *testing.T, c *mesh.Cluster, p *proxy) *mesh.Mesh {
	t.Helper()
	m := mesh.New(t)
	m.Hubs, m.Secret = "https://"+p.name(), c.Secret
	m.Vars = []string{"SSL_CERT_FILE=" + p.path("ca.pem")} // the system's trust, to the runner
	write(t, filepath.Join(m.Dir, "hub", "ca.pem"), read(t, p.path("ca.pem")), 0o644)
	return m
}

// name is the proxy's as its certificate has it.
func (p *proxy) name() string {
	_, port, _ := net.SplitHostPort(p.listen)
	return "localhost:" + port
}

// follower is a client that follows a job's output.
type follower struct {
	lines chan string
	done  chan error
	errs  bytes.Buffer
}

func follow(m *mesh.Mesh, id string) *follower {
	m.T.Helper()
	f := &follower{lines: make(chan string, 1024), done: make(chan error, 1)}
	c := exec.Command(mesh.Binary(), "job", "logs", "-f", id)
	c.Env, c.Stderr = m.Env(), &f.errs
	out, err := c.StdoutPipe()
	if err != nil {
		m.T.Fatal(err)
	}
	if err := c.Start(); err != nil {
		m.T.Fatal(err)
	}
	go func() {
		var rest string
		b := make([]byte, 4096)
		for {
			n, err := out.Read(b)
			rest += string(b[:n])
			for {
				line, after, ok := strings.Cut(rest, "\n")
				if !ok {
					break
				}
				f.lines <- line
				rest = after
			}
			if err != nil {
				break
			}
		}
		close(f.lines)
		f.done <- c.Wait()
	}()
	m.T.Cleanup(func() { c.Process.Kill() })
	return f
}

// next waits for the next line of the job.
func (f *follower) next(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-f.lines:
		if got != want {
			t.Fatalf("the client shows %q, want %q\n%s", got, want, &f.errs)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the client does not show %q: what lies between keeps it back", want)
	}
}

// steps is a job that writes a line and then waits until the test has seen it.
func steps(m *mesh.Mesh, dir string, n int) (argv []string) {
	script := m.Write(filepath.Join(m.Dir, "steps.sh"), `mkdir -p "$1"; echo began >> "$1/ran"; i=1
while [ $i -le $2 ]; do echo "step $i"; while [ ! -e "$1/seen$i" ]; do sleep 0.05; done; i=$((i+1)); done
head -c 9000000 /dev/urandom > "$TUGLINE_ARTIFACTS/large"
echo ended >> "$1/ran"
`)
	return []string{"sh", script, dir, strconv.Itoa(n)}
}

var connected = regexp.MustCompile(`msg=connected`)

func connections(m *mesh.Mesh) int { return len(connected.FindAllString(m.Runner.Said(), -1)) }
