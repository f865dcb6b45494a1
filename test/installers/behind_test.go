//go:build installers && linux

package installers

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// TestThreeNodesBehindAProxy puts a cluster that ran by itself behind proxies: one URL for
// all nodes, TLS ended there.
func TestThreeNodesBehindAProxy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	c := mesh.NewCluster(t, 3)
	at := &proxy{listen: listen}
	for _, n := range append(c.Followers(), c.Leader()) {
		n.Stop()
		n.Extra = []string{"--plain-http", "--trusted-proxy", proxyAddress + "/32", "--public-url", "https://" + at.name()}
		n.Start()
	}
	c.Voters(3)
	for _, k := range []struct {
		name, transport string
		start           func(*proxy)
	}{
		{"nginx", "ws", func(p *proxy) { p.nginx() }},
		{"HAProxy", "ws", (*proxy).haproxy},
		// No upgrade gets through, and nothing may be silent for over 25 s.
		{"nginx without WebSocket", "http", func(p *proxy) {
			p.nginx("proxy_set_header Upgrade $http_upgrade;", "", "proxy_set_header Connection $tugline_connection;", `proxy_set_header Connection "";`,
				"proxy_read_timeout 90s", "proxy_read_timeout 25s")
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			p := &proxy{t: t, dir: t.TempDir(), listen: listen, nodes: c.Nodes}
			p.certify()
			k.start(p)
			m := behind(t, c, p)
			m.StartRunner()
			t.Cleanup(func() { m.Run("runner", "remove", runnerNow(m).Name) })
			m.Eventually(60*time.Second, "the runner is online by "+k.transport, func() bool {
				r := runnerNow(m)
				if r.State == "online" && r.Address != "127.0.0.1" {
					t.Fatalf("the runner's address is %q; want the one that the proxy says, not the proxy's", r.Address)
				}
				return r.State == "online" && r.Transport == k.transport
			})
			large(m)
			leaderLost(t, c, m)
			if r := runnerNow(m); r.Transport != k.transport {
				t.Errorf("after the failover the runner is connected by %q", r.Transport)
			}
			if k.transport == "http" {
				held(t, m, p)
			}
		})
	}
}

// runnerNow is the cluster's one runner that was not removed.
func runnerNow(m *mesh.Mesh) (r api.Runner) {
	var rs api.Runners
	out, _, code := m.Try("runner", "list", "--json")
	if code != 0 || json.Unmarshal([]byte(out), &rs) != nil {
		return r
	}
	for _, r := range rs.Runners {
		if r.State != "revoked" {
			return r
		}
	}
	return r
}

// large hands a repository over in more than one part of an upload, and takes an artifact
// back that was uploaded by the runner.
func large(m *mesh.Mesh) {
	m.T.Helper()
	repo := m.Repository("large")
	noise := make([]byte, 9<<20)
	rand.Read(noise)
	if err := os.WriteFile(filepath.Join(repo, "noise"), noise, 0o644); err != nil {
		m.T.Fatal(err)
	}
	m.Git(repo, "add", "noise")
	m.Git(repo, "commit", "-q", "-m", "noise")
	id := m.Detach("exec", "--repo", repo, "--", "sh", "-c", `cp noise "$TUGLINE_ARTIFACTS/noise"`)
	if j := m.Ended(id, 90*time.Second); j.State != fleet.Succeeded {
		m.T.Fatalf("the job with the large repository is %s: %+v", j.State, j.Reason)
	}
	m.Eventually(30*time.Second, "its log is sealed", func() bool { return m.Job(id).Log.Sealed })
	back := filepath.Join(m.Dir, "noise.back")
	m.Run("job", "artifacts", id, "noise", "-o", back)
	if b, err := os.ReadFile(back); err != nil || !bytes.Equal(b, noise) {
		m.T.Errorf("the artifact came back with %d bytes, %v; want the %d that went", len(b), err, len(noise))
	}
}

// leaderLost kills the leader while a job runs whose output a client follows, line by
// line: the job goes on only when its line was shown, so that nothing may be kept back.
func leaderLost(t *testing.T, c *mesh.Cluster, m *mesh.Mesh) {
	t.Helper()
	const n, killed = 6, 3
	dir := filepath.Join(m.Dir, "steps")
	id := m.Detach(append([]string{"exec", "--"}, steps(m, dir, n)...)...)
	f := follow(m, id)
	var lead *mesh.Node
	for i := 1; i <= n; i++ {
		f.next(t, "step "+strconv.Itoa(i))
		if i == killed {
			before, at := connections(m), time.Now()
			lead = c.Leader()
			lead.Kill()
			m.Eventually(30*time.Second, "the runner is with the new leader", func() bool { return connections(m) > before })
			t.Logf("the runner was with the new leader %s after the end of the old one", time.Since(at).Round(time.Millisecond))
		}
		write(t, filepath.Join(dir, "seen"+strconv.Itoa(i)), "", 0o644)
	}
	if j := m.Ended(id, 90*time.Second); j.State != fleet.Succeeded || j.Attempt != 1 {
		t.Errorf("the job is %s at attempt %d: %+v", j.State, j.Attempt, j.Reason)
	}
	select {
	case err := <-f.done:
		if err != nil {
			t.Errorf("following ended with %v: %s", err, &f.errs)
		}
	case <-time.After(30 * time.Second):
		t.Error("following does not end")
	}
	for line := range f.lines {
		t.Errorf("the client shows %q too", line)
	}
	if ran := read(t, filepath.Join(dir, "ran")); ran != "began\nended\n" {
		t.Errorf("the command ran as %q; want once, whole", ran)
	}
	lead.Start()
	c.Voters(3)
}

// held sees that polls are held and answered before the proxy gives up.
func held(t *testing.T, m *mesh.Mesh, p *proxy) {
	t.Helper()
	var polls, long int
	eventually(t, 70*time.Second, "an idle runner's poll is held for long", func() bool {
		polls, long = 0, 0
		for _, line := range strings.Split(read(t, p.path("access.log")), "\n") {
			var status int
			var method, uri string
			var took float64
			if n, _ := fmt.Sscan(line, &status, &method, &uri, &took); n < 4 || !strings.Contains(uri, "channel=poll") {
				continue
			}
			if polls++; status == 200 && took > 12 {
				long++
			}
			if took > 24 {
				t.Fatalf("a poll was held for %.1f s", took)
			}
		}
		return long > 0
	})
	t.Logf("%d polls, %d of them held for over 12 s", polls, long)
	if log := read(t, p.path("error.log")); strings.Contains(log, "upstream timed out") {
		t.Errorf("something was silent for too long:\n%s", log)
	}
	if id := m.Detach("exec", "--", "true"); m.Ended(id, 30*time.Second).State != fleet.Succeeded {
		t.Error("the job after the long poll did not succeed")
	}
}
