package runner

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// A program that is about to be installed is what the ticket says of it, or nothing is.
func TestAProgramHoldsItselfAgainstItsTicket(t *testing.T) {
	program := []byte("the hub's program")
	file := filepath.Join(t.TempDir(), "tugline")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	key := func() (string, minisign.PrivateKey) {
		pub, priv, err := minisign.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return pub.String(), priv
	}
	pub, priv := key()
	_, foreign := key()
	sign := func(k minisign.PrivateKey, b []byte, version, platform string) string {
		return string(minisign.SignWithComments(k, b, "tugline "+version+" "+platform, ""))
	}
	here, own := runtime.GOOS+"/"+runtime.GOARCH, runtime.GOOS+"-"+runtime.GOARCH
	good := sign(priv, program, "1.4.0", here)
	sum := sha256.Sum256(program)
	for _, k := range []struct {
		name   string
		served string // the hub's signature; empty: it has none
		ticket func(*wire.Ticket)
		how    string // it was checked; empty: it is refused
		says   string
	}{
		{"signed", good, nil, "signed for 1.4.0", ""},
		{"signed, a missing file", "", nil, "", "has no signature of it"},
		{"a foreign key", sign(foreign, program, "1.4.0", here), nil, "", "not that of the program"},
		{"of another program", sign(priv, []byte("another"), "1.4.0", here), nil, "", "not that of the program"},
		{"of another version", sign(priv, program, "1.3.0", here), nil, "", "what was signed is 1.3.0"},
		{"of another platform", sign(priv, program, "1.4.0", "plan9/386"), nil, "", "what was signed is 1.4.0 for plan9/386"},
		{"no signature at all", "untrusted comment: x\n", nil, "", "can't be read"},
		{"one cut short", good[:len(good)/2], nil, "", "can't be read"},
		{"another key in the ticket", good, func(k *wire.Ticket) { k.ReleaseKey, _ = key() }, "", "not that of the program"},
		{"no key in the ticket", good, func(k *wire.Ticket) { k.ReleaseKey = "" }, "", "has no key"},
		{"not signed", good, func(k *wire.Ticket) { k.Signed[own] = false }, "by its SHA-256 only: the hub has no signature", ""},
		{"a hub of before", good, func(k *wire.Ticket) { k.Signed, k.ReleaseKey = nil, "" }, "by its SHA-256 only: the ticket does not say", ""},
		{"another program here", "", func(k *wire.Ticket) { k.Programs[own] = fleet.Digest(strings.Repeat("0", 64)) }, "not at all, for it is not the one", ""},
		{"none for this platform", "", func(k *wire.Ticket) { delete(k.Programs, own) }, "not at all, for the ticket names no program", ""},
	} {
		var asked []string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			if k.served == "" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"code":"not_found","detail":"no signature"}`)
				return
			}
			fmt.Fprint(w, k.served)
		}))
		ticket := wire.Ticket{
			Hubs: []string{srv.URL}, Cluster: "c-test", Secret: "a secret", Plain: true, ExpiresAt: time.Unix(2e9, 0).UTC(),
			Programs: map[string]fleet.Digest{own: fleet.Digest(hex.EncodeToString(sum[:]))}, Signed: map[string]bool{own: true}, ReleaseKey: pub,
		}
		if k.ticket != nil {
			k.ticket(&ticket)
		}
		how, err := CheckProgram(t.Context(), ticket.String(), "1.4.0", file)
		srv.Close()
		switch {
		case k.how == "" && (err == nil || !strings.Contains(err.Error(), k.says)):
			t.Errorf("%s: %q, %v; want an error that says %q", k.name, how, err, k.says)
		case k.how != "" && (err != nil || !strings.Contains(how, k.how)):
			t.Errorf("%s: %q, %v; want %q", k.name, how, err, k.how)
		}
		for _, path := range asked {
			if path != "/v1/binaries/"+here+".minisig" {
				t.Errorf("%s: the hub was asked for %s", k.name, path)
			}
		}
	}
}

// While hubs are rolled to another version, one of them has the signature of its own
// program; and a hub that is away for a moment is asked again.
func TestTheSignatureIsLookedForAtEveryHub(t *testing.T) {
	program := []byte("the hub's program")
	file := filepath.Join(t.TempDir(), "tugline")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	own := runtime.GOOS + "-" + runtime.GOARCH
	serve := func(b []byte, away int) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if away--; away >= 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.Write(minisign.SignWithComments(priv, b, update.Comment("1.4.0", runtime.GOOS, runtime.GOARCH), ""))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	for _, k := range []struct {
		name string
		hubs []string
		ok   bool
	}{
		{"another version at the first hub", []string{serve([]byte("older"), 0), serve(program, 0)}, true},
		{"a hub that is away at first", []string{serve(program, 1)}, true},
		{"a hub that stays away", []string{serve(program, 1000)}, false},
	} {
		ticket := wire.Ticket{
			Hubs: k.hubs, Cluster: "c-test", Secret: "a secret", Plain: true, ExpiresAt: time.Unix(2e9, 0).UTC(),
			Programs: map[string]fleet.Digest{own: fleet.Digest(hex.EncodeToString(sum[:]))}, Signed: map[string]bool{own: true}, ReleaseKey: pub.String(),
		}
		if how, err := CheckProgram(t.Context(), ticket.String(), "1.4.0", file); (err == nil) != k.ok {
			t.Errorf("%s: %q, %v", k.name, how, err)
		}
	}
}

// A ticket's key is pinned, whatever the hub answers since; without one it is the hub's.
func TestTheTicketsKeyIsPinned(t *testing.T) {
	pub := func() string {
		k, _, err := minisign.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	ofHub, ofTicket := pub(), pub()
	h := newHub(t)
	h.must(&state.Set{Name: fleet.SettingReleaseKey, Value: ofHub})
	for named, want := range map[string]string{"": ofHub, ofTicket: ofTicket} {
		k, err := wire.ParseTicket(h.ticket())
		if err != nil {
			t.Fatal(err)
		}
		k.ReleaseKey = named
		r, err := New(Config{Dir: t.TempDir(), Name: "box", Ticket: k.String(), Self: self(t), Logger: testLogger("RUNNER_LOG")})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Enrol(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id, err := loadIdentity(r.cfg.Dir); err != nil || id.ReleaseKey != want {
			t.Errorf("the ticket names %q: pinned is %q, %v; want %q", named, id.ReleaseKey, err, want)
		}
	}
}
