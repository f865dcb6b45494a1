package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func digestOf(text string) fleet.Digest {
	sum := sha256.Sum256([]byte(text))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

// agent submits a prompt.
func (n *node) agent(prompt string) fleet.JobID {
	n.t.Helper()
	var j api.Job
	if st := n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: prompt}, &j); st != 201 {
		n.t.Fatalf("submit: %d", st)
	}
	return j.ID
}

// ran has a runner that is not there run a job's turn, with some output, and finish it.
func (n *node) ran(id fleet.JobID, e *fleet.Evidence, v *fleet.Verdict) fleet.Fence {
	n.t.Helper()
	base := ""
	if e != nil {
		base = e.Base
	}
	f := n.finish(n.absent(), id, base, e, v)
	n.seal(id, f)
	return f
}

// absent enrols a runner that never comes.
func (n *node) absent() fleet.RunnerID {
	n.t.Helper()
	if _, ok := n.hub.entries.View().Runner("r-lead"); !ok {
		n.must(&state.CreateTicket{Hash: web.HashSecret("t"), TTL: time.Hour, Uses: 1})
		n.must(&state.Enrol{ID: "r-lead", Ticket: web.HashSecret("t"), Name: "lead", SignKey: []byte("s"), BoxKey: []byte("b")})
	}
	return "r-lead"
}

// someOutput is what a job that was finished here has written.
var someOutput = fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, Payload: []byte("some output\n")})

// finish takes a job's turn to its end, but for the seal of its output.
func (n *node) finish(r fleet.RunnerID, id fleet.JobID, base string, e *fleet.Evidence, v *fleet.Verdict) fleet.Fence {
	n.t.Helper()
	f := n.must(&state.AssignJob{Job: id, Runner: r, Turn: 1, Slots: 9, Base: 9}).Fence
	n.must(&state.AcceptAttempt{Job: id, Fence: f, BaseCommit: base})
	if _, err := n.hub.spool.Append(n.t.Context(), spool.Key{Job: id, Fence: f, Name: spool.Output}, 0, someOutput); err != nil {
		n.t.Fatal(err)
	}
	n.must(&state.FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, FinishedAt: time.Now(), Output: int64(len(someOutput)), Evidence: e, Verdict: v})
	return f
}

func (n *node) seal(id fleet.JobID, f fleet.Fence) {
	n.t.Helper()
	end := int64(len(someOutput))
	if err := n.hub.spool.Seal(n.t.Context(), spool.Key{Job: id, Fence: f, Name: spool.Output}, end, ""); err != nil {
		n.t.Fatal(err)
	}
	n.must(&state.SealLog{Job: id, Fence: f, Output: end})
}

func (n *node) has(d fleet.Digest) bool {
	_, err := n.hub.blobs.Stat(d)
	return err == nil
}

