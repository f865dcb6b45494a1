package state

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// epoch0 is the state time at which every rig starts.
var epoch0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// rig drives a machine the way a log does: entries are encoded, and carry their time.
type rig struct {
	t     testing.TB
	m     *Machine
	index uint64
	now   time.Time
	actor string
	log   [][]byte
}

func newRig(t testing.TB) *rig {
	return &rig{t: t, m: New(), now: epoch0, actor: "t-person"}
}

// apply applies a command with a whole head.
func (g *rig) apply(h Head, c Command) (Result, []Change) {
	g.t.Helper()
	g.index++
	g.now = g.now.Add(time.Second)
	h.At = g.now
	b, err := Encode(h, c)
	if err != nil {
		g.t.Fatalf("encode %T: %v", c, err)
	}
	g.log = append(g.log, b)
	res, changes, err := g.m.Apply(g.index, b)
	if err != nil {
		g.t.Fatalf("apply %T: %v", c, err)
	}
	return res, changes
}

// try applies a command in the name of the rig's actor and gives what comes of it.
func (g *rig) try(c Command) Result {
	g.t.Helper()
	res, _ := g.apply(Head{Actor: g.actor}, c)
	return res
}

// do applies a command that must be obeyed.
func (g *rig) do(c Command) Result {
	g.t.Helper()
	res := g.try(c)
	if res.Code != "" {
		g.t.Fatalf("%T was refused with %s: %s", c, res.Code, res.Detail)
	}
	return res
}

// refused applies a command that must be refused with the code.
func (g *rig) refused(code fleet.Code, c Command) Result {
	g.t.Helper()
	res := g.try(c)
	if res.Code != code || !errors.Is(res.Err(), code) {
		g.t.Fatalf("%T gave code %q (%s), want %q", c, res.Code, res.Detail, code)
	}
	return res
}

// repeated applies a command that must change nothing because it was recorded before.
func (g *rig) repeated(c Command) Result {
	g.t.Helper()
	res := g.do(c)
	if !res.Repeated {
		g.t.Fatalf("%T gave %+v, want a repeat", c, res)
	}
	return res
}

func (g *rig) job(id fleet.JobID) *fleet.Job {
	g.t.Helper()
	j, ok := g.m.View().Job(id)
	if !ok {
		g.t.Fatalf("there is no job %s", id)
	}
	return j
}

// is checks the state of a job.
func (g *rig) is(id fleet.JobID, want fleet.State) *fleet.Job {
	g.t.Helper()
	j := g.job(id)
	if j.State != want || j.Turn().State != want {
		g.t.Fatalf("job %s is %s (turn %s; %s: %s), want %s", id, j.State, j.Turn().State, j.Reason.Code, j.Reason.Detail, want)
	}
	return j
}

// attempt gives the attempt with a fence.
func (g *rig) attempt(id fleet.JobID, f fleet.Fence) *fleet.Attempt {
	g.t.Helper()
	_, a := g.job(id).Find(f)
	if a == nil {
		g.t.Fatalf("job %s has no attempt %s", id, f)
	}
	return a
}

