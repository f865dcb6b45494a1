package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestEveryOperationAsksForItsRole(t *testing.T) {
	w := newWorld(t)
	w.must(&state.CreateToken{Token: fleet.Token{ID: "t-revoked", Role: fleet.RoleAdmin, Hash: HashSecret("revoked")}})
	w.must(&state.RevokeToken{ID: "t-revoked"})
	w.must(&state.CreateToken{TTL: time.Nanosecond, Token: fleet.Token{ID: "t-expired", Role: fleet.RoleAdmin, Hash: HashSecret("expired")}})
	_, ops := w.document()
	if len(ops) != len(roles)+len(openOps) {
		t.Errorf("the document has %d operations, the test knows %d", len(ops), len(roles)+len(openOps))
	}
	for _, o := range ops {
		if slices.Contains(openOps, o.id) {
			if _, closed := o.spec["x-role"]; closed {
				t.Errorf("%s: the document says role %v; want none", o.id, o.spec["x-role"])
			}
			continue
		}
		need, ok := roles[o.id]
		if !ok {
			t.Errorf("operation %s is not in the table of roles", o.id)
			continue
		}
		if o.spec["x-role"] != string(need) {
			t.Errorf("%s: the document says role %v; want %s", o.id, o.spec["x-role"], need)
		}
		path := strings.NewReplacer("{id}", "nothing", "{name}", "default_harness", "{origin}", "manual", "{sid}", "nothing", "{node}", "n-test", "{pid}", "nothing", "{sha256}", strings.Repeat("0", 64)).Replace(o.path)
		try := func(who, token string, status int, code fleet.Code) {
			t.Helper()
			r := request{method: o.method, path: path, token: token}
			if o.method == http.MethodHead {
				if a := w.do(r); a.status != status {
					t.Errorf("%s with %s: status %d; want %d", o.id, who, a.status, status)
				}
				return
			}
			if p := w.refuses(r, status, code); !strings.Contains(p.Detail, "token") && status == 401 {
				t.Errorf("%s with %s: %q does not say what is wrong", o.id, who, p.Detail)
			}
		}
		try("no token", "", 401, fleet.Unauthorised)
		try("an unknown token", "made up", 401, fleet.Unauthorised)
		try("a revoked token", "revoked", 401, fleet.Unauthorised)
		try("an expired token", "expired", 401, fleet.Unauthorised)
		for role, secret := range w.tokens {
			if role.Rank() < need.Rank() {
				try("the role "+string(role), secret, 403, fleet.Forbidden)
				continue
			}
			if o.id == "stream-events" || o.id == "stream-feed" {
				continue // would not end; its own tests have the right role
			}
			if a := w.do(request{method: o.method, path: path, token: secret}); a.status == 401 || a.status == 403 {
				t.Errorf("%s with the role %s: status %d", o.id, role, a.status)
			}
		}
	}
	if a := w.do(request{method: "GET", path: "/v1/jobs"}); a.header.Get("WWW-Authenticate") == "" {
		t.Error("a 401 does not say how to authenticate")
	}
	for _, scheme := range []string{"Basic ", "bearer", "Bearer", "Bearer  "} {
		w.refuses(request{method: "GET", path: "/v1/jobs", header: map[string]string{"Authorization": scheme + w.tokens[fleet.RoleAdmin]}}, 401, fleet.Unauthorised)
	}
}

func TestOptionsThatNeedAdmin(t *testing.T) {
	w := newWorld(t)
	id := string(w.submitted("true"))
	for _, r := range []request{
		{path: "/v1/jobs/" + id + "/cancel", body: api.Cancel{Abandon: true}},
	} {
		r.method, r.role = "POST", fleet.RoleOperator
		w.refuses(r, 403, fleet.Forbidden)
		r.role = fleet.RoleAdmin
		if a := w.do(r); a.status == 403 {
			t.Errorf("%s as admin: %d %s", r.path, a.status, a.body)
		}
	}
}

