package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func sampleRunners() []api.Runner {
	age := int64(4000)
	old := int64(240_000)
	return []api.Runner{
		{ID: "r-1", Name: "studio", State: "online", LastBeat: before(2 * time.Second), Transport: "ws",
			Slots: api.Slots{Base: 4, Offered: 2, Automation: 2, Effective: 1, Used: 2, UsedAutomation: 1, LimitedBy: []string{"on battery: 2 of 4 slots", "memory for 1 automation slot: 7.6 GiB available"}},
			Hold:  &api.Hold{Hold: fleet.Hold{Drain: true, Since: *before(5 * time.Minute), Until: before(-time.Hour), Deadline: before(-30 * time.Minute), Cancel: true, Reason: "moves house", Actor: "t-1"}},
			Health: api.RunnerHealth{Class: api.HealthFaulty, AgeMS: &age, Fresh: true, Faults: []fleet.Fault{{Kind: fleet.FaultDisk, Since: *before(3 * time.Minute), Detail: "8.2 GiB free at /data, below 10 GiB"}},
				Sample: &fleet.Health{
					Workspace: fleet.Volume{Path: "/data/w", Known: true, Free: 8<<30 + 200<<20, Total: 460 << 30, Inodes: 100, Nodes: 1000000},
					Cache:     fleet.Volume{Path: "/cache", Known: false, Detail: "it did not answer in 2s"},
					Reserved:  3 << 30, Memory: &fleet.Memory{Total: 32 << 30, Available: 7<<30 + 600<<20}, CPU: &fleet.CPU{Count: 8, Load: 0.53, Used: 0.041, Pressure: 12},
					IO: &fleet.IO{Busy: 0.02}, Power: &fleet.Power{OnBattery: true, Percent: 81}, Uptime: 52 * time.Hour, Zone: "Europe/Berlin",
					Docker: fleet.Docker{State: fleet.DockerReady, Version: "27.1.1", Compose: "2.29.1", ComposeBy: "docker compose", Verified: true},
				}},
			Labels: map[string]string{"b": "2", "a": "1"}, Version: "1.2", OS: "darwin", Arch: "arm64", Permissions: fleet.PermWorkspace, EnrolledAt: *before(72 * time.Hour), Alerts: []string{"runner.yaml is not valid"},
			Harnesses: []fleet.HarnessInfo{{Name: "codex", Version: "0.1", SignedIn: "no", Detail: "no key"}, {Name: "claude", Version: "2.0", SignedIn: "yes", Account: "ab12", Models: []string{"opus", "haiku"}}}, Jobs: []fleet.JobID{"01j"}},
		{ID: "r-2", Name: "mini", State: "offline", LastBeat: before(4 * time.Minute), Slots: api.Slots{Base: 1, Automation: 1}, Health: api.RunnerHealth{Class: api.HealthUnknown, AgeMS: &old, Sample: &fleet.Health{Workspace: fleet.Volume{Known: true, Free: 1 << 40}}},
			Labels: map[string]string{"site": "berlin"}, OS: "linux", Arch: "amd64"},
		{ID: "r-3", Name: "box", State: "online", LastBeat: before(time.Second), Slots: api.Slots{Base: 1, Offered: 1, Automation: 1, Effective: 1}, OS: "linux", Arch: "amd64", Harnesses: []fleet.HarnessInfo{{Name: "exec", SignedIn: "yes"}},
			Health: api.RunnerHealth{Class: api.HealthOK, AgeMS: &age, Fresh: true, Sample: &fleet.Health{Workspace: fleet.Volume{Known: true, Free: 120 << 30}, Memory: &fleet.Memory{Total: 16 << 30}, Docker: fleet.Docker{State: fleet.DockerAbsent}}}},
	}
}

func TestRunnersAtAGlance(t *testing.T) {
	s := newShell(t, "")
	s.ttyOut = true
	if err := s.runnerTable(sampleRunners(), noon); err != nil {
		t.Fatal(err)
	}
	golden(t, "runners.txt", s.out.String())
	for l := range strings.Lines(s.out.String()) {
		if n := len([]rune(l)) - 1; n > maxWidth {
			t.Errorf("a line of %d characters: %s", n, l)
		}
	}
	for _, r := range sampleRunners()[1:] {
		s.describeRunner(&r, noon)
	}
	golden(t, "runners-others.txt", s.out.String())
}

