package web

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// promised is what a job shows at all times.
var promised = []string{"id", "kind", "state", "reason", "created_at", "started_at", "finished_at", "runner", "attempt", "fence",
	"harness", "model", "repo", "base_commit", "head_commit", "branch", "exit_code", "failure_class", "verdict", "evidence", "usage", "log", "follow_ups_queued"}

var (
	aTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
	snake = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	lists = map[string]bool{"reasons": true, "turns": true, "jobs": true, "attempts": true, "runners": true, "harnesses": true, "artifacts": true, "tokens": true, "records": true, "tips": true, "commits": true}
)

// checkShape looks at every key and value of an answer.
func checkShape(t *testing.T, at string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if !snake.MatchString(k) && !strings.HasSuffix(at, ".env") && !strings.HasSuffix(at, ".labels") && !strings.HasSuffix(at, ".require") {
				t.Errorf("%s: key %q is not snake_case", at, k)
			}
			if lists[k] && x == nil {
				t.Errorf("%s.%s is null where a list is promised", at, k)
			}
			checkShape(t, at+"."+k, x)
		}
	case []any:
		for i, x := range v {
			checkShape(t, fmt.Sprintf("%s[%d]", at, i), x)
		}
	case string:
		if aTime.MatchString(v) && !strings.HasSuffix(v, "Z") {
			t.Errorf("%s: time %s is not in UTC", at, v)
		}
	}
}

