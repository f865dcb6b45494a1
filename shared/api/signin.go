package api

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// SignInRequest is the body of POST /v1/session.
type SignInRequest struct {
	Token string `json:"token" maxLength:"512" doc:"an operator token"`
}

// SignedIn is who asks: the answer to POST and GET /v1/session.
type SignedIn struct {
	Token     fleet.TokenID `json:"token"`
	Name      string        `json:"name" doc:"of the token; empty: it has none"`
	Role      fleet.Role    `json:"role"`
	ExpiresAt *time.Time    `json:"expires_at" doc:"null: never"`
	Session   string        `json:"session" doc:"the browser's session; empty: a token asked by itself"`
	Cluster   string        `json:"cluster"`
	Node      string        `json:"node" doc:"the hub node that answered"`
}

// SignIns is GET /v1/sign-ins, by id, which is by age.
type SignIns struct {
	SignIns []SignIn `json:"sign_ins"`
}

// SignIn is a browser's session.
type SignIn struct {
	ID        string        `json:"id"`
	Token     fleet.TokenID `json:"token"`
	Name      string        `json:"name" doc:"of the token; empty: it has none"`
	Role      fleet.Role    `json:"role"`
	CreatedAt time.Time     `json:"created_at"`
	ExpiresAt time.Time     `json:"expires_at"`
	Address   string        `json:"address" doc:"that it was begun from"`
	Agent     string        `json:"agent" doc:"what the browser calls itself"`
}

// WaysIn is GET /v1/session/ways: how a browser may sign in, beside by a token.
type WaysIn struct {
	Passkeys Offer `json:"passkeys"`
}

// Offer says whether something is offered here, and if not why.
type Offer struct {
	Offered bool   `json:"offered"`
	WhyNot  string `json:"why_not,omitempty"`
}

// PasskeyBegun is the first half of a ceremony: what the browser gives its authenticator.
type PasskeyBegun struct {
	Ceremony string `json:"ceremony" doc:"names it to its second half, once and for five minutes"`
	Options  any    `json:"options" doc:"publicKey of navigator.credentials.create or get, in their JSON form"`
}

// PasskeyAnswer is the body of the second half.
type PasskeyAnswer struct {
	Ceremony string         `json:"ceremony" maxLength:"64"`
	Name     string         `json:"name,omitempty" doc:"of a passkey that is registered, at most 100 bytes"`
	Response map[string]any `json:"response" doc:"the credential's toJSON()"`
}

// Passkey is a passkey of the token that asks.
type Passkey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	UsedAt    *time.Time `json:"used_at" doc:"null: never"`
	Synced    bool       `json:"synced" doc:"it is on more than one device"`
}

// Passkeys is GET /v1/session/passkeys.
type Passkeys struct {
	Passkeys []Passkey `json:"passkeys"`
}
