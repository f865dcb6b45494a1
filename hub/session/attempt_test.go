package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestAttempt takes one attempt from its order to being forgotten.
func TestAttempt(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		j, f := h.assign(a.id)

		rep := a.beat(k)
		if len(rep.Desired) != 1 || rep.Desired[0].Order == nil {
			t.Fatalf("desired set is %+v, want one line with an order", rep.Desired)
		}
		d := rep.Desired[0]
		order, err := wire.VerifyOrder(a.orders, *d.Order, d.Body, wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}, rep.Time)
		if err != nil {
			t.Fatal(err)
		}
		var as wire.Assignment
		if err := wire.Decode(d.Body, &as); err != nil {
			t.Fatal(err)
		}
		if order.Kind != wire.OrderAssign || order.Fence != f || as.Fence != f || as.Job != j || as.Turn != 1 || as.Attempt != 1 || as.Spec.Argv[0] != "true" {
			t.Fatalf("order %+v with assignment %+v does not name attempt %s of %s", order, as, f, j)
		}
		if rep.Interval != 5*time.Second || d.Accepted {
			t.Errorf("interval %s, accepted %v; want 5s, false", rep.Interval, d.Accepted)
		}

		view := wire.AttemptView{Job: j, Fence: f, Phase: "preparing"}
		rep = a.beat(k, view)
		if len(rep.Desired) != 1 || rep.Desired[0].Order != nil {
			t.Fatalf("desired set is %+v, want one line without order for an attempt that is shown", rep.Desired)
		}
		eventually(t, "the job is preparing", func() bool { return h.job(j).State == fleet.Preparing })
		a.beat(k, view)
		a.beat(k, view)
		if n := proposed[*state.RecordFacts](h); n != 1 {
			t.Errorf("%d facts were committed for one phase", n)
		}

		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{Permissions: fleet.PermWorkspace}}))
		if s := h.job(j).State; s != fleet.Running {
			t.Fatalf("after the acknowledged accept the job is %s", s)
		}
		if rep := a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"}); !rep.Desired[0].Accepted {
			t.Error("the desired set does not say that the attempt is accepted")
		}

		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hel")}); ack.Durable != 3 || ack.Code != "" {
			t.Fatalf("output was acknowledged as %+v", ack)
		}
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Offset: 4, Data: []byte("o")}); ack.Durable != 3 || ack.Code != fleet.SpoolGap || !ack.Retry {
			t.Fatalf("output behind a gap was acknowledged as %+v", ack)
		}
		ok(t, a.report(k, a.finished(j, f, 0)))
		if s := h.job(j).State; s != fleet.Succeeded {
			t.Fatalf("after the acknowledged end the job is %s", s)
		}
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 5}}), fleet.SpoolGap, true)
		typ, body := k.next()
		var want wire.OutputAck
		if err := wire.Decode(body, &want); err != nil || typ != wire.TypeOutputAck || want.Durable != 3 {
			t.Fatalf("after an early seal came frame %d: %s", typ, body)
		}
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Offset: 2, Data: []byte("llo")}); ack.Durable != 5 {
			t.Fatalf("output was acknowledged as %+v", ack)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 5}}))
		if l := h.job(j).Turn().Attempts[0].Log; !l.Sealed || l.Durable != 5 {
			t.Fatalf("log is %+v", l)
		}
		r, err := h.spool.Reader(t.Context(), spool.Key{Job: j, Fence: f, Name: spool.Output}, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if b, err := io.ReadAll(r); err != nil || string(b) != "hello" {
			t.Fatalf("stored output is %q, %v", b, err)
		}

		rep = a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "finished"})
		if len(rep.Desired) != 1 || rep.Desired[0].Intent != wire.IntentForget {
			t.Fatalf("desired set is %+v, want forget", rep.Desired)
		}
		if rep = a.beat(k); len(rep.Desired) != 0 || rep.Interval != 10*time.Second {
			t.Fatalf("idle runner got %+v", rep)
		}
	})
}

