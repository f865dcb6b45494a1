package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// stored is all that a request may have left behind.
func (w *world) stored() string {
	w.t.Helper()
	n := 0
	if err := w.blobs.Each(func(blob.Info) bool { n++; return true }); err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d jobs, %d blobs, index %d", w.View().Count("jobs"), n, w.View().Meta().Index)
}

func many(n int, each func(i int) string) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[each(i)] = "v"
	}
	return m
}

func TestSubmitLimits(t *testing.T) {
	w := newWorld(t)
	exec := func(change func(*api.Submit)) api.Submit {
		s := api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}
		change(&s)
		return s
	}
	agent := func(change func(*api.Submit)) api.Submit {
		s := api.Submit{Kind: fleet.KindAgent, Prompt: "do it", Harness: "codex"}
		change(&s)
		return s
	}
	repo := func(r fleet.Repo) api.Submit { return exec(func(s *api.Submit) { s.Repo = &r }) }
	sha := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		body   any
		status int
		code   fleet.Code
		says   string
	}{
		"prompt over 256 KiB":       {agent(func(s *api.Submit) { s.Prompt = strings.Repeat("x", fleet.MaxPrompt+1) }), 413, fleet.TooLarge, "262144"},
		"empty prompt":              {agent(func(s *api.Submit) { s.Prompt = " \n" }), 400, fleet.BadRequest, "empty"},
		"prompt with NUL":           {agent(func(s *api.Submit) { s.Prompt = "a\x00b" }), 400, fleet.BadRequest, "NUL"},
		"argv over 64 KiB":          {exec(func(s *api.Submit) { s.Argv = []string{"echo", strings.Repeat("x", fleet.MaxArgv)} }), 413, fleet.TooLarge, "65536"},
		"no argv":                   {exec(func(s *api.Submit) { s.Argv = nil }), 400, fleet.BadRequest, "empty"},
		"empty command":             {exec(func(s *api.Submit) { s.Argv = []string{""} }), 400, fleet.BadRequest, "empty"},
		"argv with NUL":             {exec(func(s *api.Submit) { s.Argv = []string{"a", "b\x00"} }), 400, fleet.BadRequest, "word 1"},
		"prompt for a command":      {exec(func(s *api.Submit) { s.Prompt = "x" }), 400, fleet.BadRequest, "agent"},
		"argv for an agent":         {agent(func(s *api.Submit) { s.Argv = []string{"x"} }), 400, fleet.BadRequest, "exec"},
		"65 environment entries":    {exec(func(s *api.Submit) { s.Env = many(65, func(i int) string { return fmt.Sprint("E", i) }) }), 413, fleet.TooLarge, "64"},
		"environment of 17 KiB":     {exec(func(s *api.Submit) { s.Env = map[string]string{"A": strings.Repeat("x", 17<<10)} }), 413, fleet.TooLarge, "16384"},
		"an environment credential": {exec(func(s *api.Submit) { s.Env = map[string]string{"MY_API_KEY": "12345678"} }), 400, fleet.BadRequest, "--secret MY_API_KEY"},
		"a credential by its looks": {exec(func(s *api.Submit) { s.Env = map[string]string{"X": "ghp_" + strings.Repeat("a", 36)} }), 400, fleet.BadRequest, "--secret"},
		"Tugline's own variable":    {exec(func(s *api.Submit) { s.Env = map[string]string{"TUGLINE_JOB_ID": "x"} }), 400, fleet.BadRequest, "TUGLINE_JOB_ID"},
		"a bad variable name":       {exec(func(s *api.Submit) { s.Env = map[string]string{"a=b": "x"} }), 400, fleet.BadRequest, "name"},
		"33 secrets": {exec(func(s *api.Submit) {
			s.Secrets = slices.Sorted(maps.Keys(many(33, func(i int) string { return fmt.Sprint("S", i) })))
		}), 413, fleet.TooLarge, "32"},
		"33 required labels":           {exec(func(s *api.Submit) { s.Require = many(33, func(i int) string { return fmt.Sprint("l", i) }) }), 413, fleet.TooLarge, "32"},
		"unknown kind":                 {exec(func(s *api.Submit) { s.Kind = "shell" }), 400, fleet.BadRequest, "kind"},
		"unknown permissions":          {exec(func(s *api.Submit) { s.Permissions = "root" }), 400, fleet.BadRequest, "permissions"},
		"unknown on_lost":              {exec(func(s *api.Submit) { s.OnLost = "again" }), 400, fleet.BadRequest, "on_lost"},
		"unknown commit":               {exec(func(s *api.Submit) { s.Commit = "yes" }), 400, fleet.BadRequest, "commit"},
		"no harness anywhere":          {agent(func(s *api.Submit) { s.Harness = "" }), 400, fleet.BadRequest, "no runner offers an agent"},
		"a harness that is none":       {agent(func(s *api.Submit) { s.Harness = "../x y" }), 400, fleet.BadRequest, "harness"},
		"a harness misspelt":           {agent(func(s *api.Submit) { s.Harness = "claud" }), 400, fleet.BadRequest, `"claud"; there are exec, codex, claude, opencode`},
		"a command's harness misspelt": {exec(func(s *api.Submit) { s.Harness = "exce" }), 400, fleet.BadRequest, "there is no harness"},
		"a long key":                   {exec(func(s *api.Submit) { s.ConcurrencyKey = strings.Repeat("k", 1000) }), 400, fleet.BadRequest, `kkk"… (1000 bytes) may`},
		"a long label":                 {exec(func(s *api.Submit) { s.Require = map[string]string{strings.Repeat("ü", 900): ""} }), 400, fleet.BadRequest, `üü"… (1800 bytes) is not`},
		"a branch with its whole ref":  {repo(fleet.Repo{URL: "https://h/x", Branch: "refs/heads/x"}), 400, fleet.BadRequest, "without refs/heads/"},
		"a push to a whole ref":        {exec(func(s *api.Submit) { s.Repo, s.Push = &fleet.Repo{URL: "https://h/x"}, "refs/heads/x" }), 400, fleet.BadRequest, "without refs/heads/"},
		"a URL in the clear":           {repo(fleet.Repo{URL: "http://h/x"}), 400, fleet.BadRequest, "git is used with https, ssh and file"},
		"a host that is an option":     {repo(fleet.Repo{URL: "ssh://-oProxyCommand=x/y"}), 400, fleet.BadRequest, "host"},
		"a user that is an option":     {repo(fleet.Repo{URL: "-oProxyCommand=x@h:y"}), 400, fleet.BadRequest, "is not one"},
		"a URL without a host":         {repo(fleet.Repo{URL: "https:///x"}), 400, fleet.BadRequest, "host"},
		"a body that is not UTF-8":     {"{\"kind\":\"agent\",\"harness\":\"codex\",\"prompt\":\"caf\xe9\"}", 400, fleet.BadRequest, "body: it is not UTF-8 text"},
		"a command's harness":          {agent(func(s *api.Submit) { s.Harness = "exec" }), 400, fleet.BadRequest, "tugline exec"},
		"an agent's harness":           {exec(func(s *api.Submit) { s.Harness = "codex" }), 400, fleet.BadRequest, "tugline run"},
		"a timeout that is none":       {exec(func(s *api.Submit) { s.Timeout = "soon" }), 400, fleet.BadRequest, "timeout"},
		"a timeout too long":           {exec(func(s *api.Submit) { s.Timeout = "721h" }), 400, fleet.BadRequest, "720h"},
		"a repository without a URL":   {repo(fleet.Repo{}), 400, fleet.BadRequest, "neither"},
		"a URL with a password":        {repo(fleet.Repo{URL: "https://a:b@h/x"}), 400, fleet.BadRequest, "credentials"},
		"a URL with a token":           {repo(fleet.Repo{URL: "https://token@h/x"}), 400, fleet.BadRequest, "credentials"},
		"a URL that is an option":      {repo(fleet.Repo{URL: "--upload-pack=x"}), 400, fleet.BadRequest, "URL"},
		"a URL that runs a program":    {repo(fleet.Repo{URL: "ext::sh -c x"}), 400, fleet.BadRequest, "repository"},
		"a ref that is an option":      {repo(fleet.Repo{URL: "https://h/x", Ref: "-x"}), 400, fleet.BadRequest, "git allows"},
		"a ref that climbs":            {repo(fleet.Repo{URL: "https://h/x", Branch: "a/../b"}), 400, fleet.BadRequest, "git allows"},
		"51 extra refs":                {repo(fleet.Repo{URL: "https://h/x", ExtraRefs: make([]string, 51)}), 413, fleet.TooLarge, "50"},
		"a base that is no commit":     {repo(fleet.Repo{URL: "https://h/x", BaseCommit: "main"}), 400, fleet.BadRequest, "commit"},
		"a bundle without a key":       {repo(fleet.Repo{Bundle: digestOf(nil)}), 400, fleet.BadRequest, "cache_key"},
		"a bundle never uploaded":      {repo(fleet.Repo{Bundle: digestOf([]byte("x")), CacheKey: sha}), 404, fleet.BlobMissing, "uploaded"},
		"a push without a repo":        {exec(func(s *api.Submit) { s.Push = "main" }), 400, fleet.BadRequest, "repository"},
		"a body over 1 MiB":            {`{"kind":"exec","argv":["` + strings.Repeat("x", 1<<20) + `"]}`, 413, fleet.TooLarge, ""},
		"malformed JSON":               {`{"kind":`, 400, fleet.BadRequest, "body"},
		"JSON with a tail":             {`{"kind":"exec","argv":["true"]} {}`, 400, fleet.BadRequest, "body"},
		"a JSON list":                  {`[]`, 400, fleet.BadRequest, "body: an object is wanted, and a list was given"},
		"null":                         {`null`, 400, fleet.BadRequest, "body: an object is wanted, and null was given"},
		"a number among texts":         {`{"kind":"exec","argv":["x",1]}`, 400, fleet.BadRequest, "body.argv[1]: text is wanted, and a number was given"},
		"an exponent far down":         {`{"kind":"exec","argv":["x"],"needs":{"disk":1e3}}`, 400, fleet.BadRequest, "needs.disk: a whole number is wanted"},
		"text for true or false":       {`{"kind":"exec","argv":["x"],"needs":{"docker":"yes"}}`, 400, fleet.BadRequest, "body.needs.docker: true or false is wanted, and text was given"},
		"an unknown field":             {`{"kind":"exec","argv":["true"],"urgency":1}`, 400, fleet.BadRequest, "urgency"},
		"a field of a wrong type":      {`{"kind":"exec","argv":"true"}`, 400, fleet.BadRequest, "body.argv: a list is wanted, and text was given"},
		"no body":                      {nil, 400, fleet.BadRequest, "body"},
		"a priority too high":          {exec(func(s *api.Submit) { s.Priority = 11 }), 400, fleet.BadRequest, "priority 11 is not from -10 to 10"},
		"a priority too low":           {exec(func(s *api.Submit) { s.Priority = -11 }), 400, fleet.BadRequest, "priority"},
		"too many retries":             {exec(func(s *api.Submit) { n := 4; s.Retries = &n }), 400, fleet.BadRequest, "retries 4 is not from 0 to 3"},
		"retries below zero":           {exec(func(s *api.Submit) { n := -1; s.Retries = &n }), 400, fleet.BadRequest, "retries"},
		"tokens of a command":          {exec(func(s *api.Submit) { s.MaxTokens = 5 }), 400, fleet.BadRequest, "max_tokens belongs to kind agent"},
		"tokens below zero":            {agent(func(s *api.Submit) { s.MaxTokens = -5 }), 400, fleet.BadRequest, "max_tokens -5"},
		"tokens beyond measure":        {agent(func(s *api.Submit) { s.MaxTokens = 1e13 }), 400, fleet.BadRequest, "max_tokens"},
		"a system nobody has":          {exec(func(s *api.Submit) { s.Needs = &fleet.Needs{OS: "windows"} }), 400, fleet.BadRequest, `needs.os "windows" is neither linux nor darwin`},
		"a processor nobody has":       {exec(func(s *api.Submit) { s.Needs = &fleet.Needs{Arch: "x86_64"} }), 400, fleet.BadRequest, `needs.arch "x86_64" is neither amd64 nor arm64`},
		"a version that is none":       {agent(func(s *api.Submit) { s.Needs = &fleet.Needs{HarnessVersion: "latest"} }), 400, fleet.BadRequest, "needs.harness_version"},
		"a version of a command":       {exec(func(s *api.Submit) { s.Needs = &fleet.Needs{HarnessVersion: "1.2"} }), 400, fleet.BadRequest, "belongs to kind agent"},
		"disk below zero":              {exec(func(s *api.Submit) { s.Needs = &fleet.Needs{Disk: -1} }), 400, fleet.BadRequest, "needs.disk -1"},
		"memory beyond measure":        {exec(func(s *api.Submit) { s.Needs = &fleet.Needs{Memory: 1 << 51} }), 400, fleet.BadRequest, "needs.memory"},
		"a need nobody knows":          {`{"kind":"exec","argv":["true"],"needs":{"gpu":true}}`, 400, fleet.BadRequest, "gpu"},
		"fallbacks of a command":       {exec(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "claude"}} }), 400, fleet.BadRequest, "fallbacks belong to kind agent"},
		"fallbacks and none":           {agent(func(s *api.Submit) { s.NoFallback, s.Fallbacks = true, []fleet.Choice{{Harness: "claude"}} }), 400, fleet.BadRequest, "contradict"},
		"a fallback on itself":         {agent(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "codex"}} }), 400, fleet.BadRequest, `"codex" is there twice`},
		"a fallback misspelt":          {agent(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "claud"}} }), 400, fleet.BadRequest, `no harness "claud"`},
		"a fallback on a command":      {agent(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "exec"}} }), 400, fleet.BadRequest, "no agent's"},
		"a fallback without harness":   {agent(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Model: "opus"}} }), 400, fleet.BadRequest, "names no harness"},
		"a fallback's model":           {agent(func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "claude", Model: "a b"}} }), 400, fleet.BadRequest, `model "a b" may`},
		"17 fallbacks": {agent(func(s *api.Submit) {
			for i := range 17 {
				s.Fallbacks = append(s.Fallbacks, fleet.Choice{Harness: "claude", Model: fmt.Sprint("m", i)})
			}
		}), 413, fleet.TooLarge, "17 fallbacks; at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.stored()
			p := w.refuses(request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: c.body, key: name}, c.status, c.code)
			if !strings.Contains(p.Detail, c.says) {
				t.Errorf("the refusal says %q; want it to name %q", p.Detail, c.says)
			}
			if after := w.stored(); after != before {
				t.Errorf("the refusal left something: %s, before %s", after, before)
			}
		})
	}
}

