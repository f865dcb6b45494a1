package state

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// TestWithRules: every command that has the field gets the rules where all nodes know
// them, and nothing that came with them where one does not; the proposer's is untouched.
func TestWithRules(t *testing.T) {
	old, young := hubNode("n-1"), hubNode("n-2")
	old.Kinds = rulesGeneration - 1
	gone := old
	gone.ID, gone.RemovedAt = "n-0", &epoch0
	f := fleet.Fence{Epoch: 1, Index: 2}
	facts := &fleet.RunnerFacts{Slots: 2, Barred: []string{"claude"}, Harnesses: []fleet.HarnessInfo{{Name: "codex", Account: "one", Models: []string{"m"}}}}
	for _, c := range []struct{ full, bare Command }{
		{&AssignJob{Job: "j", Turn: 1, Choice: 1, Reserve: 5, Probes: []string{"p"}, Base: 3, Automation: 2}, &AssignJob{Job: "j", Turn: 1, Slots: 3}},
		{&AcceptAttempt{Job: "j", Fence: f}, &AcceptAttempt{Job: "j", Fence: f}},
		{&DeclineAttempt{Job: "j"}, &DeclineAttempt{Job: "j"}},
		{&RecordFacts{Job: "j", Facts: []Fact{{Kind: "responded"}}}, &RecordFacts{Job: "j", Facts: []Fact{{Kind: "responded"}}}},
		{&FinishAttempt{Job: "j", Class: fleet.ClassStalled, RetryAfter: time.Second, StatedEnd: "e", Acted: true, Account: "a", Footprint: 4}, &FinishAttempt{Job: "j", Class: fleet.ClassTimeout}},
		{&FinishAttempt{Job: "j", Class: fleet.ClassDocker}, &FinishAttempt{Job: "j", Class: fleet.ClassTaskFailed}},
		{&FinishAttempt{Job: "j", Class: fleet.ClassAuth}, &FinishAttempt{Job: "j", Class: fleet.ClassAuth}},
		{&LoseAttempt{Job: "j"}, &LoseAttempt{Job: "j"}},
		{&AttemptGone{Job: "j"}, &AttemptGone{Job: "j"}},
		{&RetryJob{Job: "j", Grant: true}, &RetryJob{Job: "j", Grant: true}},
		{&UpdateRunner{ID: "r", Facts: facts}, &UpdateRunner{ID: "r", Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex"}}}}},
		{&SubmitJob{ID: "j", Title: "mend it"}, &SubmitJob{ID: "j"}},
		{&CancelJob{Job: "j"}, &CancelJob{Job: "j"}},
	} {
		was := reflect.ValueOf(c.full).Elem().Interface()
		ruled := WithRules(c.full, []*fleet.HubNode{&young, &gone})
		if r := reflect.ValueOf(ruled).Elem().FieldByName("Rules"); r.IsValid() {
			if r.Int() != 1 {
				t.Errorf("%T has rules %d", ruled, r.Int())
			}
			r.SetInt(0)
		}
		if d := cmp.Diff(c.full, ruled); d != "" {
			t.Errorf("%T of new nodes (-proposed +given)\n%s", c.full, d)
		}
		if d := cmp.Diff(c.bare, WithRules(c.full, []*fleet.HubNode{&young, &old})); d != "" {
			t.Errorf("%T beside an old node (-want +got)\n%s", c.full, d)
		}
		if d := cmp.Diff(was, reflect.ValueOf(c.full).Elem().Interface()); d != "" {
			t.Errorf("the proposer's %T was changed\n%s", c.full, d)
		}
	}
	// Whatever has the field is in the list above.
	for _, k := range Kinds() {
		c := kinds[k]()
		_, has := reflect.TypeOf(c).Elem().FieldByName("Rules")
		r := reflect.ValueOf(WithRules(c, nil)).Elem().FieldByName("Rules")
		if has && r.Int() != 1 {
			t.Errorf("%T alone has rules %d", c, r.Int())
		}
	}
}

// TestRuledJobsWait: a job that asks for what an older node would not keep waits for it.
func TestRuledJobsWait(t *testing.T) {
	old, young := hubNode("n-1"), hubNode("n-2")
	old.Kinds = rulesGeneration - 1
	nodes := []*fleet.HubNode{&young, &old}
	for _, c := range []struct {
		cmd  Command
		held bool
	}{
		{&SubmitJob{Spec: agentSpec()}, false},
		{&SubmitJob{Spec: fleet.Spec{Priority: 1}}, true},
		{&SubmitJob{Spec: fleet.Spec{Needs: &fleet.Needs{}}}, true},
		{&SubmitJob{Spec: fleet.Spec{Fallbacks: []fleet.Choice{{Harness: "codex"}}}}, true},
		{&SubmitJob{Spec: fleet.Spec{Retries: new(int)}}, true},
		{&SubmitJob{Spec: fleet.Spec{MaxTokens: 1}}, true},
		{&SetBudget{}, true},
	} {
		if node, held := Held(c.cmd, nodes); held != c.held || held && node != "n-1" {
			t.Errorf("%+v: held %v for %q", c.cmd, held, node)
		}
		if _, held := Held(c.cmd, nodes[:1]); held {
			t.Errorf("%+v is held where nobody is asked", c.cmd)
		}
	}
}

// A job that goes on with a session waits for a node that would forget which one.
func TestSessionJobsWait(t *testing.T) {
	old, young := hubNode("n-1"), hubNode("n-2")
	old.Kinds = sessionGeneration - 1
	nodes := []*fleet.HubNode{&young, &old}
	spec := agentSpec()
	if node, held := Held(&SubmitJob{Spec: spec}, nodes); held {
		t.Errorf("a job without one is held for %q", node)
	}
	spec.Session = &fleet.SessionRef{ID: "s"}
	if node, held := Held(&SubmitJob{Spec: spec}, nodes); !held || node != "n-1" {
		t.Errorf("held %v for %q", held, node)
	}
	old.Kinds = sessionGeneration
	if node, held := Held(&SubmitJob{Spec: spec}, nodes); held {
		t.Errorf("held for %q, and all know it", node)
	}
}