// TestRepeat says everything twice, as a runner does whose hub's answers are lost.
func TestRepeat(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	j, f := h.assign(a.id)
	items := []wire.ReportItem{
		{Job: j, Fence: f, Accepted: &wire.Accepted{}},
		{Job: j, Fence: f, Facts: []wire.Fact{{Seq: 1, Kind: "session", Value: json.RawMessage(`"s-1"`)}}},
		a.finished(j, f, 3),
		{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 5}},
	}
	for _, it := range items {
		for range 2 {
			k := a.link() // the answer of the session before is lost with it
			if it.Sealed != nil {
				a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hello")})
			}
			ok(t, a.report(k, it))
		}
	}
	got := h.job(j)
	at := got.Turn().Attempts[0]
	if got.State != fleet.Failed || at.Exit.Code != 3 || !at.Log.Sealed || at.SessionID != "s-1" || len(got.Turn().Attempts) != 1 {
		t.Fatalf("job is %s, attempt %+v", got.State, at)
	}
}

// TestNotCommitted sees that nothing is acknowledged which was not committed.
func TestNotCommitted(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	h.mu.Lock()
	h.fail = func(c state.Command) error {
		if _, ok := c.(*state.AcceptAttempt); ok {
			return fleet.Unavailable
		}
		return nil
	}
	h.mu.Unlock()
	accept := wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}
	fact := wire.ReportItem{Job: j, Fence: f, Facts: []wire.Fact{{Seq: 1, Kind: "note", Value: json.RawMessage(`"x"`)}}}
	acks := a.report(k, accept, fact)
	if !acks[0].Retry || acks[0].Code != fleet.Unavailable || !acks[1].Retry {
		t.Fatalf("acknowledged as %+v; both must be repeated, the second only after the first", acks)
	}
	h.mu.Lock()
	h.fail = nil
	h.mu.Unlock()
	ok(t, a.report(k, accept, fact))
}

// TestForeign sees that a runner cannot speak about another's attempts.
func TestForeign(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, b := h.enrolled(), h.enrolled()
	j, f := h.assign(a.id)
	k := b.link()
	b.journal = "j-2"
	items := map[string]wire.ReportItem{
		"accepted": {Job: j, Fence: f, Accepted: &wire.Accepted{}},
		"declined": {Job: j, Fence: f, Declined: &wire.Declined{Code: fleet.Storage}},
		"finished": b.finished(j, f, 0),
		"gone":     {Job: j, Fence: f, Gone: true},
		"lost":     {Job: j, Fence: f, Lost: &wire.Lost{}},
		"no fence": {Job: j, Fence: fleet.Fence{Epoch: 1, Index: 1}, Gone: true},
	}
	for name, it := range items {
		t.Run(name, func(t *testing.T) { refused(t, b.report(k, it), fleet.StaleFence, false) })
	}
	refused(t, b.report(k, wire.ReportItem{Job: "nope", Fence: f, Gone: true}), fleet.NotFound, false)
	refused(t, b.report(k, wire.ReportItem{Job: j, Fence: f}), fleet.StaleFence, false)
	if ack := b.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("x")}); ack.Code != fleet.StaleFence || ack.Retry {
		t.Errorf("another's output was acknowledged as %+v", ack)
	}
	if rep := b.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"}); len(rep.Desired) != 0 {
		t.Errorf("desired set of the other is %+v", rep.Desired)
	}
	if got := h.job(j); got.State != fleet.Assigned {
		t.Errorf("job is %s", got.State)
	}
}

// TestUnproven sees that only the runner's own signature ends an attempt.
func TestUnproven(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, b := h.enrolled(), h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	j2, f2 := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	other := a.finished(j2, f2, 0)
	other.Job, other.Fence = j, f
	unsigned := wire.ReportItem{Job: j, Fence: f, Finished: &wire.Finished{Exit: fleet.Exit{Reason: "exited"}}}
	for _, it := range []wire.ReportItem{b.finished(j, f, 0), other, unsigned} {
		refused(t, a.report(k, it), fleet.BadSignature, false)
	}
	refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Gone: true, Lost: &wire.Lost{}}), fleet.BadRequest, false)
	if s := h.job(j).State; s != fleet.Running {
		t.Errorf("job is %s", s)
	}
}

