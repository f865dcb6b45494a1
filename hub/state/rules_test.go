package state

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/retry"
	"tugline.dev/tugline/shared/fleet"
)

// anyCommand draws a command that is likely, not certain, to make sense now.
func anyCommand(t *rapid.T, m *Machine) Command {
	v := m.View()
	if rapid.IntRange(0, 5).Draw(t, "of placement") == 0 {
		return placing(t, v)
	}
	c := oldCommand(t, v)
	rules := rapid.SampledFrom([]int{1, 1, 1, 0}).Draw(t, "rules")
	yes := rapid.Bool()
	switch c := c.(type) {
	case *SubmitJob:
		if yes.Draw(t, "plain job") {
			break
		}
		s := &c.Spec
		s.Origin = rapid.SampledFrom([]fleet.Origin{{Kind: "manual"}, {Kind: "automation"}, {Kind: "automation", Name: "night"}}).Draw(t, "origin")
		s.Kind = rapid.SampledFrom([]fleet.Kind{fleet.KindAgent, fleet.KindAgent, fleet.KindExec}).Draw(t, "kind")
		s.Fallbacks = rapid.SliceOfN(rapid.SampledFrom([]fleet.Choice{{Harness: "codex", Model: "b"}, {Harness: "claude"}, {Harness: "claude", Model: "c"}}), 0, 3).Draw(t, "fallbacks")
		s.MaxTokens = rapid.SampledFrom([]int64{0, 0, 5, 50}).Draw(t, "tokens")
		s.Timeouts.Total = rapid.SampledFrom([]time.Duration{0, time.Minute, -1}).Draw(t, "timeout")
		if n := rapid.IntRange(-1, 3).Draw(t, "retries"); n >= 0 {
			s.Retries = &n
		}
		if yes.Draw(t, "in a repository") {
			s.Repo = &fleet.Repo{URL: "https://example.org/repo"}
		}
	case *AssignJob:
		c.Rules = rules
		c.Base, c.Automation = rapid.SampledFrom([]int{2, 1, 0}).Draw(t, "base"), rapid.SampledFrom([]int{2, 1, 0}).Draw(t, "automation")
		c.Reserve = rapid.SampledFrom([]int64{0, 7}).Draw(t, "reserve")
		if j, ok := v.Job(c.Job); ok && rapid.IntRange(0, 9).Draw(t, "another choice") > 0 {
			c.Choice = j.Turn().Choice
		}
		for _, x := range v.Circuits() {
			c.Probes = append(c.Probes, x.ID)
		}
		c.Probes = c.Probes[:min(len(c.Probes), maxProbes)]
	case *AcceptAttempt:
		c.Rules = rules
	case *DeclineAttempt:
		c.Rules = rules
	case *RecordFacts:
		if c.Rules = rules; yes.Draw(t, "an answer") {
			c.Facts = append(c.Facts, Fact{Kind: "responded", Value: []byte("true"), Seq: 9}, Fact{Kind: "session", Value: []byte(`"s"`), Seq: 10})
		}
	case *FinishAttempt:
		c.Rules = rules
		c.Class = rapid.SampledFrom(fleet.Classes()).Draw(t, "class")
		c.Acted = yes.Draw(t, "acted")
		c.SessionID = rapid.SampledFrom([]string{"", "s"}).Draw(t, "session")
		c.Footprint = rapid.SampledFrom([]int64{0, 1 << 20, 3 << 20}).Draw(t, "footprint")
		c.RetryAfter = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "wait")
		if yes.Draw(t, "usage") {
			c.Usage = &fleet.Usage{InputTokens: rapid.Int64Range(-1, 30).Draw(t, "input"), OutputTokens: 1}
		}
	case *LoseAttempt:
		c.Rules = rules
	case *AttemptGone:
		c.Rules = rules
	case *RetryJob:
		c.Rules = rules
	}
	return c
}

