package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

func (n *node) keys() []api.Key {
	n.t.Helper()
	var out api.Keys
	if status := n.call("GET", "/v1/keys", "", nil, &out); status != http.StatusOK {
		n.t.Fatalf("keys: status %d", status)
	}
	return out.Keys
}

func TestRotateKeysOfALiveHub(t *testing.T) {
	n := start(t, t.TempDir(), true)
	if got := n.keys(); len(got) != 3 || !got[0].Active || got[0].MadeAt == nil || got[0].Runners == nil {
		t.Fatalf("keys of a new cluster: %+v", got)
	}
	token := func() (k api.Token) {
		t.Helper()
		if status := n.call("POST", "/v1/tokens", "nightly", api.TokenRequest{Role: fleet.RoleViewer}, &k); status != http.StatusCreated {
			t.Fatalf("token: status %d", status)
		}
		return k
	}
	first := token()
	before := n.hub.sessionKeys()
	for i, kind := range []string{"hmac", "hmac", "signing", "signing", "ca"} {
		var r api.Rotation
		if status := n.call("POST", "/v1/keys/rotate", fmt.Sprint("r", i), api.RotateRequest{Kind: kind}, &r); status != http.StatusOK || r.Key.Kind != kind || !r.Key.Active || r.Next == "" {
			t.Fatalf("rotate %s: status %d, %+v", kind, status, r)
		}
	}
	if again := token(); again.Secret != first.Secret || again.ID != first.ID {
		t.Errorf("after rotations the repeat gave token %s; want %s and its secret", again.ID, first.ID)
	}
	after := n.hub.sessionKeys()
	if after.Master != 3 || len(after.Masters) != 3 || len(after.Chain) != 3 || len(after.Pin) != 2 || len(before.Masters) != 1 {
		t.Errorf("in use are %+v", after)
	}
	if _, err := wire.VerifyChain(before.Chain[0].Key, after.Chain); err != nil {
		t.Error(err)
	}
	want := "hmac/1 hmac/2 hmac/3* signing/1 signing/2 signing/3* ca/1 ca/2*"
	var got []string
	for _, k := range n.keys() {
		s := fmt.Sprintf("%s/%d", k.Kind, k.Generation)
		if k.Active {
			s += "*"
		}
		if k.Active == (k.Until != nil) || !k.Holds || k.Kind == fleet.KeyCA == (k.Certificate == "") {
			t.Errorf("%s: %+v", s, k)
		}
		got = append(got, s)
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("keys are %s; want %s", s, want)
	}
	var records api.AuditRecords
	n.call("GET", "/v1/audit", "", nil, &records)
	rotations := slices.DeleteFunc(records.Records, func(r api.AuditRecord) bool { return r.Command != "keys.rotate" })
	if len(rotations) != 5 || rotations[0].Subject != "ca/2" || rotations[0].Detail != n.hub.secrets.newest(fleet.KeyCA).ID {
		t.Errorf("audited: %+v", rotations)
	}
	stored, err := os.ReadFile(filepath.Join(n.hub.cfg.Dir, "secrets", "keys.json"))
	if err != nil || bytes.Count(stored, []byte(`"used":true`)) != 8 {
		t.Errorf("%d keys are marked as used on disk, %v; want 8", bytes.Count(stored, []byte(`"used":true`)), err)
	}
}