// TestImplausible sees that what no clock and no file can say is not recorded, though
// it is signed.
func TestImplausible(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	far := time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Facts: []wire.Fact{{Kind: "started", Value: json.RawMessage(`"2038-01-19T03:14:07Z"`)}}}))
	if at := h.job(j).Current().StartedAt; at == nil || time.Until(*at) > time.Minute {
		t.Errorf("started at %v, in the future", at)
	}
	signed := func(change func(*wire.Finished)) wire.ReportItem {
		fin := &wire.Finished{Exit: fleet.Exit{Reason: "exited"}, FinishedAt: time.Now().UTC()}
		change(fin)
		if err := wire.SignFinished(a.sign, j, f, fin); err != nil {
			t.Fatal(err)
		}
		return wire.ReportItem{Job: j, Fence: f, Finished: fin}
	}
	for name, change := range map[string]func(*wire.Finished){
		"output":   func(f *wire.Finished) { f.Output = -5 },
		"events":   func(f *wire.Finished) { f.Events = -1 },
		"dropped":  func(f *wire.Finished) { f.Dropped = -1 },
		"bundle":   func(f *wire.Finished) { f.Evidence = &fleet.Evidence{BundleSize: -1} },
		"artifact": func(f *wire.Finished) { f.Evidence = &fleet.Evidence{Artifacts: []fleet.Artifact{{Size: -1}}} },
	} {
		t.Run(name, func(t *testing.T) { refused(t, a.report(k, signed(change)), fleet.BadRequest, false) })
	}
	ok(t, a.report(k, signed(func(f *wire.Finished) { f.StartedAt, f.FinishedAt = time.Unix(0, 0), far })))
	got := h.job(j).Current()
	if since := time.Since(*got.StartedAt); since < 0 || since > time.Hour {
		t.Errorf("started at %v", got.StartedAt)
	}
	if since := time.Since(*got.FinishedAt); since < 0 || since > time.Hour {
		t.Errorf("finished at %v", got.FinishedAt)
	}
	refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: -1}}), fleet.BadRequest, false)
	acks := a.report(k, wire.ReportItem{Job: j, Fence: f, Pushed: &wire.Pushed{Ref: "x", SHA: "y", Result: "pushed"}})
	if len(acks) != 1 || acks[0].Code != fleet.NotFound || strings.Contains(acks[0].Detail, "not_found") {
		t.Errorf("acknowledged as %+v, want the code beside the sentence and not in it", acks)
	}
}

// TestStop brings a signed stop to an attempt whose job was cancelled.
func TestStop(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	h.must(&state.CancelJob{Job: j})
	rep := a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"})
	if len(rep.Desired) != 1 || rep.Desired[0].Intent != wire.IntentStop || rep.Desired[0].Order == nil {
		t.Fatalf("desired set is %+v, want a stop with its order", rep.Desired)
	}
	d := rep.Desired[0]
	o, err := wire.VerifyOrder(a.orders, *d.Order, d.Body, wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}, rep.Time)
	var st wire.Stop
	if err != nil || o.Kind != wire.OrderStop || wire.Decode(d.Body, &st) != nil || st.Reason != "cancelled" {
		t.Fatalf("stop order %+v, body %s, %v", o, d.Body, err)
	}
	again := a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"})
	var o2 wire.Order
	if err := wire.Decode(again.Desired[0].Order.Order, &o2); err != nil || o2.ID != o.ID {
		t.Errorf("the repeated stop has id %q, not %q", o2.ID, o.ID)
	}
	fin := &wire.Finished{Exit: fleet.Exit{Code: -1, Signal: "TERM", Reason: "stopped"}, FinishedAt: time.Now()}
	if err := wire.SignFinished(a.sign, j, f, fin); err != nil {
		t.Fatal(err)
	}
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Finished: fin}))
	if s := h.job(j).State; s != fleet.Cancelled {
		t.Errorf("job is %s", s)
	}
}

// TestReturned tells a runner to stop what went back to the queue without it.
func TestReturned(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	h.must(&state.ReturnAttempt{Job: j, Fence: f, Detail: "silence"})
	rep := a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "preparing"})
	if len(rep.Desired) != 1 || rep.Desired[0].Intent != wire.IntentStop {
		t.Fatalf("desired set is %+v, want a stop", rep.Desired)
	}
	unknown := wire.AttemptView{Job: "01unknown", Fence: fleet.Fence{Epoch: 1, Index: 99}, Phase: "running"}
	if rep := a.beat(k, unknown); len(rep.Desired) != 0 {
		t.Fatalf("desired set is %+v; of an attempt the hub does not know it must say nothing", rep.Desired)
	}
	refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}), fleet.StaleFence, false)
}