// TestTurns leads a few jobs of several origins through attempt after attempt, with
// budgets over them, and holds every step against the laws; a snapshot and back after
// each leads to the same state.
func TestTurns(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m, now, index := New(), epoch0, uint64(0)
		yes := rapid.Bool()
		do := func(c Command) Result {
			index++
			entry, err := Encode(Head{At: now, Actor: "hub"}, c)
			if err != nil {
				t.Fatal(err)
			}
			before := m.View()
			res, _, err := m.Apply(index, entry)
			if err != nil {
				t.Fatal(err)
			}
			checkStep(t, before, m.View(), c, res)
			checkState(t, m)
			if index%3 == 0 {
				snap := snapshotOf(t, m)
				if m = restoredOf(t, snap); !bytes.Equal(snapshotOf(t, m), snap) {
					t.Fatalf("a restored snapshot differs after %T", c)
				}
			}
			return res
		}
		do(&InitCluster{Cluster: "c", Epoch: 1})
		for _, r := range []fleet.RunnerID{"r1", "r2"} {
			do(&CreateTicket{Hash: digest(string(r)), Uses: 1, TTL: time.Hour})
			do(&Enrol{Ticket: digest(string(r)), ID: r, Name: string(r), SignKey: []byte(r)})
			do(&UpdateRunner{ID: r, JournalID: "j", Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: "one"}, {Name: "claude", Account: "two"}}}})
		}
		for n := range 2 {
			s := agentSpec()
			s.OnLost, s.Repo = "rerun", &fleet.Repo{URL: "https://example.org/repo"}
			s.Origin = rapid.SampledFrom([]fleet.Origin{{Kind: "manual"}, {Kind: "automation", Name: "night"}}).Draw(t, "origin")
			s.Fallbacks = rapid.SliceOfN(rapid.SampledFrom([]fleet.Choice{{Harness: "codex", Model: "b"}, {Harness: "claude"}, {Harness: "claude", Model: "c"}}), 0, 3).Draw(t, "fallbacks")
			do(&SubmitJob{ID: jobID(n), Spec: s})
		}
		for range 12 {
			now = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "hours")) * time.Hour)
			if rapid.IntRange(0, 2).Draw(t, "other") == 0 {
				do(placing(t, m.View()))
			}
			id := jobID(rapid.IntRange(0, 1).Draw(t, "job"))
			j, _ := m.View().Job(id)
			seen[string(j.State)+" "+j.Reason.Code]++
			if j.State.Ended() {
				if res := do(&RetryJob{Job: id, Rules: 1}); res.Code != "" {
					seen["retry "+string(res.Code)]++
					do(&RetryJob{Job: id, Grant: true, Rules: 1})
				}
			}
			j, _ = m.View().Job(id)
			tu := j.Turn()
			c := &AssignJob{Job: id, Runner: rapid.SampledFrom([]fleet.RunnerID{"r1", "r2"}).Draw(t, "runner"), Turn: tu.N, Attempts: len(tu.Attempts), Rules: 1, Base: 2, Automation: 2, Choice: tu.Choice, Reserve: 3}
			for _, x := range m.View().Circuits() {
				c.Probes = append(c.Probes, x.ID)
			}
			given := do(c)
			if given.Code != "" {
				seen["assign "+string(given.Code)]++
				continue
			}
			f := given.Fence
			if yes.Draw(t, "declined") && yes.Draw(t, "really") {
				do(&DeclineAttempt{Job: id, Fence: f, Code: fleet.NoSlot, Rules: 1})
				continue
			}
			do(&AcceptAttempt{Job: id, Fence: f, Rules: 1})
			if rapid.IntRange(0, 5).Draw(t, "lost") == 0 {
				do(&LoseAttempt{Job: id, Fence: f, Rules: 1})
				if yes.Draw(t, "gone") {
					do(&AttemptGone{Job: id, Fence: f, Rules: 1})
					continue
				}
			}
			acted := rapid.IntRange(0, 3).Draw(t, "acted") == 0
			do(&RecordFacts{Job: id, Fence: f, Facts: []Fact{{Kind: "responded", Value: []byte("true"), Seq: 1}}, Rules: 1})
			do(&FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Code: 1, Reason: rapid.SampledFrom([]string{"exited", "exited", "exited", "stopped"}).Draw(t, "exit")},
				Class: rapid.SampledFrom(fleet.Classes()).Draw(t, "class"), Rules: 1, Acted: acted, SessionID: rapid.SampledFrom([]string{"", "s"}).Draw(t, "session"),
				Usage: &fleet.Usage{InputTokens: 9}, Footprint: 5, Verdict: &fleet.Verdict{Decision: fleet.Reject, Reasons: []string{"no"}}})
			do(&SealLog{Job: id, Fence: f})
		}
	})
	for _, must := range []string{"queued retry_waits", "queued fallback", "queued rerun", "blocked budget", "failed reject", "failed stalled", "retry conflict", "assign budget_spent"} {
		if seen[must] == 0 {
			t.Errorf("%q never came up: %v", must, seen)
		}
	}
}

