package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/keychain"
	"tugline.dev/tugline/runner/keychain/keychaintest"
	"tugline.dev/tugline/shared/fleet"
)

// hidden sees that no key of an identity stands in its file, in any of the forms it could have.
func hidden(t *testing.T, dir string, id *identity) {
	t.Helper()
	file, err := os.ReadFile(identityFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{"sign_seed": id.SignSeed, "box_priv": id.BoxPriv, "hmac_key": id.HMACKey} {
		for _, form := range []string{string(key), base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key)} {
			if len(key) == 0 || bytes.Contains(file, []byte(form)) {
				t.Errorf("%s (%d bytes) lies in %s", name, len(key), identityFile(dir))
			}
		}
	}
}

// opened reads an identity with its keys.
func opened(t *testing.T, dir string, k Keychain) *identity {
	t.Helper()
	id := mustIdentity(t, dir)
	if err := id.open(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	return id
}

// A runner whose keys the Keychain seals does all that another one does with its keys: it
// is started again, takes a new key and enrols anew; and it goes back to a file.
func TestKeysInTheKeychain(t *testing.T) {
	t.Parallel()
	fake := keychaintest.New(t)
	chain := keychain.Security{Program: fake.Program}
	h := newHub(t, quick)
	yes, no := true, false
	cfg := Config{Dir: t.TempDir(), Name: "box", Slots: 1, Ticket: h.ticket(), Self: self(t), Logger: testLogger("RUNNER_LOG"), Keychain: chain, InKeychain: &yes}
	r := h.restart(cfg)
	first := opened(t, cfg.Dir, chain)
	hidden(t, cfg.Dir, first)
	h.newMaster(2)
	eventually(t, "the runner uses the new key", func() bool { k, _ := h.View().Runner(r.id); return k.Master == 2 })
	eventually(t, "it has forgotten the old one", func() bool {
		id := opened(t, cfg.Dir, chain)
		return id.Master == 2 && id.Rekey == nil && string(id.HMACKey) != string(first.HMACKey)
	})
	r.end()

	cfg.InKeychain = nil // as it is
	r = h.restart(cfg)
	j, f := h.run(r.id, "/bin/true")
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	h.must(&state.RevokeRunner{ID: r.id})
	r.end()
	cfg.Ticket = h.ticketFor(r.id)
	r = h.restart(cfg)
	anew := opened(t, cfg.Dir, chain)
	if anew.Generation != first.Generation+1 || bytes.Equal(anew.SignSeed, first.SignSeed) || fake.Items() != 1 {
		t.Errorf("enrolled anew it is of generation %d, with %d items in the Keychain", anew.Generation, fake.Items())
	}
	hidden(t, cfg.Dir, anew)
	r.end()

	fake.Lock()
	locked, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := locked.Run(t.Context()); !errors.Is(err, keychain.ErrLocked) {
		t.Errorf("with a Keychain that is locked: %v", err)
	}
	if name, ok, err := Enrolled(cfg.Dir); name != "box" || !ok || err != nil {
		t.Errorf("meanwhile it is enrolled as %q, %v, %v", name, ok, err)
	}
	fake.Unlock()

	cfg.InKeychain = &no
	r = h.restart(cfg)
	if back := mustIdentity(t, cfg.Dir); back.sealed != nil || !bytes.Equal(back.SignSeed, anew.SignSeed) || fake.Items() != 0 {
		t.Errorf("back in a file %d items are in the Keychain", fake.Items())
	}
	r.end()
	if strings.Contains(fake.CommandLines(), "add-generic-password") {
		t.Error("a secret was on a command line")
	}
}

// What is sealed is opened by its own key, whole, or not at all.
func TestSealedKeysThatCanNotBeOpened(t *testing.T) {
	t.Parallel()
	fake := keychaintest.New(t)
	chain := keychain.Security{Program: fake.Program}
	id, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	id.Runner, id.HMACKey = "r-1", []byte("a key of an HMAC")
	if id.vault, err = newVault(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := id.save(dir); err != nil {
		t.Fatal(err)
	}
	hidden(t, dir, id)
	if err := mustIdentity(t, dir).open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "Mac") {
		t.Errorf("without a Keychain: %v", err)
	}
	spoilt := mustIdentity(t, dir)
	spoilt.sealed[len(spoilt.sealed)-1] ^= 1
	cut := mustIdentity(t, dir)
	cut.sealed = cut.sealed[:10]
	for name, bad := range map[string]*identity{"a bit changed": spoilt, "cut": cut} {
		if err := bad.open(t.Context(), chain); err == nil || bad.SignSeed != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := chain.Put(t.Context(), id.vault.account, bytes.Repeat([]byte{1}, 32)); err != nil {
		t.Fatal(err)
	}
	if err := mustIdentity(t, dir).open(t.Context(), chain); err == nil || !strings.Contains(err.Error(), "not sealed by") {
		t.Errorf("with another key: %v", err)
	}
	if err := chain.Delete(t.Context(), id.vault.account); err != nil {
		t.Fatal(err)
	}
	if err := mustIdentity(t, dir).open(t.Context(), chain); !errors.Is(err, keychain.ErrMissing) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := newVault(t.Context(), nil); err == nil {
		t.Error("a vault was made on a machine without a Keychain")
	}
}
