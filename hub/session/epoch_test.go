package session

import (
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// raise raises the cluster's epoch by one and gives the new one.
func (h *hub) raise() uint64 {
	h.t.Helper()
	to := h.View().Meta().Epoch + 1
	h.must(&state.RaiseEpoch{To: to, Cause: "recover"})
	return to
}

// renewal gives the epoch of the renew order in a line, 0 where there is none.
func (a *agent) renewal(d wire.Desired, now time.Time) uint64 {
	a.t.Helper()
	if d.Order == nil {
		return 0
	}
	o, err := wire.VerifyOrder(a.orders, *d.Order, d.Body, wire.Want{Cluster: testCluster, Epoch: 1, Runner: a.id}, now)
	if err != nil {
		a.t.Fatal(err)
	}
	if o.Kind != wire.OrderRenew {
		return 0
	}
	var body wire.Renew
	if err := wire.Decode(d.Body, &body); err != nil {
		a.t.Fatal(err)
	}
	if body.Epoch != o.Epoch || len(o.Critical) != 1 || o.Critical[0] != "epoch" || o.Job != d.Job || o.Fence != d.Fence {
		a.t.Fatalf("order %+v renews for %d in the line of %s", o, body.Epoch, d.Fence)
	}
	return body.Epoch
}

// permitted asks for leave to give the agent credentials.
func (a *agent) permitted(k talk, j fleet.JobID, f fleet.Fence) wire.PermitReply {
	a.t.Helper()
	body, bye := k.say(wire.TypePermit, encode(a.t, wire.Permit{ID: 7, Job: j, Fence: f, Remote: "origin"}), wire.TypePermitReply)
	var p wire.PermitReply
	if bye != nil || wire.Decode(body, &p) != nil {
		a.t.Fatalf("permit was answered with %s, %+v", body, bye)
	}
	return p
}

// TestRenewed: an accepted attempt has no effect in a raised epoch before its runner
// took that up, and goes on all the while.
func TestRenewed(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		j, f := h.assign(a.id)
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
		view := wire.AttemptView{Job: j, Fence: f, Phase: "running"}
		if rep := a.beat(k, view); rep.Desired[0].Order != nil {
			t.Fatalf("an attempt of this epoch gets the order %s", rep.Desired[0].Order.Order)
		}
		epoch := h.raise()
		rep := a.beat(k, view)
		if d := rep.Desired[0]; rep.Epoch != epoch || d.Intent != wire.IntentRun || !d.Accepted || a.renewal(d, rep.Time) != epoch {
			t.Fatalf("epoch %d, line %+v", rep.Epoch, d)
		}
		if p := a.permitted(k, j, f); p.Granted || p.Code != fleet.Unavailable {
			t.Fatalf("permit before the renewal: %+v", p)
		}
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Renewed: &wire.Renewed{Epoch: epoch - 1, Permitted: true}}), fleet.StaleEpoch, false)
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Renewed: &wire.Renewed{Epoch: epoch, Permitted: true}}))
		if p := a.permitted(k, j, f); !p.Granted {
			t.Fatalf("permit after the renewal: %+v", p)
		}
		if rep := a.beat(k, view); rep.Desired[0].Order != nil {
			t.Fatal("a renewed attempt is told to be renewed")
		}
		ok(t, a.report(k, a.finished(j, f, 0)))
		if s := h.job(j).State; s != fleet.Succeeded {
			t.Errorf("the job is %s", s)
		}
	})
}

// TestNotShownIsNotRenewed: nothing is renewed that the runner does not have, nor what
// it is told to stop.
func TestNotShownIsNotRenewed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, f := h.assign(a.id)
	ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
	h.raise()
	if rep := a.beat(k); len(rep.Desired) != 1 || rep.Desired[0].Order != nil {
		t.Errorf("not shown: %+v", rep.Desired)
	}
	h.must(&state.CancelJob{Job: j})
	rep := a.beat(k, wire.AttemptView{Job: j, Fence: f, Phase: "running"})
	if d := rep.Desired[0]; d.Intent != wire.IntentStop || a.renewal(d, rep.Time) != 0 {
		t.Errorf("cancelled: %+v", d)
	}
}

