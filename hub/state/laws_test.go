package state

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

var metaRow = regexp.MustCompile(`(?m)^\{"t":"meta".*$`)

// sameButMeta compares two snapshots without what every entry changes.
func sameButMeta(a, b []byte) bool {
	return bytes.Equal(metaRow.ReplaceAll(a, nil), metaRow.ReplaceAll(b, nil))
}

// oldCommand draws a command of those that know no rules, as it is without them, which
// is likely, not certain, to make sense now.
func oldCommand(t *rapid.T, v View) Command {
	id := jobID(rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3}).Draw(t, "job"))
	runner := fleet.RunnerID(rapid.SampledFrom([]string{"r1", "r1", "r1", "r2", "r2", "r3"}).Draw(t, "runner"))
	yes := rapid.Bool()
	var f fleet.Fence
	turn, attempts := 1, 0
	if j, ok := v.Job(id); ok {
		var all []fleet.Fence
		for _, tu := range j.Turns {
			for _, a := range tu.Attempts {
				all = append(all, a.Fence)
			}
		}
		turn, attempts = j.Turn().N, len(j.Turn().Attempts)
		if n := len(all); n > 0 { // mostly the newest
			f = all[max(n-1-rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 2, 3}).Draw(t, "back"), 0)]
		}
	}
	verdict := func() fleet.Verdict {
		return fleet.Verdict{Decision: rapid.SampledFrom([]fleet.Decision{fleet.Accept, fleet.Reject, fleet.Ask, fleet.Unknown}).Draw(t, "verdict"), Reasons: []string{"drawn"}}
	}
	evidence := func() *fleet.Evidence {
		if yes.Draw(t, "no evidence") {
			return nil
		}
		return &fleet.Evidence{Tip: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tip"), BundleChecked: yes.Draw(t, "checked")}
	}
	verb := rapid.SampledFrom(strings.Fields(sensible(v, id))).Draw(t, "sensible verb")
	if rapid.IntRange(0, 4).Draw(t, "any") == 0 {
		verb = rapid.SampledFrom(strings.Fields(`submit assign accept decline return facts finish decide seal evidence grant pushed lose revive gone
			cancel settle retry block follow pulled enrol ticket update flag remove revoke token untoken set expire
			raise renew orphan settle-orphan silence hub-ticket admit node remove-node`)).Draw(t, "verb")
	}
	switch verb {
	case "submit":
		s := agentSpec()
		s.OnLost = rapid.SampledFrom([]string{"hold", "rerun"}).Draw(t, "on lost")
		s.ConcurrencyKey = rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key")
		return &SubmitJob{ID: id, Spec: s}
	case "assign":
		return &AssignJob{Job: id, Runner: runner, Turn: turn, Attempts: attempts, Slots: rapid.IntRange(1, 3).Draw(t, "slots")}
	case "accept":
		return &AcceptAttempt{Job: id, Fence: f}
	case "decline":
		return &DeclineAttempt{Job: id, Fence: f, Code: fleet.Storage, Block: yes.Draw(t, "block"), RetryAfter: time.Duration(rapid.IntRange(0, 2).Draw(t, "after")) * time.Second}
	case "return":
		return &ReturnAttempt{Job: id, Fence: f}
	case "facts":
		return &RecordFacts{Job: id, Fence: f, Facts: []Fact{{
			Kind: rapid.SampledFrom([]string{"phase", "note", "detail"}).Draw(t, "kind"), Value: []byte(`"preparing"`), Seq: rapid.Uint64Range(0, 4).Draw(t, "seq"),
		}}}
	case "finish":
		c := &FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Reason: rapid.SampledFrom([]string{"exited", "stopped"}).Draw(t, "exit")}, Evidence: evidence()}
		if yes.Draw(t, "judged") {
			x := verdict()
			c.Verdict = &x
		}
		return c
	case "decide":
		return &DecideJob{Job: id, Fence: f, Verdict: verdict(), Evidence: evidence()}
	case "seal":
		return &SealLog{Job: id, Fence: f, Output: 3}
	case "evidence":
		return &UpdateEvidence{Job: id, Fence: f, Evidence: evidence()}
	case "grant":
		return &GrantPush{Job: id, Fence: f, Ref: "x", SHA: rapid.SampledFrom([]string{"", "x"}).Draw(t, "sha")}
	case "pushed":
		return &RecordPush{Job: id, Fence: f, Ref: "x", SHA: "x", Result: "pushed"}
	case "lose":
		return &LoseAttempt{Job: id, Fence: f}
	case "revive":
		return &ReviveAttempt{Job: id, Fence: f}
	case "gone":
		return &AttemptGone{Job: id, Fence: f}
	case "cancel":
		return &CancelJob{Job: id, Abandon: yes.Draw(t, "abandon")}
	case "settle":
		return &SettleJob{Job: id, Accept: yes.Draw(t, "accept")}
	case "retry":
		return &RetryJob{Job: id, Grant: yes.Draw(t, "grant")}
	case "block":
		return &BlockJob{Job: id, Turn: turn, Code: "queue_timeout"}
	case "follow":
		c := &FollowUp{Job: id, Fresh: yes.Draw(t, "fresh")}
		if c.Fresh && yes.Draw(t, "moved") {
			c.On = string(runner)
		}
		return c
	case "pulled":
		return &MarkPulled{Job: id}
	case "ticket":
		c := &CreateTicket{Hash: digest(string(runner)), Uses: 2, TTL: time.Duration(rapid.IntRange(1, 90000).Draw(t, "ttl")) * time.Second}
		if yes.Draw(t, "for") {
			c.For = runner
		}
		return c
	case "enrol":
		return &Enrol{Ticket: digest(string(runner)), ID: runner, Name: "box", SignKey: []byte{byte(rapid.IntRange(0, 2).Draw(t, "sign key"))}}
	case "update":
		return &UpdateRunner{ID: runner, JournalID: rapid.SampledFrom([]string{"", "j1", "j2"}).Draw(t, "journal"), Facts: &fleet.RunnerFacts{Slots: rapid.IntRange(1, 2).Draw(t, "slots")}}
	case "flag":
		b := yes.Draw(t, "cordoned")
		return &FlagRunner{ID: runner, Cordoned: &b}
	case "remove":
		return &RemoveRunner{ID: runner, AbandonJobs: yes.Draw(t, "abandon")}
	case "revoke":
		return &RevokeRunner{ID: runner}
	case "token":
		return &CreateToken{Token: fleet.Token{ID: fleet.TokenID(runner), Role: fleet.RoleAdmin, Hash: digest(string(runner))}, TTL: time.Hour}
	case "untoken":
		return &RevokeToken{ID: fleet.TokenID(runner)}
	case "raise":
		c := &RaiseEpoch{To: v.Meta().Epoch + uint64(rapid.IntRange(0, 2).Draw(t, "by")), Cause: "recover"}
		if rapid.IntRange(0, 2).Draw(t, "regroup") == 0 {
			c.Nodes = []fleet.HubNode{hubNode("n-1"), hubNode("n-3")}
		}
		return c
	case "renew":
		return &RenewAttempt{Job: id, Fence: f, Epoch: v.Meta().Epoch - uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "before")), Accepted: yes.Draw(t, "permitted")}
	case "orphan":
		o := (&rig{now: epoch0}).orphan(id, fleet.Fence{Epoch: 1, Index: uint64(rapid.IntRange(1000, 1002).Draw(t, "orphan"))})
		o.Turn, o.Runner, o.Log.Sealed = rapid.IntRange(0, 3).Draw(t, "turn"), runner, yes.Draw(t, "sealed")
		return &ReportOrphan{Orphan: o}
	case "settle-orphan":
		return &SettleOrphan{ID: fmt.Sprintf("1-%d", rapid.IntRange(1000, 1002).Draw(t, "orphan")), Adopt: yes.Draw(t, "adopt")}
	case "silence":
		c := &SilenceRunner{ID: runner}
		if yes.Draw(t, "silent") {
			c.Since = epoch0.Add(time.Minute)
		}
		return c
	case "hub-ticket":
		return &CreateTicket{Hash: digest("hub " + string(runner)), Uses: 2, TTL: time.Hour, Role: fleet.TicketHub, Guest: make([]byte, fleet.MeshKeyBytes),
			Replace: rapid.SampledFrom([]string{"", "", "n-1", "n-2"}).Draw(t, "replace")}
	case "admit":
		return &AdmitNode{Ticket: digest("hub " + string(runner)), Node: anyNode(t)}
	case "node":
		return &UpdateNode{Node: anyNode(t)}
	case "remove-node":
		return &RemoveNode{ID: rapid.SampledFrom([]string{"n-1", "n-2", "n-3"}).Draw(t, "node")}
	case "set":
		return &Set{Name: "default_harness", Value: rapid.SampledFrom([]string{"", "codex"}).Draw(t, "value")}
	}
	return &Expire{Jobs: []fleet.JobID{id}, Limit: rapid.IntRange(0, 3).Draw(t, "limit"), AuditAge: time.Minute}
}