// TestRevive brings a lost attempt back by its heartbeat alone.
func TestRevive(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		j, f := h.assign(a.id)
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
		h.must(&state.LoseAttempt{Job: j, Fence: f, Detail: "silence"})
		a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "finished"})
		if s := h.job(j).State; s != fleet.Lost {
			t.Fatalf("job is %s; a finished attempt settles it by its report", s)
		}
		a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"})
		eventually(t, "the job runs again", func() bool { return h.job(j).State == fleet.Running })
	})
}

// TestPlainBeat sees that heartbeats stay out of the log.
func TestPlainBeat(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	before := h.View().Meta().Index
	for range 20 {
		a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"})
	}
	if after := h.View().Meta().Index; after != before {
		t.Errorf("20 heartbeats made %d entries", after-before)
	}
	facts := a.facts
	facts.Slots = 7
	body, _ := k.say(wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: a.count + 1, Slots: 7, Facts: &facts}), wire.TypeHeartbeatReply)
	if body == nil {
		t.Fatal("no reply")
	}
	eventually(t, "the changed facts are recorded", func() bool {
		r, _ := h.View().Runner(a.id)
		return r.Facts.Slots == 7
	})
}

// TestPermit grants a push to the current attempt alone.
func TestPermit(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		j, f := h.assign(a.id)
		ask := func(sha string) wire.PermitReply {
			t.Helper()
			body, bye := k.say(wire.TypePermit, encode(t, wire.Permit{ID: 7, Job: j, Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: sha}), wire.TypePermitReply)
			var p wire.PermitReply
			if bye != nil || wire.Decode(body, &p) != nil || p.ID != 7 {
				t.Fatalf("permit was answered with %s, %v", body, bye)
			}
			return p
		}
		if p := ask("abc"); p.Granted || p.Code == "" {
			t.Errorf("before the verdict: %+v", p)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}, a.finished(j, f, 0)))
		if p := ask("abc"); !p.Granted {
			t.Errorf("after the verdict: %+v", p)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Pushed: &wire.Pushed{Ref: "refs/heads/x", SHA: "abc", Result: "pushed"}}))
		if got := h.job(j).Turn().Attempts[0].Pushes; len(got) != 1 || got[0].Result != "pushed" {
			t.Errorf("pushes are %+v", got)
		}
	})
}

// TestRefusedPermit sees that a refusal which the view shows takes no entry of the log.
func TestRefusedPermit(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	ask := func(j fleet.JobID, f fleet.Fence) fleet.Code {
		t.Helper()
		body, bye := k.say(wire.TypePermit, encode(t, wire.Permit{ID: 7, Job: j, Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "abc"}), wire.TypePermitReply)
		var p wire.PermitReply
		if bye != nil || wire.Decode(body, &p) != nil {
			t.Fatalf("permit was answered with %s, %v", body, bye)
		}
		return p.Code
	}
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	if c := ask(j, f); c != fleet.Unavailable {
		t.Errorf("while it runs: %q, want %q", c, fleet.Unavailable)
	}
	ok(t, a.report(k, a.finished(j, f, 1)))
	if c := ask(j, f); c != fleet.Conflict {
		t.Errorf("after the rejection: %q, want %q", c, fleet.Conflict)
	}
	if n := proposed[*state.GrantPush](h); n != 0 {
		t.Errorf("%d refused permits were put into the log", n)
	}
}

// TestPrompt carries a small prompt along and leaves a large one to be fetched.
func TestPrompt(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	for _, c := range []struct {
		name   string
		prompt []byte
		inline bool
	}{
		{"small", []byte("mend the roof"), true},
		{"at the bound", bytes.Repeat([]byte("x"), maxPromptText), true},
		{"over the bound", bytes.Repeat([]byte("x"), maxPromptText+1), false},
		{"no text", []byte{0xff, 0xfe}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := digest(c.prompt)
			if err := h.blobs.Put(t.Context(), d, int64(len(c.prompt)), bytes.NewReader(c.prompt)); err != nil {
				t.Fatal(err)
			}
			j, f := h.assign(a.id, func(s *state.SubmitJob) {
				s.Prompt, s.Spec.Kind, s.Spec.Argv, s.Spec.Harness = d, fleet.KindAgent, nil, "codex"
				s.Spec.Repo = &fleet.Repo{URL: "https://example.com/x.git"}
			})
			var as wire.Assignment
			for _, l := range a.beat(k).Desired {
				if l.Fence == f {
					if err := wire.Decode(l.Body, &as); err != nil {
						t.Fatal(err)
					}
				}
			}
			if as.Prompt != d || (as.PromptText == string(c.prompt)) != c.inline || (as.PromptText == "") == c.inline {
				t.Errorf("assignment carries %d bytes of prompt %s", len(as.PromptText), as.Prompt)
			}
			if as.Branch != "tugline/"+string(j) {
				t.Errorf("branch is %q", as.Branch)
			}
		})
	}
}