func TestLimitsAreReached(t *testing.T) {
	w := newWorld(t)
	for name, s := range map[string]api.Submit{
		"prompt":      {Kind: fleet.KindAgent, Harness: "codex", Prompt: strings.Repeat("x", fleet.MaxPrompt)},
		"argv":        {Kind: fleet.KindExec, Argv: []string{"echo", strings.Repeat("x", fleet.MaxArgv-len("echo")-2)}},
		"environment": {Kind: fleet.KindExec, Argv: []string{"true"}, Env: many(fleet.MaxEnv, func(i int) string { return fmt.Sprint("E", i) })},
	} {
		j := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: s})
		if j.State != fleet.Queued {
			t.Errorf("%s at its limit: state %s", name, j.State)
		}
		if name == "argv" && (j.Spec.ArgvBlob == "" || j.Spec.Argv != nil) {
			t.Errorf("a large argv rides in the record: %d words", len(j.Spec.Argv))
		}
	}
}

func TestFollowUpLimit(t *testing.T) {
	w := newWorld(t)
	j := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: "begin"}})
	path := "/v1/jobs/" + string(j.ID) + "/follow-ups"
	w.refuses(request{method: "POST", path: path, role: fleet.RoleOperator, body: api.FollowUp{Prompt: strings.Repeat("x", fleet.MaxPrompt+1)}}, 413, fleet.TooLarge)
	for i := range fleet.MaxFollowUps {
		got := get[api.Job](w, request{method: "POST", path: path, role: fleet.RoleOperator, key: fmt.Sprint(i), body: api.FollowUp{Prompt: "next"}})
		if got.FollowUps != i+1 {
			t.Fatalf("after follow-up %d: %d queued", i+1, got.FollowUps)
		}
	}
	w.refuses(request{method: "POST", path: path, role: fleet.RoleOperator, key: "more", body: api.FollowUp{Prompt: "next"}}, 409, fleet.Conflict)
	// A repeat of the last one is no new one.
	got := get[api.Job](w, request{method: "POST", path: path, role: fleet.RoleOperator, key: fmt.Sprint(fleet.MaxFollowUps - 1), body: api.FollowUp{Prompt: "next"}})
	if got.FollowUps != fleet.MaxFollowUps {
		t.Errorf("a repeated follow-up: %d queued", got.FollowUps)
	}
	w.refuses(request{method: "POST", path: path, role: fleet.RoleOperator, body: api.FollowUp{Prompt: "x", Model: "a b"}}, 400, fleet.BadRequest)
	exec := w.submitted("true")
	w.refuses(request{method: "POST", path: "/v1/jobs/" + string(exec) + "/follow-ups", role: fleet.RoleOperator, body: api.FollowUp{Prompt: "x"}}, 400, fleet.BadRequest)
}

