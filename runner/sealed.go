package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"

	"tugline.dev/tugline/runner/durable"
)

// Keychain keeps small secrets outside of the data directory, each under a name.
type Keychain interface {
	Get(ctx context.Context, account string) (secret []byte, err error)
	Put(ctx context.Context, account string, secret []byte) error
	Delete(ctx context.Context, account string) error
}

// sealedVersion is the format of an identity whose keys are sealed. A program that knows
// nothing of that refuses it.
const sealedVersion = 2

// sealedIdentity is identity.json where the keys of the runner are sealed by one that the
// Keychain has. That one stays, so that whatever changes is still one file that is
// replaced in one step.
type sealedIdentity struct {
	Version  int       `json:"version"`
	Keychain string    `json:"keychain"` // the account there
	Public   *identity `json:"public"`   // for whoever only asks who this is; Run goes by what is sealed
	Sealed   []byte    `json:"sealed"`   // the whole identity
}

// vault is where the key that seals an identity is kept.
type vault struct {
	account string
	key     [32]byte
}

// seal gives the file of an identity.
func (v *vault) seal(id *identity) ([]byte, error) {
	whole, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	var nonce [24]byte
	rand.Read(nonce[:]) // it never fails
	public := *id
	public.SignSeed, public.BoxPriv, public.HMACKey, public.Rekey, public.Next = nil, nil, nil, nil, nil
	return json.MarshalIndent(sealedIdentity{
		Version: sealedVersion, Keychain: v.account, Public: &public, Sealed: secretbox.Seal(nonce[:], whole, &nonce, &v.key),
	}, "", "  ")
}

// open gives the keys of an identity back, where they are sealed.
func (id *identity) open(ctx context.Context, k Keychain) error {
	if id.sealed == nil {
		return nil
	}
	if k == nil {
		return errors.New("the runner's keys are sealed by the Keychain of the Mac that it was enrolled on, and there is none here; remove the data directory and enrol anew")
	}
	key, err := k.Get(ctx, id.vault.account)
	if err != nil {
		return fmt.Errorf("read the runner's keys: %w", err)
	}
	v := *id.vault
	var nonce [24]byte
	if copy(v.key[:], key) != len(v.key) || copy(nonce[:], id.sealed) != len(nonce) {
		return errors.New("read the runner's keys: what seals them is not whole; enrol anew")
	}
	whole, ok := secretbox.Open(nil, id.sealed[len(nonce):], &nonce, &v.key)
	if !ok {
		return errors.New("read the runner's keys: they are not sealed by what the Keychain has; enrol anew")
	}
	var opened identity
	if err := json.Unmarshal(whole, &opened); err != nil {
		return fmt.Errorf("read the runner's keys: %w", err)
	}
	if !opened.whole() || opened.Next != nil && !opened.Next.whole() {
		return errors.New("the runner's keys are damaged; remove the data directory and enrol anew")
	}
	opened.keptLike(&identity{vault: &v})
	*id = opened
	return nil
}

// keptLike has the keys kept where another identity's are.
func (id *identity) keptLike(other *identity) {
	id.vault = other.vault
	if id.Next != nil {
		id.Next.vault = other.vault
	}
}

// newVault makes a key that seals an identity, and keeps it before anything is sealed.
func newVault(ctx context.Context, k Keychain) (*vault, error) {
	if k == nil {
		return nil, errors.New("keep the runner's keys in the Keychain: there is none on this machine")
	}
	v := &vault{}
	var name [16]byte
	rand.Read(name[:])
	rand.Read(v.key[:])
	v.account = "runner-" + hex.EncodeToString(name[:])
	if err := k.Put(ctx, v.account, v.key[:]); err != nil {
		return nil, fmt.Errorf("keep the runner's keys in the Keychain: %w", err)
	}
	return v, nil
}

// identity reads the identity with its keys, nil where there is none, and keeps them where
// the configuration wants them from now on.
func (r *Runner) identity(ctx context.Context) (*identity, error) {
	id, err := loadIdentity(r.cfg.Dir)
	if err != nil || id == nil {
		return nil, err
	}
	if err := id.open(ctx, r.cfg.Keychain); err != nil {
		return nil, err
	}
	want := r.cfg.InKeychain
	if want == nil || *want == (id.vault != nil) {
		return id, nil
	}
	was := id.vault
	if err := r.place(ctx, id); err != nil {
		return nil, err
	}
	if err := id.save(r.cfg.Dir); err != nil {
		return nil, err
	}
	if was != nil {
		if err := r.cfg.Keychain.Delete(ctx, was.account); err != nil {
			r.log.Warn("a key that seals nothing any more stays in the Keychain", "err", err)
		}
	}
	r.log.Info("the runner's keys have another place", "keychain", *want)
	return id, nil
}

// place says where the keys of an identity are kept, as the configuration wants it.
func (r *Runner) place(ctx context.Context, id *identity) (err error) {
	var v *vault
	if r.cfg.InKeychain != nil && *r.cfg.InKeychain {
		if v, err = newVault(ctx, r.cfg.Keychain); err != nil {
			return err
		}
	}
	id.keptLike(&identity{vault: v})
	return nil
}

// write puts the file of an identity in place; a crash leaves the old one or the new one.
func (id *identity) write(dir string) error {
	var b []byte
	var err error
	if id.vault != nil {
		b, err = id.vault.seal(id)
	} else {
		b, err = json.MarshalIndent(id, "", "  ")
	}
	if err != nil {
		return err
	}
	return durable.Replace(identityFile(dir), append(b, '\n'), 0o600)
}
