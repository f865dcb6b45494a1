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

func TestJobsAreFound(t *testing.T) {
	w := newWorld(t)
	w.must(&state.CreateToken{Token: fleet.Token{ID: "t-ida", Name: "ida", Role: fleet.RoleAdmin, Hash: HashSecret("ida")}})
	names := map[fleet.JobID]string{}
	add := func(name, actor string, spec fleet.Spec) {
		spec.OnLost = "hold"
		if spec.Origin.Kind == "" {
			spec.Origin.Kind = fleet.Manual
		}
		id := fleet.JobID(fmt.Sprintf("01arz3ndektsv4rrffq69g5fa%d", len(names)))
		w.mustAs(actor, &state.SubmitJob{ID: id, Spec: spec})
		names[id] = name
	}
	add("make", "t-ida", fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"make", "-j", "TEST"}})
	add("codex", "t-ida", fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Model: "big", Repo: &fleet.Repo{URL: "https://git.example/Tools"}})
	add("claude", "t-operator", fleet.Spec{Kind: fleet.KindAgent, Harness: "claude", Model: "big", Require: map[string]string{"gpu": "yes"}})
	add("nightly", "t-operator", fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"true"}, Origin: fleet.Origin{Kind: fleet.Automation, Name: "nightly"}})
	w.must(&state.CancelJob{Job: "01arz3ndektsv4rrffq69g5fa0"})
	list := func(query string) (found []string, next fleet.JobID) {
		t.Helper()
		got := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs?" + query, role: fleet.RoleViewer})
		for _, j := range got.Jobs {
			found = append(found, names[j.ID])
		}
		return found, got.Next
	}
	for query, want := range map[string]string{
		"":                           "nightly claude codex make",
		"order=oldest":               "make codex claude nightly",
		"state=queued,cancelled":     "nightly claude codex make",
		"state=cancelled":            "make",
		"active=true":                "nightly claude codex",
		"kind=agent":                 "claude codex",
		"harness=codex":              "codex",
		"model=big&order=oldest":     "codex claude",
		"actor=ida":                  "codex make",
		"actor=t-operator":           "nightly claude",
		"origin=nightly":             "nightly",
		"origin=automation":          "nightly",
		"origin=manual":              "claude codex make",
		"q=tools":                    "codex",
		"q=J%20test":                 "make",
		"q=gpu":                      "claude",
		"q=q69g5fa3":                 "nightly",
		"q=big&kind=agent&actor=ida": "codex",
		"q=nowhere":                  "",
	} {
		if got, _ := list(query); strings.Join(got, " ") != want {
			t.Errorf("%s: %v; want %s", query, got, want)
		}
	}
	for order, at := range map[string]string{"newest": "before", "oldest": "after"} {
		all, _ := list("order=" + order)
		var paged []string
		for next := fleet.JobID(""); ; {
			var page []string
			page, next = list(fmt.Sprintf("limit=1&order=%s&%s=%s", order, at, next))
			if paged = append(paged, page...); next == "" {
				break
			}
		}
		if !cmp.Equal(paged, all) {
			t.Errorf("%s first, page by page: %v; want %v", order, paged, all)
		}
	}
	for _, bad := range []string{"state=queued,done", "order=oldest&before=01arz3ndektsv4rrffq69g5fa0", "after=01arz3ndektsv4rrffq69g5fa0", "after=x&order=oldest", "order=best"} {
		w.refuses(request{method: "GET", path: "/v1/jobs?" + bad, role: fleet.RoleViewer}, 400, fleet.BadRequest)
	}
}

