// Package passkey lets people in by keys that their authenticators hold, in the place
// of a token: the two ceremonies of WebAuthn, registering a passkey and signing in with
// one.
//
// It guarantees that what it takes was made for this hub's own page, by the holder of
// the key, who was verified by their device, for the very challenge that was given. It
// leaves to its callers that a challenge is used once and in time, and what is recorded.
package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"tugline.dev/tugline/shared/fleet"
)

// Party is this hub as authenticators know it: by the host of its page.
type Party struct{ lib *webauthn.WebAuthn }

// New makes the party of a page at an origin, https://HOST[:PORT].
func New(origin string) (*Party, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return nil, fmt.Errorf("passkeys at %s: %w", origin, err)
	}
	lib, err := webauthn.New(&webauthn.Config{RPID: u.Hostname(), RPDisplayName: "Tugline", RPOrigins: []string{origin}})
	if err != nil {
		return nil, fmt.Errorf("passkeys at %s: %w", origin, err)
	}
	return &Party{lib}, nil
}

// Ceremony is what is between the two halves of one: the challenge, and whose it is.
type Ceremony struct{ data webauthn.SessionData }

// Holder is a token and its passkeys.
type Holder struct {
	Token    fleet.TokenID
	Name     string
	Passkeys []*fleet.Passkey
}

// user is a holder as the library asks for one.
type user struct{ Holder }

// WebAuthnID names the holder to authenticators, without telling them the token's id.
func (u user) WebAuthnID() []byte {
	sum := sha256.Sum256([]byte("tugline token " + u.Token))
	return sum[:]
}

func (u user) WebAuthnName() string        { return u.Name }
func (u user) WebAuthnDisplayName() string { return u.Name }

func (u user) WebAuthnCredentials() []webauthn.Credential {
	out := []webauthn.Credential{}
	for _, p := range u.Passkeys {
		id, err := base64.RawURLEncoding.DecodeString(p.ID)
		if err != nil {
			continue // it can be no authenticator's
		}
		out = append(out, webauthn.Credential{
			ID: id, PublicKey: p.Key, Flags: webauthn.NewCredentialFlags(protocol.AuthenticatorFlags(p.Flags)),
			Authenticator: webauthn.Authenticator{SignCount: p.Count},
		})
	}
	return out
}

// Register begins to register a passkey of a holder. The options are for the browser.
func (p *Party) Register(h Holder) (options any, c *Ceremony, err error) {
	u := user{h}
	var known []protocol.CredentialDescriptor
	for _, k := range u.WebAuthnCredentials() {
		known = append(known, k.Descriptor())
	}
	required := true
	made, data, err := p.lib.BeginRegistration(u, webauthn.WithExclusions(known), webauthn.WithConveyancePreference(protocol.PreferNoAttestation),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: &required, UserVerification: protocol.VerificationRequired,
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("begin to register a passkey: %w", err)
	}
	return made.Response, &Ceremony{*data}, nil
}

// Registered gives the passkey that a browser answered with.
func (p *Party) Registered(h Holder, c *Ceremony, answer []byte) (fleet.Passkey, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return fleet.Passkey{}, refused("register the passkey", err)
	}
	k, err := p.lib.CreateCredential(user{h}, c.data, parsed)
	if err != nil {
		return fleet.Passkey{}, refused("register the passkey", err)
	}
	return fleet.Passkey{
		ID: base64.RawURLEncoding.EncodeToString(k.ID), Token: h.Token, Key: k.PublicKey,
		Count: k.Authenticator.SignCount, Flags: byte(k.Flags.ProtocolValue()),
	}, nil
}

// Login begins to sign in with whichever passkey the browser has.
func (p *Party) Login() (options any, c *Ceremony, err error) {
	asked, data, err := p.lib.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, nil, fmt.Errorf("begin to sign in with a passkey: %w", err)
	}
	return asked.Response, &Ceremony{*data}, nil
}

// LoggedIn gives the passkey that a browser showed, with what it tells now. Find gives
// who has the passkey of an id.
func (p *Party) LoggedIn(c *Ceremony, answer []byte, find func(id string) (Holder, bool)) (fleet.Passkey, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return fleet.Passkey{}, refused("sign in with the passkey", err)
	}
	var held Holder
	_, k, err := p.lib.ValidatePasskeyLogin(func(raw, handle []byte) (webauthn.User, error) {
		h, ok := find(base64.RawURLEncoding.EncodeToString(raw))
		if !ok || !bytes.Equal(user{h}.WebAuthnID(), handle) {
			return nil, errors.New("it is registered for nobody here")
		}
		held = h
		return user{h}, nil
	}, c.data, parsed)
	if err != nil {
		return fleet.Passkey{}, refused("sign in with the passkey", err)
	}
	if k.Authenticator.CloneWarning {
		return fleet.Passkey{}, refused("sign in with the passkey", errors.New("it tells fewer signatures than before: it may have been copied"))
	}
	return fleet.Passkey{
		ID: base64.RawURLEncoding.EncodeToString(k.ID), Token: held.Token, Key: k.PublicKey,
		Count: k.Authenticator.SignCount, Flags: byte(k.Flags.ProtocolValue()),
	}, nil
}

// refused words why an answer was not taken. The library tells part of it beside the
// error's own text.
func refused(what string, err error) error {
	why := err.Error()
	var told *protocol.Error
	if errors.As(err, &told) && told.Details != "" {
		why = told.Details
	}
	return fmt.Errorf("%s: %s: %w", what, why, fleet.Unauthorised)
}
