package e2e

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"aead.dev/minisign"

	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// publisher signs releases and puts them on the hub.
type publisher struct {
	m    *mesh.Mesh
	key  string
	priv minisign.PrivateKey
}

func newPublisher(m *mesh.Mesh) *publisher {
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		m.T.Fatal(err)
	}
	p := &publisher{m: m, key: pub.String(), priv: priv}
	m.Run("hub", "set", "release_key", p.key)
	return p
}

// add puts a program on the hub as a release.
func (p *publisher) add(version, program string) {
	p.m.T.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		p.m.T.Fatal(err)
	}
	dir := p.m.T.TempDir()
	for name, data := range map[string][]byte{
		"tugline":         b,
		"tugline.minisig": minisign.SignWithComments(p.priv, b, update.Comment(version, runtime.GOOS, runtime.GOARCH), ""),
		"minisign.pub":    []byte("untrusted comment: of this test\n" + p.key + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			p.m.T.Fatal(err)
		}
	}
	p.m.Run("hub", "release", "add", dir)
}

// released builds this program as a version.
func released(t *testing.T, version string) string {
	t.Helper()
	return mesh.Build(t.TempDir(), "-ldflags", "-s -w -X main.version="+version)
}

// crashing builds a program that tells a version, and crashes when it is to go on.
func crashing(t *testing.T, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tugline")
	out, err := exec.Command("go", "build", "-o", file, "-ldflags", "-s -w -X main.version="+version+" -X main.kind=crashes", "tugline.dev/tugline/runner/update/testdata/app").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// service runs the present version of a runner again whenever it ends.
type service struct {
	m      *mesh.Mesh
	name   string
	prefix string
	args   []string
	vars   []string

	mu      sync.Mutex
	present *mesh.Process
	starts  int
	over    bool
	done    chan struct{}
}

// serve installs a version and runs it as a service does. vars are of its environment.
func serve(m *mesh.Mesh, name, version, program string, vars ...string) *service {
	m.T.Helper()
	s := &service{m: m, name: name, prefix: filepath.Join(m.Dir, name), vars: vars, done: make(chan struct{})}
	b, err := os.ReadFile(program)
	if err != nil {
		m.T.Fatal(err)
	}
	data, dir := filepath.Join(s.prefix, "runner"), filepath.Join(s.prefix, "versions", version)
	for _, d := range []string{data, dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			m.T.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tugline"), b, 0o755); err != nil {
		m.T.Fatal(err)
	}
	if err := os.Symlink("versions/"+version, filepath.Join(s.prefix, "current")); err != nil {
		m.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "runner.yaml"), []byte("slots: 2\nupdates: auto\n"), 0o600); err != nil {
		m.T.Fatal(err)
	}
	var k api.Ticket
	m.JSON(&k, "hub", "ticket", "--json")
	s.args = []string{"runner", "run", "--data-dir", data, "--name", name, "--ticket", k.Ticket}
	go s.loop()
	m.T.Cleanup(s.stop)
	return s
}

func (s *service) loop() {
	defer close(s.done)
	for {
		cmd := exec.Command(filepath.Join(s.prefix, "current", "tugline"), s.args...)
		cmd.Env = append(s.m.Env(), s.vars...)
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return
		}
		p, err := mesh.Start(s.name, cmd)
		if err != nil {
			s.mu.Unlock()
			s.m.T.Errorf("start %s: %v", s.name, err)
			return
		}
		s.present = p
		s.starts++
		s.mu.Unlock()
		<-p.Ended()
		if s.m.T.Failed() {
			s.m.T.Logf("--- %s said:\n%s", s.name, mesh.Tail(p.Said(), 2000))
		}
		<-time.After(100 * time.Millisecond) // as a service manager pauses
	}
}

func (s *service) stop() {
	s.mu.Lock()
	s.over = true
	p := s.present
	s.mu.Unlock()
	if p != nil {
		p.Stop()
	}
	<-s.done
	if s.m.T.Failed() && p != nil {
		s.m.T.Logf("--- %s said:\n%s", s.name, mesh.Tail(p.Said(), 4000))
	}
}

func (s *service) show() (r api.Runner) {
	s.m.JSON(&r, "runner", "get", s.name, "--json")
	return r
}