// TestRegained: of an attempt whose accept was lost with its record, the runner knows
// whether it had begun.
func TestRegained(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	begun, f := h.assign(a.id)
	waits, g := h.assign(a.id)
	epoch := h.raise()
	rep := a.beat(k, wire.AttemptView{Job: begun, Fence: f, Phase: "running"}, wire.AttemptView{Job: waits, Fence: g, Phase: "ready"})
	if len(rep.Desired) != 2 {
		t.Fatalf("desired set %+v", rep.Desired)
	}
	if d := rep.Desired[0]; d.Intent != wire.IntentRun || d.Accepted || a.renewal(d, rep.Time) != epoch {
		t.Errorf("the one that had begun: %+v", d)
	}
	if d := rep.Desired[1]; d.Intent != wire.IntentStop || d.Reason != state.StopEpoch {
		t.Errorf("the one that had not: %+v", d)
	}
	if p, _ := h.srv.PresenceOf(a.id); p.Strays != string(begun) {
		t.Errorf("strays are %q, want %s", p.Strays, begun)
	}
	ok(t, a.report(k, wire.ReportItem{Job: begun, Fence: f, Renewed: &wire.Renewed{Epoch: epoch, Permitted: true}}))
	if j := h.job(begun); j.State != fleet.Running || j.Current().Fence != f {
		t.Errorf("the job is %s", j.State)
	}
	a.beat(k, wire.AttemptView{Job: begun, Fence: f, Phase: "running"})
	if p, _ := h.srv.PresenceOf(a.id); p.Strays != "" {
		t.Errorf("strays are %q", p.Strays)
	}
	// Its end alone says that it had begun, too.
	third, e := h.assign(a.id)
	h.raise()
	ok(t, a.report(k, a.finished(third, e, 0)))
	if s := h.job(third).State; s != fleet.Succeeded {
		t.Errorf("the job whose end was told is %s", s)
	}
}

// given makes the order for an attempt of which there is no record.
func (h *hub) given(r fleet.RunnerID, j fleet.JobID, f fleet.Fence) *wire.Origin {
	h.t.Helper()
	body := encode(h.t, wire.Assignment{Job: j, Turn: 2, Attempt: 1, Fence: f, Prompt: digest([]byte("p")), CreatedAt: time.Now().Add(-time.Hour).UTC(),
		Spec: fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"make"}, OnLost: "hold"}, Resume: &wire.Resume{BaseCommit: "base"}})
	k := h.keys.Load()
	signed, err := wire.SignOrder(k.Signing, k.SigningID, wire.Order{Cluster: testCluster, Epoch: f.Epoch, Runner: r, Job: j, Fence: f, ID: "assign", Kind: wire.OrderAssign,
		Body: wire.BodyDigest(body), NotAfter: time.Now().Add(-time.Minute)}) // long expired
	if err != nil {
		h.t.Fatal(err)
	}
	return &wire.Origin{Order: signed, Body: body}
}

// TestOrphan takes an attempt that no record knows from its running to being forgotten.
func TestOrphan(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a, other := h.enrolled(), h.enrolled()
		k := connect(a)
		h.raise()
		const j = fleet.JobID("01unknown")
		f := fleet.Fence{Epoch: 1, Index: 999}
		view := wire.AttemptView{Job: j, Fence: f, Phase: "running"}
		if rep := a.beat(k, view); len(rep.Desired) != 0 {
			t.Fatalf("desired set %+v, want nothing about it", rep.Desired)
		}
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hel")}); ack.Durable != 3 || ack.Code != "" {
			t.Fatalf("output was acknowledged as %+v", ack)
		}
		if p := a.permitted(k, j, f); p.Granted || p.Code != fleet.Unavailable {
			t.Errorf("permit: %+v", p)
		}
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}), fleet.NotFound, false)
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 3}}), fleet.NotFound, false)
		data := []byte("a bundle")
		if res, _ := a.blobCall(k, "PUT", digest(data), "", data); res.StatusCode != 403 {
			t.Errorf("a blob before the end: %d", res.StatusCode)
		}

		end := a.finished(j, f, 0)
		end.Finished.Evidence = &fleet.Evidence{CommitCount: 1, Bundle: digest(data), RescueRef: "refs/tugline/rescue/x", BundleChecked: true}
		if err := wire.SignFinished(a.sign, j, f, end.Finished); err != nil {
			t.Fatal(err)
		}
		refused(t, a.report(k, end), fleet.StaleEpoch, true)
		for name, from := range map[string]*wire.Origin{
			"another runner's": h.given(other.id, j, f), "another job's": h.given(a.id, "01other", f), "another fence's": h.given(a.id, j, fleet.Fence{Epoch: 1, Index: 998}),
			"another body": {Order: h.given(a.id, j, f).Order, Body: h.given(a.id, "01other", f).Body},
		} {
			bad := end
			bad.Origin = from
			if acks := a.report(k, bad); acks[0].Code != fleet.BadSignature || acks[0].Retry {
				t.Errorf("with %s order: %+v", name, acks)
			}
		}
		end.Origin = h.given(a.id, j, f)
		ok(t, a.report(k, end))
		ok(t, a.report(k, end))
		o, found := h.View().Orphan("1-999")
		if !found || o.Job != j || o.Turn != 2 || o.Spec.Argv[0] != "make" || o.Base != "base" || o.Evidence.Bundle != digest(data) || o.Evidence.BundleChecked || o.Log.Bytes != 5 || o.Log.Sealed {
			t.Fatalf("the orphan is %+v", o)
		}
		view.Phase = "finished"
		a.beat(k, view)
		if res, _ := a.blobCall(k, "PUT", digest(data), "", data); res.StatusCode != 201 {
			t.Errorf("a blob after the end: %d", res.StatusCode)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Evidence: &wire.Evidence{Evidence: fleet.Evidence{Bundle: digest(data), CommitCount: 1, Notes: []string{"late"}}}}))
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 5}}), fleet.SpoolGap, true)
		k.next()
		a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Offset: 3, Data: []byte("lo")})
		if rep := a.beat(k, view); len(rep.Desired) != 0 {
			t.Errorf("desired set before the seal: %+v", rep.Desired)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Sealed: &wire.Sealed{Output: 5}}))
		if rep := a.beat(k, view); len(rep.Desired) != 1 || rep.Desired[0].Intent != wire.IntentForget || rep.Desired[0].Fence != f {
			t.Errorf("desired set after the seal: %+v", rep.Desired)
		}
		if o, _ := h.View().Orphan("1-999"); !o.Log.Sealed || o.Evidence.Notes[0] != "late" {
			t.Errorf("the orphan is %+v", o)
		}

		h.must(&state.SettleOrphan{ID: "1-999", Adopt: true})
		if s := h.job(j).State; s != fleet.Verifying {
			t.Errorf("the adopted job is %s", s)
		}
		if p := a.permitted(k, j, f); p.Code != fleet.Unavailable {
			t.Errorf("permit of an adopted attempt: %+v", p)
		}
	})
}

