package web

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// placed gives a world whose runners are connected as the map says, by id.
func placed(t *testing.T, present map[fleet.RunnerID]*fleet.Presence, adjust ...func(*Config)) *world {
	t.Helper()
	var told sync.Mutex // a stream asks at any time
	w := newWorld(t, append(adjust, func(c *Config) {
		c.Presence = func() (out []fleet.Presence) {
			told.Lock()
			defer told.Unlock()
			for id, p := range present {
				q := *p
				q.Runner = id
				out = append(out, q)
			}
			return out
		}
	})...)
	w.tell = func(change func()) {
		told.Lock()
		defer told.Unlock()
		change()
	}
	return w
}

func TestRunnerShowsSlotsAndHealth(t *testing.T) {
	one := 1
	p := &fleet.Presence{Connected: true, LastBeat: time.Now(), Interval: time.Minute, Slots: 3, Full: true, Automation: &one, LimitedBy: "on battery: 3 of 4 slots; memory for 1",
		Health: &fleet.Health{Age: 5 * time.Second, Workspace: fleet.Volume{Known: true, Free: 99}, UserIdle: -1}, HealthAt: time.Now().Add(-10 * time.Second)}
	w := placed(t, map[fleet.RunnerID]*fleet.Presence{"r-lead": p})
	w.enrolled("lead")
	feed := w.events("/v1/events", "")
	two := 2
	w.must(&state.SetSlots{ID: "r-lead", Automation: &two})
	id := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}, Automation: "nightly"}}).ID
	w.running(id, "r-lead")
	show := func() api.Runner {
		return get[api.Runner](w, request{method: "GET", path: "/v1/runners/lead", role: fleet.RoleViewer})
	}
	r := show()
	want := api.Slots{Base: 4, Offered: 3, Automation: 2, Effective: 1, Used: 1, UsedAutomation: 1, LimitedBy: []string{"on battery: 3 of 4 slots", "memory for 1"}}
	if diff := cmp.Diff(want, r.Slots); diff != "" {
		t.Errorf("slots (-want +got):\n%s", diff)
	}
	if h := r.Health; h.Class != api.HealthOK || !h.Fresh || h.Sample == nil || h.Sample.Workspace.Free != 99 || *h.AgeMS < 15_000 || *h.AgeMS > 25_000 || len(h.Faults) != 0 {
		t.Errorf("health %+v; want it fresh and some 15 s old", h)
	}
	w.must(&state.RecordHealth{Runners: []state.HealthReport{{ID: "r-lead", Free: 99, Memory: -1, Begun: []state.FaultReport{{Kind: fleet.FaultDisk, Detail: "99 B free"}}}}})
	if h := show().Health; h.Class != api.HealthFaulty || len(h.Faults) != 1 || h.Faults[0].Detail != "99 B free" || h.Record == nil || len(h.Record.Changes) != 1 {
		t.Errorf("health with a fault: %+v", h)
	}
	if e := feed.want("alert"); e.Alert == nil || e.Alert.Kind != state.AlertDisk || e.Alert.Runner != "r-lead" || !strings.Contains(e.Alert.Text, "99 B free") {
		t.Errorf("the feed says %+v", e.Event)
	}
	w.tell(func() { p.HealthAt = time.Now().Add(-56 * time.Second) }) // with the age at its sending 61 s
	if h := show().Health; h.Class != api.HealthUnknown || h.Fresh || h.Sample == nil || len(h.Faults) != 1 {
		t.Errorf("health of an old sample: %+v", h)
	}
	w.tell(func() { p.Connected, p.Health = false, nil })
	if r := show(); r.Slots.Offered != 0 || r.Slots.Effective != 0 || r.Slots.Base != 4 || r.Slots.Used != 1 || r.Health.AgeMS != nil || r.Health.Class != api.HealthUnknown {
		t.Errorf("not connected: %+v %+v", r.Slots, r.Health)
	}
	if h := get[api.HealthHistory](w, request{method: "GET", path: "/v1/runners/lead/health", role: fleet.RoleViewer}); len(h.Changes) != 1 || !h.Changes[0].On || len(h.Points) != 0 {
		t.Errorf("history: %+v", h)
	}
	w.must(&state.HoldRunner{ID: "r-lead", Hold: &fleet.Hold{}})
	w.must(&state.OpenCircuit{Scope: fleet.ScopeHost, Runner: "r-lead", Reason: "x"})
	if st := get[api.Status](w, request{method: "GET", path: "/v1/status", role: fleet.RoleViewer}); st.Held != 1 || st.Circuits != 1 || st.Runners != 1 || st.Online != 0 {
		t.Errorf("status: %+v", st)
	}
	as := get[api.Alerts](w, request{method: "GET", path: "/v1/alerts?runner=lead", role: fleet.RoleViewer})
	if len(as.Alerts) != 1 || as.Alerts[0].Kind != "low_disk" || as.Alerts[0].Name != "lead" {
		t.Errorf("alerts: %+v", as)
	}
	w.refuses(request{method: "GET", path: "/v1/alerts?runner=nobody", role: fleet.RoleViewer}, 404, fleet.NotFound)
	w.refuses(request{method: "GET", path: "/v1/alerts?limit=1001", role: fleet.RoleViewer}, 400, fleet.BadRequest)
}

