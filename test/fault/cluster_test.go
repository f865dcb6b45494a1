//go:build linux

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

const (
	tcpPort = "7440"
	udpPort = "7441"
)

// cluster is hub nodes and runners, each on a machine of its own, and a person's
// machine from which they are asked.
type cluster struct {
	t       *testing.T
	dir     string
	lan     *lan
	person  *machine
	hubs    []*hub
	runners []*runner
	token   string
	ca      string // file
	joined  string // the ticket that the hubs joined with
	answers atomic.Pointer[hub]
}

// hub is one hub node.
type hub struct {
	*machine
	c      *cluster
	id     string
	dir    string
	faults faults
	// anywhere has its tunnel listen at every address that the machine has.
	anywhere bool
	called   string
	// Of one that shares its machine: what it listens on, without TLS, and what runners
	// are told instead.
	tcp, udp, public string
	p                *mesh.Process
}

// faults is what the fault build reads at the start of a hub.
type faults struct {
	Clock         string `json:"clock"`
	StallP99      string `json:"stall_p99"`
	StallFor      string `json:"stall_for"`
	Stable        string `json:"stable"`
	Scrub         string `json:"scrub"`
	SnapshotEvery uint64 `json:"snapshot_every"`
	Generation    uint16 `json:"generation"`
	MinFree       int64  `json:"min_free"`
}

type runner struct {
	*machine
	called string
	c      *cluster
	dir    string
	slots  int
	extra  []string // of its command line
	p      *mesh.Process
}

// prepare makes machines for hubs and a person, and starts nothing.
func prepare(t *testing.T, hubs int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), lan: newLAN(t)}
	c.ca = filepath.Join(c.dir, "ca.pem")
	c.person = c.lan.machine("person", "10.77.0.2")
	t.Cleanup(c.end)
	for range hubs {
		c.addHub()
	}
	return c
}

// start makes a cluster of three hubs that vote, and runners that are online.
func start(t *testing.T, runners int) *cluster {
	t.Helper()
	c := prepare(t, 3)
	c.found()
	for range runners {
		c.addRunner(2).start()
	}
	c.online()
	return c
}

func (c *cluster) addHub() *hub {
	c.t.Helper()
	n := len(c.hubs) + 1
	name := fmt.Sprintf("h%d", n)
	h := &hub{machine: c.lan.machine(name, fmt.Sprintf("10.77.0.%d", 10+n)), c: c, called: name, dir: filepath.Join(c.dir, fmt.Sprintf("hub%d", n))}
	h.faults.Stable = "1s" // no test waits for what is known to be well
	h.faults.Clock = filepath.Join(c.dir, h.called+".clock")
	c.hubs = append(c.hubs, h)
	return h
}

func (c *cluster) addRunner(slots int) *runner {
	c.t.Helper()
	n := len(c.runners) + 1
	name := fmt.Sprintf("r%d", n)
	r := &runner{machine: c.lan.machine(name, fmt.Sprintf("10.77.0.%d", 100+n)), c: c, called: name, slots: slots, dir: filepath.Join(c.dir, fmt.Sprintf("runner%d", n))}
	c.runners = append(c.runners, r)
	return r
}

func (c *cluster) end() {
	for _, r := range c.runners {
		if r.p.Runs() {
			r.p.Stop()
		}
	}
	for _, h := range c.hubs {
		if h.p.Runs() {
			h.p.Kill()
		}
	}
	if c.t.Failed() {
		for _, h := range c.hubs {
			if h.p != nil {
				c.t.Logf("--- hub %s (%s) said:\n%s", h.called, h.id, mesh.Tail(h.p.Said(), 6000))
			}
		}
		for _, r := range c.runners {
			if r.p != nil {
				c.t.Logf("--- runner %s said:\n%s", r.called, mesh.Tail(r.p.Said(), 4000))
			}
		}
	}
	mesh.NoneLeft(c.t, "HOME="+c.dir+"/")
}