func TestRequestsThatAreNoRequests(t *testing.T) {
	w := newWorld(t)
	id := string(w.submitted("true"))
	op, ad := fleet.RoleOperator, fleet.RoleAdmin
	for name, c := range map[string]struct {
		r      request
		status int
		code   fleet.Code
	}{
		"text as a body":          {request{method: "POST", path: "/v1/jobs", role: op, kind: "text/plain", body: "{}"}, 415, fleet.BadRequest},
		"a form as a body":        {request{method: "POST", path: "/v1/jobs", role: op, kind: "application/x-www-form-urlencoded", body: "a=b"}, 415, fleet.BadRequest},
		"a job that is not there": {request{method: "GET", path: "/v1/jobs/01arz3ndektsv4rrffq69g5fav", role: op}, 404, fleet.NotFound},
		"a prefix of three":       {request{method: "GET", path: "/v1/jobs/" + id[:3], role: op}, 404, fleet.NotFound},
		"nothing there":           {request{method: "GET", path: "/v2/jobs", role: op}, 404, fleet.NotFound},
		"a post to the page":      {request{method: "POST", path: "/", role: op}, 405, fleet.BadRequest},
		"a file of an old page":   {request{method: "GET", path: "/assets/main-0.js"}, 404, fleet.NotFound},
		"no page of the API's":    {request{method: "GET", path: "/v1/nothing", header: map[string]string{"Accept": "text/html"}}, 404, fleet.NotFound},
		"a climbing path":         {request{method: "GET", path: "/v1/../v1/jobs", role: op}, 400, fleet.BadRequest},
		"a climbing artifact":     {request{method: "GET", path: "/v1/jobs/" + id + "/artifacts/..%2f..%2foperator.token", role: op}, 400, fleet.BadRequest},
		"a doubled slash":         {request{method: "GET", path: "/v1//jobs", role: op}, 400, fleet.BadRequest},
		"a trailing slash":        {request{method: "GET", path: "/v1/jobs/", role: op}, 404, fleet.NotFound},
		"a NUL in a path":         {request{method: "GET", path: "/v1/jobs/%00", role: op}, 404, fleet.NotFound},
		"a wrong method":          {request{method: "DELETE", path: "/v1/jobs", role: op}, 405, fleet.BadRequest},
		"a method nobody has":     {request{method: "BREW", path: "/v1/jobs", role: op}, 405, fleet.BadRequest},
		"a long key":              {request{method: "POST", path: "/v1/jobs", role: op, key: strings.Repeat("k", 201), body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}, 400, fleet.BadRequest},
		"a state that is none":    {request{method: "GET", path: "/v1/jobs?state=done", role: op}, 400, fleet.BadRequest},
		"a limit of 501":          {request{method: "GET", path: "/v1/jobs?limit=501", role: op}, 400, fleet.BadRequest},
		"a limit of words":        {request{method: "GET", path: "/v1/jobs?limit=all", role: op}, 400, fleet.BadRequest},
		"a log of turn 7":         {request{method: "GET", path: "/v1/jobs/" + id + "/log?turn=7", role: op}, 404, fleet.NotFound},
		"a log of nothing":        {request{method: "GET", path: "/v1/jobs/" + id + "/log", role: op}, 404, fleet.NotFound},
		"events of turn 2":        {request{method: "GET", path: "/v1/jobs/" + id + "/events?turn=2", role: op}, 404, fleet.NotFound},
		"an event id of turn 0":   {request{method: "GET", path: "/v1/jobs/" + id + "/events", role: op, header: map[string]string{"Last-Event-ID": "1-1-0-0-0-0"}}, 404, fleet.NotFound},
		"an event id of nobody":   {request{method: "GET", path: "/v1/jobs/" + id + "/events", role: op, header: map[string]string{"Last-Event-ID": "yesterday"}}, 400, fleet.BadRequest},
		"a setting nobody has":    {request{method: "PUT", path: "/v1/settings/colour", role: ad, body: `{"value":"red"}`}, 400, fleet.BadRequest},
		"a default that is exec":  {request{method: "PUT", path: "/v1/settings/default_harness", role: ad, body: `{"value":"exec"}`}, 400, fleet.BadRequest},
		"a default misspelt":      {request{method: "PUT", path: "/v1/settings/default_harness", role: ad, body: `{"value":"codecs"}`}, 400, fleet.BadRequest},
		"jobs before nothing":     {request{method: "GET", path: "/v1/jobs?before=xyz", role: op}, 400, fleet.BadRequest},
		"a ticket for a crowd":    {request{method: "POST", path: "/v1/tickets", role: ad, body: `{"uses":1000000000}`}, 400, fleet.BadRequest},
		"a role nobody has":       {request{method: "POST", path: "/v1/tokens", role: ad, body: `{"role":"root"}`}, 400, fleet.BadRequest},
		"a token for a second":    {request{method: "POST", path: "/v1/tokens", role: ad, body: `{"role":"viewer","ttl":"1s"}`}, 400, fleet.BadRequest},
		"a ticket for a year":     {request{method: "POST", path: "/v1/tickets", role: ad, body: `{"ttl":"8760h"}`}, 400, fleet.BadRequest},
		"a ticket for nobody":     {request{method: "POST", path: "/v1/tickets", role: ad, body: `{"for":"nobody"}`}, 404, fleet.NotFound},
		"a runner of nobody":      {request{method: "GET", path: "/v1/runners/nobody", role: op}, 404, fleet.NotFound},
		"the last admin token":    {request{method: "DELETE", path: "/v1/tokens/t-admin", role: ad}, 409, fleet.Conflict},
		"a verdict too early":     {request{method: "POST", path: "/v1/jobs/" + id + "/accept", role: op}, 409, fleet.Conflict},
		"a retry too early":       {request{method: "POST", path: "/v1/jobs/" + id + "/retry", role: op}, 409, fleet.Conflict},
	} {
		t.Run(name, func(t *testing.T) { w.refuses(c.r, c.status, c.code) })
	}
	if a := w.do(request{method: "DELETE", path: "/v1/jobs"}); a.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("allowed at /v1/jobs: %q", a.header.Get("Allow"))
	}
	if a := w.do(request{method: "OPTIONS", path: "/v1/jobs"}); a.status != 204 || a.header.Get("Allow") == "" {
		t.Errorf("OPTIONS: %d %v", a.status, a.header)
	}
	if a := w.do(request{method: "HEAD", path: "/v1/jobs", role: op}); a.status != 200 || len(a.body) > 0 {
		t.Errorf("HEAD of the list: %d, %d bytes", a.status, len(a.body))
	}
}

