package state

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// TestCircuitLaws gives short jobs to three runners while their provider, their machines
// and people do what they do, and holds every step against the laws of circuits. In the
// end the log, played again, and a snapshot lead to the same state.
func TestCircuitLaws(t *testing.T) {
	classes := append(fleet.Classes(), fleet.ClassModelUnavailable, fleet.ClassModelUnavailable, fleet.ClassQuotaExhausted, fleet.ClassProviderUnavailable, fleet.ClassAuth, fleet.ClassModelUnavailable)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m, now := New(), epoch0
		var log [][]byte
		do := func(c Command) Result {
			entry, err := Encode(Head{At: now, Actor: "hub"}, c)
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, entry)
			before := m.View()
			res, _, err := m.Apply(uint64(len(log)), entry)
			if err != nil {
				t.Fatal(err)
			}
			checkCircuits(t, before, m.View(), c, res)
			return res
		}
		runners := []fleet.RunnerID{"r1", "r2", "r3"}
		facts := func(account string) *fleet.RunnerFacts {
			return &fleet.RunnerFacts{Slots: 9, Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: account}, {Name: "claude"}}}
		}
		for _, r := range runners {
			do(&CreateTicket{Hash: digest(string(r)), Uses: 1, TTL: time.Hour})
			do(&Enrol{Ticket: digest(string(r)), ID: r, Name: string(r), SignKey: []byte(r)})
			do(&UpdateRunner{ID: r, JournalID: "j", Facts: facts("one")})
		}
		type run struct {
			job   fleet.JobID
			fence fleet.Fence
		}
		var live []run
		for n := range rapid.IntRange(10, 60).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 31 * time.Second, 20 * time.Minute, 5 * time.Hour}).Draw(t, "later"))
			r := rapid.SampledFrom(runners).Draw(t, "runner")
			end := func() (x run, ok bool) {
				if len(live) == 0 {
					return x, false
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "attempt")
				x = live[i]
				live = slices.Delete(live, i, i+1)
				return x, true
			}
			switch verb := rapid.SampledFrom([]string{"run", "run", "run", "run", "run", "end", "end", "end", "end", "end", "respond", "lose", "decline", "facts", "reset", "open", "release", "raise"}).Draw(t, "verb"); verb {
			case "run":
				id := jobID(n)
				s := agentSpec()
				s.Retries, s.Model = new(int), rapid.SampledFrom([]string{"", "m"}).Draw(t, "model")
				s.Origin.Kind = rapid.SampledFrom([]string{fleet.Manual, fleet.Automation}).Draw(t, "origin")
				do(&SubmitJob{ID: id, Spec: s})
				c := &AssignJob{Job: id, Runner: r, Turn: 1, Rules: 1, Base: 16, Automation: 16}
				for _, x := range m.View().Circuits() {
					c.Probes = append(c.Probes, x.ID)
				}
				c.Probes = c.Probes[:min(len(c.Probes), maxProbes)]
				res := do(c)
				seen["run "+string(res.Code)]++
				if res.Code != "" {
					break
				}
				if rapid.IntRange(0, 4).Draw(t, "declines") == 0 {
					do(&DeclineAttempt{Job: id, Fence: res.Fence, Rules: 1, Code: rapid.SampledFrom([]fleet.Code{fleet.Storage, fleet.MemoryLow, fleet.DockerMissing, fleet.NoSlot}).Draw(t, "code")})
					break
				}
				do(&AcceptAttempt{Job: id, Fence: res.Fence, Rules: 1})
				live = append(live, run{id, res.Fence})
			case "end":
				if x, ok := end(); ok {
					c := &FinishAttempt{Job: x.job, Fence: x.fence, Rules: 1, FinishedAt: now, Exit: fleet.Exit{Code: 1, Reason: rapid.SampledFrom([]string{"exited", "exited", "exited", "exited", "idle_timeout", "stopped"}).Draw(t, "exit")},
						Class: rapid.SampledFrom(classes).Draw(t, "class"), Verdict: &fleet.Verdict{Decision: fleet.Reject, Reasons: []string{"no"}}}
					c.RetryAfter = rapid.SampledFrom([]time.Duration{0, 0, time.Hour, 20 * 24 * time.Hour}).Draw(t, "wait")
					do(c)
				}
			case "respond":
				if len(live) > 0 {
					x := rapid.SampledFrom(live).Draw(t, "attempt")
					do(&RecordFacts{Job: x.job, Fence: x.fence, Rules: 1, Facts: []Fact{{Kind: "responded", Value: []byte("true")}}})
				}
			case "lose":
				if x, ok := end(); ok {
					do(&LoseAttempt{Job: x.job, Fence: x.fence, Rules: 1})
				}
			case "facts":
				do(&UpdateRunner{ID: r, Facts: facts(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "account"))})
			case "open":
				do(&OpenCircuit{Scope: fleet.ScopeProvider, Provider: "openai", Runner: rapid.SampledFrom([]fleet.RunnerID{"", r}).Draw(t, "over"), For: time.Minute})
			case "raise":
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					do(&RaiseEpoch{To: m.View().Meta().Epoch + 1, Cause: "recover"})
				}
			default:
				if cs := m.View().Circuits(); len(cs) > 0 {
					c := rapid.SampledFrom(cs).Draw(t, "circuit")
					if verb == "reset" {
						do(&ResetCircuit{ID: c.ID, Repaired: rapid.SampledFrom([]string{"", "it"}).Draw(t, "repaired")})
					} else if c.Probe != nil {
						do(&ReleaseProbe{ID: c.ID, Fence: c.Probe.Fence})
					}
				}
			}
		}
		for _, c := range m.View().Circuits() {
			seen[string(c.Class)+" "+string(c.State)]++
			seen[string(c.State)]++
		}
		snap := snapshotOf(t, m)
		if !bytes.Equal(snap, snapshotOf(t, restoredOf(t, snap))) {
			t.Fatal("a restored snapshot differs")
		}
		again := New()
		for i, e := range log {
			if _, _, err := again.Apply(uint64(i+1), e); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(snap, snapshotOf(t, again)) {
			t.Fatal("the log, played again, leads to another state")
		}
	})
	for _, must := range []string{"run ", "run circuit_open", "quota open", "auth blocked", "model open", "lost open", "disk open", "docker open", "half_open"} {
		if seen[must] == 0 {
			t.Errorf("%q never came up: %v", must, seen)
		}
	}
}