// TestKilledWhileRotating kills the hub at every point of every rotation; repeated
// under its key, the rotation happens once, whole.
func TestKilledWhileRotating(t *testing.T) {
	t.Parallel()
	for _, kind := range fleet.KeyKinds {
		for _, point := range []string{keyMade, keyDistributed, keyActivated} {
			t.Run(kind+", "+point, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				c := spawn(t, dir, diesEnv+"="+point)
				token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
				if err != nil {
					c.kill()
					t.Fatal(err)
				}
				call := func(method, path string, in, out any) (int, error) {
					b, err := json.Marshal(in)
					if err != nil {
						t.Fatal(err)
					}
					req, err := http.NewRequest(method, c.url+path, bytes.NewReader(b))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Idempotency-Key", "once")
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						return 0, err
					}
					defer res.Body.Close()
					b, err = io.ReadAll(res.Body)
					if err == nil && out != nil {
						err = json.Unmarshal(b, out)
					}
					return res.StatusCode, err
				}
				if status, err := call("POST", "/v1/keys/rotate", api.RotateRequest{Kind: kind}, nil); err == nil {
					t.Fatalf("the hub lived on: status %d", status)
				}
				c.cmd.Wait() // an error: it was killed
				left := pendingOf(t, dir, kind)
				c = spawn(t, dir)
				defer c.kill()
				var keys api.Keys
				if _, err := call("GET", "/v1/keys", nil, &keys); err != nil {
					t.Fatal(err)
				}
				if n := 3; point == keyActivated && len(keys.Keys) != n+1 || point != keyActivated && len(keys.Keys) != n {
					t.Errorf("%d keys are known to the log after the kill", len(keys.Keys))
				}
				var r api.Rotation
				if status, err := call("POST", "/v1/keys/rotate", api.RotateRequest{Kind: kind}, &r); err != nil || status != http.StatusOK || r.Key.Generation != 2 || !r.Key.Active || r.Key.ID != left.ID {
					t.Errorf("repeated: status %d, %v, %+v; want generation 2, %s", status, err, r.Key, left.ID)
				}
				if _, err := call("GET", "/v1/keys", nil, &keys); err != nil || len(keys.Keys) != 4 {
					t.Errorf("%d keys, %v; want one more than at first", len(keys.Keys), err)
				}
				if k := pendingOf(t, dir, kind); !k.Used {
					t.Error("the key in use is not marked on disk")
				}
			})
		}
	}
}

// pendingOf gives the second generation of a key from the disk.
func pendingOf(t *testing.T, dir, kind string) *heldKey {
	t.Helper()
	c := &script{t: t, dir: dir}
	keys := slices.DeleteFunc(c.stored(), func(k *heldKey) bool { return k.Kind != kind || k.Generation != 2 })
	if len(keys) != 1 {
		t.Fatalf("%d keys of generation 2 on disk; want 1", len(keys))
	}
	return keys[0]
}