func TestRefusalsOfTheLog(t *testing.T) {
	w := newWorld(t)
	submit := request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}
	for _, c := range []struct {
		err    error
		status int
		code   fleet.Code
		says   string
	}{
		{fmt.Errorf("%w: no leader", fleet.Unavailable), 503, fleet.Unavailable, "try again"},
		{fmt.Errorf("%w: cut", fleet.OutcomeUnknown), 503, fleet.OutcomeUnknown, "same Idempotency-Key"},
		{fmt.Errorf("the clock says 1970: %w", fleet.ClockSkew), 503, fleet.ClockSkew, "1970"},
		{fmt.Errorf("out of cheese"), 500, fleet.Internal, "log"},
	} {
		w.mu.Lock()
		w.fail = c.err
		w.mu.Unlock()
		if p := w.refuses(submit, c.status, c.code); !strings.Contains(p.Detail, c.says) || strings.Contains(p.Detail, "cheese") {
			t.Errorf("%v: %q", c.err, p.Detail)
		}
	}
}

func TestQueueBoundOfAToken(t *testing.T) {
	w := newWorld(t)
	for i := range state.MaxQueuePerUser {
		w.mustAs("t-operator", &state.SubmitJob{ID: fleet.JobID(fmt.Sprintf("%026d", i)), Spec: fleet.Spec{Kind: fleet.KindExec}})
	}
	w.refuses(request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}, 429, fleet.QueueFull)
	if a := w.do(request{method: "POST", path: "/v1/jobs", role: fleet.RoleAdmin, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}); a.status != 201 {
		t.Errorf("another token is held up too: %d %s", a.status, a.body)
	}
}