func TestHealthHistory(t *testing.T) {
	free := int64(7)
	asked := time.Duration(0)
	w := newWorld(t, func(c *Config) {
		c.HealthHistory = func(r fleet.RunnerID, window time.Duration) []api.HealthPoint {
			if asked = window; r != "r-lead" {
				t.Errorf("asked for %s", r)
			}
			zone := time.FixedZone("far east", 9*3600)
			return []api.HealthPoint{{At: time.Unix(1, 0).In(zone), Free: &free}, {At: time.Unix(200, 0), Gap: true}}
		}
	})
	w.enrolled("lead")
	path := "/v1/runners/lead/health"
	for query, want := range map[string]time.Duration{"": time.Hour, "?window=1h": time.Hour, "?window=24h": 24 * time.Hour} {
		h := get[api.HealthHistory](w, request{method: "GET", path: path + query, role: fleet.RoleViewer})
		if asked != want || len(h.Points) != 2 || h.Points[0].At.Location() != time.UTC || *h.Points[0].Free != 7 || !h.Points[1].Gap || h.Points[1].Free != nil || h.Name != "lead" {
			t.Errorf("%q: asked for %s, got %+v", query, asked, h)
		}
	}
	if p := w.refuses(request{method: "GET", path: path + "?window=2h", role: fleet.RoleViewer}, 400, fleet.BadRequest); !strings.Contains(p.Detail, "neither 1h nor 24h") {
		t.Errorf("the refusal says %q", p.Detail)
	}
	w.refuses(request{method: "GET", path: "/v1/runners/nobody/health", role: fleet.RoleViewer}, 404, fleet.NotFound)
}