func anyNode(t *rapid.T) fleet.HubNode {
	n := hubNode(rapid.SampledFrom([]string{"n-1", "n-2", "n-3"}).Draw(t, "node"))
	if rapid.IntRange(0, 3).Draw(t, "rekey") == 0 {
		n.MeshKey, n.NextMeshKey = hubNode("next "+n.ID).MeshKey, nil
	} else if rapid.Bool().Draw(t, "next") {
		n.NextMeshKey = hubNode("next " + n.ID).MeshKey
	}
	return n
}

// sensible names the commands that a job's state calls for, the likely ones twice.
func sensible(v View, id fleet.JobID) string {
	j, ok := v.Job(id)
	if !ok {
		return "submit"
	}
	switch j.State {
	case fleet.Queued:
		return "assign assign assign assign revive finish cancel block follow raise renew orphan settle-orphan"
	case fleet.Assigned, fleet.Preparing:
		return "accept accept accept accept facts decline return gone revive finish cancel follow update raise renew settle-orphan"
	case fleet.Running:
		return "finish finish lose lose lose facts grant cancel gone follow update raise renew orphan"
	case fleet.Verifying:
		return "decide decide decide evidence seal cancel follow"
	case fleet.Lost:
		return "revive revive retry retry finish gone accept cancel follow raise renew"
	case fleet.NeedsReview:
		return "settle decide evidence retry follow seal"
	case fleet.Succeeded:
		return "grant pushed follow follow seal expire evidence pulled revive orphan settle-orphan"
	}
	return "retry retry follow follow seal gone expire revive finish cancel"
}