// checkCircuits holds one step against what is promised of circuits.
func checkCircuits(t *rapid.T, before, after View, c Command, res Result) {
	now := after.Meta().Time
	var by *fleet.Attempt // that is heard of
	if id, f, ok := heardOf(c); ok {
		if j, ok := before.Job(id); ok {
			_, by = j.Find(f)
		}
	}
	if n := after.Count(countCircuits); n != len(after.Circuits()) {
		t.Fatalf("%d circuits are counted, and there are %d", n, len(after.Circuits()))
	}
	for _, x := range after.Circuits() {
		was, known := before.Circuit(x.ID)
		if !known {
			was = &fleet.Circuit{State: fleet.CircuitClosed}
		}
		longer := x.State == fleet.CircuitBlocked && was.State != fleet.CircuitBlocked ||
			x.Until != nil && was.State != fleet.CircuitBlocked && (was.Until == nil || x.Until.After(*was.Until))
		switch {
		case by != nil && by.Fence.Less(was.Since) && longer:
			t.Fatalf("%T of an attempt of before lengthens %s", c, x.ID)
		case by != nil && x.Runner != "" && x.Runner != by.Runner && !sameButLease(was, x):
			t.Fatalf("%T on %s changes %s", c, by.Runner, x.ID)
		case longer && by == nil && x.Class != fleet.CircuitOperator && x.Class != fleet.CircuitLost:
			t.Fatalf("%T opens %s", c, x.ID)
		}
		if p := x.Probe; p != nil {
			j, ok := after.Job(p.Job)
			if !ok {
				t.Fatalf("%s is leased to job %s, which is not on record", x.ID, p.Job)
			}
			if _, a := j.Find(p.Fence); a == nil || a.State != fleet.AttemptAssigned && a.State != fleet.AttemptRunning || !slices.Contains(a.Probes, x.ID) {
				t.Fatalf("%s is leased to attempt %s of job %s, which is %+v", x.ID, p.Fence, p.Job, a)
			}
			if was.Probe != nil && was.Probe.Fence != p.Fence {
				t.Fatalf("%s went from one probe to another", x.ID)
			}
		}
	}
	a, ok := c.(*AssignJob)
	if !ok || a.Rules == 0 || res.Code != "" || res.Repeated {
		return
	}
	j, _ := before.Job(a.Job)
	r, _ := before.Runner(a.Runner)
	if got := circuit.NewSet(before.Circuits()).Passes(circuit.AskOf(j, r), now); got.Verdict == circuit.No {
		t.Fatalf("an assignment passes %s, which refuses: %s", got.Circuit, got.Detail)
	} else if _, made := after.job(a.Job).Find(res.Fence); !slices.Equal(got.Probes, made.Probes) {
		t.Fatalf("an assignment tries %q, and %q are half open", made.Probes, got.Probes)
	}
}

func (v View) job(id fleet.JobID) *fleet.Job { j, _ := v.Job(id); return j }

// sameButLease compares two circuits without their leases: that a job goes on with one
// attempt may end the other one's.
func sameButLease(a, b *fleet.Circuit) bool {
	x, y := *a, *b
	x.Probe, y.Probe, x.ChangedAt, y.ChangedAt = nil, nil, time.Time{}, time.Time{}
	return sameRow(&x, &y)
}

// heardOf gives the attempt of which a command tells.
func heardOf(c Command) (fleet.JobID, fleet.Fence, bool) {
	switch c := c.(type) {
	case *FinishAttempt:
		return c.Job, c.Fence, true
	case *DeclineAttempt:
		return c.Job, c.Fence, true
	case *RecordFacts:
		return c.Job, c.Fence, true
	case *LoseAttempt:
		return c.Job, c.Fence, true
	case *AttemptGone:
		return c.Job, c.Fence, true
	}
	return "", fleet.Fence{}, false
}
