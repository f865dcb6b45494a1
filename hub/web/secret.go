package web

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// NewSecret makes a credential: 256 random bits behind a mark that scanners for
// leaked secrets can look for.
func NewSecret(mark string) string {
	b := make([]byte, 32)
	rand.Read(b)
	return mark + base64.RawURLEncoding.EncodeToString(b)
}

// A credential is kept only as a hash, and yet a repeated creation is to give the
// first answer. So a keyed creation derives its secret from the request, under a
// key that only the cluster has, instead of drawing it; a repeat derives it again.
// The day is part of it: a key that is used again after it was forgotten makes
// another secret, never an old one.
type derived struct {
	server *Server
	mark   string
	text   string // all that makes the request what it is
	day    int64
}

const secretDay = 24 * time.Hour // at least as long as keys are remembered

func (s *Server) derive(mark string, h state.Head) derived {
	at := s.time(s.cfg.Log.View())
	return derived{s, mark, "operator secret v1\x00" + mark + "\x00" + h.Actor + "\x00" + h.Route + "\x00" + h.Key + "\x00" + string(h.Hash), at.Unix() / int64(secretDay/time.Second)}
}

// on gives the secret of a day under the key so many generations back; empty where
// there was none.
func (d derived) on(day int64, back int) string {
	sum := d.server.cfg.Derive(d.text+"\x00"+strconv.FormatInt(day, 10), back)
	if sum == nil {
		return ""
	}
	return d.mark + base64.RawURLEncoding.EncodeToString(sum)
}

// creation commits a command that records a credential by its hash, and gives the
// secret: a fresh one, or with a key the one of the first time. found says whether
// the hash is what was recorded under the id that the first creation had.
func (s *Server) creation(ctx context.Context, mark, route, key string, body any,
	make func(secret string, h fleet.Digest) state.Command, found func(v state.View, h fleet.Digest, id string) bool,
) (secret string, err error) {
	h, err := head(ctx, route, key, body)
	if err != nil {
		return "", err
	}
	d := s.derive(mark, h)
	if secret = NewSecret(mark); key != "" {
		secret = d.on(d.day, 0)
	}
	res, err := s.cfg.Log.ProposeAs(ctx, h, make(secret, HashSecret(secret)))
	if err != nil {
		return "", err
	}
	if err := refused(res); err != nil {
		return "", err
	}
	if !res.Repeated {
		return secret, nil
	}
	v := s.cfg.Log.View()
	for day := d.day; day >= d.day-2; day-- {
		for back := 0; ; back++ {
			if secret = d.on(day, back); secret == "" {
				break
			}
			if found(v, HashSecret(secret), res.ID) {
				return secret, nil
			}
		}
	}
	return "", wrong(fleet.Conflict, "this was created before under the same Idempotency-Key, and its secret can no longer be shown; revoke it if it was not received, and create another with a new key")
}