func TestPanicIsOneProblem(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Status = func() api.Status { panic("a bug") } })
	if p := w.refuses(request{method: "GET", path: "/v1/status", role: fleet.RoleViewer}, 500, fleet.Internal); strings.Contains(p.Detail, "a bug") {
		t.Errorf("the cause is told: %q", p.Detail)
	}
	w.submitted("true") // the node goes on
}

// The audit trail tells from where each thing was asked: as a trusted proxy says, and no
// other; and not while a node of the cluster could not read that.
func TestAuditTellsTheAddress(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	ask := func(peer, forwarded string) string {
		t.Helper()
		r := httptest.NewRequest("POST", "/v1/tickets", strings.NewReader("{}"))
		r.RemoteAddr = peer
		r.Header.Set("Authorization", "Bearer "+w.tokens[fleet.RoleAdmin])
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", forwarded)
		rec := httptest.NewRecorder()
		if w.srv.Handler().ServeHTTP(rec, r); rec.Code != http.StatusCreated {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		var all api.AuditRecords
		if a := w.do(request{method: "GET", path: "/v1/audit?limit=1", role: fleet.RoleAdmin}); json.Unmarshal(a.body, &all) != nil || len(all.Records) != 1 {
			t.Fatalf("%s", a.body)
		}
		return all.Records[0].Address
	}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"10.0.0.1:5", "192.0.2.7", "192.0.2.7"},
		{"192.0.2.9:5", "192.0.2.7", "192.0.2.9"},
		{"[2001:db8::1]:5", "", "2001:db8::1"},
	} {
		if got := ask(c.peer, c.forwarded); got != c.want {
			t.Errorf("from %s by %s: %q on record, want %q", c.forwarded, c.peer, got, c.want)
		}
	}
	w.must(&state.UpdateNode{Node: fleet.HubNode{ID: "n-old", MeshKey: make([]byte, 32), SealKey: make([]byte, 32), Kinds: 2}})
	if got := ask("192.0.2.9:5", ""); got != "" {
		t.Errorf("%q is told to a node that cannot read it", got)
	}
}