// aged makes all blobs look as old as that.
func (n *node) aged(at time.Time) {
	n.t.Helper()
	err := filepath.WalkDir(filepath.Join(n.hub.cfg.Dir, "blobs"), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chtimes(p, at, at)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func TestRetentionOfANode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, true)
	yes := &fleet.Verdict{Decision: fleet.Accept, By: "gate", Reasons: []string{"commits"}}
	patch, bundle, done := n.put("a patch"), n.put("the only copy"), n.put("pulled long ago")
	shared := n.agent("the same prompt")
	n.ran(shared, nil, yes)
	precious := n.agent("make commits")
	n.ran(precious, &fleet.Evidence{Patch: patch, Bundle: bundle, CommitCount: 1}, yes)
	pulled := n.agent("make more commits")
	n.ran(pulled, &fleet.Evidence{Patch: patch, Bundle: done, CommitCount: 1}, yes)
	n.must(&state.MarkPulled{Job: pulled})
	n.put("uploaded and never named")
	n.stop()

	// Months later. The hub was off, and is told that the clock is right.
	var clock turned
	clock.turn(100 * day)
	n = startWith(t, Config{Dir: dir, AcceptClock: true}, clock.now)
	young := n.agent("the same prompt")
	l := &term{hub: n.hub}
	n.aged(clock.now().Add(-2 * time.Hour))
	l.retain(t.Context(), clock.now())

	for id, want := range map[fleet.JobID]bool{shared: false, precious: true, pulled: false, young: true} {
		if _, ok := n.hub.entries.View().Job(id); ok != want {
			t.Errorf("record of %s is there: %t; want %t", id, ok, want)
		}
		if len(n.hub.spool.Streams(id)) > 0 {
			t.Errorf("output of %s is still there", id)
		}
	}
	for text, want := range map[string]bool{
		"the same prompt": true, "make commits": true, "the only copy": true, "a patch": false,
		// Released by the record's end a moment ago, or never named: they wait for a day.
		"pulled long ago": true, "make more commits": true, "uploaded and never named": true,
	} {
		if got := n.has(digestOf(text)); got != want {
			t.Errorf("blob %q is there: %t; want %t", text, got, want)
		}
	}
	// A person has them, and the day passes.
	n.must(&state.MarkPulled{Job: precious})
	n.aged(clock.now().Add(-25 * time.Hour))
	n.hub.disposed = time.Time{}
	l.retain(t.Context(), clock.now())
	n.hub.disposed = time.Time{}
	l.retain(t.Context(), clock.now())
	for _, text := range []string{"make commits", "the only copy", "pulled long ago", "make more commits", "uploaded and never named"} {
		if n.has(digestOf(text)) {
			t.Errorf("blob %q is still there", text)
		}
	}
	if !n.has(digestOf("the same prompt")) {
		t.Error("a prompt is gone that a waiting job needs")
	}
	if _, ok := n.hub.entries.View().Job(precious); ok {
		t.Error("the record stays although its commits were pulled")
	}
}

// TestRetriedJobKeepsWhatItHas: between the decision and its entry a person acts.
func TestRetriedJobKeepsWhatItHas(t *testing.T) {
	n := start(t, t.TempDir(), true)
	id := n.agent("fails")
	n.ran(id, nil, &fleet.Verdict{Decision: fleet.Reject, By: "gate", Reasons: []string{"exit code 1"}})
	n.must(&state.RetryJob{Job: id})
	n.must(&state.Expire{Jobs: []fleet.JobID{id}, AuditAge: time.Hour, Limit: 10})
	n.aged(time.Now().Add(-90 * day))
	n.hub.dispose(time.Now())
	if _, ok := n.hub.entries.View().Job(id); !ok || !n.has(digestOf("fails")) || len(n.hub.spool.Streams(id)) == 0 {
		t.Errorf("a retried job lost its record (there: %t), its prompt (there: %t) or its output", ok, n.has(digestOf("fails")))
	}
}

func TestLateBundleSettlesTheJob(t *testing.T) {
	n := start(t, t.TempDir(), true)
	base, tip := "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	text := "# v2 git bundle\n-" + base + " begin\n" + tip + " refs/heads/x\n\nPACK"
	id := n.agent("make commits")
	n.ran(id, &fleet.Evidence{Base: base, Tip: tip, CommitCount: 1, Descends: true, Bundle: digestOf(text), BundleSize: int64(len(text))},
		&fleet.Verdict{Decision: fleet.Unknown, By: "gate", Reasons: []string{"evidence incomplete"}})
	l := &term{hub: n.hub}
	l.late(t.Context())
	if j, _ := n.hub.entries.View().Job(id); j.State != fleet.NeedsReview {
		t.Fatalf("without its bundle the job is %s; want %s", j.State, fleet.NeedsReview)
	}
	n.put(text)
	l.late(t.Context())
	if j, _ := n.hub.entries.View().Job(id); j.State != fleet.Succeeded || !j.Current().Evidence.BundleChecked {
		t.Errorf("after its bundle came the job is %s, checked %t", j.State, j.Current().Evidence.BundleChecked)
	}
}
