package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/shared/fleet"
)

// Kind numbers a command in the log. Numbers are append-only.
type Kind uint16

// Command is one verb of the log: what it changes and what it assumes.
type Command interface {
	kind() Kind
	apply(*txn) Result
}

// Head is what every entry carries beside its command.
type Head struct {
	At    time.Time    // the proposer's clock
	Actor string       // token id, or a machine actor: "hub", "runner:ID"
	Key   string       // idempotency key, for creations
	Route string       // the REST route the key belongs to
	Hash  fleet.Digest // of the canonical request body
	From  string       // the address that the request came from; only where MayTellFrom
}

// Machine says whether the actor is no person's token: such entries are not audited.
func (h Head) Machine() bool { return h.Actor == "hub" || strings.HasPrefix(h.Actor, "runner:") }

// Bounds of the state.
const (
	MaxEntry        = 256 << 10 // bytes of an entry
	MaxQueue        = 100_000   // queued jobs
	MaxQueuePerUser = 5_000     // queued jobs a token
	MaxKeys         = 200_000   // idempotency keys
	MaxKeysPerToken = 10_000
	KeepKeys        = 24 * time.Hour
	MaxAttempts     = 200 // assignments a turn, accepted or not
	MaxPushes       = 100 // permits an attempt
)

const format = 1

// usualEntry is room for the entry of a small command, in bytes.
const usualEntry = 448

// ErrUnknownEntry says that an entry was written by a newer version.
var ErrUnknownEntry = errors.New("this version of tugline cannot read the entry; it was written by a newer one")

var kinds = map[Kind]func() Command{}

func register(f func() Command) struct{} {
	k := f().kind()
	if kinds[k] != nil {
		panic(fmt.Sprintf("command kind %d twice", k))
	}
	kinds[k] = f
	return struct{}{}
}

// Encode writes an entry: format, kind, head, then the command as JSON.
func Encode(h Head, c Command) ([]byte, error) {
	b := make([]byte, 0, usualEntry+len(h.Key)+len(h.Route)+len(h.Hash))
	texts := []string{h.Actor, h.Key, h.Route, string(h.Hash), h.From}
	if b = append(b, formatFrom); h.From == "" {
		b[0], texts = format, texts[:4]
	}
	b = binary.BigEndian.AppendUint16(b, uint16(c.kind()))
	b = binary.BigEndian.AppendUint64(b, uint64(h.At.UnixNano()))
	for _, s := range texts {
		if len(s) > 255 {
			return nil, fmt.Errorf("encode command %d: %w: actor, key, route or address over 255 bytes", c.kind(), fleet.TooLarge)
		}
		if !utf8.ValidString(s) { // a snapshot could not keep it as it is
			return nil, fmt.Errorf("encode command %d: %w: actor, key, route or address is not UTF-8", c.kind(), fleet.BadRequest)
		}
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	b, err := appendCommand(b, c)
	if err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.kind(), err)
	}
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("encode command %d: %w: %d bytes, at most %d", c.kind(), fleet.TooLarge, len(b), MaxEntry)
	}
	return b, nil
}

// Decode reads what Encode wrote. An unknown format or kind gives ErrUnknownEntry.
func Decode(b []byte) (Head, Command, error) {
	if len(b) < 11 {
		return Head{}, nil, fmt.Errorf("entry of %d bytes is cut short", len(b))
	}
	if b[0] != format && b[0] != formatFrom {
		return Head{}, nil, fmt.Errorf("entry format %d: %w", b[0], ErrUnknownEntry)
	}
	k := Kind(binary.BigEndian.Uint16(b[1:]))
	mk := kinds[k]
	if mk == nil {
		return Head{}, nil, fmt.Errorf("command kind %d: %w", k, ErrUnknownEntry)
	}
	h := Head{At: time.Unix(0, int64(binary.BigEndian.Uint64(b[3:]))).UTC()}
	texts := []*string{&h.Actor, &h.Key, &h.Route, (*string)(&h.Hash), &h.From}
	if b[0] == format {
		texts = texts[:4]
	}
	b = b[11:]
	for _, p := range texts {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return Head{}, nil, fmt.Errorf("command kind %d: head is cut short", k)
		}
		*p = string(b[1 : 1+int(b[0])])
		if !utf8.ValidString(*p) {
			return Head{}, nil, fmt.Errorf("command kind %d: head is not UTF-8", k)
		}
		b = b[1+int(b[0]):]
	}
	c := mk()
	if p, ok := c.(plain); ok {
		s := scanner{b: b}
		p.scan(&s)
		if s.whole() {
			return h, c, nil
		}
		c = mk()
	}
	if err := json.Unmarshal(b, c); err != nil {
		return Head{}, nil, fmt.Errorf("command kind %d: %w", k, err)
	}
	return h, c, nil
}

// Kinds lists the command kinds that this version can decode, in order.
func Kinds() []Kind {
	var out []Kind
	for k := range kinds {
		out = append(out, k)
	}
	sortKinds(out)
	return out
}