// TestLaws applies random commands and holds the state, after each one, against
// what must be true of any state and any step.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const steps = 30
		straight := New()
		was := snapshotOf(t, straight)
		var log [][]byte
		var frozen []func(io.Writer) error
		var kept [][]byte
		now := epoch0
		index := uint64(0)
		apply := func(h Head, c Command) {
			index += uint64(1 + index%2) // indexes have holes
			h.At = now
			entry, err := Encode(h, c)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			log = append(log, entry)
			before := straight.View()
			res, changes, err := straight.Apply(index, entry)
			if err != nil {
				t.Fatalf("apply %T: %v", c, err)
			}
			is := snapshotOf(t, straight)
			if res.Code != "" || res.Repeated {
				if !sameButMeta(was, is) || len(changes) > 0 {
					t.Fatalf("%T gave %q, repeated %v, and changed the state", c, res.Code, res.Repeated)
				}
			}
			checkStep(t, before, straight.View(), c, res)
			checkState(t, straight)

			// The same through a snapshot and back before every single entry.
			hopping := restoredOf(t, was)
			if _, _, err := hopping.Apply(index, entry); err != nil {
				t.Fatalf("apply %T after a restore: %v", c, err)
			}
			checkState(t, hopping)
			if got := snapshotOf(t, hopping); !bytes.Equal(got, is) {
				t.Fatalf("%T after a restore leads to another state:\n%s\ninstead of\n%s", c, got, is)
			}
			frozen, kept, was = append(frozen, straight.Snapshot()), append(kept, is), is
		}
		apply(Head{Actor: "hub"}, &InitCluster{Cluster: "c", Epoch: 1})
		for _, id := range []fleet.RunnerID{"r1", "r2"} {
			apply(Head{Actor: "hub"}, &CreateTicket{Hash: digest(string(id)), Uses: 3, TTL: time.Hour})
			apply(Head{Actor: "hub"}, &Enrol{Ticket: digest(string(id)), ID: id, Name: "box", SignKey: []byte(id)})
			apply(Head{Actor: "hub"}, &UpdateRunner{ID: id, JournalID: "j1"})
		}
		for range steps {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{-5, 0, 1, 1, 1, 30, 5000}).Draw(t, "seconds")) * time.Second)
			h := Head{Actor: rapid.SampledFrom([]string{"hub", "t-1", "t-2"}).Draw(t, "actor")}
			if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
				h.Key, h.Route, h.Hash = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "idempotency key"), "POST /v1/jobs", digest(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "body"))
			}
			apply(h, anyCommand(t, straight))
		}
		again := New()
		index = 0
		for _, entry := range log {
			index += uint64(1 + index%2)
			if _, _, err := again.Apply(index, entry); err != nil {
				t.Fatalf("replay: %v", err)
			}
		}
		if !bytes.Equal(snapshotOf(t, again), snapshotOf(t, straight)) {
			t.Fatal("a replay leads to another state")
		}
		for i, f := range frozen {
			var b bytes.Buffer
			if err := f(&b); err != nil || !bytes.Equal(b.Bytes(), kept[i]) {
				t.Fatalf("a view from before entry %d shows what came after (%v)", i+1, err)
			}
		}
	})
}

