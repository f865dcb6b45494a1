package runner

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const identityVersion = 1

// identity is what makes this runner the one that was enrolled. The keys are made
// and durable before anybody hears of them.
type identity struct {
	Version    int               `json:"version"`
	SignSeed   []byte            `json:"sign_seed"` // Ed25519: signs results
	BoxPub     []byte            `json:"box_pub"`   // X25519: secrets are sealed to it
	BoxPriv    []byte            `json:"box_priv"`
	Runner     fleet.RunnerID    `json:"runner,omitempty"` // empty until enrolled
	Name       string            `json:"name,omitempty"`
	Cluster    string            `json:"cluster,omitempty"`
	Generation uint64            `json:"generation,omitempty"`
	HMACKey    []byte            `json:"hmac_key,omitempty"`
	Master     uint64            `json:"master,omitempty"`  // generation of the cluster's HMAC key that it comes from; absent: the first
	Rekey      *rekey            `json:"rekey,omitempty"`   // its successor, until a hub has welcomed it
	Signing    []wire.SigningKey `json:"signing,omitempty"` // as told last; the last is pinned
	Hubs       []string          `json:"hubs,omitempty"`    // of the ticket
	Known      []string          `json:"known,omitempty"`   // as told last, the leader first
	Trust      wire.Trust        `json:"trust,omitempty"`
	Pin        []byte            `json:"pin,omitempty"`
	Pins       [][]byte          `json:"pins,omitempty"` // further ones, while one CA takes the place of another
	CA         string            `json:"ca,omitempty"`
	Plain      bool              `json:"plain,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	ReleaseKey string            `json:"release_key,omitempty"` // minisign public: releases are signed by it
	Ticket     fleet.Digest      `json:"ticket,omitempty"`      // hash of the secret of the ticket that it was enrolled with
	Next       *identity         `json:"next,omitempty"`        // an enrolment anew that has begun; its keys are durable first, too

	vault  *vault // seals the keys; nil: they lie in the file
	sealed []byte // what is not opened yet
}

func identityFile(dir string) string { return filepath.Join(dir, "identity.json") }

// loadIdentity gives nil where there is none. Sealed keys are not in it before open.
func loadIdentity(dir string) (*identity, error) {
	b, err := readPrivate(identityFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the runner's identity: %w", err)
	}
	var id identity
	var s sealedIdentity
	if err := errors.Join(json.Unmarshal(b, &id), json.Unmarshal(b, &s)); err != nil {
		return nil, fmt.Errorf("read the runner's identity in %s: %w", identityFile(dir), err)
	}
	if id.Version > sealedVersion {
		return nil, &durable.Newer{What: "the runner's identity", Path: identityFile(dir), Format: id.Version, Known: sealedVersion}
	}
	if id.Version == sealedVersion {
		if s.Public == nil || len(s.Sealed) == 0 {
			return nil, fmt.Errorf("the runner's identity in %s is damaged; remove the data directory and enrol anew", identityFile(dir))
		}
		s.Public.vault, s.Public.sealed = &vault{account: s.Keychain}, s.Sealed
		return s.Public, nil
	}
	if !id.whole() || id.Next != nil && !id.Next.whole() {
		return nil, fmt.Errorf("the runner's identity in %s is damaged; remove the data directory and enrol anew", identityFile(dir))
	}
	return &id, nil
}

// whole says that the keys are there.
func (id *identity) whole() bool {
	return len(id.SignSeed) == ed25519.SeedSize && len(id.BoxPub) == 32 && len(id.BoxPriv) == 32
}

func newIdentity() (*identity, error) {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	boxPub, boxPriv, err := box.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	return &identity{Version: identityVersion, SignSeed: priv.Seed(), BoxPub: boxPub[:], BoxPriv: boxPriv[:]}, nil
}

func (id *identity) signKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(id.SignSeed) }

// pinned is the order-signing key from which newer ones are followed.
func (id *identity) pinned() ed25519.PublicKey {
	if len(id.Signing) == 0 {
		return nil
	}
	return id.Signing[len(id.Signing)-1].Key
}

// pins gives what the hub's CA may be pinned by.
func (id *identity) pins() [][]byte {
	return append([][]byte{id.Pin}, id.Pins...)
}

// save writes the identity durably; a crash leaves the old one or the new one.
func (id *identity) save(dir string) error {
	if err := id.write(dir); err != nil {
		return fmt.Errorf("save the runner's identity: %w", err)
	}
	return nil
}
