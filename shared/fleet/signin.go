package fleet

import "time"

// SignIn lets a browser in by a token: a cookie that is good for a while, on every hub
// node. The cookie's secret is not here, only its hash.
type SignIn struct {
	ID        string    `json:"id"`
	Hash      Digest    `json:"hash"`
	Token     TokenID   `json:"token"` // whose role it has, and with which it ends
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"` // however much it is used
	From      string    `json:"from,omitempty"`
	Agent     string    `json:"agent,omitempty"` // what the browser calls itself
}

// Bounds of sign-ins.
const (
	SignInTime = 12 * time.Hour
	MaxSignIns = 32  // of a token; the oldest makes room
	MaxAgent   = 200 // bytes
)
