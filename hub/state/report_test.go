package state

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// TestEvidence: late evidence settles what a person was asked, and nothing can
// replace commits that were checked.
func TestEvidence(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	g.do(g.finish("a", f))
	seen := *g.attempt("a", f).Evidence
	more := seen
	more.Artifacts = []fleet.Artifact{{Name: "report"}}
	g.do(&UpdateEvidence{Job: "a", Fence: f, Evidence: &more})
	checked := seen // looked at before the artifacts came
	checked.BundleChecked = true
	g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Unknown}, Evidence: &seen})
	g.is("a", fleet.NeedsReview)
	g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Accept}, Evidence: &checked})
	g.is("a", fleet.Succeeded)
	if e := g.attempt("a", f).Evidence; !e.BundleChecked || len(e.Artifacts) != 1 {
		t.Errorf("evidence is %+v", e)
	}
	g.do(&UpdateEvidence{Job: "a", Fence: f, Evidence: &more})
	if e := g.attempt("a", f).Evidence; !e.BundleChecked {
		t.Error("a later report undid the hub's check")
	}
	other := more
	other.Tip = "another"
	g.refused(fleet.Conflict, &UpdateEvidence{Job: "a", Fence: f, Evidence: &other})
	g.refused(fleet.BadRequest, &UpdateEvidence{Job: "a", Fence: f})

	g.submit("b")
	f = g.run("b", "r1")
	g.do(g.finish("b", f))
	g.do(&UpdateEvidence{Job: "b", Fence: f, Evidence: &other})
	g.refused(fleet.Conflict, &DecideJob{Job: "b", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Accept}, Evidence: &checked})
	g.is("b", fleet.Verifying)
}

// TestPush: a permit is for the current attempt, after the verdict, for the commit
// that was verified; what becomes of it is recorded.
func TestPush(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	push := &GrantPush{Job: "a", Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "tip"}
	g.refused(fleet.Unavailable, push)
	g.do(&GrantPush{Job: "a", Fence: f, Remote: "origin"})
	g.do(g.finish("a", f))
	g.refused(fleet.Unavailable, push)
	g.do(&DecideJob{Job: "a", Fence: f, Verdict: fleet.Verdict{Decision: fleet.Accept}})
	g.refused(fleet.Conflict, &GrantPush{Job: "a", Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "other"})
	before := snapshot(t, g.m)
	old, _ := g.m.View().Job("a")
	g.do(push)
	g.repeated(push)
	g.refused(fleet.NotFound, &RecordPush{Job: "a", Fence: f, Ref: "refs/heads/y", SHA: "tip"})
	g.refused(fleet.NotFound, &RecordPush{Job: "a", Fence: f, Ref: "refs/heads/y", SHA: "tip", Result: "pushed"})
	g.do(&RecordPush{Job: "a", Fence: f, Ref: "refs/heads/x", SHA: "tip", Result: "pushed"})
	j := g.job("a")
	if p := j.Current().Pushes; len(p) != 2 || p[1].Result != "pushed" || !j.Pulled {
		t.Errorf("pushes are %+v, pulled %v", p, j.Pulled)
	}
	if p := old.Current().Pushes; len(p) != 1 || old.Pulled {
		t.Errorf("a view from before shows %+v", p)
	}
	if !strings.Contains(string(before), `"remote":"origin"`) {
		t.Error("the snapshot lacks the first permit")
	}
	g.do(&RecordPush{Job: "a", Fence: f, Ref: "refs/heads/y", SHA: "tip", Result: "refused: not the commit that was verified"})
	if p := g.job("a").Current().Pushes; len(p) != 3 || p[2].Ref != "refs/heads/y" || !strings.HasPrefix(p[2].Result, "refused") {
		t.Errorf("pushes are %+v, want the refusal among them", p)
	}
	for n := range MaxPushes - 3 {
		g.do(&GrantPush{Job: "a", Fence: f, Remote: "origin", Ref: fmt.Sprint(n), SHA: "tip"})
	}
	g.refused(fleet.TooLarge, &GrantPush{Job: "a", Fence: f, Remote: "origin", Ref: "one more", SHA: "tip"})
	g.refused(fleet.NotFound, &RecordPush{Job: "a", Fence: f, Ref: "one more", SHA: "tip", Result: "refused"})
}

// TestPushRefusalsTellWhetherToAskAgain: only while a person may still accept the
// work, or its verdict is under way, is asking again of use.
func TestPushRefusalsTellWhetherToAskAgain(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	ended := func(id fleet.JobID, d fleet.Decision) *GrantPush {
		g.submit(id)
		f := g.run(id, "r1")
		g.do(g.judged(id, f, d))
		return &GrantPush{Job: id, Fence: f, Remote: "origin", Ref: "refs/heads/x", SHA: "tip"}
	}
	g.refused(fleet.Conflict, ended("failed", fleet.Reject))

	push := ended("accepted later", fleet.Ask)
	g.refused(fleet.NotDecided, push)
	g.do(&SettleJob{Job: "accepted later", Accept: true})
	g.do(push)

	push = ended("rejected later", fleet.Unknown)
	g.refused(fleet.NotDecided, push)
	g.do(&SettleJob{Job: "rejected later"})
	g.refused(fleet.Conflict, push)
}

