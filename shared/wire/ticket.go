package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"tugline.dev/tugline/shared/fleet"
)

// Trust says how a runner knows that it speaks to the hub it was invited to.
type Trust string

// The kinds of trust.
const (
	TrustPin    Trust = "pin"    // the chain must contain a CA with the ticket's public key
	TrustSystem Trust = "system" // the machine's own roots, and the host name
	TrustCA     Trust = "ca"     // the ticket's CA certificate, and the host name
)

// Ticket is everything a runner needs to enrol, pasted as one token.
type Ticket struct {
	Hubs      []string  `json:"h"`           // base URLs, tried in order
	Cluster   string    `json:"c"`           // refused when another answers
	Trust     Trust     `json:"t,omitempty"` // empty only with Plain
	Pin       []byte    `json:"p,omitempty"` // SHA-256 of the CA's public key (DER SubjectPublicKeyInfo)
	Pins      [][]byte  `json:"q,omitempty"` // of further CAs, while one takes the place of another
	CA        string    `json:"a,omitempty"` // PEM
	Secret    string    `json:"s"`           // spent by enrolling
	ExpiresAt time.Time `json:"e"`           // after which the hub refuses the secret
	Plain     bool      `json:"n,omitempty"` // no TLS: loopback and development only

	Mesh []HubAddress `json:"m,omitempty"` // the hubs' tunnels, of a ticket for a runner that reaches them by UDP alone

	// SHA-256 of the hub's program by platform, OS-ARCH: what install.sh holds it against
	// before it runs it.
	Programs map[string]fleet.Digest `json:"b,omitempty"`
	// Signed says of each of them whether the hub has its signature by ReleaseKey. Where it
	// has, a program holds its own bytes against it before it is installed or enrolled.
	Signed map[string]bool `json:"g,omitempty"`
	// ReleaseKey is the minisign public key of the cluster's releases, empty where it has
	// none yet. The runner pins it.
	ReleaseKey string `json:"k,omitempty"`
}

const (
	ticketPrefix    = "tug1_"
	hubTicketPrefix = "tughub1_"
)

// maxTicket bounds the payload of a ticket; its length field has two bytes.
const maxTicket = 32 << 10

// String gives the token: a prefix with the format's version and, in unpadded URL
// base64, the payload's length, the payload and four bytes of its SHA-256.
func (t Ticket) String() string { return token(ticketPrefix, t) }

func token(prefix string, t any) string {
	b, err := json.Marshal(t)
	if err != nil || len(b) > maxTicket {
		return ""
	}
	p := binary.BigEndian.AppendUint16(nil, uint16(len(b)))
	p = append(p, b...)
	sum := sha256.Sum256(b)
	return prefix + base64.RawURLEncoding.EncodeToString(append(p, sum[:4]...))
}

// ParseTicket reads a token; blanks and line breaks that a terminal put into it do
// not matter. The error says what is wrong with it; its code is ticket_invalid.
func ParseTicket(s string) (Ticket, error) {
	if strings.HasPrefix(strings.TrimSpace(s), hubTicketPrefix) {
		return Ticket{}, fmt.Errorf("this ticket is for a hub node, not for a runner; `tugline hub ticket` makes one for runners: %w", fleet.TicketInvalid)
	}
	var t Ticket
	if err := readToken(s, ticketPrefix, &t); err != nil {
		return Ticket{}, err
	}
	return t, t.check()
}

// readToken reads what token wrote.
func readToken(s, prefix string, into any) error {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, a...), fleet.TicketInvalid)
	}
	enc, ok := strings.CutPrefix(s, prefix)
	if !ok {
		if v, _, cut := strings.Cut(s, "_"); cut && strings.HasPrefix(v, "tug") && len(v) <= len(hubTicketPrefix) {
			return bad("the ticket is of format %s, this version reads %s; use the same release as the hub", v, strings.TrimSuffix(prefix, "_"))
		}
		return bad("this is not a ticket: one starts with %s", prefix)
	}
	if len(enc)%4 == 1 { // no whole byte: the last character is dropped to see how much is there
		enc = enc[:len(enc)-1]
	}
	p, err := base64.RawURLEncoding.DecodeString(enc)
	if err != nil {
		return bad("the ticket has a character that does not belong there; copy it again")
	}
	if len(p) < 2 {
		return bad("the ticket is cut short; copy it again, whole")
	}
	n := int(binary.BigEndian.Uint16(p))
	switch {
	case n > maxTicket:
		return bad("the ticket is damaged; copy it again")
	case len(p) < 2+n+4:
		return bad("the ticket is cut short at %d of %d bytes; copy it again, whole", len(p), 2+n+4)
	case len(p) > 2+n+4:
		return bad("something follows the ticket; copy only the ticket")
	}
	b := p[2 : 2+n]
	if sum := sha256.Sum256(b); !bytes.Equal(sum[:4], p[2+n:]) {
		return bad("the ticket is damaged; copy it again")
	}
	if err := Decode(b, into); err != nil {
		return bad("the ticket does not decode; use the same release as the hub")
	}
	return nil
}

// check says what an intact ticket lacks.
func (t Ticket) check() error {
	what := ""
	switch {
	case len(t.Hubs) == 0:
		what = "names no hub"
	case t.Secret == "":
		what = "has no secret"
	case t.ReleaseKey == "" && t.anySigned(), t.ReleaseKey != "" && !fleet.IsReleaseKey(t.ReleaseKey):
		what = "has no key of the programs that it calls signed"
	case t.Plain:
	case t.Trust == TrustPin && len(t.Pin) != sha256.Size:
		what = "has no pin of the hub's key"
	case t.Trust == TrustCA && t.CA == "":
		what = "has no CA certificate"
	case t.Trust != TrustPin && t.Trust != TrustCA && t.Trust != TrustSystem:
		what = fmt.Sprintf("asks for trust %q, which this version does not know", t.Trust)
	}
	if what != "" {
		return fmt.Errorf("the ticket %s; make a new one with a hub of this release: %w", what, fleet.TicketInvalid)
	}
	return nil
}

// anySigned says whether a program is signed.
func (t Ticket) anySigned() bool {
	for _, yes := range t.Signed {
		if yes {
			return true
		}
	}
	return false
}

// NewSecret makes the secret of a ticket: 32 random bytes as URL base64.
func NewSecret(rand io.Reader) (string, error) {
	b := make([]byte, 32)
	if _, err := io.ReadFull(rand, b); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// SecretHash is what the hub keeps of a secret. A plain hash will do: the secret is
// random and too long to guess.
func SecretHash(secret string) fleet.Digest {
	sum := sha256.Sum256([]byte(secret))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}
