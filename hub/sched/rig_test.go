package sched

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fatal is what the rig needs of a test, a benchmark or a property.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig holds a state and what the leader sees of connections.
type rig struct {
	t     fatal
	m     *state.Machine
	index uint64
	now   time.Time
	seen  map[fleet.RunnerID]fleet.Presence
}

func newRig(t fatal) *rig {
	return &rig{t: t, m: state.New(), now: start, seen: map[fleet.RunnerID]fleet.Presence{}}
}

func (g *rig) do(c state.Command) state.Result {
	g.t.Helper()
	g.index++
	b, err := state.Encode(state.Head{At: g.now, Actor: fmt.Sprintf("t-%d", g.index%40)}, c)
	if err != nil {
		g.t.Fatalf("encode %T: %v", c, err)
	}
	res, _, err := g.m.Apply(g.index, b)
	if err != nil || res.Code != "" {
		g.t.Fatalf("%T gave %v, %s: %s", c, err, res.Code, res.Detail)
	}
	return res
}

// runner enrols a runner with codex, connected, with so many slots.
func (g *rig) runner(id fleet.RunnerID, slots int, change ...func(*fleet.RunnerFacts)) {
	g.t.Helper()
	k := fleet.Digest(fmt.Sprintf("%064x", g.index))
	g.do(&state.CreateTicket{Hash: k, TTL: time.Hour, Uses: 1, Labels: map[string]string{"os": "linux"}})
	g.do(&state.Enrol{Ticket: k, ID: id, Name: "box-" + string(id), SignKey: []byte(id)})
	g.facts(id, change...)
	g.seen[id] = fleet.Presence{Runner: id, Connected: true, Full: true, Slots: slots, LastBeat: g.now, Health: well(), HealthAt: g.now}
}

func (g *rig) facts(id fleet.RunnerID, change ...func(*fleet.RunnerFacts)) {
	g.t.Helper()
	f := fleet.RunnerFacts{OS: "linux", Arch: "amd64", Slots: 2, Secrets: []string{"NPM"}, Harnesses: []fleet.HarnessInfo{{Name: "codex", Version: "codex-cli 0.120.1", SignedIn: "yes"}, {Name: "claude", SignedIn: "no"}, {Name: "exec", SignedIn: "unknown"}}}
	for _, c := range change {
		c(&f)
	}
	g.do(&state.UpdateRunner{ID: id, Facts: &f})
}

func (g *rig) job(id fleet.JobID, change ...func(*fleet.Spec)) {
	g.t.Helper()
	s := fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", OnLost: "hold", Origin: fleet.Origin{Kind: "manual"}}
	for _, c := range change {
		c(&s)
	}
	g.do(&state.SubmitJob{ID: id, Spec: s})
}

func (g *rig) get(id fleet.JobID) *fleet.Job {
	g.t.Helper()
	j, ok := g.m.View().Job(id)
	if !ok {
		g.t.Fatalf("there is no job %s", id)
	}
	return j
}

func (g *rig) presence() map[fleet.RunnerID]fleet.Presence { return g.seen }

func (g *rig) pick() Plan { return g.look(100, nil).Pick() }

// place does what a plan says.
func (g *rig) place(p Plan) (fences []fleet.Fence) {
	g.t.Helper()
	for _, a := range p.Assign {
		fences = append(fences, g.do(&state.AssignJob{Job: a.Job, Runner: a.Runner, Turn: a.Turn, Attempts: a.Attempts, Rules: 1, Base: a.Base, Automation: a.Automation, Choice: a.Choice, Reserve: a.Reserve, Probes: a.Probes}).Fence)
	}
	return fences
}

// text writes a plan as "job>runner ...".
func (p Plan) text() string {
	var s []string
	for _, a := range p.Assign {
		s = append(s, string(a.Job)+">"+string(a.Runner))
	}
	return strings.Join(s, " ")
}

func expect(t *testing.T, p Plan, want string) {
	t.Helper()
	if got := p.text(); got != want {
		t.Errorf("the plan is %q, want %q", got, want)
	}
}

func (g *rig) look(limit int, flying map[fleet.JobID]Assignment) *Board {
	return See(g.m.View(), Look{Presence: g.presence, Since: start, Now: g.now, Limit: limit, Flying: flying})
}

func (g *rig) led(since time.Time) *Board {
	return See(g.m.View(), Look{Presence: g.presence, Since: since, Now: g.now, Limit: 9})
}

func (g *rig) overdue(now time.Time, limit int) Plan {
	return See(g.m.View(), Look{Presence: g.presence, Since: start, Now: now, Limit: limit}).Overdue()
}

// well is a sample of a machine that could take anything.
func well() *fleet.Health {
	disk := func(path string) fleet.Volume {
		return fleet.Volume{Path: path, Known: true, Free: 200 << 30, Total: 500 << 30, Inodes: 1e6, Nodes: 2e6}
	}
	return &fleet.Health{
		Workspace: disk("/work"), Cache: disk("/cache"), Memory: &fleet.Memory{Total: 64 << 30, Available: 32 << 30},
		Docker: fleet.Docker{State: fleet.DockerReady, Version: "27.1.0", Compose: "2.29.1", ComposeBy: "docker compose", Verified: true},
	}
}