// TestFacts records what it knows, counts all, and bounds both.
func TestFacts(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	fact := func(kind, value string) Fact { return Fact{Kind: kind, Value: json.RawMessage(value)} }
	g.do(&RecordFacts{Job: "a", Fence: f, Facts: []Fact{
		fact("session", `"s-1"`), fact("model", `"m"`), fact("usage", `{"input_tokens":5}`), fact("started", `"2026-03-01T12:00:00Z"`),
		fact("note", `"a note"`), fact("detail", `"reads the code"`), fact("phase", `"running"`), fact("from the future", `{"x":1}`)}})
	j := g.job("a")
	a := j.Current()
	if a.SessionID != "s-1" || a.Model != "m" || a.Usage.InputTokens != 5 || a.StartedAt == nil || len(a.Notes) != 1 || a.Detail != "reads the code" || a.Phase != "running" || a.Facts != 8 {
		t.Errorf("attempt is %+v", a)
	}
	if j.Reason.Detail != "reads the code" {
		t.Errorf("reason is %+v", j.Reason)
	}
	g.refused(fleet.BadRequest, &RecordFacts{Job: "a", Fence: f, Facts: []Fact{fact("note", `"kept?"`), fact("session", `5`)}})
	g.refused(fleet.BadRequest, &RecordFacts{Job: "a", Fence: f, Facts: []Fact{fact("phase", `5`)}})
	g.refused(fleet.TooLarge, &RecordFacts{Job: "a", Fence: f, Facts: []Fact{fact("note", `"`+strings.Repeat("x", fleet.MaxFact)+`"`)}})
	g.refused(fleet.TooLarge, &RecordFacts{Job: "a", Fence: f, Facts: make([]Fact, fleet.MaxFacts)})
	if a := g.job("a").Current(); len(a.Notes) != 1 || a.Facts != 8 {
		t.Errorf("a refused report left %+v", a)
	}
	var since time.Time
	for _, told := range []string{"writes", "writes", "reads again"} { // since it said so first
		g.now = g.now.Add(time.Hour)
		was := g.job("a").Reason.Detail
		g.do(&RecordFacts{Job: "a", Fence: f, Rules: 1, Facts: []Fact{fact("detail", `"`+told+`"`)}})
		if told != was {
			since = g.now
		}
		if r := g.job("a").Reason; r.Detail != told || !r.Since.Equal(since) {
			t.Errorf("at %s it is said to be %q since %s, want %q since %s", g.now, r.Detail, r.Since, told, since)
		}
	}
	g.do(g.judged("a", f, fleet.Accept))
	g.do(&RecordFacts{Job: "a", Fence: f, Facts: []Fact{fact("phase", `"running"`), fact("detail", `"late"`)}})
	if a := g.job("a").Current(); a.Phase != "finished" || a.Detail == "late" {
		t.Errorf("a late fact overwrote the result: %+v", a)
	}
}

// TestNumberedFacts: a fact with a number is recorded once, in whatever order they come
// and however often.
func TestNumberedFacts(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	note := func(seq uint64, text string) Fact {
		return Fact{Kind: "note", Value: json.RawMessage(`"` + text + `"`), Seq: seq}
	}
	for _, facts := range [][]Fact{{note(1, "one")}, {note(3, "three")}, {note(1, "one")}, {note(2, "two"), note(3, "three")}, {note(2, "two")}, {note(0, "none")}, {note(0, "none")}} {
		g.do(&RecordFacts{Job: "a", Fence: f, Facts: facts})
	}
	a := g.job("a").Current()
	if want := []string{"one", "three", "two", "none", "none"}; !slices.Equal(a.Notes, want) || a.Facts != len(want) {
		t.Errorf("recorded are %q and %d facts, want %q", a.Notes, a.Facts, want)
	}
}

// TestSeal closes a log once, after the end; then the runner may forget.
func TestSeal(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.submit("a")
	f := g.run("a", "r1")
	g.refused(fleet.Conflict, &SealLog{Job: "a", Fence: f})
	g.do(g.judged("a", f, fleet.Accept))
	if w := want(t, g, "a", f); w != "run" {
		t.Errorf("with an open log the hub wants %q", w)
	}
	g.do(&SealLog{Job: "a", Fence: f, Output: 7, Events: 3})
	g.repeated(&SealLog{Job: "a", Fence: f, Output: 8})
	if l := g.job("a").Current().Log; l.Durable != 7 || !l.Sealed {
		t.Errorf("log is %+v", l)
	}
	if w := want(t, g, "a", f); w != "forget" || len(g.m.View().OpenOf("r1")) != 0 {
		t.Errorf("with a sealed log the hub wants %q", w)
	}
}

// TestMarkPulled is remembered.
func TestMarkPulled(t *testing.T) {
	g := newRig(t)
	g.submit("a")
	g.do(&MarkPulled{Job: "a"})
	if !g.job("a").Pulled {
		t.Error("not recorded")
	}
	g.refused(fleet.NotFound, &MarkPulled{Job: "b"})
}
