package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestOverview(t *testing.T) {
	beat := time.Now()
	leader := "n-test"
	w := newWorld(t, func(c *Config) {
		c.Status = func() api.Status {
			return api.Status{Node: "n-test", Leader: leader, Warnings: []string{"floor_select is no number"}}
		}
		c.Presence = func() []fleet.Presence {
			return []fleet.Presence{{Runner: "r-a", Connected: true, LastBeat: beat, Interval: time.Hour, Slots: 4}, {Runner: "r-b", Connected: true, LastBeat: beat, Interval: time.Hour, Slots: 2, Declining: "the lid is shut"}}
		}
	})
	for _, n := range []string{"a", "b", "c"} {
		w.enrolled(n)
	}
	get[api.Runner](w, request{method: "POST", path: "/v1/runners/b/cordon", role: fleet.RoleAdmin, body: api.Cordon{}})
	get[api.Circuit](w, request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleAdmin, body: api.OpenCircuit{Scope: fleet.ScopeHost, Runner: "c", Reason: "call", For: "1h"}})
	first := w.submitted("waits")
	w.submitted("waits too")
	w.running(w.submitted("runs"), "r-a")
	lost := w.submitted("is lost")
	f := w.running(lost, "r-a")
	w.must(&state.LoseAttempt{Job: lost, Fence: f, Detail: "nothing is heard of it"})
	w.must(&state.RaiseAlert{Alert: fleet.Alert{ID: fmt.Sprintf("unserved-r-c-%s-1", first), Kind: state.AlertUnserved, Runner: "r-c", Name: "c", Text: "c is silent"}})
	w.must(&state.RecordHealth{Runners: []state.HealthReport{{ID: "r-a", Begun: []state.FaultReport{{Kind: fleet.FaultDisk, Detail: "1 GiB free"}}}}})
	none := ""
	conflict := "two machines show its key"
	w.must(&state.FlagRunner{ID: "r-c", Conflict: &conflict})

	o := get[api.Overview](w, request{method: "GET", path: "/v1/overview", role: fleet.RoleViewer})
	if want := map[string]int{"online": 2, "refused": 1}; !cmp.Equal(o.Runners.States, want) || o.Runners.Total != 3 || o.Runners.Held != 1 || o.Runners.Waiting != 1 {
		t.Errorf("runners: %+v", o.Runners)
	}
	if want := (api.OverviewSlots{Set: 12, Offered: 6, Used: 2}); o.Manual != want {
		t.Errorf("slots: %+v; want %+v", o.Manual, want)
	}
	if o.Queue.Depth != 2 || o.Queue.Job != first || o.Queue.Oldest == nil || o.Jobs["running"] != 1 || o.Jobs["queued"] != 2 || o.Jobs["lost"] != 1 {
		t.Errorf("queue %+v, jobs %v", o.Queue, o.Jobs)
	}
	if len(o.Circuits) != 1 || o.Circuits[0].Until == nil || o.Leader != "n-test" || o.Hubs != 1 {
		t.Errorf("circuits %+v, led by %q of %d", o.Circuits, o.Leader, o.Hubs)
	}
	kinds := func() (out []string) {
		for _, c := range get[api.Overview](w, request{method: "GET", path: "/v1/overview", role: fleet.RoleViewer}).Concerns {
			if c.Text == "" || !strings.HasPrefix(c.Link, "/") {
				t.Errorf("a concern without words or a link: %+v", c)
			}
			out = append(out, c.Kind)
		}
		return out
	}
	if got, want := kinds(), []string{"lost_job", "unserved", "disk", "refused", "setting"}; !cmp.Equal(got, want) {
		t.Errorf("concerns %v; want %v", got, want)
	}
	// What is over is no concern any more, and nothing of it is kept.
	w.must(&state.FlagRunner{ID: "r-c", Conflict: &none})
	w.must(&state.CancelJob{Job: first})
	w.must(&state.CancelJob{Job: lost, Abandon: true})
	w.must(&state.RecordHealth{Runners: []state.HealthReport{{ID: "r-a", Ended: []state.FaultReport{{Kind: fleet.FaultDisk}}}}})
	leader = ""
	if got, want := kinds(), []string{"no_leader", "setting"}; !cmp.Equal(got, want) {
		t.Errorf("concerns %v; want %v", got, want)
	}
}

// A preview says what the hub would say of the job, and leaves nothing behind.
func TestPreview(t *testing.T) {
	beat := time.Now()
	w := newWorld(t, func(c *Config) {
		c.Presence = func() []fleet.Presence {
			return []fleet.Presence{{Runner: "r-a", Connected: true, Full: true, LastBeat: beat, Interval: time.Hour, Slots: 4}}
		}
	})
	w.enrolled("a")
	w.enrolled("b")
	before := w.View().Meta().Index
	ask := func(b api.Submit) api.Preview {
		t.Helper()
		return get[api.Preview](w, request{method: "POST", path: "/v1/jobs:preview", role: fleet.RoleOperator, body: b})
	}
	p := ask(api.Submit{Kind: fleet.KindAgent, Harness: "codex", Model: "big"})
	if p.Harness != "codex" || p.Model != "big" || !cmp.Equal(p.Eligible, []string{"codex"}) || p.Explanation.Code != "" || len(p.Explanation.Runners) != 2 || p.Explanation.Job != "" {
		t.Errorf("preview: %+v", p)
	}
	codes := map[string]fleet.Code{}
	for _, r := range p.Explanation.Runners {
		codes[r.Runner] = r.Code
	}
	if codes["a"] != "" || codes["b"] != fleet.Offline {
		t.Errorf("by runner: %v", codes)
	}
	if p = ask(api.Submit{Kind: fleet.KindExec, Require: map[string]string{"gpu": "yes"}}); p.Explanation.Code == "" || p.Explanation.Runners[0].Code == "" {
		t.Errorf("of a label that nobody has: %+v", p.Explanation)
	}
	if p = ask(api.Submit{Kind: fleet.KindAgent, Harness: "codex", On: "b"}); p.Explanation.Code != fleet.Offline {
		t.Errorf("on a runner that is away: %+v", p.Explanation)
	}
	w.refuses(request{method: "POST", path: "/v1/jobs:preview", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Harness: "none"}}, 400, fleet.BadRequest)
	if after := w.View().Meta().Index; after != before || w.View().Count("jobs") != 0 {
		t.Errorf("the log went from %d to %d, with %d jobs", before, after, w.View().Count("jobs"))
	}
}