// shown runs a command line against a hub that gives one answer, and gives what it was
// asked and what the command wrote.
func shown(t *testing.T, route string, status int, body any, line ...string) (asked, out string) {
	t.Helper()
	srv := script(t, map[string]http.HandlerFunc{route: func(w http.ResponseWriter, r *http.Request) {
		asked = string(readAll(t, r))
		answer(w, status, body)
	}})
	return asked, newShell(t, srv.URL).must(line...)
}

func TestHoldsBecomeTheRequest(t *testing.T) {
	r := sampleRunners()[0]
	for _, c := range []struct{ line, route, want string }{
		{"runner slots studio --automation 0", "POST /v1/runners/studio/slots", `{"automation":0}`},
		{"runner cordon studio", "POST /v1/runners/studio/cordon", `{}`},
		{"runner cordon studio --for 2h --reason backup", "POST /v1/runners/studio/cordon", `{"reason":"backup","for":"2h0m0s"}`},
		{"runner drain studio --deadline 30m --then cancel --for 3h", "POST /v1/runners/studio/drain", `{"for":"3h0m0s","deadline":"30m0s","then":"cancel"}`},
		{"runner resume studio", "POST /v1/runners/studio/resume", `{}`},
		{"circuit reset 3fa9c01b77 --repaired cable", "POST /v1/circuits/3fa9c01b77/reset", `{"repaired":"cable"}`},
		{"circuit reset 3fa9c01b77 --repaired cable --generation 0", "POST /v1/circuits/3fa9c01b77/reset", `{"repaired":"cable","recovery_generation":0}`},
		{"circuit open --provider openai --model gpt-5.2 --reason odd --for 1h", "POST /v1/circuits/open", `{"scope":"model","provider":"openai","model":"gpt-5.2","for":"1h0m0s","reason":"odd"}`},
		{"circuit open --provider openai --runner studio --reason odd", "POST /v1/circuits/open", `{"scope":"provider","runner":"studio","provider":"openai","reason":"odd"}`},
		{"circuit open --runner studio --reason call", "POST /v1/circuits/open", `{"scope":"host","runner":"studio","reason":"call"}`},
		{"budget set automation:nightly --max-runs 5 --max-wall 6h --window 24h", "PUT /v1/budgets/automation:nightly", `{"max_runs":5,"max_wall":"6h0m0s","window":"24h0m0s"}`},
		{"budget remove automation", "DELETE /v1/budgets/automation", ``},
	} {
		got, _ := shown(t, c.route, 200, r, strings.Fields(c.line)...)
		if strings.TrimSpace(got) != c.want {
			t.Errorf("tugline %s sent %s; want %s", c.line, got, c.want)
		}
	}
	_, out := shown(t, "POST /v1/runners/studio/slots", 200, r, "runner", "slots", "studio", "--automation", "2")
	has(t, "the slots", out, "4 base slots and 2 automation slots, of which 1 can be used now", "limited by memory")
	_, out = shown(t, "POST /v1/runners/studio/drain", 200, r, "runner", "drain", "studio")
	has(t, "the drain", out, "finishes what it has until", "1 job is there: 01j")
}

func TestPlaceFlagsBecomeTheRequest(t *testing.T) {
	two := 2
	for _, c := range []struct {
		line string
		want api.Submit
	}{
		{"run -d x --harness codex --priority -3 --os linux --arch arm64 --docker --min-disk 20GiB --min-memory 8GiB --harness-version 0.120.0 --fallback claude:opus --fallback opencode --retries 2 --max-tokens 9",
			api.Submit{Kind: fleet.KindAgent, Prompt: "x", Harness: "codex", Priority: -3, Needs: &fleet.Needs{OS: "linux", Arch: "arm64", HarnessVersion: "0.120.0", Docker: true, Disk: 20 << 30, Memory: 8 << 30},
				Fallbacks: []fleet.Choice{{Harness: "claude", Model: "opus"}, {Harness: "opencode"}}, Retries: &two, MaxTokens: 9}},
		{"run -d x --no-fallback", api.Submit{Kind: fleet.KindAgent, Prompt: "x", NoFallback: true}},
		{"exec -d --docker --priority 1 -- true", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}, Priority: 1, Needs: &fleet.Needs{Docker: true}}},
	} {
		sent, _ := shown(t, "POST /v1/jobs", 201, api.Job{ID: "01job"}, strings.Fields(c.line)...)
		var in api.Submit
		if err := json.Unmarshal([]byte(sent), &in); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, in); diff != "" {
			t.Errorf("tugline %s (-want +got):\n%s", c.line, diff)
		}
	}
}

