package hub

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// script is a log that a test writes entry by entry, and keys that follow it.
type script struct {
	t     *testing.T
	dir   string
	s     *secrets
	m     *state.Machine
	index uint64
	now   time.Time
}

func newScript(t *testing.T) *script {
	t.Helper()
	c := &script{t: t, dir: t.TempDir(), m: state.New(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	c.s = c.load(true)
	for _, kind := range fleet.KeyKinds {
		c.activate(c.s.newest(kind), 0)
	}
	c.follows()
	return c
}

func (c *script) load(fresh bool) *secrets {
	c.t.Helper()
	s, err := loadSecrets(c.dir, "c-test", fresh)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *script) do(cmd state.Command) {
	c.t.Helper()
	b, err := state.Encode(state.Head{At: c.now, Actor: "hub"}, cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	c.index++
	res, _, err := c.m.Apply(c.index, b)
	if err = errors.Join(err, res.Err()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *script) activate(k *heldKey, keep time.Duration) { c.t.Helper(); c.do(k.activation(keep)) }

// pass lets state time go on.
func (c *script) pass(d time.Duration) {
	c.t.Helper()
	c.now = c.now.Add(d)
	c.do(&state.Set{Name: "a", Value: "b"})
}

// follows has the keys follow the log; it gives whether anything is another.
func (c *script) follows() bool {
	c.t.Helper()
	missing, changed, err := c.s.follow(c.m.View())
	if err != nil || len(missing) > 0 {
		c.t.Fatalf("missing %v, %v", missing, err)
	}
	return changed
}

// rotate makes a key the active one.
func (c *script) rotate(kind string, keep time.Duration) *heldKey {
	c.t.Helper()
	k, err := c.s.next(kind, c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	c.activate(k, keep)
	if !c.follows() {
		c.t.Errorf("%s was replaced and nothing is another", kind)
	}
	return k
}

// stored gives the keys on disk.
func (c *script) stored() []*heldKey {
	c.t.Helper()
	var f keyFile
	b, err := os.ReadFile(filepath.Join(c.dir, "secrets", "keys.json"))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return f.Keys
}

func TestMastersEnd(t *testing.T) {
	c := newScript(t)
	one := c.s.newest(fleet.KeyHMAC)
	if c.follows() {
		t.Error("another value without a reason")
	}
	two := c.rotate(fleet.KeyHMAC, fleet.HMACKeep)
	c.pass(10 * day)
	three := c.rotate(fleet.KeyHMAC, fleet.HMACKeep)
	is := func(when string, holds, ended []*heldKey) {
		t.Helper()
		k := c.s.use.Load().session
		if k.Master != 3 || len(k.Masters) != len(holds) || len(k.Ended) != len(ended) {
			t.Errorf("%s: master %d, %d hold, %d ended; want 3, %d, %d", when, k.Master, len(k.Masters), len(k.Ended), len(holds), len(ended))
		}
		for _, h := range holds {
			if !bytes.Equal(k.Masters[h.Generation], h.Secret) {
				t.Errorf("%s: generation %d is not taken", when, h.Generation)
			}
		}
		for _, h := range ended {
			if !bytes.Equal(k.Ended[h.Generation], h.Secret) {
				t.Errorf("%s: generation %d is not known to have ended", when, h.Generation)
			}
		}
	}
	is("at once", []*heldKey{one, two, three}, nil)
	c.pass(20*day - time.Minute)
	if c.follows() {
		t.Error("another value before its time")
	}
	c.pass(2 * time.Minute)
	if !c.follows() {
		t.Error("nothing is another when a key ended")
	}
	is("after 30 days", []*heldKey{two, three}, []*heldKey{one})
	c.pass(10 * day)
	c.follows()
	is("after 40 days", []*heldKey{three}, []*heldKey{one, two})
	c.s = c.load(false)
	c.follows()
	is("after a restart", []*heldKey{three}, []*heldKey{one, two})
	for back, k := range []*heldKey{three, two, one} {
		fresh := &secrets{}
		fresh.use.Store(&inUse{masters: [][]byte{k.Secret}})
		if got := c.s.derive("text", back); !bytes.Equal(got, fresh.derive("text", 0)) {
			t.Errorf("what is derived %d generations back is not of generation %d", back, k.Generation)
		}
	}
	if c.s.derive("text", 3) != nil || bytes.Equal(c.s.derive("text", 0), c.s.derive("text", 1)) || bytes.Equal(c.s.derive("text", 0), c.s.derive("other", 0)) {
		t.Error("derived bytes repeat, or come from nothing")
	}
}

func TestSigningChain(t *testing.T) {
	c := newScript(t)
	first := c.s.newest(fleet.KeySigning)
	var keys []*heldKey
	for range wire.MaxChain {
		keys = append(keys, c.rotate(fleet.KeySigning, signingKeep))
	}
	k := c.s.use.Load().session
	chain, err := wire.VerifyChain(keys[0].Public, k.Chain)
	if err != nil || len(chain) != wire.MaxChain || k.SigningID != keys[len(keys)-1].ID {
		t.Errorf("a chain of %d to %s: %v", len(chain), k.SigningID, err)
	}
	if _, err := wire.VerifyChain(first.Public, k.Chain); !errors.Is(err, fleet.SigningKeyUnknown) {
		t.Errorf("the first key of %d: %v; want it out of the chain", len(keys)+1, err)
	}
}

// TestEveryTrustedCALeadsToTheLeaf walks a CA's rotation and another one within its
// overlap, as a client sees it that trusts one CA only.
func TestEveryTrustedCALeadsToTheLeaf(t *testing.T) {
	c := newScript(t)
	cas := []*heldKey{c.s.newest(fleet.KeyCA)}
	check := func(when string, trusts ...bool) {
		t.Helper()
		u := c.s.use.Load()
		cert, err := u.leaf("192.0.2.1:443", "https://hub.example.org")
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		between := x509.NewCertPool()
		for _, der := range cert.Certificate[1:] {
			ca, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			between.AddCert(ca)
		}
		var pins [][]byte
		for i, want := range trusts {
			roots := x509.NewCertPool()
			roots.AddCert(cas[i].ca)
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: "hub.example.org"})
			if (err == nil) != want {
				t.Errorf("%s: who trusts CA %d alone: %v; want trust %v", when, i+1, err, want)
			}
			inFile := bytes.Contains(u.caPEM(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cas[i].Public}))
			told := slices.Contains(u.session.Pin, wire.PinText(wire.CAPin(cas[i].ca)))
			if inFile != told || want && !told {
				t.Errorf("%s: CA %d in ca.pem %v, told to runners %v", when, i+1, inFile, told)
			}
			if told {
				pins = append(pins, wire.CAPin(cas[i].ca))
			}
		}
		for i := range cas {
			got, err := wire.VerifyCAs([][]byte{wire.CAPin(cas[i].ca)}, u.session.CAs)
			at := slices.Index(u.session.Pin, wire.PinText(wire.CAPin(cas[i].ca)))
			if at < 0 != (err != nil) || at >= 0 && !slices.EqualFunc(got, pins[at:], bytes.Equal) {
				t.Errorf("%s: who pins CA %d is led to %d pins: %v", when, i+1, len(got), err)
			}
		}
	}
	check("at first", true)
	cas = append(cas, c.rotate(fleet.KeyCA, 7*day))
	check("announced", true, false)
	c.do(&state.ActivateKeys{Kind: fleet.KeyCA, Generation: 2, Serve: true})
	c.follows()
	check("serving", true, true)
	c.s = c.load(false)
	check("after a restart, with the log not read yet", true, true)
	c.follows()
	c.pass(day)
	cas = append(cas, c.rotate(fleet.KeyCA, 7*day))
	check("a third announced", true, true, false)
	c.do(&state.ActivateKeys{Kind: fleet.KeyCA, Generation: 3, Serve: true})
	c.follows()
	check("the third serving", true, true, true)
	c.pass(6*day + time.Minute)
	c.follows()
	check("the first ended", false, true, true)
	c.pass(day)
	c.follows()
	check("the second ended", false, false, true)
}

// TestPendingKeys: a key that no entry made active is used by the next rotation, has
// no effect before, and goes when another one of its generation is active.
func TestPendingKeys(t *testing.T) {
	for _, kind := range fleet.KeyKinds {
		t.Run(kind, func(t *testing.T) {
			c := newScript(t)
			k, err := c.s.next(kind, c.now)
			if err != nil {
				t.Fatal(err)
			}
			c.s = c.load(false) // a crash
			c.follows()
			if got := c.s.newest(kind); got.Generation != 1 {
				t.Errorf("a pending key is in use")
			}
			again, err := c.s.next(kind, c.now)
			if err != nil || !bytes.Equal(again.Secret, k.Secret) || len(c.stored()) != 4 {
				t.Errorf("the pending key was not used: %v", err)
			}
			// Another node was faster with one of its own.
			other := newScript(t)
			other.s.keys = slices.Clone(c.s.keys[:3])
			rival, err := other.s.next(kind, c.now)
			if err != nil {
				t.Fatal(err)
			}
			b, err := rival.payload()
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := c.s.take(b); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(c.stored()); n != 5 {
				t.Errorf("%d keys on disk; want both rivals", n)
			}
			c.activate(rival, day)
			c.follows()
			if got := c.s.newest(kind); !bytes.Equal(got.Secret, rival.Secret) || len(c.stored()) != 4 {
				t.Errorf("in use is %s, %d keys on disk; want the one that the log names, and its rival gone", got.ID, len(c.stored()))
			}
		})
	}
}

// TestMissingKey: what the log says is in use and is not here is told, and comes from
// another node.
func TestMissingKey(t *testing.T) {
	c := newScript(t)
	other := newScript(t)
	other.s.keys = slices.Clone(c.s.keys)
	for _, kind := range fleet.KeyKinds {
		k, err := other.s.next(kind, c.now)
		if err != nil {
			t.Fatal(err)
		}
		c.activate(k, day)
		missing, _, err := c.s.follow(c.m.View())
		if err != nil || len(missing) != 1 || missing[0].ID != k.ID {
			t.Fatalf("missing %v, %v; want %s", missing, err, k.ID)
		}
		if text := lacks(missing[0]).Error(); !strings.Contains(text, kind) || !strings.Contains(text, "generation 2") {
			t.Errorf("told as %q", text)
		}
		b, err := k.payload()
		if err == nil {
			err = c.s.take(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !c.follows() || c.s.newest(kind).Generation != 2 {
			t.Errorf("%s key taken from another node is not in use", kind)
		}
	}
	// An old key that counts for nothing any more is missed by nobody.
	c.pass(2 * day)
	c.s.keys = slices.DeleteFunc(slices.Clone(c.s.keys), func(k *heldKey) bool { return k.Kind == fleet.KeyHMAC && k.Generation == 1 })
	c.follows()
}

// TestExportedKeys are all that a joining node needs.
func TestExportedKeys(t *testing.T) {
	c := newScript(t)
	c.rotate(fleet.KeyHMAC, fleet.HMACKeep)
	c.rotate(fleet.KeyCA, day)
	b, err := c.s.export()
	if err != nil {
		t.Fatal(err)
	}
	joined := &script{t: t, dir: t.TempDir(), m: c.m, now: c.now}
	if err := importSecrets(joined.dir, b); err != nil {
		t.Fatal(err)
	}
	joined.s = joined.load(false)
	joined.follows()
	a, z := c.s.use.Load(), joined.s.use.Load()
	if a.session.Master != z.session.Master || a.session.SigningID != z.session.SigningID || a.issuer.ID != z.issuer.ID || !slices.Equal(a.session.Pin, z.session.Pin) || len(a.session.Masters) != len(z.session.Masters) {
		t.Errorf("the node that joined uses %+v", z.session)
	}
}

func TestTakeRefuses(t *testing.T) {
	c := newScript(t)
	before := c.stored()
	k, err := newScript(t).s.next(fleet.KeySigning, c.now)
	if err != nil {
		t.Fatal(err)
	}
	good, err := k.payload()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{
		"no JSON":           "{",
		"a later version":   strings.Replace(string(good), `"version":2`, `"version":3`, 1),
		"nothing":           `{"version":2,"keys":[null]}`,
		"a kind of its own": strings.Replace(string(good), `"kind":"signing"`, `"kind":"tls"`, 1),
		"another kind":      strings.Replace(string(good), `"kind":"signing"`, `"kind":"ca"`, 1),
		"no generation":     strings.Replace(string(good), `"generation":2`, `"generation":0`, 1),
		"another public":    strings.Replace(string(good), `"public":"`, `"public":"AAAA`, 1),
	} {
		if err := c.s.take([]byte(b)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if len(c.stored()) != len(before) {
		t.Error("something was stored")
	}
}

// copySecrets puts the committed files of an earlier version into a data directory.
func copySecrets(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(dir, "secrets"), os.DirFS(filepath.Join("testdata", "secrets-v1"))); err != nil {
		t.Fatal(err)
	}
}

// TestFirstForm reads the keys as the first version wrote them, and puts them into the
// present form without another secret or pin.
func TestFirstForm(t *testing.T) {
	dir := t.TempDir()
	copySecrets(t, dir)
	for _, when := range []string{"read first", "read again"} {
		s, err := loadSecrets(dir, "c-test", false)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		u := s.use.Load()
		if got := u.session.SigningID; got != "k-65fd69bd09ee" || u.session.Master != 1 || len(u.session.Masters[1]) != 32 {
			t.Errorf("%s: signing key %s, master %d", when, got, u.session.Master)
		}
		if got, want := u.session.Pin[0], "bde003a548a23d9696ab05935a8306cc2b26913df209080ea780ecf8bd083119"; got != want {
			t.Errorf("%s: the CA's pin is %s; want %s", when, got, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "secrets", firstCA)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the CA's old file is still there: %v", when, err)
		}
		if u.issuer.ca.MaxPathLenZero {
			t.Errorf("%s: the CA's certificate allows no successor", when)
		}
		if st, err := os.Stat(s.path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", when, st.Mode(), err)
		}
	}
	for name, spoil := range map[string]func(string) error{
		"CA gone":   func(d string) error { return os.Remove(filepath.Join(d, firstCA)) },
		"CA spoilt": func(d string) error { return os.WriteFile(filepath.Join(d, firstCA), nil, 0o600) },
		"no masters": func(d string) error {
			return os.WriteFile(filepath.Join(d, "keys.json"), []byte(`{"version":1}`), 0o600)
		},
	} {
		dir := t.TempDir()
		copySecrets(t, dir)
		if err := spoil(filepath.Join(dir, "secrets")); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSecrets(dir, "c-test", false); err == nil || !strings.Contains(err.Error(), "the cluster's") || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