func TestHoldsAndSlots(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	act := func(verb string, body any) api.Runner {
		t.Helper()
		return get[api.Runner](w, request{method: "POST", path: "/v1/runners/lead/" + verb, role: fleet.RoleAdmin, body: body})
	}
	in := func(at *time.Time, d time.Duration) bool {
		return at != nil && time.Until(*at) > d-time.Minute && time.Until(*at) <= d
	}
	if h := act("cordon", api.Cordon{Reason: "backup", For: "2h"}).Hold; h == nil || h.Drain || h.Reason != "backup" || h.Actor != "t-admin" || !in(h.Until, 2*time.Hour) || h.Deadline != nil {
		t.Errorf("cordoned: %+v", h)
	}
	if h := act("drain", api.Drain{Deadline: "30m", Then: "cancel", For: "3h"}).Hold; h == nil || !h.Drain || !h.Cancel || !in(h.Deadline, 30*time.Minute) || !in(h.Until, 3*time.Hour) || h.Reason != "" {
		t.Errorf("drained: %+v", h)
	}
	if h := act("drain", nil).Hold; h == nil || !h.Drain || h.Cancel || h.Until != nil || h.Deadline != nil {
		t.Errorf("drained without an end: %+v", h)
	}
	if h := act("resume", nil).Hold; h != nil {
		t.Errorf("resumed: %+v", h)
	}
	act("resume", nil) // again is the same
	if r := act("slots", api.SetSlots{Automation: 3}); r.Slots.Automation != 3 {
		t.Errorf("slots: %+v", r.Slots)
	}
	if r := act("slots", `{"automation":0}`); r.Slots.Automation != 0 {
		t.Errorf("automation is off: %+v", r.Slots)
	}
	was := w.View().Meta().Index
	for name, c := range map[string]struct {
		verb string
		body any
		says string
	}{
		"slots beyond":            {"slots", api.SetSlots{Automation: 9}, "automation 9 is not from 0 to 8"},
		"slots below zero":        {"slots", api.SetSlots{Automation: -1}, "automation -1"},
		"slots of nothing":        {"slots", `{}`, "automation"},
		"slots of words":          {"slots", `{"automation":"all"}`, "automation"},
		"a cordon for a moment":   {"cordon", api.Cordon{For: "1s"}, `for "1s" is not a duration from 1m to 8760h`},
		"a cordon for ever":       {"cordon", api.Cordon{For: "9000h"}, "8760h"},
		"a cordon until tomorrow": {"cordon", api.Cordon{For: "tomorrow"}, "tomorrow"},
		"a reason of two lines":   {"cordon", api.Cordon{Reason: "a\nb"}, "line break"},
		"a drain that stops":      {"drain", api.Drain{Deadline: "1m", Then: "stop"}, "then"},
		"a then without deadline": {"drain", api.Drain{Then: "cancel"}, "add deadline"},
		"a deadline of a month":   {"drain", api.Drain{Deadline: "721h"}, "720h"},
		"an end before its end":   {"drain", api.Drain{Deadline: "2h", For: "1h"}, "before its deadline"},
		"an unknown field":        {"drain", `{"until":"noon"}`, "until"},
		"a drain of words":        {"drain", `{"deadline":5}`, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := w.refuses(request{method: "POST", path: "/v1/runners/lead/" + c.verb, role: fleet.RoleAdmin, body: c.body}, 400, fleet.BadRequest); !strings.Contains(p.Detail, c.says) {
				t.Errorf("the refusal says %q; want it to name %q", p.Detail, c.says)
			}
		})
	}
	w.refuses(request{method: "POST", path: "/v1/runners/lead/cordon", role: fleet.RoleAdmin, body: api.Cordon{Reason: strings.Repeat("ü", 201)}}, 413, fleet.TooLarge)
	if is := w.View().Meta().Index; is != was {
		t.Errorf("the refusals left entries %d to %d", was, is)
	}
	w.must(&state.UpdateRunner{ID: "r-lead", Facts: &fleet.RunnerFacts{Slots: 12}})
	if p := w.refuses(request{method: "POST", path: "/v1/runners/lead/slots", role: fleet.RoleAdmin, body: api.SetSlots{Automation: 5}}, 400, fleet.BadRequest); !strings.Contains(p.Detail, "at most 4 are left") {
		t.Errorf("more than 16 together: %q", p.Detail)
	}
	for verb, body := range map[string]any{"slots": api.SetSlots{}, "cordon": nil, "drain": nil, "resume": nil} {
		w.refuses(request{method: "POST", path: "/v1/runners/nobody/" + verb, role: fleet.RoleAdmin, body: body}, 404, fleet.NotFound)
	}
	w.refuses(request{method: "POST", path: "/v1/runners/lead/slots", role: fleet.RoleOperator, body: api.SetSlots{}}, 403, fleet.Forbidden)
	w.refuses(request{method: "POST", path: "/v1/runners/lead/uncordon", role: fleet.RoleAdmin}, 404, fleet.NotFound)
	if a := get[api.AuditRecords](w, request{method: "GET", path: "/v1/audit", role: fleet.RoleAdmin}).Records; len(a) == 0 || a[0].Actor != "t-admin" {
		t.Errorf("audit: %+v", a)
	}
}