func snapshotOf(t *rapid.T, m *Machine) []byte {
	var b bytes.Buffer
	if err := m.Snapshot()(&b); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return b.Bytes()
}

func restoredOf(t *rapid.T, snap []byte) *Machine {
	m := New()
	if err := m.Restore(bytes.NewReader(snap)); err != nil {
		t.Fatalf("restore: %v", err)
	}
	return m
}

// checkStep holds one step against the table of moves, and fences and slots against
// what may become of them.
func checkStep(t *rapid.T, before, after View, c Command, res Result) {
	after.JobsOldest(func(j *fleet.Job) bool {
		old, ok := before.Job(j.ID)
		if !ok {
			if _, adopts := c.(*SettleOrphan); j.State != fleet.Queued && (!adopts || j.State != fleet.Verifying) {
				t.Fatalf("%T made a job that is %s", c, j.State)
			}
			return true
		}
		last := old.Turn().State
		for i, tu := range j.Turns {
			if i < len(old.Turns) {
				was := old.Turns[i].State
				if _, legal := fleet.Legal(was, tu.State); was != tu.State && !legal {
					t.Fatalf("%T moved a turn from %s to %s", c, was, tu.State)
				}
				last = tu.State
				if _, adopts := c.(*SettleOrphan); len(tu.Attempts) > len(old.Turns[i].Attempts) && !adopts {
					newest(t, old, tu.Attempts[len(tu.Attempts)-1])
				}
				continue
			}
			if _, legal := fleet.Legal(last, fleet.Queued); !legal || tu.State != fleet.Queued && tu.State != fleet.Blocked {
				t.Fatalf("%T began turn %d after %s as %s", c, tu.N, last, tu.State)
			}
		}
		return true
	})
	if e, was := after.Meta().Epoch, before.Meta().Epoch; e < was {
		t.Fatalf("%T took the epoch from %d back to %d", c, was, e)
	}
	if p, ok := c.(*GrantPush); ok && res.Code == "" && !res.Repeated {
		j, _ := after.Job(p.Job)
		if _, a := j.Find(p.Fence); a.Authority() != after.Meta().Epoch {
			t.Fatalf("attempt %s of epoch %d was permitted to push in epoch %d", a.Fence, a.Authority(), after.Meta().Epoch)
		}
	}
	if _, ok := c.(*RaiseEpoch); ok && res.Code == "" && !res.Repeated {
		after.Open(func(o Open) bool {
			if o.Attempt.State == fleet.AttemptAssigned {
				t.Fatalf("attempt %s of job %s is still assigned in a new epoch", o.Attempt.Fence, o.Job.ID)
			}
			return true
		})
	}
	checkNodes(t, before, after, c)
	checkRules(t, before, after, c, res)
	checkCircuits(t, before, after, c, res)
	if a, ok := c.(*AssignJob); ok && a.Rules == 0 && res.Code == "" && !res.Repeated && after.Held(a.Runner) > a.Slots {
		t.Fatalf("runner %s holds %d slots of %d", a.Runner, after.Held(a.Runner), a.Slots)
	}
}

// checkNodes sees that a removed node never comes back but by a cluster that was put
// together anew, that no two share a mesh key by joining, and that one is left.
func checkNodes(t *rapid.T, before, after View, c Command) {
	if len(before.Nodes()) > 0 && len(after.Nodes()) == 0 {
		t.Fatalf("%T left no node", c)
	}
	if _, regroups := c.(*RaiseEpoch); regroups {
		return
	}
	for _, n := range after.Nodes() {
		if was, ok := before.Node(n.ID); ok && was.Removed() {
			t.Fatalf("%T brought node %s back", c, n.ID)
		}
	}
}

// newest sees that an attempt's fence is greater than all before it.
func newest(t *rapid.T, old *fleet.Job, a *fleet.Attempt) {
	for _, tu := range old.Turns {
		for _, o := range tu.Attempts {
			if !o.Fence.Less(a.Fence) {
				t.Fatalf("job %s: attempt %s came after %s", old.ID, a.Fence, o.Fence)
			}
		}
	}
}