// placing draws a command that came with the rules.
func placing(t *rapid.T, v View) Command {
	runner := fleet.RunnerID(rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "runner"))
	yes := rapid.Bool()
	switch rapid.SampledFrom([]string{"budget", "budget", "budget", "slots", "hold", "deadline", "health", "alert", "settle", "open", "reset", "release"}).Draw(t, "verb of placement") {
	case "slots":
		n := rapid.IntRange(-1, 3).Draw(t, "automation")
		return &SetSlots{ID: runner, Automation: &n}
	case "hold":
		c := &HoldRunner{ID: runner}
		if rapid.IntRange(0, 2).Draw(t, "held") == 0 {
			soon := v.Meta().Time.Add(10 * time.Second)
			c.Hold = &fleet.Hold{Drain: true, Deadline: &soon, Cancel: yes.Draw(t, "cancel")}
		}
		return c
	case "deadline":
		return &PassDeadline{Runner: runner}
	case "health":
		f := []FaultReport{{Kind: rapid.SampledFrom(fleet.FaultKinds).Draw(t, "fault")}}
		c := HealthReport{ID: runner, Begun: f}
		if yes.Draw(t, "over") {
			c.Begun, c.Ended = nil, f
		}
		return &RecordHealth{Runners: []HealthReport{c}}
	case "alert":
		return &RaiseAlert{Alert: fleet.Alert{ID: string(runner), Kind: AlertUnserved, Runner: runner, Text: "nobody"}}
	case "settle":
		return &SettleAlert{ID: string(runner)}
	case "open":
		return &OpenCircuit{Scope: fleet.ScopeProvider, Runner: runner, Provider: "openai", For: time.Minute, Reason: "a look"}
	case "reset", "release":
		cs := v.Circuits()
		if len(cs) == 0 {
			return &ReleaseProbe{ID: "none"}
		}
		c := rapid.SampledFrom(cs).Draw(t, "circuit")
		if yes.Draw(t, "reset") {
			return &ResetCircuit{ID: c.ID, Reason: "done", Repaired: "signed in"}
		}
		f := fleet.Fence{}
		if c.Probe != nil {
			f = c.Probe.Fence
		}
		return &ReleaseProbe{ID: c.ID, Fence: f}
	}
	b := fleet.Budget{Origin: rapid.SampledFrom([]string{"manual", "automation", "automation:night"}).Draw(t, "origin"), Runs: rapid.Int64Range(0, 3).Draw(t, "runs"),
		Tokens: rapid.SampledFrom([]int64{0, 10, 60}).Draw(t, "tokens"), Wall: rapid.SampledFrom([]time.Duration{0, time.Minute, 5 * time.Hour}).Draw(t, "wall"),
		Window: rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "window")}
	return &SetBudget{Budget: b, Remove: rapid.IntRange(0, 5).Draw(t, "remove") == 0}
}

