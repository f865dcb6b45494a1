package web

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestEveryCreationHappensOnce(t *testing.T) {
	w := newWorld(t)
	agent := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleAdmin, body: api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: "begin"}})
	for _, c := range []struct {
		path        string
		body, other any
		count       func() int
	}{
		{"/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, api.Submit{Kind: fleet.KindExec, Argv: []string{"false"}}, func() int { return w.View().Count("jobs") }},
		{"/v1/jobs/" + string(agent.ID) + "/follow-ups", api.FollowUp{Prompt: "a"}, api.FollowUp{Prompt: "b"}, func() int { j, _ := w.View().Job(agent.ID); return len(j.FollowUps) }},
		{"/v1/tokens", api.TokenRequest{Role: fleet.RoleViewer}, api.TokenRequest{Role: fleet.RoleOperator}, func() int { return len(w.View().Tokens()) }},
		{"/v1/tickets", api.TicketRequest{TTL: "1h"}, api.TicketRequest{TTL: "2h"}, func() int {
			n := 0
			for _, a := range w.View().Audit(0, 1000) {
				if a.Command == "ticket.create" {
					n++
				}
			}
			return n
		}},
	} {
		t.Run(c.path, func(t *testing.T) {
			before := c.count()
			r := request{method: "POST", path: c.path, role: fleet.RoleAdmin, key: "k", body: c.body}
			first := w.do(r)
			if first.status/100 != 2 {
				t.Fatalf("first: %d %s", first.status, first.body)
			}
			again := w.do(r)
			if again.status != first.status || string(again.body) != string(first.body) {
				t.Errorf("the same key and body: %d %s\nfirst: %d %s", again.status, again.body, first.status, first.body)
			}
			r.body = c.other
			w.refuses(r, 409, fleet.KeyReused)
			if n := c.count() - before; n != 1 {
				t.Errorf("created %d; want 1", n)
			}
			r.key = "k2"
			if other := w.do(r); other.status != first.status || string(other.body) == string(first.body) {
				t.Errorf("another key: %d %s", other.status, other.body)
			}
			r.key = "" // without a key everything is new
			w.do(r)
			w.do(r)
			if n := c.count() - before; n != 4 {
				t.Errorf("created %d in all; want 4", n)
			}
		})
	}
}

func TestKeysBelongToTheirToken(t *testing.T) {
	w := newWorld(t)
	r := request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, key: "shared", body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}
	a := get[api.Job](w, r)
	r.role = fleet.RoleAdmin
	if b := get[api.Job](w, r); a.ID == b.ID {
		t.Errorf("two tokens share job %s under one key", a.ID)
	}
}

func TestKeyedSecretsWork(t *testing.T) {
	w := newWorld(t)
	r := request{method: "POST", path: "/v1/tokens", role: fleet.RoleAdmin, key: "nightly", body: api.TokenRequest{Role: fleet.RoleOperator}}
	k := get[api.Token](w, r)
	if !strings.HasPrefix(k.Secret, "tgl_") || len(k.Secret) != len("tgl_")+43 {
		t.Errorf("secret %q", k.Secret)
	}
	if a := w.do(request{method: "GET", path: "/v1/jobs", token: k.Secret}); a.status != 200 {
		t.Errorf("the token does not work: %d %s", a.status, a.body)
	}
	if a := w.do(request{method: "GET", path: "/v1/tokens", role: fleet.RoleAdmin}); strings.Contains(string(a.body), k.Secret) || strings.Contains(string(a.body), `"hash"`) {
		t.Error("the list of tokens shows a secret or its hash")
	}
	// Within a day of its creation a repeat gives it again, also after midnight.
	w.at = time.Now().Add(23 * time.Hour)
	w.must(&state.Expire{AuditAge: time.Hour, Limit: 10})
	if again := get[api.Token](w, r); again.Secret != k.Secret || again.ID != k.ID {
		t.Errorf("after 23 h: token %s; want %s and the same secret", again.ID, k.ID)
	}
	// Once the key is forgotten it makes another one, with another secret.
	w.at = time.Now().Add(49 * time.Hour)
	w.must(&state.Expire{AuditAge: time.Hour, Limit: 10})
	if next := get[api.Token](w, r); next.Secret == k.Secret || next.ID == k.ID {
		t.Errorf("after two days the key gave the old token %s again", next.ID)
	}
}

// TestKeyedSecretAfterRotation: a repeat gives the same secret also when the key that
// it comes from was replaced since, as long as the hub has that key.
func TestKeyedSecretAfterRotation(t *testing.T) {
	masters := []string{"one"}
	w := newWorld(t, func(c *Config) {
		derive := c.Derive
		c.Derive = func(text string, back int) []byte {
			if back >= len(masters) {
				return nil
			}
			return derive(masters[back]+text, 0)
		}
	})
	for _, r := range []request{
		{path: "/v1/tokens", body: api.TokenRequest{Role: fleet.RoleOperator}},
		{path: "/v1/tickets", body: api.TicketRequest{}},
	} {
		r.method, r.role, r.key = "POST", fleet.RoleAdmin, "k"
		masters = []string{"one"}
		first := string(w.do(r).body)
		masters = []string{"three", "two", "one"}
		if again := string(w.do(r).body); again != first {
			t.Errorf("%s gave %s, then %s", r.path, first, again)
		}
		masters = []string{"three", "two"}
		if p := w.refuses(r, 409, fleet.Conflict); !strings.Contains(p.Detail, "new key") {
			t.Errorf("%s: %q does not say what to do", r.path, p.Detail)
		}
	}
}

func TestKeyedSecretThatCannotBeShownAgain(t *testing.T) {
	master := "one"
	w := newWorld(t, func(c *Config) {
		derive := c.Derive
		c.Derive = func(text string, back int) []byte { return derive(master+text, back) }
	})
	for _, r := range []request{
		{path: "/v1/tokens", body: api.TokenRequest{Role: fleet.RoleOperator}},
		{path: "/v1/tickets", body: api.TicketRequest{}},
	} {
		r.method, r.role, r.key = "POST", fleet.RoleAdmin, "k"
		master = "one"
		get[map[string]any](w, r)
		master = "another" // as where the keys were lost
		if p := w.refuses(r, 409, fleet.Conflict); !strings.Contains(p.Detail, "new key") {
			t.Errorf("%s: %q does not say what to do", r.path, p.Detail)
		}
	}
}