// runs waits until the hub hears that a runner runs a version.
func (s *service) runs(version string, within time.Duration) {
	s.m.T.Helper()
	s.m.Eventually(within, s.name+" runs "+version, func() bool {
		out, _, code := s.m.Try("runner", "get", s.name)
		return code == 0 && strings.Contains(out, " online") && strings.Contains(out, "tugline "+version+"\n")
	})
}

// A release comes to the canary when its job is over, and to the other runner when it has
// proved itself there. One that crashes is taken back where it was tried, and halted.
func TestReleasesGoFromRingToRing(t *testing.T) {
	t.Parallel()
	m := mesh.New(t)
	m.StartHub()
	lowFloors(m)
	p := newPublisher(m)
	one, two, three := released(t, "1.0.0"), released(t, "1.1.0"), crashing(t, "1.2.0")
	canary := serve(m, "canary", "1.0.0", one, "NOTIFY_SOCKET=@nobody") // its service starts it anew
	other := serve(m, "other", "1.0.0", one)                            // it becomes the other version itself
	canary.runs("1.0.0", 30*time.Second)
	other.runs("1.0.0", 30*time.Second)
	m.Run("runner", "ring", "canary", "canary")

	gate := filepath.Join(m.Dir, "gate")
	job := m.Detach("exec", "--on", "canary", "--", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.1; done")
	m.State(job, fleet.Running, 30*time.Second)
	p.add("1.1.0", two)
	m.Eventually(time.Minute, "the canary tells that it waits for its job", func() bool {
		u := canary.show().Update
		return u != nil && u.Offered == "1.1.0" && strings.Contains(u.Waits, "no job")
	})
	m.Write(gate, "")
	if j := m.Ended(job, time.Minute); j.State != fleet.Succeeded {
		t.Errorf("the job before the update is %s (%s)", j.State, j.Reason.Detail)
	}
	canary.runs("1.1.0", 2*time.Minute)
	if r := other.show(); r.Version != "1.0.0" || r.Update == nil || r.Update.Offered != "" {
		t.Errorf("before the canary proved it the other one is at %s, %+v", r.Version, r.Update)
	}
	m.Eventually(time.Minute, "it is on record that the canary has it", func() bool {
		return strings.Contains(m.Run("hub", "release", "list"), "heartbeats of canary")
	})
	m.Hub.Kill() // who leads then goes on from what is on record
	m.StartHub()
	canary.runs("1.1.0", time.Minute)
	if j := m.Ended(m.Detach("exec", "--on", "canary", "--", "true"), time.Minute); j.State != fleet.Succeeded {
		t.Errorf("a job on the new version is %s (%s)", j.State, j.Reason.Detail)
	}
	other.runs("1.1.0", 4*time.Minute)

	before := canary.count()
	p.add("1.2.0", three)
	var rel api.Release
	m.Eventually(4*time.Minute, "the release that crashes is halted", func() bool {
		var all api.Releases
		m.JSON(&all, "hub", "release", "list", "--json")
		rel = all.Releases[0]
		return rel.Version == "1.2.0" && rel.Halted != ""
	})
	if rel.Ring != fleet.RingCanary || !strings.Contains(rel.Halted, "3 starts in all failed") {
		t.Errorf("halted: %+v", rel)
	}
	canary.runs("1.1.0", time.Minute)
	if u := canary.show().Update; u == nil || u.State != "rolled_back" || u.To != "1.2.0" {
		t.Errorf("the canary says %+v", u)
	}
	if n := canary.count() - before; n != update.MaxStarts+2 { // the crashes, the one that gave way, and the version before
		t.Errorf("the service started it %d times", n)
	}
	if out := m.Run("alerts"); !strings.Contains(out, "release 1.2.0 is halted at canary") {
		t.Errorf("alerts:\n%s", out)
	}
	if r := other.show(); r.Version != "1.1.0" || r.Update == nil || r.Update.Offered != "" {
		t.Errorf("the other one is at %s, %+v", r.Version, r.Update)
	}
	for _, name := range []string{"canary", "other"} {
		if j := m.Ended(m.Detach("exec", "--on", name, "--", "true"), time.Minute); j.State != fleet.Succeeded {
			t.Errorf("a job on %s is %s (%s)", name, j.State, j.Reason.Detail)
		}
	}
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts
}
