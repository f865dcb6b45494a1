package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// signedIn begins a session with the token of a role and gives its cookie, as a browser
// would send it.
func (w *world) signedIn(role fleet.Role) (cookie string, who api.SignedIn) {
	w.t.Helper()
	r := request{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: w.tokens[role]}, header: map[string]string{"User-Agent": "a browser"}}
	a := w.do(r)
	c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if a.status != 200 || err != nil {
		w.t.Fatalf("sign in as %s: %d %s %v", role, a.status, a.body, err)
	}
	return c.Name + "=" + c.Value, decode[api.SignedIn](w.t, a)
}

func decode[T any](t testing.TB, a answer) (out T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return out
}

// by makes a request one of the page with a cookie.
func by(cookie string, r request) request {
	h := map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
	for k, v := range r.header {
		h[k] = v
	}
	r.header = h
	return r
}

func TestSession(t *testing.T) {
	for _, url := range []string{"https://hub.example", "http://127.0.0.1:7440"} {
		w := newWorld(t, func(c *Config) { c.URL = url })
		a := w.do(request{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: w.tokens[fleet.RoleOperator]}})
		c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != "tugline_session" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Secure != strings.HasPrefix(url, "https") {
			t.Errorf("the cookie at %s: %s", url, a.header.Get("Set-Cookie"))
		}
		if d := time.Until(c.Expires); d < fleet.SignInTime-time.Hour || d > fleet.SignInTime {
			t.Errorf("the cookie lasts %s; want twelve hours", d)
		}
		who := decode[api.SignedIn](t, a)
		if who.Role != fleet.RoleOperator || who.Token != "t-operator" || who.Session == "" || who.Cluster != "c-test" || who.Node != "n-test" || !who.ExpiresAt.Truncate(time.Second).Equal(c.Expires) {
			t.Errorf("signed in: %+v", who)
		}
		if bytes.Contains(a.body, []byte(c.Value)) || strings.Contains(fmt.Sprint(w.View().SignIns()[0]), c.Value) {
			t.Error("the secret of a session is shown or kept")
		}
	}

	w := newWorld(t)
	cookie, who := w.signedIn(fleet.RoleOperator)
	if got := get[api.SignedIn](w, by(cookie, request{method: "GET", path: "/v1/session"})); got.Session != who.Session || got.Role != fleet.RoleOperator {
		t.Errorf("who asks: %+v", got)
	}
	if got := get[api.SignedIn](w, request{method: "GET", path: "/v1/session", role: fleet.RoleViewer}); got.Session != "" || got.Token != "t-viewer" || got.ExpiresAt != nil {
		t.Errorf("who asks by a token: %+v", got)
	}
	get[api.Job](w, by(cookie, request{method: "POST", path: "/v1/jobs", body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}))
	records := get[api.AuditRecords](w, request{method: "GET", path: "/v1/audit", role: fleet.RoleAdmin}).Records
	if records[0].Command != "job.submit" || records[0].Actor != "t-operator" || records[1].Command != "session.begin" || records[1].Subject != who.Session {
		t.Errorf("audited: %+v", records[:2])
	}
	if all := get[api.SignIns](w, request{method: "GET", path: "/v1/sign-ins", role: fleet.RoleAdmin}).SignIns; len(all) != 1 || all[0].ID != who.Session || all[0].Agent != "a browser" || all[0].Address == "" {
		t.Errorf("open sessions: %+v", all)
	}

	a := w.do(by(cookie, request{method: "DELETE", path: "/v1/session"}))
	if c, err := http.ParseSetCookie(a.header.Get("Set-Cookie")); a.status != 204 || err != nil || c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("signed out: %d %q", a.status, a.header.Get("Set-Cookie"))
	}
	w.refuses(by(cookie, request{method: "GET", path: "/v1/session"}), 401, fleet.Unauthorised)
	w.refuses(request{method: "DELETE", path: "/v1/session", role: fleet.RoleViewer}, 400, fleet.BadRequest)

	cookie, who = w.signedIn(fleet.RoleViewer)
	if a := w.do(request{method: "DELETE", path: "/v1/sign-ins/" + who.Session, role: fleet.RoleAdmin}); a.status != 204 {
		t.Errorf("ended by an admin: %d %s", a.status, a.body)
	}
	w.refuses(by(cookie, request{method: "GET", path: "/v1/jobs"}), 401, fleet.Unauthorised)
}