// golden compares an answer with a file, ids and times made alike.
func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`).ReplaceAllString(string(b), `"TIME"`)
	got = regexp.MustCompile(`"01[0-9a-z]{24}"`).ReplaceAllString(got, `"ID"`)
	got = regexp.MustCompile(`tugline/01[0-9a-z]{24}`).ReplaceAllString(got, `tugline/ID`) + "\n"
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestJobShape(t *testing.T) {
	w := newWorld(t)
	queued := w.do(request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{
		Kind: fleet.KindAgent, Harness: "codex", Prompt: "do it", Repo: &fleet.Repo{URL: "https://example.org/r.git"}}})
	golden(t, "job-queued.json", queued.body)

	r := w.enrolled("lead")
	id := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs", role: fleet.RoleViewer}).Jobs[0].ID
	f := w.running(id, r)
	w.write(id, f, out("hello\n"))
	w.must(&state.RecordFacts{Job: id, Fence: f, Facts: []state.Fact{{Kind: "started", Value: json.RawMessage(`"2026-01-02T03:04:05+09:00"`)}}})
	far := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 9*3600))
	w.must(&state.FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, StartedAt: far, FinishedAt: far, ResetAt: &far,
		Usage: &fleet.Usage{InputTokens: 7, OutputTokens: 3}, Output: 22, Model: "m-1", SessionID: "s-1",
		Evidence: &fleet.Evidence{Base: strings.Repeat("a", 40), Tip: strings.Repeat("b", 40), CommitCount: 1, Bundle: digestOf([]byte("b")), Descends: true},
		Verdict:  &fleet.Verdict{Decision: fleet.Accept, By: "gate"}})
	w.sealed(id, f)
	w.must(&state.GrantPush{Job: id, Fence: f, Remote: "https://example.org/r.git", Ref: "refs/heads/x", SHA: strings.Repeat("b", 40)})
	done := w.do(request{method: "GET", path: "/v1/jobs/" + string(id), role: fleet.RoleViewer})
	golden(t, "job-finished.json", done.body)

	for name, a := range map[string]answer{"queued": queued, "finished": done} {
		var m map[string]any
		if err := json.Unmarshal(a.body, &m); err != nil {
			t.Fatal(err)
		}
		for _, k := range promised {
			if _, ok := m[k]; !ok {
				t.Errorf("a %s job lacks %q", name, k)
			}
		}
		for k, want := range map[string][]string{"log": {"bytes", "sealed", "durable_bytes"}, "usage": {"input_tokens", "output_tokens"}} {
			for _, sub := range want {
				if _, ok := m[k].(map[string]any)[sub]; !ok {
					t.Errorf("a %s job lacks %s.%s", name, k, sub)
				}
			}
		}
		checkShape(t, "job", m)
	}
	for _, path := range []string{"/v1/jobs", "/v1/runners", "/v1/runners/lead", "/v1/tokens", "/v1/status", "/v1/audit",
		"/v1/jobs/" + string(id) + "/explain", "/v1/jobs/" + string(id) + "/artifacts", "/v1/repos/tips?key=x&runner=lead"} {
		checkShape(t, path, get[any](w, request{method: "GET", path: path, role: fleet.RoleAdmin}))
	}
	empty := newWorld(t)
	for _, path := range []string{"/v1/jobs", "/v1/runners", "/v1/tokens", "/v1/audit"} {
		checkShape(t, path, get[any](empty, request{method: "GET", path: path, role: fleet.RoleAdmin}))
	}
}

// TestKeysOfTheTypes looks at every type that the interface can show, also at
// fields that no test fills.
func TestKeysOfTheTypes(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(ty reflect.Type) {
		for ty.Kind() == reflect.Pointer || ty.Kind() == reflect.Slice || ty.Kind() == reflect.Map {
			ty = ty.Elem()
		}
		if ty.Kind() != reflect.Struct || seen[ty] || !strings.Contains(ty.PkgPath(), "tugline") || ty == reflect.TypeFor[fleet.Fence]() {
			return
		}
		seen[ty] = true
		for i := range ty.NumField() {
			f := ty.Field(i)
			if f.Anonymous { // its fields stand beside the others
				walk(f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !snake.MatchString(name) {
				t.Errorf("%s.%s has the key %q", ty, f.Name, name)
			}
			walk(f.Type)
		}
	}
	for _, ty := range []reflect.Type{reflect.TypeFor[api.Job](), reflect.TypeFor[api.Runner](), reflect.TypeFor[api.Submit](), reflect.TypeFor[api.Status](),
		reflect.TypeFor[api.Event](), reflect.TypeFor[api.Problem](), reflect.TypeFor[api.Ticket](), reflect.TypeFor[api.Token](), reflect.TypeFor[api.Explanation](),
		reflect.TypeFor[api.Artifacts](), reflect.TypeFor[api.AuditRecords](), reflect.TypeFor[api.FollowUp](), reflect.TypeFor[api.TicketRequest]()} {
		walk(ty)
	}
	if len(seen) < 20 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

func TestListPagesAndFilters(t *testing.T) {
	w := newWorld(t)
	r := w.enrolled("lead")
	var ids []fleet.JobID
	for range 7 {
		ids = append(ids, w.submitted("true"))
	}
	w.running(ids[2], r)
	get[api.Job](w, request{method: "POST", path: "/v1/jobs/" + string(ids[4]) + "/cancel", role: fleet.RoleOperator})

	list := func(query string) (out []fleet.JobID, next fleet.JobID) {
		t.Helper()
		p := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs?" + query, role: fleet.RoleViewer})
		for _, j := range p.Jobs {
			out = append(out, j.ID)
		}
		return out, p.Next
	}
	var paged []fleet.JobID
	pages := 0
	for before := fleet.JobID(""); ; {
		page, next := list("limit=3&before=" + string(before))
		paged = append(paged, page...)
		if pages++; next == "" || pages > 9 {
			break
		}
		before = next
	}
	var want []fleet.JobID
	for i := range ids {
		want = append(want, ids[len(ids)-1-i])
	}
	if diff := cmp.Diff(want, paged); diff != "" {
		t.Errorf("pages of three (-want +got):\n%s", diff)
	}
	for query, want := range map[string][]fleet.JobID{
		"state=running":               {ids[2]},
		"state=cancelled":             {ids[4]},
		"runner=lead":                 {ids[2]},
		"runner=" + string(r):         {ids[2]},
		"state=running&active=true":   {ids[2]},
		"state=cancelled&active=true": nil,
		"active=true&limit=2":         {ids[6], ids[5]},
	} {
		if got, _ := list(query); !cmp.Equal(got, want) {
			t.Errorf("%s: %v; want %v", query, got, want)
		}
	}
	if p := w.refuses(request{method: "GET", path: "/v1/jobs?runner=nobody", role: fleet.RoleViewer}, 404, fleet.NotFound); !strings.Contains(p.Detail, `no runner "nobody"`) {
		t.Errorf("a runner that is none: %q", p.Detail)
	}
	// A filter that finds little still tells where the rest begins.
	if got, next := list("state=running&limit=1"); len(got) != 1 || next != ids[2] {
		t.Errorf("one running job: %v, next %s; want next %s", got, next, ids[2])
	}
	// A prefix of an id names a job as long as it fits no other.
	if j := get[api.Job](w, request{method: "GET", path: "/v1/jobs/" + strings.ToUpper(string(ids[0])), role: fleet.RoleViewer}); j.ID != ids[0] {
		t.Errorf("an id in capitals gave %s", j.ID)
	}
	if p := w.refuses(request{method: "GET", path: "/v1/jobs/" + string(ids[0][:4]), role: fleet.RoleViewer}, 404, fleet.NotFound); !strings.Contains(p.Detail, "several") {
		t.Errorf("an ambiguous prefix: %q", p.Detail)
	}
}

func TestRunnerActions(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	act := func(verb string) api.Runner {
		t.Helper()
		return get[api.Runner](w, request{method: "POST", path: "/v1/runners/lead/" + verb, role: fleet.RoleAdmin})
	}
	if r := act("cordon"); r.Hold == nil || r.Hold.Drain || r.State != "offline" || r.Slots.Base != 4 {
		t.Errorf("cordoned: %+v", r)
	}
	if r := act("resume"); r.Hold != nil {
		t.Error("still cordoned")
	}
	conflict := "two machines"
	w.must(&state.FlagRunner{ID: "r-lead", Conflict: &conflict})
	if r := get[api.Runner](w, request{method: "GET", path: "/v1/runners/lead", role: fleet.RoleViewer}); r.State != "refused" {
		t.Errorf("a runner in conflict is %s", r.State)
	}
	if r := act("trust"); r.Conflict != "" {
		t.Errorf("trusted, and yet %q", r.Conflict)
	}
	if r := act("revoke"); r.State != "revoked" {
		t.Errorf("a revoked runner is %s", r.State)
	}
	id := w.submitted("true")
	w.running(id, "r-lead")
	w.refuses(request{method: "DELETE", path: "/v1/runners/lead", role: fleet.RoleAdmin}, 409, fleet.Conflict)
	if a := w.do(request{method: "DELETE", path: "/v1/runners/lead?abandon_jobs=true", role: fleet.RoleAdmin}); a.status != 204 {
		t.Errorf("remove: %d %s", a.status, a.body)
	}
	w.refuses(request{method: "GET", path: "/v1/runners/lead", role: fleet.RoleViewer}, 404, fleet.NotFound)
}

// TestCancelling sees that people are told where a cancel stands while the runner
// has not confirmed it.
func TestCancelling(t *testing.T) {
	var p fleet.Presence
	w := newWorld(t, func(c *Config) { c.Presence = func() []fleet.Presence { return []fleet.Presence{p} } })
	r := w.enrolled("lead")
	id := w.submitted("sleep", "9")
	w.running(id, r)
	path := "/v1/jobs/" + string(id)
	for _, c := range []struct {
		p    fleet.Presence
		want string
	}{
		{fleet.Presence{Runner: r, Connected: true, LastBeat: time.Now()}, "cancelling (on lead)"},
		{fleet.Presence{Runner: r, LastBeat: time.Now().Add(-200 * time.Second)}, "cancelling (runner offline 3 m)"},
		{fleet.Presence{Runner: "r-else"}, "cancelling (runner offline)"},
	} {
		p = c.p
		j := get[api.Job](w, request{method: "POST", path: path + "/cancel", role: fleet.RoleOperator})
		if j.Why != c.want || j.State != fleet.Running || j.CancelAt == nil {
			t.Errorf("the job is %s, why %q; want %q", j.State, j.Why, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	w := newWorld(t)
	set := func(v string) {
		if a := w.do(request{method: "PUT", path: "/v1/settings/default_harness", role: fleet.RoleAdmin, body: map[string]string{"value": v}}); a.status != 204 {
			t.Fatalf("set %q: %d %s", v, a.status, a.body)
		}
	}
	agent := request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Prompt: "x"}}
	set("codex")
	if j := get[api.Job](w, agent); j.Harness != "codex" {
		t.Errorf("default harness: %q", j.Harness)
	}
	set("")
	w.enrolled("lead")
	if p := w.refuses(agent, 400, fleet.BadRequest); !strings.Contains(p.Detail, "codex") {
		t.Errorf("%q does not list the eligible harnesses", p.Detail)
	}
}

// TestListLooksOnce: whatever a list shows, what runners are connected is gathered once.
func TestListLooksOnce(t *testing.T) {
	asked := 0
	w := newWorld(t, func(c *Config) {
		c.Presence = func() []fleet.Presence { asked++; return []fleet.Presence{{Runner: "r-lead", LastBeat: time.Now()}} }
	})
	r := w.enrolled("lead")
	for range 3 {
		w.submitted("true")
	}
	id := w.submitted("sleep", "9")
	w.running(id, r)
	get[api.Job](w, request{method: "POST", path: "/v1/jobs/" + string(id) + "/cancel", role: fleet.RoleOperator})
	asked = 0
	l := get[api.Jobs](w, request{method: "GET", path: "/v1/jobs", role: fleet.RoleViewer})
	if asked != 1 {
		t.Errorf("a list of %d jobs asked %d times who is connected, want once", len(l.Jobs), asked)
	}
	for _, j := range l.Jobs {
		if j.Why == "" {
			t.Errorf("job %s is %s, and it is not said why", j.ID, j.State)
		}
	}
}