// TestDockerIsAskedOf: a runner is told of a job's need for Docker, whether it was asked
// for or learned by an attempt that failed without.
func TestDockerIsAskedOf(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	told := func(f fleet.Fence) bool {
		t.Helper()
		for _, l := range a.beat(k).Desired {
			if l.Fence == f {
				var as wire.Assignment
				if err := wire.Decode(l.Body, &as); err != nil {
					t.Fatal(err)
				}
				return as.Docker
			}
		}
		t.Fatal("the attempt is not in the desired set")
		return false
	}
	j, f := h.assign(a.id)
	if told(f) {
		t.Error("a job that never needed Docker is said to need it")
	}
	h.must(&state.AcceptAttempt{Job: j, Fence: f, Rules: 1})
	h.must(&state.FinishAttempt{Job: j, Fence: f, Class: fleet.ClassDocker, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Verdict: &fleet.Verdict{Decision: fleet.Reject}, Rules: 1})
	h.must(&state.RetryJob{Job: j})
	h.must(&state.ResetCircuit{ID: fleet.CircuitID(fleet.ScopeHost, fleet.CircuitDocker, a.id, "", "", "")})
	if f = h.must(&state.AssignJob{Job: j, Runner: a.id, Turn: 1, Attempts: 1, Slots: 9, Base: 9}).Fence; !told(f) {
		t.Error("what was learned of a job is not told")
	}
	if _, f = h.assign(a.id, func(s *state.SubmitJob) { s.Spec.Needs = &fleet.Needs{Docker: true} }); !told(f) {
		t.Error("what a job asks for is not told")
	}
}

// TestLive passes partial events of the current attempt on.
func TestLive(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	k.send(wire.TypeLive, encode(t, wire.Live{Job: j, Fence: f, Events: []fleet.Event{{Type: fleet.EventAgentMessage, Text: "hel"}}}))
	k.send(wire.TypeLive, encode(t, wire.Live{Job: "other", Fence: f, Events: []fleet.Event{{Type: fleet.EventLog}}}))
	k.send(99, []byte("a frame of a newer version"))
	a.beat(k)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.live) != 1 || h.live[0].Text != "hel" {
		t.Errorf("live events are %+v", h.live)
	}
}

// TestLongEvidence sees that an end is recorded however much it says.
func TestLongEvidence(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	e := &fleet.Evidence{Tip: "abc", BundleChecked: true}
	for i := range 3000 {
		e.Artifacts = append(e.Artifacts, fleet.Artifact{Name: fmt.Sprintf("file-%d", i), Digest: digest([]byte{byte(i)})})
	}
	fin := &wire.Finished{Exit: fleet.Exit{Reason: "exited"}, Detail: strings.Repeat("x", 300<<10), FinishedAt: time.Now(), Evidence: e}
	if err := wire.SignFinished(a.sign, j, f, fin); err != nil {
		t.Fatal(err)
	}
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}, wire.ReportItem{Job: j, Fence: f, Finished: fin}))
	got := h.job(j).Turn().Attempts[0].Evidence
	if n := len(got.Artifacts); n == 0 || n >= 3000 || got.Tip != "abc" || got.BundleChecked || len(got.Notes) != 1 {
		t.Errorf("%d artifacts, notes %q, checked %v", n, got.Notes, got.BundleChecked)
	}
}

// TestManyAttempts settles one report about many attempts; each item counts once
// and for itself.
func TestManyAttempts(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		const n = 30
		var items []wire.ReportItem
		jobs := map[fleet.JobID]bool{}
		for i := range n {
			j, f := h.assign(a.id)
			jobs[j] = true
			items = append(items, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}})
			if i%2 == 0 {
				items = append(items, a.finished(j, f, i%3))
			}
		}
		ok(t, a.report(k, items...))
		states := map[fleet.State]int{}
		for j := range jobs {
			states[h.job(j).State]++
		}
		if states[fleet.Running] != n/2 || states[fleet.Succeeded] != 5 || states[fleet.Failed] != 10 {
			t.Errorf("jobs are %v", states)
		}
	})
}