// A session ends with its token and with its time; so does a stream that it opened.
func TestSessionEnds(t *testing.T) {
	var at time.Time
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return at } })
	at = time.Now()
	first, _ := w.signedIn(fleet.RoleViewer)
	res := w.open("/v1/events", map[string]string{"Authorization": "", "Cookie": first})
	feed := &reader{t, res, bufio.NewReader(res.Body)}
	w.must(&state.RevokeToken{ID: "t-viewer"})
	for ok := true; ok; {
		_, ok = feed.next() // fails where the stream stays open
	}
	w.refuses(by(first, request{method: "GET", path: "/v1/session"}), 401, fleet.Unauthorised)

	second, _ := w.signedIn(fleet.RoleOperator)
	at = at.Add(fleet.SignInTime - time.Minute)
	get[api.SignedIn](w, by(second, request{method: "GET", path: "/v1/session"}))
	at = at.Add(2 * time.Minute)
	w.refuses(by(second, request{method: "GET", path: "/v1/session"}), 401, fleet.Unauthorised)
}

// Nothing is read or changed without a credential that works, in no operation that
// there is, and nothing by a page of another site.
func TestNothingWithoutACredential(t *testing.T) {
	w := newWorld(t)
	w.enrolled("lead")
	w.submitted("true")
	viewer, _ := w.signedIn(fleet.RoleViewer)
	admin, _ := w.signedIn(fleet.RoleAdmin)
	ended, who := w.signedIn(fleet.RoleAdmin)
	w.must(&state.SignOut{ID: who.Session})
	before := w.View().Meta().Index
	_, ops := w.document()
	tried := 0
	for _, o := range ops {
		path := strings.NewReplacer("{id}", "lead", "{name}", "default_harness", "{origin}", "manual", "{sid}", "nothing", "{node}", "n-test", "{pid}", "nothing", "{sha256}", strings.Repeat("0", 64)).Replace(o.path)
		try := func(who string, header map[string]string, want int) {
			t.Helper()
			tried++
			a := w.do(request{method: o.method, path: path, header: header})
			if a.status != want {
				t.Errorf("%s by %s: %d %.200s; want %d", o.id, who, a.status, a.body, want)
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s by %s: %v", o.id, who, a.header)
			}
		}
		foreign := map[string]map[string]string{
			"a page of another site":           {"Cookie": admin, "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
			"a page of another port":           {"Cookie": admin, "Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
			"an old browser with another page": {"Cookie": admin, "Origin": "https://evil.example"},
		}
		need, closed := o.spec["x-role"].(string)
		if !closed && !slices.Contains(openOps, o.id) {
			t.Errorf("%s is open to everybody", o.id)
		}
		if !closed {
			for who, h := range foreign {
				try(who, h, 403)
			}
			continue
		}
		try("nobody", nil, 401)
		try("an ended session", map[string]string{"Cookie": ended, "Sec-Fetch-Site": "same-origin"}, 401)
		try("a cookie that is made up", map[string]string{"Cookie": cookieName + "=tgs_x", "Sec-Fetch-Site": "same-origin"}, 401)
		try("an empty cookie", map[string]string{"Cookie": cookieName + "=", "Sec-Fetch-Site": "same-origin"}, 401)
		try("a token where a cookie belongs", map[string]string{"Cookie": cookieName + "=" + w.tokens[fleet.RoleAdmin], "Sec-Fetch-Site": "same-origin"}, 401)
		try("a cookie where a token belongs", map[string]string{"Authorization": "Bearer " + strings.TrimPrefix(admin, cookieName+"=")}, 401)
		for who, h := range foreign {
			try(who, h, 403)
		}
		if fleet.Role(need).Rank() > fleet.RoleViewer.Rank() {
			try("a viewer", map[string]string{"Cookie": viewer, "Sec-Fetch-Site": "same-origin"}, 403)
		}
	}
	if tried < 300 {
		t.Errorf("only %d requests were made", tried)
	}
	w.refuses(request{method: "GET", path: "/metrics", header: map[string]string{"Cookie": ended}}, 401, fleet.Unauthorised)
	if a := w.do(by(viewer, request{method: "GET", path: "/metrics"})); a.status != 200 {
		t.Errorf("the metrics by a session: %d", a.status)
	}
	if after := w.View().Meta().Index; after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// Behind a proxy that names another host, the origin that the operator named is the page's.
func TestPageBehindAProxy(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.URL, c.PublicURL = "https://hub.example", "https://hub.example" })
	cookie, _ := w.signedIn(fleet.RoleOperator)
	for origin, want := range map[string]int{"https://hub.example": 200, "https://evil.example": 403, "http://hub.example": 403} {
		if a := w.do(request{method: "POST", path: "/v1/runners/none/cordon", header: map[string]string{"Cookie": cookie, "Origin": origin}}); a.status == 403 != (want == 403) {
			t.Errorf("from %s: %d %s", origin, a.status, a.body)
		}
	}
}

// A node that has not read its log yet says so, and calls no session and no passkey unknown.
func TestSignInWaitsForTheLog(t *testing.T) {
	var settled atomic.Bool
	w := newWorld(t, func(c *Config) { c.Settled, c.PublicURL = settled.Load, "https://hub.example" })
	settled.Store(true)
	cookie, _ := w.signedIn(fleet.RoleViewer)
	settled.Store(false)
	for _, r := range []request{
		by(cookie, request{method: "GET", path: "/v1/session"}),
		{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: w.tokens[fleet.RoleViewer]}},
		{method: "POST", path: passkeysAt + "/login/finish", body: api.PasskeyAnswer{Response: map[string]any{}}},
	} {
		w.refuses(r, 503, fleet.Unavailable)
	}
	if a := w.do(request{method: "GET", path: "/"}); a.status != 200 {
		t.Errorf("the page: %d", a.status)
	}
}