func TestPlainRoutes(t *testing.T) {
	var broken error
	w := newWorld(t, func(c *Config) { c.Ready = func() error { return broken } })
	if a := w.do(request{method: "GET", path: "/healthz"}); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	if a := w.do(request{method: "GET", path: "/readyz"}); a.status != 200 {
		t.Errorf("readyz: %d", a.status)
	}
	broken = fleet.Unavailable
	w.refuses(request{method: "GET", path: "/readyz"}, 503, fleet.Unavailable)
	broken = context.DeadlineExceeded
	p := w.refuses(request{method: "GET", path: "/readyz"}, 500, fleet.Internal)
	if strings.Contains(p.Detail, "deadline") || p.Instance == "" {
		t.Errorf("an internal failure: %+v; want the cause kept in the log, under a reference", p)
	}
	w.refuses(request{method: "GET", path: "/metrics"}, 401, fleet.Unauthorised)
	a := w.do(request{method: "GET", path: "/metrics", role: fleet.RoleViewer})
	if a.status != 200 || !strings.Contains(string(a.body), "tugline_jobs_queued 0") {
		t.Errorf("metrics: %d %.200s", a.status, a.body)
	}
}

func TestStreamsEndWithTheirToken(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	feed, job := w.events("/v1/events", ""), w.events("/v1/jobs/"+string(id)+"/events", "")
	w.write(id, f, out("a\n"))
	log := w.open("/v1/jobs/"+string(id)+"/log?follow=true", nil)
	if _, err := io.ReadFull(log.Body, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	w.must(&state.RevokeToken{ID: fleet.TokenID("t-" + fleet.RoleViewer)})
	for _, r := range []*reader{feed, job} {
		for ok := true; ok; {
			_, ok = r.next() // fails where the stream stays open
		}
	}
	cut := time.AfterFunc(patience, func() { log.Body.Close() })
	defer cut.Stop()
	if rest, err := io.ReadAll(log.Body); len(rest) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("followed log after its token was revoked: %q, %v; want it cut", rest, err)
	}
}

// People are told by the names of their tokens; the ids stay beside them.
func TestNamesOfTokens(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	w.must(&state.CreateToken{Token: fleet.Token{ID: "t-named", Name: "ida's laptop", Role: fleet.RoleAdmin, Hash: HashSecret("named")}})
	ask := func(method, path string, body any) request {
		return request{method: method, path: path, token: "named", body: body}
	}
	j := get[api.Job](w, ask("POST", "/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}))
	c := get[api.Circuit](w, ask("POST", "/v1/circuits/open", api.OpenCircuit{Scope: fleet.ScopeHost, Runner: "lead", Reason: "call"}))
	r := get[api.Runner](w, ask("POST", "/v1/runners/lead/cordon", api.Cordon{Reason: "backup"}))
	a := get[api.AuditRecords](w, ask("GET", "/v1/audit?limit=1", nil)).Records[0]
	w.must(&state.FinishAttempt{Job: j.ID, Fence: w.running(j.ID, "r-lead"), Exit: fleet.Exit{Reason: "exited"}, StartedAt: time.Now(), FinishedAt: time.Now(),
		Verdict: &fleet.Verdict{Decision: fleet.Ask, By: "gate"}})
	v := get[api.Job](w, ask("POST", "/v1/jobs/"+string(j.ID)+"/accept", nil))
	for _, got := range [][2]string{{v.Verdict.By, v.VerdictByName}, {j.Actor, j.ActorName}, {c.Actor, c.ActorName}, {r.Hold.Actor, r.Hold.ActorName}, {a.Actor, a.ActorName}} {
		if got != [2]string{"t-named", "ida's laptop"} {
			t.Errorf("told as %q", got)
		}
	}
	e := get[api.Explanation](w, ask("GET", "/v1/jobs/"+string(j.ID)+"/explain", nil))
	if text := fmt.Sprintf("%+v", e.Runners); strings.Contains(text, "t-named") {
		t.Errorf("explained as %s", text)
	}
	if n := get[api.Runner](w, request{method: "POST", path: "/v1/runners/lead/cordon", role: fleet.RoleAdmin, body: api.Cordon{}}).Hold; n.Actor != "t-admin" || n.ActorName != "" {
		t.Errorf("a token without a name: %+v", n)
	}
}