func TestExplanations(t *testing.T) {
	e := api.Explanation{State: fleet.Queued, Summary: "waits for a runner: studio has 8.2 GiB free at /data, and automation needs 10 GiB to be placed", Change: "free 1.8 GiB at /data on studio", Ahead: 3, More: 12,
		Runners: []api.RunnerReason{
			{Runner: "studio", Code: fleet.Storage, Detail: "has 8.2 GiB free at /data, and automation needs 10 GiB to be placed", Change: "free 1.8 GiB at /data"},
			{Runner: "mini", Code: fleet.CircuitRefuses, Detail: "is kept from it until 2031-03-04T14:00:00Z: the quota at openai is used up", Until: before(-2 * time.Hour), Change: "that time; or `tugline circuit reset 3fa9c01b77`"},
			{Runner: "tiny", Code: fleet.Cordoned, Detail: "is cordoned", Until: before(-time.Hour)}, {Runner: "box", Detail: "could take it"},
		}, Notes: []string{"the disk of box is not known: it may be too small"}}
	s := newShell(t, "")
	if err := s.explain(&e, noon); err != nil {
		t.Fatal(err)
	}
	s.ttyOut = true
	if err := s.explain(&e, noon); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.txt", s.out.String())
	_, terminal, _ := strings.Cut(s.out.String(), "note:")
	for l := range strings.Lines(terminal) {
		if n := len([]rune(strings.TrimRight(unpainted.Replace(l), "\n"))); n > explainWidth {
			t.Errorf("at a terminal a line of %d characters: %s", n, l)
		}
	}
	why := strings.Repeat("needs the label disk=fast and ", 8) + "a slot"
	_, out := shown(t, "GET /v1/jobs/01j/explain", 200, api.Explanation{State: fleet.Queued, Summary: "waits", Runners: []api.RunnerReason{{Runner: strings.Repeat("r", 60), Code: "label_missing", Detail: why}}}, "job", "explain", "01j")
	has(t, "into a pipe", out, strings.Repeat("r", 60)+"\tlabel_missing\t-\t"+why+"\t-\n")
}

