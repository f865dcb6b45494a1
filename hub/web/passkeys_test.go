package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Flags of what an authenticator says.
const (
	present, verified, eligible, synced, attested = 1, 4, 8, 16, 64
)

// authenticator is one in software, with one key.
type authenticator struct {
	t      testing.TB
	key    *ecdsa.PrivateKey
	id     []byte
	handle []byte // whose the key is
	count  uint32
	origin string // of the page that asks it
	rp     string
	flags  byte
}

func newAuthenticator(t testing.TB) *authenticator {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authenticator{t: t, key: key, id: []byte("the id of one credential"), origin: "https://hub.example", rp: "hub.example", flags: present | verified}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// said is what the browser says of a ceremony.
func (a *authenticator) said(kind string, options any) (client []byte, challenge map[string]any) {
	a.t.Helper()
	o := options.(map[string]any)
	b, err := json.Marshal(map[string]any{"type": "webauthn." + kind, "challenge": o["challenge"], "origin": a.origin, "crossOrigin": false})
	if err != nil {
		a.t.Fatal(err)
	}
	return b, o
}

// data is what the authenticator signs beside that.
func (a *authenticator) data(flags byte, more ...byte) []byte {
	sum := sha256.Sum256([]byte(a.rp))
	out := append(sum[:], flags)
	out = binary.BigEndian.AppendUint32(out, a.count)
	return append(out, more...)
}

// create answers to navigator.credentials.create.
func (a *authenticator) create(options any) map[string]any {
	a.t.Helper()
	client, o := a.said("create", options)
	handle, err := base64.RawURLEncoding.DecodeString(o["user"].(map[string]any)["id"].(string))
	if err != nil {
		a.t.Fatal(err)
	}
	a.handle = handle
	point, err := a.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		a.t.Fatal(err)
	}
	credential := append(make([]byte, 16), 0, byte(len(a.id)))
	credential = append(credential, a.id...)
	credential = append(credential, 0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32) // an EC2 key for ES256, on P-256; x
	credential = append(credential, point[1:33]...)
	credential = append(append(credential, 0x22, 0x58, 32), point[33:]...)
	data := a.data(a.flags|attested, credential...)
	object := append([]byte{0xa3}, "\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"...)
	object = append(append(object, byte(len(data))), data...)
	return map[string]any{
		"id": b64(a.id), "rawId": b64(a.id), "type": "public-key", "clientExtensionResults": map[string]any{},
		"response": map[string]any{"clientDataJSON": b64(client), "attestationObject": b64(object), "transports": []string{"internal"}},
	}
}