func TestCircuits(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	feed := w.events("/v1/events", "")
	open := func(b api.OpenCircuit) api.Circuit {
		t.Helper()
		return get[api.Circuit](w, request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleOperator, body: b})
	}
	list := func(query string) []api.Circuit {
		return get[api.Circuits](w, request{method: "GET", path: "/v1/circuits" + query, role: fleet.RoleViewer}).Circuits
	}
	c := open(api.OpenCircuit{Scope: fleet.ScopeProvider, Provider: "openai", Runner: "lead", For: "1h", Reason: "too dear"})
	if c.State != fleet.CircuitOpen || c.Until == nil || c.Over != "openai on lead" || c.Text != "too dear" || c.Actor != "t-operator" || c.Key != fleet.CircuitKey(c.ID) {
		t.Errorf("opened: %+v", c)
	}
	if e := feed.want("circuit"); e.Circuit == nil || e.Circuit.ID != c.ID {
		t.Errorf("the feed says %+v", e.Event)
	}
	b := open(api.OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "gpt-5.2", Reason: "odd"})
	if b.State != fleet.CircuitBlocked || b.Over != "gpt-5.2 of openai" {
		t.Errorf("blocked: %+v", b)
	}
	if h := open(api.OpenCircuit{Scope: fleet.ScopeHost, Runner: "r-lead", Reason: "call"}); h.Over != "lead" {
		t.Errorf("of a host: %+v", h)
	}
	if got := list(""); len(got) != 3 {
		t.Errorf("listed: %+v", got)
	}
	if p := w.refuses(request{method: "POST", path: "/v1/circuits/" + b.Key + "/reset", role: fleet.RoleOperator}, 400, fleet.BadRequest); !strings.Contains(p.Detail, "name what was repaired") {
		t.Errorf("a blocked one: %q", p.Detail)
	}
	if r := get[api.Circuit](w, request{method: "POST", path: "/v1/circuits/" + b.Key + "/reset", role: fleet.RoleOperator, body: api.ResetCircuit{Repaired: "they mended it", Reason: "r"}}); r.State != fleet.CircuitClosed || r.Generation != 1 || r.Repaired != "they mended it" {
		t.Errorf("reset by its key: %+v", r)
	}
	if r := get[api.Circuit](w, request{method: "POST", path: "/v1/circuits/" + url.PathEscape(c.ID) + "/reset", role: fleet.RoleOperator}); r.State != fleet.CircuitClosed {
		t.Errorf("reset by its id: %+v", r)
	}
	if got := list(""); len(got) != 1 {
		t.Errorf("listed: %+v", got)
	}
	if got := list("?all=true"); len(got) != 3 {
		t.Errorf("listed with closed ones: %+v", got)
	}
	if a := get[api.AuditRecords](w, request{method: "GET", path: "/v1/audit", role: fleet.RoleAdmin}).Records; len(a) < 2 || a[1].Actor != "t-operator" || !strings.Contains(a[1].Detail, "they mended it") {
		t.Errorf("audit: %+v", a)
	}
	// What was repaired is the circuit as it was looked at, and not what came after that.
	open(api.OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "gpt-5.2", Reason: "odd again"})
	again := request{method: "POST", path: "/v1/circuits/" + b.Key + "/reset", role: fleet.RoleOperator, body: api.ResetCircuit{Repaired: "they mended it", Generation: &b.Generation}}
	if p := w.refuses(again, 409, fleet.Conflict); !strings.Contains(p.Detail, "its recovery generation is 1, not 0") {
		t.Errorf("repaired as it was before: %q", p.Detail)
	}
	if got := list(""); len(got) != 2 {
		t.Errorf("listed after the refusal: %+v", got)
	}
	again.body = `{"repaired":"and once more","recovery_generation":1}`
	if r := get[api.Circuit](w, again); r.State != fleet.CircuitClosed || r.Generation != 2 {
		t.Errorf("repaired as it is: %+v", r)
	}
	was := w.View().Meta().Index
	for name, c := range map[string]struct {
		body api.OpenCircuit
		says string
	}{
		"no scope":               {api.OpenCircuit{Reason: "x", Runner: "lead"}, "none of provider, model, host"},
		"no reason":              {api.OpenCircuit{Scope: "host", Runner: "lead"}, "the reason is missing"},
		"a host without runner":  {api.OpenCircuit{Scope: "host", Reason: "x"}, "scope host needs runner"},
		"a host with a model":    {api.OpenCircuit{Scope: "host", Runner: "lead", Model: "m", Reason: "x"}, "takes neither"},
		"no provider":            {api.OpenCircuit{Scope: "provider", Reason: "x"}, "scope provider needs provider"},
		"a provider and a model": {api.OpenCircuit{Scope: "provider", Provider: "openai", Model: "m", Reason: "x"}, "takes no model"},
		"a model of nobody":      {api.OpenCircuit{Scope: "model", Model: "m", Reason: "x"}, "needs provider and model"},
		"an odd provider":        {api.OpenCircuit{Scope: "provider", Provider: "a b", Reason: "x"}, `provider "a b" may`},
		"a provider misspelt":    {api.OpenCircuit{Scope: "provider", Provider: "opennai", Reason: "x"}, `asks a provider "opennai"; known are openai, anthropic, opencode, `},
		"a model of one":         {api.OpenCircuit{Scope: "model", Provider: "OpenAI", Model: "m", Reason: "x"}, `asks a provider "OpenAI"; known are openai, `},
		"a moment":               {api.OpenCircuit{Scope: "host", Runner: "lead", Reason: "x", For: "1s"}, "from 1m to 720h"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := w.refuses(request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleOperator, body: c.body}, 400, fleet.BadRequest); !strings.Contains(p.Detail, c.says) {
				t.Errorf("the refusal says %q; want it to name %q", p.Detail, c.says)
			}
		})
	}
	w.refuses(request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleOperator, body: api.OpenCircuit{Scope: "host", Runner: "nobody", Reason: "x"}}, 404, fleet.NotFound)
	w.refuses(request{method: "POST", path: "/v1/circuits/0123456789/reset", role: fleet.RoleOperator}, 404, fleet.NotFound)
	if is := w.View().Meta().Index; is != was {
		t.Errorf("the refusals left entries %d to %d", was, is)
	}
}