func TestRunnersAreFoundAndSorted(t *testing.T) {
	beat := time.Now()
	sample := func(free int64, load float64) *fleet.Health {
		return &fleet.Health{Workspace: fleet.Volume{Known: true, Free: free}, CPU: &fleet.CPU{Load: load}}
	}
	w := newWorld(t, func(c *Config) {
		c.Presence = func() []fleet.Presence {
			return []fleet.Presence{
				{Runner: "r-a", Connected: true, LastBeat: beat, Interval: time.Hour, Health: sample(5, 0.5), HealthAt: beat, Address: "192.0.2.1:1"},
				{Runner: "r-b", Connected: true, LastBeat: beat.Add(-time.Minute), Interval: time.Second, Health: sample(9, 0.1), HealthAt: beat},
			}
		}
	})
	for _, n := range []string{"c", "a", "b"} {
		w.enrolled(n)
	}
	get[api.Runner](w, request{method: "POST", path: "/v1/runners/b/cordon", role: fleet.RoleAdmin, body: api.Cordon{}})
	list := func(query string) (string, int) {
		t.Helper()
		got, names := get[api.Runners](w, request{method: "GET", path: "/v1/runners?" + query, role: fleet.RoleViewer}), []string{}
		for _, r := range got.Runners {
			names = append(names, r.Name)
		}
		return strings.Join(names, " "), got.Total
	}
	for query, want := range map[string]string{
		"": "a b c", "sort=-id": "c b a", "sort=-name": "c b a", "sort=free": "a b c", "sort=-free": "b a c", "sort=load": "b a c", "sort=memory": "a b c",
		"sort=heartbeat": "b a c", "sort=-heartbeat": "a b c", "sort=state": "a b c", "sort=-state": "c b a",
		"state=online": "a", "state=stale,offline": "b c", "held=true": "b", "health=ok": "a b", "health=unknown": "c", "harness=codex": "a b c", "harness=claude": "", "ring=canary": "",
		"q=192.0.2": "a", "q=R-B": "b", "q=codex": "a b c", "q=stale": "b",
		"limit=2": "a b", "limit=2&offset=2": "c", "offset=9": "", "sort=-name&limit=1": "c",
	} {
		if got, _ := list(query); got != want {
			t.Errorf("%s: %q; want %q", query, got, want)
		}
	}
	if _, total := list("limit=1&offset=1"); total != 3 {
		t.Errorf("%d in all; want 3", total)
	}
	w.refuses(request{method: "GET", path: "/v1/runners?state=up", role: fleet.RoleViewer}, 400, fleet.BadRequest)
	w.refuses(request{method: "GET", path: "/v1/runners?sort=size", role: fleet.RoleViewer}, 400, fleet.BadRequest)
}

// A job has a line that people know it by, and who may see the job may read its prompt.
func TestTitlesAndPrompts(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	submit := func(b api.Submit) api.Job {
		t.Helper()
		return get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: b})
	}
	prompt := "\n  Mend the \"build\" für uns  \nand say why"
	agent := submit(api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: prompt})
	for got, want := range map[string]string{
		agent.Title: "Mend the \"build\" für uns",
		submit(api.Submit{Kind: fleet.KindExec, Argv: []string{"make", "all"}}).Title:                                "make all",
		submit(api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: "use sk-abcdefghijklmnopqrstuv"}).Title:   "",
		submit(api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: strings.Repeat("long ", 100)}).Title[:20]: "long long long long ",
	} {
		if got != want {
			t.Errorf("title %q; want %q", got, want)
		}
	}
	if found := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs?q=mend+the", role: fleet.RoleViewer}).Jobs; len(found) != 1 || found[0].ID != agent.ID {
		t.Errorf("found by its title: %+v", found)
	}
	a := w.do(request{method: "GET", path: "/v1/jobs/" + string(agent.ID) + "/prompt?turn=1", role: fleet.RoleViewer})
	if a.status != 200 || string(a.body) != prompt || a.header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("prompt: %d %q %v", a.status, a.body, a.header)
	}
	w.refuses(request{method: "GET", path: "/v1/jobs/" + string(agent.ID) + "/prompt?turn=2", role: fleet.RoleViewer}, 404, fleet.NotFound)
	w.refuses(request{method: "GET", path: "/v1/jobs/" + string(w.submitted("true")) + "/prompt", role: fleet.RoleViewer}, 404, fleet.NotFound)
}
