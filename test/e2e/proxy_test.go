package e2e

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// gateway is a proxy that knows where names lead which nobody else can resolve.
type gateway struct {
	*httptest.Server
	leads map[string]string // host:port to address

	mu   sync.Mutex
	went map[string]int
}

func newGateway(t *testing.T, leads map[string]string) *gateway {
	t.Helper()
	g := &gateway{leads: leads, went: map[string]int{}}
	g.Server = httptest.NewServer(http.HandlerFunc(g.connect))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) connect(w http.ResponseWriter, r *http.Request) {
	to, err := net.Dial("tcp", g.leads[r.Host])
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, "no way to "+r.Host, http.StatusBadGateway)
		return
	}
	g.mu.Lock()
	g.went[r.Host]++
	g.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		to.Close()
		return
	}
	go func() { io.Copy(to, from); to.Close() }()
	go func() { io.Copy(from, to); from.Close() }()
}

func (g *gateway) through(host string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.went[host]
}

// A runner that has no other way out than a proxy reaches hub and repository by it,
// and believes the certificates of SSL_CERT_FILE.
func TestRunnerBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			m := mesh.New(t)
			bare := filepath.Join(m.Dir, "served", "app.git")
			m.Git(m.Dir, "clone", "-q", "--bare", m.Repository("repo"), bare)
			m.Git(bare, "update-server-info")
			forge := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(bare)))) // its certificate is for example.com
			t.Cleanup(forge.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forge.Certificate().Raw})

			g := newGateway(t, map[string]string{"hub.invalid:443": m.Listen, "example.com:443": forge.Listener.Addr().String()})
			m.Public, m.Hubs = "https://hub.invalid", "https://"+m.Listen
			m.Listen = "0.0.0.0" + m.Listen[strings.LastIndex(m.Listen, ":"):]
			m.Extra = []string{"--transport", transport}
			m.Vars = []string{"HTTPS_PROXY=" + g.URL, "SSL_CERT_FILE=" + m.Write(filepath.Join(m.Dir, "forge.pem"), string(ca))}
			m.StartHub()
			m.StartRunner()
			m.Online()
			out, errs, code := m.Try("exec", "--repo", "https://example.com/app.git", "--", "sh", "-c", `cat greet.sh; echo "$HTTPS_PROXY"; echo more > more.txt`)
			if code != 0 || out != "echo hello\n"+g.URL+"\n" {
				t.Fatalf("exit %d, %q\n%s", code, out, errs)
			}
			if j := m.Job(m.Newest()); j.State != fleet.Succeeded || j.Evidence == nil || !j.Evidence.BundleChecked {
				t.Errorf("the job is %s with %+v; want its commit checked by the hub", j.State, j.Evidence)
			}
			for _, host := range []string{"hub.invalid:443", "example.com:443"} {
				if g.through(host) == 0 {
					t.Errorf("nothing went to %s by the proxy", host)
				}
			}

			// What the owner excepts goes there directly; the proxy knows no way to it.
			m.Runner.Stop()
			m.Vars = append(m.Vars, "NO_PROXY=127.0.0.1")
			m.StartRunner()
			m.Online()
			out, errs, code = m.Try("exec", "--repo", forge.URL+"/app.git", "--", "cat", "greet.sh")
			if code != 0 || out != "echo hello\n" {
				t.Errorf("past the proxy: exit %d, %q\n%s", code, out, errs)
			}
		})
	}
}