// A provider that this release does not know is known by whoever has to do with it.
func TestProvidersOfCircuits(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	w.must(&state.UpdateRunner{ID: "r-lead", Facts: &fleet.RunnerFacts{Version: "1", Slots: 4, Harnesses: []fleet.HarnessInfo{{Name: "opencode", Account: "home=a", Models: []string{"ollama/q"}}}}})
	w.must(&state.OpenCircuit{Scope: fleet.ScopeProvider, Provider: "closet", Reason: "x"})
	get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Prompt: "x", Harness: "codex", Fallbacks: []fleet.Choice{{Harness: "opencode", Model: "cellar/q"}}}})
	open := func(provider string) request {
		return request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleOperator, body: api.OpenCircuit{Scope: fleet.ScopeProvider, Provider: provider, Reason: "x"}}
	}
	p := w.refuses(open("attic"), 400, fleet.BadRequest)
	if !strings.HasSuffix(p.Detail, "xai, cellar, closet, home, ollama") {
		t.Errorf("known is what %q names", p.Detail)
	}
	for _, name := range []string{"openai", "xai", "home", "ollama", "closet", "cellar"} {
		if c := get[api.Circuit](w, open(name)); c.Over != name {
			t.Errorf("opened over %s: %+v", name, c)
		}
	}
}