// enrol adds a runner with the given id, which is also its name.
func (g *rig) enrol(id fleet.RunnerID) fleet.RunnerID {
	g.t.Helper()
	k := &CreateTicket{Hash: digest("ticket " + string(id)), TTL: time.Hour, Uses: 1}
	g.do(k)
	g.do(&Enrol{Ticket: k.Hash, ID: id, Name: string(id), SignKey: []byte("key " + id), BoxKey: []byte("box"), MachineID: "m-" + string(id)})
	g.do(&UpdateRunner{ID: id, JournalID: "j-" + string(id), JournalCount: 1, Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", SignedIn: "yes"}}}})
	return id
}

func agentSpec() fleet.Spec {
	return fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Permissions: fleet.PermWorkspace, OnLost: "hold", Origin: fleet.Origin{Kind: "manual"}}
}

// submit queues a job with the given spec.
func (g *rig) submit(id fleet.JobID, change ...func(*fleet.Spec)) fleet.JobID {
	g.t.Helper()
	s := agentSpec()
	for _, f := range change {
		f(&s)
	}
	g.do(&SubmitJob{ID: id, Spec: s, Prompt: digest("prompt")})
	return id
}

// assign gives the job's newest turn to a runner with plenty of slots.
func (g *rig) assign(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	g.t.Helper()
	tu := g.job(id).Turn()
	return g.do(&AssignJob{Job: id, Runner: r, Turn: tu.N, Attempts: len(tu.Attempts), Slots: 9}).Fence
}

// run assigns and accepts.
func (g *rig) run(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	g.t.Helper()
	f := g.assign(id, r)
	g.do(&AcceptAttempt{Job: id, Fence: f})
	return f
}

// ruledAssign and ruledRun are assign and run under the rules, on a runner with plenty
// of slots.
func (g *rig) ruledAssign(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	g.t.Helper()
	tu := g.job(id).Turn()
	return g.do(&AssignJob{Job: id, Runner: r, Turn: tu.N, Attempts: len(tu.Attempts), Rules: 1, Base: 9, Automation: 9, Choice: tu.Choice}).Fence
}

func (g *rig) ruledRun(id fleet.JobID, r fleet.RunnerID) fleet.Fence {
	g.t.Helper()
	f := g.ruledAssign(id, r)
	g.do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
	return f
}

// refusal gives the end of an attempt that its provider refused before it did anything.
func (g *rig) refusal(id fleet.JobID, f fleet.Fence) *FinishAttempt {
	return &FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Class: fleet.ClassRateLimited, Detail: "slow down", FinishedAt: g.now, Rules: 1,
		Verdict: &fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"rate_limited: slow down"}}}
}

func (g *rig) finish(id fleet.JobID, f fleet.Fence) *FinishAttempt {
	return &FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, FinishedAt: g.now,
		Evidence: &fleet.Evidence{Base: "base", Tip: "tip", CommitCount: 1, Descends: true, Bundle: digest("bundle")}}
}

func (g *rig) judged(id fleet.JobID, f fleet.Fence, d fleet.Decision) *FinishAttempt {
	c := g.finish(id, f)
	c.Verdict = &fleet.Verdict{Decision: d, By: "gate", Reasons: []string{"because"}}
	return c
}

// raise raises the cluster's epoch by one.
func (g *rig) raise() {
	g.t.Helper()
	g.do(&RaiseEpoch{To: g.m.View().Meta().Epoch + 1, Cause: "recover"})
}

// orphan gives what r1 would tell of an attempt of which there is no record.
func (g *rig) orphan(id fleet.JobID, f fleet.Fence) fleet.Orphan {
	return fleet.Orphan{
		Job: id, Fence: f, Runner: "r1", RunnerName: "r1", Turn: 1, Attempt: 1, Spec: agentSpec(), Prompt: digest("prompt"), CreatedAt: epoch0,
		AcceptedAt: g.now, FinishedAt: g.now, Exit: fleet.Exit{Reason: "exited"}, Failure: fleet.ClassOK,
		Evidence: &fleet.Evidence{Base: "base", Tip: "orphan", CommitCount: 1, Descends: true, Bundle: digest("orphan"), RescueRef: "refs/tugline/rescue"},
		Log:      fleet.LogState{Bytes: 9, Events: 2},
	}
}

// hubNode gives a node's record as it would tell it.
func hubNode(id string) fleet.HubNode {
	key := func(s string) []byte { return []byte((s + id + "................................")[:32]) }
	return fleet.HubNode{ID: id, MeshKey: key("mesh "), SealKey: key("seal "), Endpoints: []string{id + ".example:7441"}, URL: "https://" + id, Version: "v1", Kinds: Newest()}
}

func digest(s string) fleet.Digest {
	const hex = "0123456789abcdef"
	b := make([]byte, 64)
	n := uint32(2166136261)
	for i := range b {
		n = (n ^ uint32(s[i%len(s)]) ^ uint32(i)) * 16777619
		b[i] = hex[n>>28]
	}
	return fleet.Digest(b)
}

// snapshot gives the bytes of the present state.
func snapshot(t testing.TB, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Snapshot()(&b); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return b.Bytes()
}

// restored gives a new machine with the state of another one.
func restored(t testing.TB, snap []byte) *Machine {
	t.Helper()
	m := New()
	if err := m.Restore(bytes.NewReader(snap)); err != nil {
		t.Fatalf("restore: %v", err)
	}
	return m
}

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, d)
	}
}

func jobID(n int) fleet.JobID { return fleet.JobID(fmt.Sprintf("job-%04d", n)) }
