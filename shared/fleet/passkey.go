package fleet

import "time"

// Passkey lets a browser in in the place of a token: the public half of a key that an
// authenticator holds.
type Passkey struct {
	ID        string     `json:"id"`    // of the credential, base64url
	Token     TokenID    `json:"token"` // in whose place it is, and with which it ends
	Name      string     `json:"name,omitempty"`
	Key       []byte     `json:"key"`   // public, COSE
	Count     uint32     `json:"count"` // of signatures, as last told; 0: it does not count
	Flags     byte       `json:"flags"` // of the authenticator, as last told
	CreatedAt time.Time  `json:"created_at"`
	UsedAt    *time.Time `json:"used_at,omitempty"`
}

// Bounds of passkeys.
const (
	MaxPasskeys    = 16   // of a token
	MaxPasskeyID   = 1400 // bytes: 1,023 in base64
	MaxPasskeyKey  = 2048 // bytes
	MaxPasskeyName = 100  // bytes
)