// get answers to navigator.credentials.get.
func (a *authenticator) get(options any) map[string]any {
	a.t.Helper()
	client, _ := a.said("get", options)
	data, hash := a.data(a.flags), sha256.Sum256(client)
	sum := sha256.Sum256(append(append([]byte{}, data...), hash[:]...))
	sig, err := ecdsa.SignASN1(rand.Reader, a.key, sum[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return map[string]any{
		"id": b64(a.id), "rawId": b64(a.id), "type": "public-key", "clientExtensionResults": map[string]any{},
		"response": map[string]any{"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(sig), "userHandle": b64(a.handle)},
	}
}

const passkeysAt = "/v1/session/passkeys"

func passkeyWorld(t testing.TB) *world {
	return newWorld(t, func(c *Config) { c.URL, c.PublicURL = "https://hub.example", "https://hub.example" })
}

func (w *world) register(cookie string, a *authenticator) answer {
	w.t.Helper()
	b := get[api.PasskeyBegun](w, by(cookie, request{method: "POST", path: passkeysAt + "/register/begin"}))
	return w.do(by(cookie, request{method: "POST", path: passkeysAt + "/register/finish", body: api.PasskeyAnswer{Ceremony: b.Ceremony, Name: "a laptop", Response: a.create(b.Options)}}))
}

func (w *world) login(a *authenticator) request {
	w.t.Helper()
	b := get[api.PasskeyBegun](w, request{method: "POST", path: passkeysAt + "/login/begin"})
	return request{method: "POST", path: passkeysAt + "/login/finish", body: api.PasskeyAnswer{Ceremony: b.Ceremony, Response: a.get(b.Options)}}
}

func TestPasskey(t *testing.T) {
	w := passkeyWorld(t)
	if ways := get[api.WaysIn](w, request{method: "GET", path: "/v1/session/ways"}); !ways.Passkeys.Offered || ways.Passkeys.WhyNot != "" {
		t.Fatalf("ways in: %+v", ways)
	}
	cookie, _ := w.signedIn(fleet.RoleOperator)
	a := newAuthenticator(t)
	if got := w.register(cookie, a); got.status != 201 {
		t.Fatalf("registered: %d %s", got.status, got.body)
	}
	all := get[api.Passkeys](w, by(cookie, request{method: "GET", path: passkeysAt})).Passkeys
	if len(all) != 1 || all[0].Name != "a laptop" || all[0].ID != b64(a.id) || all[0].UsedAt != nil || all[0].Synced {
		t.Errorf("passkeys: %+v", all)
	}
	if other := get[api.Passkeys](w, request{method: "GET", path: passkeysAt, role: fleet.RoleAdmin}).Passkeys; len(other) != 0 {
		t.Errorf("of another token: %+v", other)
	}
	if got := w.register(cookie, a); got.status != 409 {
		t.Errorf("registered again: %d %s", got.status, got.body)
	}

	a.count = 1
	r := w.login(a)
	in := w.do(r)
	c, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
	if err != nil || in.status != 200 {
		t.Fatalf("signed in: %d %s", in.status, in.body)
	}
	if who := decode[api.SignedIn](t, in); who.Token != "t-operator" || who.Role != fleet.RoleOperator || !c.Secure {
		t.Errorf("signed in as %+v with %s", who, in.header.Get("Set-Cookie"))
	}
	get[api.SignedIn](w, by(c.Name+"="+c.Value, request{method: "GET", path: "/v1/session"}))
	if p := get[api.Passkeys](w, by(cookie, request{method: "GET", path: passkeysAt})).Passkeys[0]; p.UsedAt == nil {
		t.Errorf("after its use: %+v", p)
	}
	w.refuses(r, 409, fleet.Conflict) // the same answer once more
}

// Nothing but the key's holder, verified, at this page, for the challenge that was given,
// opens anything.
func TestPasskeyIsRefused(t *testing.T) {
	w := passkeyWorld(t)
	cookie, _ := w.signedIn(fleet.RoleViewer)
	good := newAuthenticator(t)
	good.count = 5
	if got := w.register(cookie, good); got.status != 201 {
		t.Fatalf("registered: %d %s", got.status, got.body)
	}
	before := len(w.View().SignIns())
	for name, spoil := range map[string]func(a *authenticator, r *request){
		"a page of another site":   func(a *authenticator, r *request) { a.origin = "https://evil.example" },
		"a name of another site":   func(a *authenticator, r *request) { a.rp = "evil.example" },
		"nobody was verified":      func(a *authenticator, r *request) { a.flags = present },
		"nobody was there":         func(a *authenticator, r *request) { a.flags = verified },
		"another key":              func(a *authenticator, r *request) { a.key = newAuthenticator(t).key },
		"another holder":           func(a *authenticator, r *request) { a.handle = make([]byte, 32) },
		"a copy that counts on":    func(a *authenticator, r *request) { a.count = 5 },
		"a credential of nobody":   func(a *authenticator, r *request) { a.id = []byte("another id") },
		"another moment's":         nil,
		"a registration's":         nil,
		"an answer that is no one": nil,
	} {
		a := *good
		a.count++
		if spoil != nil {
			spoil(&a, nil)
		}
		r := w.login(&a)
		body := r.body.(api.PasskeyAnswer)
		want, code := 401, fleet.Unauthorised
		switch name {
		case "another moment's":
			body.Ceremony = get[api.PasskeyBegun](w, request{method: "POST", path: passkeysAt + "/login/begin"}).Ceremony
		case "a registration's":
			body.Ceremony = get[api.PasskeyBegun](w, by(cookie, request{method: "POST", path: passkeysAt + "/register/begin"})).Ceremony
			want, code = 409, fleet.Conflict
		case "an answer that is no one":
			body.Response = map[string]any{"id": "x"}
		}
		r.body = body
		if p := w.refuses(r, want, code); p.Instance != "" {
			t.Errorf("%s: %+v", name, p)
		}
		w.srv.often = newOften()
	}
	if after := len(w.View().SignIns()); after != before {
		t.Errorf("%d sessions began", after-before)
	}
	bad := newAuthenticator(t)
	bad.origin, bad.id = "https://evil.example", []byte("another id")
	if got := w.register(cookie, bad); got.status != 400 {
		t.Errorf("registered at another site's page: %d %s", got.status, got.body)
	}
	w.must(&state.RevokeToken{ID: "t-viewer"})
	good.count += 2
	w.refuses(w.login(good), 401, fleet.Unauthorised)
}

func TestWherePasskeysAreOffered(t *testing.T) {
	for url, want := range map[string]string{
		"": "--public-url", "https://192.0.2.1": "an address", "https://[2001:db8::1]:8443": "an address", "http://127.0.0.1:7440": "an address",
		"https://hub.example": "", "https://hub.example:8443": "", "http://localhost:7440": "",
	} {
		p, why := partyOf(url, false)
		if (p != nil) != (want == "") || !strings.Contains(why, want) || (why == "") != (p != nil) {
			t.Errorf("%q: offered %t, %q", url, p != nil, why)
		}
	}
	if p, why := partyOf("https://hub.example", true); p != nil || !strings.Contains(why, "--tls-cert") {
		t.Errorf("under the hub's own authority: offered %t, %q", p != nil, why)
	}
	if p, _ := partyOf("http://localhost:7440", true); p == nil {
		t.Error("at localhost: not offered")
	}
	w := newWorld(t)
	for _, half := range []string{"/login/begin", "/login/finish"} {
		if p := w.refuses(request{method: "POST", path: passkeysAt + half, body: api.PasskeyAnswer{Response: map[string]any{}}}, 409, fleet.Conflict); !strings.Contains(p.Detail, "--public-url") {
			t.Errorf("%s: %s", half, p.Detail)
		}
	}
	if ways := get[api.WaysIn](w, request{method: "GET", path: "/v1/session/ways"}); ways.Passkeys.Offered || ways.Passkeys.WhyNot == "" {
		t.Errorf("ways in: %+v", ways)
	}
}

// What began is remembered for a while, and not without bound.
func TestCeremoniesAreBounded(t *testing.T) {
	var c ceremonies
	at := time.Now()
	first := c.add("", nil, at)
	mine := c.add("t-1", nil, at)
	if _, err := c.take(mine, "t-2", at); err == nil {
		t.Error("another token ended a ceremony")
	}
	if _, err := c.take(mine, "t-1", at.Add(ceremonyTime)); err == nil {
		t.Error("a ceremony was ended too late")
	}
	if _, err := c.take(mine, "t-1", at); err != nil {
		t.Errorf("the right one: %v", err)
	}
	if _, err := c.take(mine, "t-1", at); err == nil {
		t.Error("a ceremony was ended twice")
	}
	for range 2 * maxCeremonies {
		c.add("", nil, at)
	}
	if _, err := c.take(first, "", at); err == nil || len(c.begun) > maxCeremonies {
		t.Errorf("%d are remembered", len(c.begun))
	}
	c.add("", nil, at.Add(ceremonyTime))
	if len(c.begun) != 1 {
		t.Errorf("%d are remembered after their time", len(c.begun))
	}
}