func (c *cluster) launch(m *machine, name string, env []string, args ...string) *mesh.Process {
	c.t.Helper()
	cmd := m.command(program, args...)
	cmd.Dir, cmd.Env = c.dir, append(c.env(), env...)
	p, err := mesh.Start(name, cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// found starts the first hub, has the others join it, and waits until all vote.
func (c *cluster) found() {
	c.t.Helper()
	first := c.hubs[0]
	first.start("--bootstrap")
	c.eventually(30*time.Second, "the first hub leads", func() bool {
		first.lives()
		b, err := os.ReadFile(filepath.Join(first.dir, "operator.token"))
		if err != nil {
			return false
		}
		c.token = strings.TrimSpace(string(b))
		if first.tcp == "" {
			if b, err = os.ReadFile(filepath.Join(first.dir, "ca.pem")); err != nil || os.WriteFile(c.ca, b, 0o644) != nil {
				return false
			}
		}
		m, ok := first.members()
		return ok && m.Leader != "" && first.identify()
	})
	if len(c.hubs) > 1 {
		c.joined = c.hubTicket("--uses", fmt.Sprint(len(c.hubs)-1))
		for _, h := range c.hubs[1:] {
			h.start("--ticket", c.joined)
		}
	}
	c.voters(len(c.hubs))
}

func (c *cluster) hubTicket(extra ...string) string {
	c.t.Helper()
	return strings.TrimSpace(c.run(append([]string{"hub", "ticket", "--role", "hub"}, extra...)...))
}

// voters waits until so many nodes vote, answer, and lack nothing.
func (c *cluster) voters(n int) {
	c.t.Helper()
	began := time.Now()
	defer func() { c.t.Logf("%d hubs vote after %s", n, time.Since(began).Round(10*time.Millisecond)) }()
	c.eventually(90*time.Second, fmt.Sprintf("%d hubs vote", n), func() bool {
		for _, h := range c.hubs {
			if h.p != nil {
				h.lives()
			}
			h.identify()
		}
		m, ok := c.members()
		voters := 0
		for _, x := range m.Members {
			if x.Role == "voter" && x.Health == "ok" {
				voters++
			}
		}
		return ok && m.Leader != "" && voters == n
	})
}

func (h *hub) start(extra ...string) {
	h.c.t.Helper()
	b, err := json.Marshal(h.faults)
	if err != nil {
		h.c.t.Fatal(err)
	}
	path := filepath.Join(h.c.dir, h.called+".faults")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		h.c.t.Fatal(err)
	}
	tcp, udp := h.addr+":"+tcpPort, h.addr+":"+udpPort
	if h.anywhere {
		udp = ":" + udpPort
	}
	if h.tcp != "" {
		tcp, udp, extra = h.tcp, h.udp, append(extra, "--public-url", h.public)
	}
	args := []string{"hub", "run", "--data-dir", h.dir, "--listen", tcp, "--mesh-listen", udp}
	h.p = h.c.launch(h.machine, h.called, []string{"TUGLINE_FAULTS=" + path}, append(args, extra...)...)
}

// restart starts the node after its end and waits until it serves.
func (h *hub) restart() {
	h.c.t.Helper()
	h.start()
	h.serves()
}

func (h *hub) serves() {
	h.c.t.Helper()
	h.c.eventually(40*time.Second, h.called+" serves", func() bool {
		h.lives()
		_, ok := h.members()
		return ok
	})
}

// lives fails the test where the hub has ended by itself.
func (h *hub) lives() {
	h.c.t.Helper()
	if !h.p.Runs() {
		h.c.t.Fatalf("hub %s ended:\n%s", h.called, h.p.Said())
	}
}

func (h *hub) identify() bool {
	var id struct {
		Node string `json:"node"`
	}
	b, err := os.ReadFile(filepath.Join(h.dir, "node.json"))
	if err != nil || json.Unmarshal(b, &id) != nil {
		return false
	}
	h.id = id.Node
	return h.id != ""
}

// clock sets what the hub's clock is off by.
func (h *hub) clock(off string) {
	h.c.t.Helper()
	tmp := h.faults.Clock + ".new"
	if err := errors.Join(os.WriteFile(tmp, []byte(off), 0o644), os.Rename(tmp, h.faults.Clock)); err != nil {
		h.c.t.Fatal(err)
	}
}

func (h *hub) url() string {
	if h.tcp != "" {
		return "http://" + h.tcp
	}
	return "https://" + h.addr + ":" + tcpPort
}

func (r *runner) start() {
	r.c.t.Helper()
	args := []string{"runner", "run", "--data-dir", r.dir, "--name", r.called, "--slots", fmt.Sprint(r.slots)}
	if _, err := os.Stat(filepath.Join(r.dir, "identity.json")); err != nil {
		r.c.write(filepath.Join(r.dir, "runner.yaml"), fmt.Sprintf("slots: %d\nallow_file: true\n", r.slots))
		args = append(args, "--ticket", strings.TrimSpace(r.c.run("hub", "ticket")))
	}
	r.p = r.c.launch(r.machine, r.called, nil, append(args, r.extra...)...)
}

// transfer gives leadership to a hub, as soon as that one can take it.
func (c *cluster) transfer(h *hub) {
	c.t.Helper()
	var said string
	c.eventually(40*time.Second, "leadership goes to "+h.called, func() bool {
		out, errs, code := c.try("hub", "transfer-leader", h.id)
		if said != out+errs {
			said = out + errs
			c.t.Logf("hub transfer-leader: exit %d: %s", code, strings.TrimSpace(said))
		}
		return code == 0 && c.leader() == h
	})
}

// online waits until every runner is.
func (c *cluster) online() {
	c.t.Helper()
	began := time.Now()
	defer func() { c.t.Logf("runners are online after %s", time.Since(began).Round(10*time.Millisecond)) }()
	c.eventually(40*time.Second, "the runners are online", func() bool {
		var rs api.Runners
		if !c.get("/v1/runners?consistent", &rs) {
			return false
		}
		n := 0
		for _, r := range rs.Runners {
			if r.State == "online" && r.Slots.Offered > 0 { // it has told what it offers
				n++
			}
		}
		return n == len(c.runners)
	})
}

// env is a clean environment, with all hubs that run.
func (c *cluster) env() []string {
	home := filepath.Join(c.dir, "home")
	os.MkdirAll(home, 0o755)
	var urls []string
	for _, h := range c.hubs {
		if h.p.Runs() {
			urls = append(urls, h.url())
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TZ=UTC", "USER=tester", "LOGNAME=tester", "GIT_CONFIG_NOSYSTEM=1",
		"TUGLINE_HUB=" + strings.Join(urls, ","), "TUGLINE_TOKEN=" + c.token}
	if _, err := os.Stat(c.ca); err == nil {
		env = append(env, "TUGLINE_CA_FILE="+c.ca)
	}
	return env
}

// try runs the command line on the person's machine.
func (c *cluster) try(args ...string) (stdout, stderr string, code int) {
	return c.tryWith(nil, args...)
}

// tryAt is try that knows one hub only.
func (c *cluster) tryAt(h *hub, args ...string) (stdout, stderr string, code int) {
	return c.tryWith([]string{"TUGLINE_HUB=" + h.url()}, args...)
}

func (c *cluster) tryWith(env []string, args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	x := c.person.command(program, args...)
	x.Env, x.Dir, x.Stdout, x.Stderr = append(c.env(), env...), c.dir, &out, &errs
	if err := x.Start(); err != nil {
		return "", err.Error(), -1
	}
	stop := context.AfterFunc(ctx, func() { x.Process.Kill() })
	defer stop()
	err := x.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out.String(), errs.String() + err.Error(), -1
	}
	return out.String(), errs.String(), x.ProcessState.ExitCode()
}

// run is try that must succeed.
func (c *cluster) run(args ...string) string {
	c.t.Helper()
	out, errs, code := c.try(args...)
	if code != 0 {
		c.t.Fatalf("tugline %s: exit %d\n%s\n%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// leader waits until one node leads and all others that are asked know it.
func (c *cluster) leader(of ...*hub) *hub {
	c.t.Helper()
	if of == nil {
		of = c.hubs
	}
	var lead *hub
	c.eventually(30*time.Second, "a hub leads", func() bool {
		lead = nil
		for _, h := range of {
			if !h.p.Runs() {
				continue
			}
			var s api.Status
			if h.get("/v1/status", &s) != nil {
				return false
			}
			at := slices.IndexFunc(of, func(x *hub) bool { return x.id == s.Leader && x.p.Runs() })
			if at < 0 || lead != nil && lead != of[at] {
				return false
			}
			lead = of[at]
		}
		return lead != nil
	})
	return lead
}

// others are the hubs but one.
func (c *cluster) others(not *hub) []*hub {
	return slices.DeleteFunc(slices.Clone(c.hubs), func(h *hub) bool { return h == not })
}

func (c *cluster) members() (m api.Members, ok bool) { return m, c.get("/v1/members", &m) }

func (h *hub) members() (m api.Members, ok bool) { return m, h.get("/v1/members", &m) == nil }

// member is what a hub says of a node.
func (h *hub) member(id string) api.Member {
	m, _ := h.members()
	for _, x := range m.Members {
		if x.ID == id {
			return x
		}
	}
	return api.Member{}
}

// job reads a job as the leader has it, by way of a hub that answers.
func (c *cluster) job(id string) (j api.Job, ok bool) {
	return j, c.get("/v1/jobs/"+id+"?consistent", &j)
}

func (c *cluster) ended(id string, within time.Duration) (j api.Job) {
	c.t.Helper()
	c.eventually(within, "job "+id+" ends", func() bool {
		var ok bool
		j, ok = c.job(id)
		return ok && j.State.Ended()
	})
	return j
}

func (c *cluster) inState(id string, want fleet.State, within time.Duration) (j api.Job) {
	c.t.Helper()
	c.eventually(within, fmt.Sprintf("job %s is %s", id, want), func() bool {
		var ok bool
		j, ok = c.job(id)
		return ok && j.State == want
	})
	return j
}

func (c *cluster) eventually(within time.Duration, what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
}

func (c *cluster) write(path, text string) string {
	c.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
		c.t.Fatal(err)
	}
	return path
}