func TestProxies(t *testing.T) {
	var seen string
	w := newWorld(t, func(c *Config) {
		c.Proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		c.ProxiesOnly = true
		c.Runners = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RemoteAddr })
	})
	for name, c := range map[string]struct {
		peer, forwarded string
		want            string // empty: refused
	}{
		"a proxy":                       {"10.0.0.1:5", "192.0.2.7", "192.0.2.7:0"},
		"two proxies":                   {"10.0.0.1:5", "192.0.2.7, 10.0.0.2", "192.0.2.7:0"},
		"a client that lies":            {"10.0.0.1:5", "10.9.9.9, 203.0.113.1, 192.0.2.7", "192.0.2.7:0"},
		"a proxy with nothing to say":   {"10.0.0.1:5", "", "10.0.0.1:5"},
		"a proxy that says nonsense":    {"10.0.0.1:5", "unknown", "10.0.0.1:5"},
		"a mapped proxy":                {"[::ffff:10.0.0.1]:5", "192.0.2.7", "192.0.2.7:0"},
		"this machine":                  {"127.0.0.1:5", "192.0.2.7", "127.0.0.1:5"},
		"somebody around the proxy":     {"192.0.2.9:5", "", ""},
		"somebody who pretends a proxy": {"192.0.2.9:5", "10.0.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen = ""
			r := httptest.NewRequest("POST", "/v1/enrol", nil)
			r.RemoteAddr = c.peer
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-For", c.forwarded)
			}
			rec := httptest.NewRecorder()
			w.srv.Handler().ServeHTTP(rec, r)
			if seen != c.want {
				t.Errorf("seen as %q; want %q", seen, c.want)
			}
			if c.want == "" {
				checkProblem(t, name, answer{rec.Code, rec.Header(), rec.Body.Bytes()}, 403, fleet.Forbidden)
			}
		})
	}
}

func TestBodiesOfEveryPostAreChecked(t *testing.T) {
	w := newWorld(t)
	id := string(w.submitted("true"))
	_, ops := w.document()
	for _, o := range ops {
		if o.spec["requestBody"] == nil || o.id == "put-blob" || o.id == "restore-backup" { // their bodies are bytes
			continue
		}
		path := strings.NewReplacer("{id}", id, "{name}", "default_harness").Replace(o.path)
		before := w.stored()
		for _, body := range []any{`{"unheard_of":1}`, `{`, `7`, bytes.Repeat([]byte(" "), 1<<20+1)} {
			a := w.do(request{method: o.method, path: path, role: fleet.RoleAdmin, body: body})
			status, code := 400, fleet.BadRequest
			if b, ok := body.([]byte); ok && len(b) > 1<<20 {
				status, code = 413, fleet.TooLarge
			}
			checkProblem(t, fmt.Sprintf("%s with %.20s", o.id, body), a, status, code)
		}
		if after := w.stored(); after != before {
			t.Errorf("%s: refusals left something: %s, before %s", o.id, after, before)
		}
	}
}