func TestBudgets(t *testing.T) {
	w := newWorld(t)
	put := func(origin string, b any) request {
		return request{method: "PUT", path: "/v1/budgets/" + origin, role: fleet.RoleAdmin, body: b}
	}
	b := get[api.Budget](w, put("automation:nightly", api.SetBudget{MaxRuns: 5, MaxTokens: 1e6, MaxWall: "6h", Window: "24h"}))
	if b.Origin != "automation:nightly" || b.MaxRuns != 5 || b.MaxTokens != 1e6 || b.MaxWall != "6h0m0s" || b.Window != "24h0m0s" || b.SetBy != "t-admin" || b.Begun != nil || b.Spent.Runs != 0 {
		t.Errorf("set: %+v", b)
	}
	w.enrolled("lead")
	id := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}, Automation: "nightly"}}).ID
	f := w.running(id, "r-lead")
	list := func() []api.Budget {
		return get[api.Budgets](w, request{method: "GET", path: "/v1/budgets", role: fleet.RoleViewer}).Budgets
	}
	if bs := list(); len(bs) != 1 || bs[0].Held.Runs != 1 || bs[0].Held.Wall != "2h0m0s" || bs[0].Begun == nil || bs[0].Ends == nil || bs[0].Ends.Sub(*bs[0].Begun) != 24*time.Hour {
		t.Errorf("while it runs: %+v", bs)
	}
	w.finished(id, f, 0, true)
	if bs := list(); len(bs) != 1 || bs[0].Held.Runs != 0 || bs[0].Spent.Runs != 1 {
		t.Errorf("afterwards: %+v", bs)
	}
	for name, c := range map[string]struct {
		origin string
		body   any
		says   string
	}{
		"a budget of nobody":    {"people", api.SetBudget{MaxRuns: 1}, "none of manual, automation and automation:NAME"},
		"an automation unnamed": {"automation:", api.SetBudget{MaxRuns: 1}, "automation:NAME"},
		"an odd automation":     {"automation:a%20b", api.SetBudget{MaxRuns: 1}, "automation:NAME"},
		"no bound":              {"manual", api.SetBudget{Window: "1h"}, "bounds something"},
		"runs below zero":       {"manual", api.SetBudget{MaxRuns: -1}, "max_runs -1"},
		"tokens beyond measure": {"manual", api.SetBudget{MaxTokens: 1e13}, "max_tokens"},
		"a moment":              {"manual", api.SetBudget{MaxWall: "1s"}, `max_wall "1s" is not a duration from 1m to 87600h`},
		"a window of ages":      {"manual", api.SetBudget{MaxRuns: 1, Window: "9000h"}, "window"},
		"an unknown bound":      {"manual", `{"max_euros":5}`, "max_euros"},
		"an exponent":           {"manual", `{"max_runs":1e3}`, "max_runs: a whole number is wanted, and one written with a point or an exponent was given"},
		"a needless point":      {"manual", `{"max_runs":1.0}`, "max_runs: a whole number is wanted, and one written with a point or an exponent was given"},
		"a number too large":    {"manual", `{"max_runs":99999999999999999999}`, "max_runs: a whole number is wanted, and one that is too large or too small was given"},
		"a number beyond all":   {"manual", `{"max_runs":1e999}`, "body: a number is wanted, and one that is too large or too small was given"},
		"a fraction":            {"manual", `{"max_runs":1.5}`, "body.max_runs: a whole number is wanted, and a number with a fraction was given"},
		"text for a number":     {"manual", `{"max_runs":"3"}`, "body.max_runs: a whole number is wanted, and text was given"},
		"a list for a number":   {"manual", `{"max_runs":[3]}`, "body.max_runs: a whole number is wanted, and a list was given"},
		"an object for a text":  {"manual", `{"max_wall":{}}`, "body.max_wall: text is wanted, and an object was given"},
		"a number for a text":   {"manual", `{"max_wall":3}`, "body.max_wall: text is wanted, and a number was given"},
		"true for a number":     {"manual", `{"max_runs":true}`, "body.max_runs: a whole number is wanted, and true was given"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := w.refuses(put(c.origin, c.body), 400, fleet.BadRequest); !strings.Contains(p.Detail, c.says) {
				t.Errorf("the refusal says %q; want it to name %q", p.Detail, c.says)
			}
		})
	}
	remove := request{method: "DELETE", path: "/v1/budgets/automation:nightly", role: fleet.RoleAdmin}
	if a := w.do(remove); a.status != 204 || len(list()) != 0 {
		t.Errorf("removed: %d %s, left %+v", a.status, a.body, list())
	}
	w.refuses(remove, 404, fleet.NotFound)
}