// TestHubWithoutItsNewestKey refuses to lead: it would sign with a key that runners
// have left behind.
func TestHubWithoutItsNewestKey(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, true)
	old, err := os.ReadFile(filepath.Join(dir, "secrets", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	if status := n.call("POST", "/v1/keys/rotate", "", api.RotateRequest{Kind: "signing"}, nil); status != http.StatusOK {
		t.Fatalf("rotate: status %d", status)
	}
	n.stop()
	if err := os.WriteFile(filepath.Join(dir, "secrets", "keys.json"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks generation 2") || !strings.Contains(err.Error(), "backup") {
		t.Errorf("Run: %v; want to hear which key is missing", err)
	}
}

// TestDistributeFails: where another node does not take the new key, nothing is
// replaced, and the next try uses the same one.
func TestDistributeFails(t *testing.T) {
	n := start(t, t.TempDir(), true)
	var sent []*heldKey
	var p api.Problem
	away := errAway("n-2")
	n.hub.keyPeers.distribute = func(_ context.Context, k sealable) error {
		s, err := loadSelf(t.TempDir())
		if err != nil {
			return err
		}
		b, err := k.Seal(s.sealPublic())
		if err == nil {
			b, err = s.open(b)
		}
		var f keyFile
		if err = errors.Join(err, json.Unmarshal(b, &f)); err != nil {
			t.Errorf("what is sealed cannot be opened: %v", err)
			return err
		}
		sent = append(sent, f.Keys...)
		return away
	}
	if status := n.call("POST", "/v1/keys/rotate", "", api.RotateRequest{Kind: "hmac"}, &p); status != http.StatusConflict || !strings.Contains(p.Detail, "n-2") || len(n.keys()) != 3 {
		t.Errorf("status %d, %q, %d keys; want a refusal that names the node and changes nothing", status, p.Detail, len(n.keys()))
	}
	away = nil
	if status := n.call("POST", "/v1/keys/rotate", "", api.RotateRequest{Kind: "hmac"}, nil); status != http.StatusOK || len(n.keys()) != 4 {
		t.Errorf("status %d, %d keys", status, len(n.keys()))
	}
	if len(sent) != 2 || !bytes.Equal(sent[0].Secret, sent[1].Secret) || sent[0].digest() != n.hub.entries.View().Keys("hmac")[1].Digest {
		t.Errorf("%d keys were handed over; want the same one twice, the one in use", len(sent))
	}
}

// TestRotateCAOfALiveHub: nobody who trusts one of two CAs is turned away before the
// overlap ends.
func TestRotateCAOfALiveHub(t *testing.T) { // not beside others: its overlap is three seconds
	dir := t.TempDir()
	n := startWith(t, Config{Dir: dir, Bootstrap: true, Listen: "0.0.0.0:0", PublicURL: ""}, time.Now)
	_, port, _ := net.SplitHostPort(n.hub.listener.Addr().String())
	file := func() []byte {
		b, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	dial := func(pem []byte) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		c, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port), &tls.Config{RootCAs: roots})
		if err == nil {
			c.Close()
		}
		return err
	}
	first := file()
	if err := dial(first); err != nil {
		t.Fatal(err)
	}
	res, err := n.hub.rotate(t.Context(), state.Head{Actor: "hub"}, fleet.KeyCA, 3*time.Second)
	if err = errors.Join(err, res.Err()); err != nil {
		t.Fatal(err)
	}
	both := file()
	second, ok := bytes.CutPrefix(both, first)
	if !ok || bytes.Count(both, []byte("BEGIN CERTIFICATE")) != 2 {
		t.Fatalf("ca.pem is %s", both)
	}
	text, _, err := n.hub.Ticket(t.Context(), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := wire.ParseTicket(text)
	if err != nil || len(ticket.Pins) != 1 || bytes.Equal(ticket.Pin, ticket.Pins[0]) {
		t.Errorf("a ticket of the overlap pins %x and %x, %v; want both CAs", ticket.Pin, ticket.Pins, err)
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		end := time.After(20 * time.Second)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for !ok() {
			select {
			case <-end:
				t.Fatalf("waited for: %s", what)
			case <-tick.C:
			}
		}
	}
	for _, pem := range [][]byte{first, both} {
		if err := dial(pem); err != nil {
			t.Errorf("announced: %v", err)
		}
	}
	wait("the new CA serves", func() bool { return dial(second) == nil })
	if err := dial(first); err != nil {
		t.Errorf("who trusts the old CA alone is turned away within the overlap: %v", err)
	}
	wait("the overlap ends", func() bool {
		// Time passes with what happens.
		_, err := n.hub.entries.Propose(t.Context(), &state.Set{Name: "a", Value: "b"})
		return err == nil && dial(first) != nil
	})
	if err := dial(second); err != nil {
		t.Errorf("after the overlap: %v", err)
	}
	wait("ca.pem has the new CA alone", func() bool { return bytes.Equal(file(), second) })
}

// TestFirstFormCanRotate: a cluster of the first version replaces its CA like any
// other, and runners that pin it follow.
func TestFirstFormCanRotate(t *testing.T) {
	dir := t.TempDir()
	copySecrets(t, dir)
	s, err := loadSecrets(dir, "c-test", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range fleet.KeyKinds {
		k, err := s.next(kind, time.Now())
		if err != nil || !k.follows(s.newest(kind)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
