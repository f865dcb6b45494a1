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