func TestListsOfPlacement(t *testing.T) {
	var all strings.Builder
	run := func(route string, body any, line string) {
		_, out := shown(t, route, 200, body, strings.Fields(line)...)
		all.WriteString("$ tugline " + line + "\n" + out)
	}
	far := time.Date(2091, 3, 4, 15, 4, 0, 0, time.UTC)
	run("GET /v1/circuits", api.Circuits{}, "circuit list")
	run("GET /v1/circuits", api.Circuits{Circuits: []api.Circuit{
		{Key: "3fa9c01b77", Over: "openai (account ab12) on studio", Circuit: fleet.Circuit{Class: fleet.CircuitAuth, State: fleet.CircuitBlocked, Text: "401 invalid key"}},
		{Key: "0011223344", Over: "anthropic on mini", Circuit: fleet.Circuit{Class: fleet.CircuitStartup, State: fleet.CircuitHalf, Probe: &fleet.CircuitProbe{Job: "01jprobe"}, Text: "refused to start"}},
		{Key: "5566778899", Over: "anthropic on mini", Circuit: fleet.Circuit{Class: fleet.CircuitLost, State: fleet.CircuitHalf, Successes: 2}},
		{Key: "aabbccddee", Over: "box", Circuit: fleet.Circuit{Class: fleet.CircuitOperator, State: fleet.CircuitBlocked, Text: "video call", Actor: "t-1"}},
	}}, "circuit list")
	run("GET /v1/budgets", api.Budgets{}, "budget list")
	run("GET /v1/budgets", api.Budgets{Budgets: []api.Budget{
		{Origin: "automation", MaxRuns: 50, MaxTokens: 20_000_000, Window: "24h0m0s", Spent: api.Spending{Runs: 12, Tokens: 1_234_567, Wall: "2h0m0s"}, Held: api.Spending{Runs: 1, Tokens: 100_000, Wall: "2h0m0s"}},
		{Origin: "automation:nightly", MaxWall: "6h0m0s", Spent: api.Spending{Wall: "0s"}, Held: api.Spending{Wall: "0s"}},
	}}, "budget list")
	run("PUT /v1/budgets/manual", api.Budget{Origin: "manual", MaxRuns: 5, MaxWall: "6h0m0s", Window: "24h0m0s"}, "budget set manual --max-runs 5 --max-wall 6h --window 24h")
	run("POST /v1/circuits/open", api.Circuit{Key: "aabbccddee", Over: "box", Circuit: fleet.Circuit{Class: fleet.CircuitOperator, State: fleet.CircuitBlocked}}, "circuit open --runner box --reason call")
	run("GET /v1/alerts", api.Alerts{}, "alerts")
	run("GET /v1/alerts", api.Alerts{Alerts: []fleet.Alert{
		{At: noon, Kind: "storage_pressure", Name: "studio", Runner: "r-1", Text: "studio: 8.2 GiB free at /data, below the floor of 10 GiB", Pressure: &fleet.Pressure{Usage: []fleet.ClassUsage{{Class: "worktrees", Bytes: 40 << 30}, {Class: "docker", Bytes: 3 << 30}}}},
		{At: noon.Add(-time.Hour), Kind: "recovered", Name: "mini", Text: "mini: back online: heard again after 12 min", Failed: "connection refused"},
	}}, "alerts --limit 2")
	var ps []api.HealthPoint
	for i := range 200 {
		free, load := int64(100+i)<<30, float64(i%7)
		p := api.HealthPoint{At: noon.Add(-time.Hour + time.Duration(i)*10*time.Second), Free: &free, Load: &load, Docker: fleet.DockerReady}
		if i > 150 {
			p.Docker = fleet.DockerDown
		}
		if i < 50 || i > 100 {
			ps = append(ps, p)
		}
	}
	c := newShell(t, "")
	c.healthChart(&api.HealthHistory{Runner: "r-1", Name: "studio", Window: "1h", Points: ps, Changes: []fleet.ClassChange{{Kind: fleet.FaultDocker, On: true, At: noon, Text: "the daemon does not answer"}, {Kind: fleet.FaultDocker, At: noon.Add(time.Minute)}}}, noon)
	all.WriteString("$ tugline runner health studio\n" + c.out.String())
	run("GET /v1/runners/mini/health", api.HealthHistory{Runner: "r-2", Name: "mini", Window: "24h"}, "runner health mini --window 24h")
	golden(t, "placement.txt", all.String())
	if got := when(noon, far); got != "2091-03-04 15:04 (in 21915d)" {
		t.Errorf("a far time is told as %q", got)
	}
}

func TestNamesOfTokens(t *testing.T) {
	for line, c := range map[string]struct {
		route string
		body  any
		want  string
	}{
		"circuit list":   {"GET /v1/circuits", api.Circuits{Circuits: []api.Circuit{{ActorName: "ida", Circuit: fleet.Circuit{State: fleet.CircuitBlocked, Actor: "t-named"}}}}, "by ida"},
		"runner get box": {"GET /v1/runners/box", api.Runner{Hold: &api.Hold{ActorName: "ida", Hold: fleet.Hold{Actor: "t-named", Since: noon}}}, "by ida,"},
		"hub audit":      {"GET /v1/audit", api.AuditRecords{Records: []api.AuditRecord{{Actor: "t-named", ActorName: "ida", Command: "job.cancel"}}}, "ida"},
		"job get 01j":    {"GET /v1/jobs/{id}", api.Job{ID: "01j", Actor: "t-named", ActorName: "ida"}, "ida,"},
		"token list":     {"GET /v1/tokens", api.Tokens{Tokens: []api.Token{{ID: "t-1", Name: "ci", CreatedBy: "t-2"}, {ID: "t-2", Name: "ida", CreatedBy: "t-named"}, {ID: "t-3", CreatedBy: "t-gone"}}}, "ida ci"},
	} {
		_, out := shown(t, c.route, 200, c.body, strings.Fields(line)...)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) || strings.Contains(out, "t-named") && line != "token list" {
			t.Errorf("tugline %s shows %q, want %q", line, out, c.want)
		}
	}
}