func TestSignInIsBounded(t *testing.T) {
	w := newWorld(t)
	wrongToken := request{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: "a guess"}}
	for range 2 * triesAtOnce {
		w.signedIn(fleet.RoleAdmin) // who has a token is not kept out
	}
	for i := range triesAtOnce {
		if a := w.do(wrongToken); a.status != 401 {
			t.Fatalf("guess %d: %d %s", i, a.status, a.body)
		}
	}
	w.refuses(wrongToken, 429, fleet.TooOften)
	w.refuses(request{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: w.tokens[fleet.RoleAdmin]}}, 429, fleet.TooOften)
	w.refuses(request{method: "POST", path: "/v1/session", body: api.SignInRequest{Token: strings.Repeat("x", 513)}}, 400, fleet.BadRequest)
}

func TestOften(t *testing.T) {
	o, at := newOften(), time.Now()
	take := func(address string) bool { _, ok := o.take(address, at); return ok }
	for i := range triesAtOnce {
		if !take("192.0.2.1:10") {
			t.Fatalf("try %d was refused", i)
		}
	}
	if wait, ok := o.take("[::ffff:192.0.2.1]:99", at); ok || wait <= 0 || wait > triesPause {
		t.Errorf("one more, from another port: %t, after %s", ok, wait)
	}
	if !take("192.0.2.2:10") {
		t.Error("another address was refused")
	}
	at = at.Add(triesPause)
	if !take("192.0.2.1:10") || take("192.0.2.1:10") {
		t.Error("after the pause one try is allowed, and no more")
	}
	for i := range triesAtOnce {
		take(fmt.Sprintf("[2001:db8::%x]:1", i))
	}
	if take("[2001:db8::ffff]:1") || !take("[2001:db8:0:1::1]:1") {
		t.Error("addresses of one IPv6 network count together, and of two apart")
	}
	// Many addresses together are bounded too, and so is what is remembered of them.
	allowed := 0
	for i := range 3 * maxTriers {
		at = at.Add(time.Millisecond)
		if take(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)) {
			allowed++
		}
	}
	if most := allTriesAtOnce + int(3*maxTriers*time.Millisecond/allTriesPause); allowed > most || allowed < most/2 || len(o.by) > maxTriers {
		t.Errorf("%d tries were allowed, at most %d; %d addresses are remembered", allowed, most, len(o.by))
	}
}