func TestSettingsOfPlacement(t *testing.T) {
	w := newWorld(t)
	put := func(name, value string) request {
		return request{method: "PUT", path: "/v1/settings/" + name, role: fleet.RoleAdmin, body: map[string]string{"value": value}}
	}
	for name, value := range map[string]string{
		"floor_select": "5GiB", "floor_start": "0", "retry_pause": "1s", "model_priority": "codex:gpt-5.2, claude:opus,opencode", "alert_webhook": "https://hooks.example.com/T0/secret?x=1",
	} {
		if a := w.do(put(name, value)); a.status != 204 {
			t.Errorf("%s = %s: %d %s", name, value, a.status, a.body)
		}
	}
	set := get[api.Status](w, request{method: "GET", path: "/v1/status", role: fleet.RoleViewer}).Settings
	if set["floor_select"] != "5GiB" || set["alert_webhook"] != "https://hooks.example.com/…" {
		t.Errorf("a viewer sees %v", set)
	}
	for _, c := range []struct{ name, value, says string }{
		{"floor_select", "much", "is not a size"}, {"floor_start", "-1", "is not a size"}, {"floor_start", "9999TiB", "at most 1 PiB"},
		{"retry_pause", "10ms", "from 1s to 1h"}, {"retry_pause", "2h", "from 1s to 1h"}, {"retry_pause", "soon", "is not a duration"},
		{"model_priority", "codex,,claude", "neither HARNESS nor HARNESS:MODEL"}, {"model_priority", "codecs,claude", `no harness "codecs"`}, {"model_priority", "claude,exec", "no agent's"}, {"model_priority", "codex,codex", "twice"},
		{"alert_webhook", "example.com", "is not a URL"}, {"alert_webhook", "ftp://x.example", "is not a URL"}, {"alert_webhook", "https://u:p@x.example/", "credentials"}, {"alert_webhook", "https://x.example/#a", "fragment"},
		{"alert_webhook", "https://x.example/" + strings.Repeat("a", 2048), "at most 2048"},
		{"release_key", "RWQ", "is no minisign public key"},
	} {
		if p := w.refuses(put(c.name, c.value), 400, fleet.BadRequest); !strings.Contains(p.Detail, c.says) || !strings.HasPrefix(p.Detail, c.name) && !strings.Contains(p.Detail, "harness") {
			t.Errorf("%s = %.40s: %q; want it to name %q", c.name, c.value, p.Detail, c.says)
		}
	}
	if a := w.do(put("alert_webhook", "")); a.status != 204 {
		t.Errorf("removed: %d %s", a.status, a.body)
	}
}

func TestFallbacksComeFromTheJobOrTheHub(t *testing.T) {
	w := newWorld(t)
	w.must(&state.Set{Name: "model_priority", Value: "codex:gpt-5.2,claude:opus,claude,opencode"})
	claude, opencode := fleet.Choice{Harness: "claude"}, fleet.Choice{Harness: "opencode"}
	opus := fleet.Choice{Harness: "claude", Model: "opus"}
	for name, c := range map[string]struct {
		in   api.Submit
		want []fleet.Choice
	}{
		"from its own place":     {api.Submit{Harness: "claude", Model: "opus"}, []fleet.Choice{claude, opencode}},
		"without a model":        {api.Submit{Harness: "codex"}, []fleet.Choice{opus, claude, opencode}},
		"with a model elsewhere": {api.Submit{Harness: "codex", Model: "other"}, nil},
		"at the end":             {api.Submit{Harness: "opencode"}, nil},
		"its own list":           {api.Submit{Harness: "codex", Fallbacks: []fleet.Choice{opencode}}, []fleet.Choice{opencode}},
		"none":                   {api.Submit{Harness: "codex", NoFallback: true}, nil},
	} {
		c.in.Kind, c.in.Prompt = fleet.KindAgent, "x"
		j := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: c.in})
		if diff := cmp.Diff(c.want, j.Spec.Fallbacks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if want := (fleet.Choice{Harness: c.in.Harness, Model: c.in.Model}); j.Requested != want || j.Effective != want || j.Choice != 0 {
			t.Errorf("%s: requested %v, effective %v, choice %d", name, j.Requested, j.Effective, j.Choice)
		}
	}
}