// checkRules holds one step against what the rules promise.
func checkRules(t *rapid.T, before, after View, c Command, res Result) {
	if res.Code != "" || res.Repeated {
		return
	}
	switch c := c.(type) {
	case *AssignJob:
		if c.Rules == 0 {
			break
		}
		j, _ := after.Job(c.Job)
		tu, a := j.Find(res.Fence)
		manual, automation := after.HeldKinds(c.Runner)
		if j.Spec.Automated() && automation > c.Automation || !j.Spec.Automated() && manual > c.Base || manual+automation > c.Base+c.Automation {
			t.Fatalf("runner %s holds %d and %d slots of %d and %d", c.Runner, manual, automation, c.Base, c.Automation)
		}
		was, _ := before.Job(c.Job)
		if nb := was.Turn().NotBefore; nb != nil && after.Meta().Time.Before(*nb) || tu.NotBefore != nil {
			t.Fatalf("assigned at %s and not before %s", after.Meta().Time, nb)
		}
		if r, _ := before.Runner(c.Runner); r.HeldAt(after.Meta().Time) {
			t.Fatalf("assigned to %s, which is held", r.Name)
		}
		if a.Harness == "" || a.Reserve != c.Reserve {
			t.Fatalf("assigned as %+v", a)
		}
		for _, key := range j.Spec.Origin.OriginKeys() {
			if b, ok := after.Budget(key); ok {
				use := b.InUse()
				if b.Runs > 0 && use.Runs > b.Runs || j.Spec.Kind == fleet.KindAgent && b.Tokens > 0 && use.Tokens > b.Tokens || b.Wall > 0 && use.Wall > b.Wall {
					t.Fatalf("an assignment took the budget %+v over its bounds", b)
				}
			}
		}
	case *FinishAttempt:
		was, _ := before.Job(c.Job)
		j, _ := after.Job(c.Job)
		old, _ := was.Find(c.Fence)
		tu, a := j.Find(c.Fence)
		if c.Rules == 0 {
			break
		}
		if stopped := c.Exit.Reason == "stopped" || c.Class == fleet.ClassCancelled; stopped && a.Stop != "superseded" && retry.Costs(a) {
			t.Fatalf("a stop costs something: %+v", a)
		}
		if tu.Choice < old.Choice || tu.Choice > old.Choice && (len(tu.Moves) != len(old.Moves)+1 || tu.State != fleet.Queued) {
			t.Fatalf("from choice %d to %d with %d moves, %s", old.Choice, tu.Choice, len(tu.Moves), tu.State)
		}
		if goesOn := was.State != fleet.Queued && j.State == fleet.Queued && tu == j.Turn(); goesOn && (a.Acted && (a.SessionID == "" || tu.On != a.Runner) || retry.Executions(tu) >= retry.Whole(&j.Spec)+tu.Granted) {
			t.Fatalf("turn goes on (%s) after %+v with %d executions", j.Reason.Code, a, retry.Executions(tu))
		}
	}
}

// checkSlots counts the slots by kind again, and what is reserved of disks.
func checkSlots(t *rapid.T, v View) {
	held, reserved := map[string]int{}, map[fleet.RunnerID]int64{}
	v.JobsOldest(func(j *fleet.Job) bool {
		for _, a := range holders(j) {
			held[fmt.Sprint(a.Runner, j.Spec.Automated())]++
			reserved[a.Runner] += a.Reserve
		}
		return true
	})
	for _, r := range []fleet.RunnerID{"r1", "r2", "r3"} {
		manual, automation := v.HeldKinds(r)
		if manual != held[fmt.Sprint(r, false)] || automation != held[fmt.Sprint(r, true)] || v.Held(r) != manual+automation {
			t.Fatalf("runner %s holds %d and %d, from the jobs %v", r, manual, automation, held)
		}
		if got := v.Reserved(r, time.Time{}); got != reserved[r] {
			t.Fatalf("%d bytes are reserved on %s, from the jobs %d", got, r, reserved[r])
		}
	}
}

// checkBudgets sees that every reservation is of an attempt that is under way, that
// every such attempt younger than a budget has one, and that nothing is below zero.
func checkBudgets(t *rapid.T, v View) {
	for _, b := range v.Budgets() {
		if u := b.InUse(); u.Runs < int64(len(b.Held)) || b.Spent.Runs < 0 || b.Spent.Tokens < 0 || b.Spent.Wall < 0 || len(b.Held)+int(b.Spent.Runs) > 0 && b.Begun.IsZero() && len(b.Held) == 0 {
			t.Fatalf("budget %+v", b)
		}
		left := slices.Clone(b.Held)
		v.JobsOldest(func(j *fleet.Job) bool {
			for _, a := range holders(j) {
				i := slices.IndexFunc(left, func(r fleet.Reservation) bool { return r.Fence == a.Fence && r.Job == j.ID })
				if i >= 0 {
					if r := left[i]; r.Tokens < 0 || r.Wall < 0 {
						t.Fatalf("reservation %+v", r)
					}
					left = slices.Delete(left, i, i+1)
				} else if slices.Contains(j.Spec.Origin.OriginKeys(), b.Origin) && a.AssignedAt.After(b.SetAt) {
					t.Fatalf("attempt %s of job %s has no reservation of %+v", a.Fence, j.ID, b)
				}
			}
			return true
		})
		if len(left) > 0 {
			t.Fatalf("budget %s holds %+v for attempts that are not under way", b.Origin, left)
		}
	}
}