func TestJobThatMovedOn(t *testing.T) {
	j := api.Job{ID: "01jmoved", Kind: fleet.KindAgent, State: fleet.Queued, Harness: "claude", Model: "opus", Runner: "studio", CreatedAt: *before(time.Hour), Turn: 1, Attempt: 2, Choice: 1,
		Requested: fleet.Choice{Harness: "codex", Model: "gpt-5.2"}, Effective: fleet.Choice{Harness: "claude", Model: "opus"}, ReportedModel: "claude-opus-4-5",
		Reason: fleet.Reason{Code: "retry_waits", Detail: "is tried again in 2m0s: attempt 2 ended crashed"}, Why: "the pause before a retry ends at 12:01:00", NotBefore: before(-time.Minute), Budget: api.Executions{Used: 2, Of: 4}, Learned: &fleet.Learned{Docker: true},
		Spec:        fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Model: "gpt-5.2", Priority: 2, Fallbacks: []fleet.Choice{{Harness: "claude", Model: "opus"}, {Harness: "opencode"}}, Needs: &fleet.Needs{OS: "linux", HarnessVersion: "0.120.0", Disk: 20 << 30}},
		Transitions: []fleet.Transition{{At: *before(10 * time.Minute), Attempt: 1, From: fleet.Choice{Harness: "codex", Model: "gpt-5.2"}, To: fleet.Choice{Harness: "claude", Model: "opus"}, Class: fleet.ClassQuotaExhausted, Skipped: []fleet.Choice{{Harness: "codex", Model: "gpt-5.2-mini"}}}},
		Attempts: []api.Attempt{
			{N: 1, State: fleet.AttemptFinished, Runner: "studio", Harness: "codex", Effective: "gpt-5.2", Reported: "gpt-5.2-2031", Class: fleet.ClassQuotaExhausted, Detail: "usage limit", RetryAfter: before(-3 * time.Hour), StartedAt: before(12 * time.Minute), FinishedAt: before(11 * time.Minute), Counts: true},
			{N: 2, State: fleet.AttemptFinished, Runner: "studio", Harness: "claude", Effective: "opus", Reported: "claude-opus-4-5", Class: fleet.ClassCrashed, StartedAt: before(9 * time.Minute), FinishedAt: before(time.Minute), Counts: true},
		},
		Turns: []*fleet.Turn{{N: 1, State: fleet.Queued, Attempts: []*fleet.Attempt{{N: 1}, {N: 2}}}},
	}
	s := newShell(t, "")
	s.describe(&j, noon)
	golden(t, "moved.txt", s.out.String())
	if got, want := statusLine(&j), "queued: is tried again in 2m0s: attempt 2 ended crashed; the pause before a retry ends at 12:01:00"; got != want {
		t.Errorf("while it is followed: %q; want %q", got, want)
	}
	running := j
	running.State, running.Reason = fleet.Running, fleet.Reason{}
	if got, want := statusLine(&running), "running on studio (attempt 2) with claude:opus"; got != want {
		t.Errorf("while it is followed: %q; want %q", got, want)
	}
	for _, want := range []string{"asked for codex:gpt-5.2; effective claude:opus; reported claude-opus-4-5", "2 of 4 used, the next not before 12:01"} {
		has(t, "the job", s.out.String(), want)
	}
}

func TestCompletionsOfPlacement(t *testing.T) {
	srv := script(t, map[string]http.HandlerFunc{
		"GET /v1/circuits": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, api.Circuits{Circuits: []api.Circuit{{Key: "3fa9c01b77", Over: "openai on studio", Circuit: fleet.Circuit{Class: fleet.CircuitQuota}}, {Key: "aa00000000"}}})
		},
		"GET /v1/budgets": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, api.Budgets{Budgets: []api.Budget{{Origin: "automation:nightly"}}})
		},
		"GET /v1/runners": func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, api.Runners{Runners: sampleRunners()}) },
	})
	s := newShell(t, srv.URL)
	for _, c := range []struct{ line, want string }{
		{"circuit reset 3", "3fa9c01b77\tquota openai on studio\n:4"},
		{"circuit open --runner stu", "studio\tonline, draining\n:4"},
		{"runner drain mi", "mini\toffline\n:4"},
		{"runner drain mini --then c", "cancel\n"},
		{"runner health mini --window 2", "24h\n"},
		{"budget set automation:n", "automation:nightly\n"},
		{"alerts --runner bo", "box\tonline\n:4"},
		{"run --os l", "linux\n"},
		{"run --fallback cl", "claude\n"},
		{"hub set floor_", "floor_select\nfloor_start\n"},
	} {
		if out := s.must(append([]string{"__complete"}, strings.Fields(c.line)...)...); !strings.Contains(out, c.want) {
			t.Errorf("tugline %s<Tab> gives %q; want %q", c.line, out, c.want)
		}
	}
}