// TestOrphanIsNoWayIn: what is of this epoch, or another runner's, is refused as ever.
func TestOrphanIsNoWayIn(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, other := h.enrolled(), h.enrolled()
	k, l := a.link(), other.link()
	h.raise()
	now, before := fleet.Fence{Epoch: 2, Index: 999}, fleet.Fence{Epoch: 1, Index: 999}
	end := a.finished("01unknown", now, 0)
	end.Origin = h.given(a.id, "01unknown", now)
	refused(t, a.report(k, end), fleet.NotFound, false)
	if ack := a.wrote(k, wire.Output{Job: "01unknown", Fence: now, Stream: wire.StreamOutput, Data: []byte("x")}); ack.Code != fleet.NotFound {
		t.Errorf("output of this epoch: %+v", ack)
	}
	end = a.finished("01unknown", before, 0)
	end.Origin = h.given(a.id, "01unknown", before)
	ok(t, a.report(k, end))
	end = other.finished("01unknown", before, 0)
	end.Origin = h.given(other.id, "01unknown", before)
	refused(t, other.report(l, end), fleet.NotFound, false)
	if ack := other.wrote(l, wire.Output{Job: "01unknown", Fence: before, Stream: wire.StreamOutput, Data: []byte("x")}); ack.Code != fleet.NotFound {
		t.Errorf("another's output: %+v", ack)
	}
	h.must(&state.SettleOrphan{ID: "1-999"})
	if p := a.permitted(k, "01unknown", before); p.Code != fleet.StaleFence {
		t.Errorf("permit of a discarded one: %+v", p)
	}
	rep := a.beat(k, wire.AttemptView{Job: "01unknown", Fence: before, Phase: "finished"})
	if len(rep.Desired) != 1 || rep.Desired[0].Intent != wire.IntentForget {
		t.Errorf("desired set %+v", rep.Desired)
	}
}

// TestStrays: a job on record that a runner runs without a record is shown with the runner.
func TestStrays(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	j, _ := h.assign(a.id)
	view := wire.AttemptView{Job: j, Fence: fleet.Fence{Epoch: 1, Index: 999}, Phase: "running"}
	strays := func(want string, views ...wire.AttemptView) {
		t.Helper()
		a.beat(k, views...)
		if p, _ := h.srv.PresenceOf(a.id); p.Strays != want {
			t.Errorf("strays are %q, want %q", p.Strays, want)
		}
	}
	strays("", view)
	h.raise()
	strays(string(j), view, wire.AttemptView{Job: "01unknown", Fence: view.Fence, Phase: "running"})
	if !h.srv.Shows("01unknown") || h.srv.Shows("01other") {
		t.Error("what the runner shows is not told")
	}
	strays("")
}

// TestSetBack: while a state that was set back has an epoch that this node has seen
// pass, that an attempt is unknown is no answer; it comes once the epoch is raised.
func TestSetBack(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		var seen atomic.Uint64
		h := newHub(t, func(c *Config) { c.Seen = seen.Load })
		a := h.enrolled()
		k := connect(a)
		const j = fleet.JobID("01unknown")
		f := fleet.Fence{Epoch: 1, Index: 999}
		seen.Store(2)
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hel")}); ack.Code != fleet.Unavailable || !ack.Retry {
			t.Fatalf("output was acknowledged as %+v, want it to be repeated", ack)
		}
		refused(t, a.report(k, a.finished(j, f, 0)), fleet.Unavailable, true)
		h.raise()
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hel")}); ack.Durable != 3 || ack.Code != "" {
			t.Fatalf("output was acknowledged as %+v", ack)
		}
	})
}