// checkState holds the derived rows against the jobs, and the jobs against what any
// job must be.
func checkState(t *rapid.T, m *Machine) {
	v := m.View()
	var queue, opens, holds []string
	counts := map[string]int{}
	type place struct {
		seq uint64
		id  fleet.JobID
	}
	var waiting []place
	v.JobsOldest(func(j *fleet.Job) bool {
		if err := sound(j); err != nil {
			t.Fatalf("job %s: %v", j.ID, err)
		}
		counts["jobs"]++
		if j.State != j.Turn().State || j.State.Ended() != (j.Turn().EndedAt != nil) {
			t.Fatalf("job %s is %s and its turn %s, ended %v", j.ID, j.State, j.Turn().State, j.Turn().EndedAt)
		}
		if (j.Paused != "") != (j.State.Ended() && len(j.FollowUps) > 0) {
			t.Fatalf("job %s is %s with %d follow-ups and says %q", j.ID, j.State, len(j.FollowUps), j.Paused)
		}
		if j.State == fleet.Queued {
			waiting = append(waiting, place{j.Seq, j.ID})
			counts["queued"]++
			counts["queued:"+j.Actor]++
		}
		running, holding := 0, false
		for _, tu := range j.Turns {
			for k, a := range tu.Attempts {
				if a.State == fleet.AttemptRunning {
					running++
					if j.Current() != a || j.State != fleet.Running {
						t.Fatalf("job %s is %s and attempt %s of turn %d runs", j.ID, j.State, a.Fence, tu.N)
					}
				}
				if a.State == fleet.AttemptAssigned && (tu != j.Turn() || k != len(tu.Attempts)-1 || j.State != fleet.Assigned && j.State != fleet.Preparing) {
					t.Fatalf("job %s is %s and attempt %s of turn %d is assigned", j.ID, j.State, a.Fence, tu.N)
				}
				open := a.State == fleet.AttemptAssigned || a.State == fleet.AttemptRunning || a.State == fleet.AttemptLost && !a.Gone ||
					a.State == fleet.AttemptFinished && (!a.Log.Sealed || j.State == fleet.Verifying && j.Current() == a)
				if open {
					opens = append(opens, fmt.Sprintf("%s/%s on %s holds %v", j.ID, a.Fence, a.Runner, a.HoldsSlot()))
				}
				holding = holding || a.HoldsSlot()
			}
		}
		if running > 1 || (j.State == fleet.Running) != (running == 1) {
			t.Fatalf("job %s is %s with %d attempts that run", j.ID, j.State, running)
		}
		if k := j.Spec.ConcurrencyKey; k != "" && (holding || j.State.Active()) {
			holds = append(holds, k+" "+string(j.ID))
		}
		return true
	})
	slices.SortFunc(waiting, func(a, b place) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.id, b.id)) })
	for _, w := range waiting {
		queue = append(queue, string(w.id))
	}
	tx := m.current.Load().Txn(false)
	each(tx, tableIdem, "id", func(i *Idem) bool { counts["idem"]++; counts["idem:"+i.Actor]++; return true })
	for name, n := range map[string]int{"circuits": len(v.Circuits()), "budgets": len(v.Budgets()), "alerts": len(v.Alerts(fleet.MaxAlerts))} {
		if n > 0 {
			counts[name] = n
		}
	}
	checkSlots(t, v)
	checkBudgets(t, v)

	var gotQueue, gotOpens, gotHolds []string
	v.Queue(func(j *fleet.Job) bool {
		if now, _ := v.Job(j.ID); now != j {
			t.Fatalf("the queue shows an old record of job %s", j.ID)
		}
		gotQueue = append(gotQueue, string(j.ID))
		return true
	})
	v.Open(func(o Open) bool {
		gotOpens = append(gotOpens, fmt.Sprintf("%s/%s on %s holds %v", o.Job.ID, o.Attempt.Fence, o.Attempt.Runner, o.Attempt.HoldsSlot()))
		return true
	})
	each(tx, tableHolds, "id", func(h *hold) bool { gotHolds = append(gotHolds, h.Key+" "+string(h.Job)); return true })
	gotCounts := map[string]int{}
	each(tx, tableCounts, "id", func(c *count) bool { gotCounts[c.Name] = c.N; return true })
	slices.Sort(opens)
	slices.Sort(gotOpens)
	slices.Sort(holds)
	slices.Sort(gotHolds)
	for _, x := range []struct {
		what      string
		got, want any
	}{{"queue", gotQueue, queue}, {"open attempts", gotOpens, opens}, {"holds", gotHolds, holds}, {"counts", gotCounts, counts}} {
		if g, w := fmt.Sprint(x.got), fmt.Sprint(x.want); g != w {
			t.Fatalf("%s: %s\nfrom the jobs: %s", x.what, g, w)
		}
	}
	for k, n := range gotCounts {
		if n <= 0 && !strings.Contains(k, ":") {
			t.Fatalf("count %s is %d", k, n)
		}
	}
}
