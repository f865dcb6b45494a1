package wire

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

// Provision is the body of a provision order: a program that the runner is to install
// into a directory of its own. It is repeated until its outcome is recorded, and done
// once for an id.
type Provision struct {
	ID           string   `json:"id"`
	What         string   `json:"what"`
	Version      string   `json:"version,omitempty"`     // or a tag; empty: the newest
	Credentials  []string `json:"credentials,omitempty"` // names of those that go with it
	PreserveAuth bool     `json:"preserve_auth,omitempty"`
	Sealed       []byte   `json:"sealed,omitempty"` // their values, see SealCredentials; absent where the hub has them no more
}

// The states of a ProvisionView.
const (
	ProvisionWaits     = "waits"
	ProvisionInstalls  = "installs"
	ProvisionSucceeded = "succeeded"
	ProvisionFailed    = "failed"
)

// ProvisionView is how an installation goes on the runner.
type ProvisionView struct {
	ID        string `json:"id"`
	State     string `json:"state"`               // waits, installs, succeeded, failed
	Installed string `json:"installed,omitempty"` // the version that is there now
	Class     string `json:"class,omitempty"`     // why it failed: owner_policy, credentials, storage, npm_missing, install, timeout, verify, interrupted
	Detail    string `json:"detail,omitempty"`
}

// sealedCredentials is what is sealed. The id keeps what was given for one installation
// from being used for another.
type sealedCredentials struct {
	ID     string            `json:"id"`
	Values map[string]string `json:"values"`
}

// SealCredentials seals the values of credentials for one installation on one runner.
func SealCredentials(boxPub []byte, rand io.Reader, id string, values map[string]string) ([]byte, error) {
	b, err := Encode(sealedCredentials{id, values})
	if err != nil {
		return nil, fmt.Errorf("encode credentials: %w", fleet.BadRequest) // the cause could quote a value
	}
	return SealTo(boxPub, rand, b)
}

// OpenCredentials reads what SealCredentials sealed, and checks that it is for this
// installation and has the values of just these names.
func OpenCredentials(boxPub, boxPriv []byte, p Provision) (map[string]string, error) {
	b, err := OpenBox(boxPub, boxPriv, p.Sealed)
	if err != nil {
		return nil, err
	}
	var s sealedCredentials
	if Decode(b, &s) != nil {
		return nil, fmt.Errorf("the sealed credentials cannot be read: %w", fleet.BadRequest)
	}
	named := slices.Sorted(slices.Values(p.Credentials))
	if s.ID != p.ID || !slices.Equal(slices.Sorted(maps.Keys(s.Values)), named) {
		return nil, fmt.Errorf("the sealed credentials are for another installation: %w", fleet.BadRequest)
	}
	return s.Values, nil
}