func TestJobShowsHowItCameForward(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	none := 2
	id := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{
		Kind: fleet.KindAgent, Prompt: "x", Harness: "codex", Model: "gpt-5.2", Retries: &none, Priority: 3, MaxTokens: 1000,
		Needs: &fleet.Needs{OS: "linux", Disk: 1 << 30}, Fallbacks: []fleet.Choice{{Harness: "claude", Model: "opus"}},
	}}).ID
	f := w.must(&state.AssignJob{Job: id, Runner: "r-lead", Turn: 1, Rules: 1, Base: 4, Automation: 1}).Fence
	w.must(&state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace, Rules: 1})
	w.must(&state.FinishAttempt{Job: id, Fence: f, Rules: 1, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Class: fleet.ClassQuotaExhausted, Detail: "usage limit", Model: "gpt-5.2-x", RetryAfter: time.Hour,
		StartedAt: time.Now().Add(-time.Minute), FinishedAt: time.Now(), Verdict: &fleet.Verdict{Decision: fleet.Reject, By: "gate"}})
	j := get[api.Job](w, request{method: "GET", path: "/v1/jobs/" + string(id), role: fleet.RoleViewer})
	if j.State != fleet.Queued || j.Choice != 1 || j.Harness != "claude" || j.Model != "opus" || j.Requested.String() != "codex:gpt-5.2" || j.Effective.String() != "claude:opus" {
		t.Errorf("job: %s, choice %d, %s:%s, requested %s, effective %s", j.State, j.Choice, j.Harness, j.Model, j.Requested, j.Effective)
	}
	if len(j.Transitions) != 1 || j.Transitions[0].Class != fleet.ClassQuotaExhausted || j.Transitions[0].To.String() != "claude:opus" || j.Transitions[0].At.Location() != time.UTC {
		t.Errorf("transitions: %+v", j.Transitions)
	}
	if j.Budget != (api.Executions{Used: 1, Of: 3}) {
		t.Errorf("budget: %+v", j.Budget)
	}
	if len(j.Attempts) != 1 {
		t.Fatalf("attempts: %+v", j.Attempts)
	}
	if a := j.Attempts[0]; a.Runner != "lead" || a.Harness != "codex" || a.Provider != "openai" || a.Requested != "gpt-5.2" || a.Effective != "gpt-5.2" || a.Reported != "gpt-5.2-x" || a.Class != fleet.ClassQuotaExhausted || a.RetryAfter == nil || !a.Counts {
		t.Errorf("attempt: %+v", a)
	}
	cs := get[api.Circuits](w, request{method: "GET", path: "/v1/circuits", role: fleet.RoleViewer}).Circuits
	if len(cs) != 1 || cs[0].Class != fleet.CircuitQuota || cs[0].Over != "openai on lead" {
		t.Errorf("circuits: %+v", cs)
	}
	js := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs", role: fleet.RoleViewer}).Jobs
	if len(js) != 1 || js[0].Harness != "claude" || len(js[0].Attempts) != 0 || len(js[0].Turns) != 0 {
		t.Errorf("in the list: %+v", js)
	}
	e := get[api.Explanation](w, request{method: "GET", path: "/v1/jobs/" + string(id) + "/explain", role: fleet.RoleViewer})
	if len(e.Runners) != 1 || e.Runners[0].Runner != "lead" || e.Runners[0].Code == "" || e.Runners[0].Detail == "" || e.Index != w.View().Meta().Index || e.From != "n-test" || e.At.IsZero() {
		t.Errorf("explanation: %+v", e)
	}
}

// TestModelCircuitNamesItsRunners: a model that one runner was refused is kept from that
// one alone, and whoever reads the list sees it.
func TestModelCircuitNamesItsRunners(t *testing.T) {
	w := newWorld(t)
	over := func(runner string) string {
		w.enrolled(runner)
		none := 0
		id := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Prompt: "x", Harness: "codex", Model: "m", Retries: &none}}).ID
		f := w.must(&state.AssignJob{Job: id, Runner: fleet.RunnerID("r-" + runner), Turn: 1, Rules: 1, Base: 4}).Fence
		w.must(&state.AcceptAttempt{Job: id, Fence: f, Permissions: fleet.PermWorkspace, Rules: 1})
		w.must(&state.FinishAttempt{Job: id, Fence: f, Rules: 1, Exit: fleet.Exit{Code: 1, Reason: "exited"}, Class: fleet.ClassModelUnavailable, StartedAt: time.Now(), FinishedAt: time.Now(), Verdict: &fleet.Verdict{Decision: fleet.Reject, By: "gate"}})
		cs := get[api.Circuits](w, request{method: "GET", path: "/v1/circuits", role: fleet.RoleViewer}).Circuits
		if len(cs) != 1 {
			t.Fatalf("circuits: %+v", cs)
		}
		return cs[0].Over
	}
	if got := over("lead"); got != "m of openai on lead" {
		t.Errorf("refused to one: %q", got)
	}
	if got := over("iron"); got != "m of openai" {
		t.Errorf("refused to two: %q", got)
	}
}
