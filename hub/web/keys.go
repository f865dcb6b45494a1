package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// How long a CA that is replaced stays trusted.
const (
	defaultOverlap = 7 * 24 * time.Hour
	minOverlap     = time.Second
	maxOverlap     = 90 * 24 * time.Hour
)

// keyRoutes show the cluster's keys and replace them.
func (s *Server) keyRoutes() {
	huma.Register(s.api, op(http.MethodGet, "/v1/keys", "list-keys", "The cluster's keys by generation, without their secrets", fleet.RoleViewer), wrap(s, func(context.Context, *struct{}) (*struct{ Body api.Keys }, error) {
		return &struct{ Body api.Keys }{s.cfg.Keys()}, nil
	}))
	huma.Register(s.api, op(http.MethodPost, "/v1/keys/rotate", "rotate-key", "Replace one of the cluster's keys", fleet.RoleAdmin), wrap(s, s.rotate))
}

func (s *Server) rotate(ctx context.Context, in *struct {
	Keyed
	Body api.RotateRequest
}) (*struct{ Body api.Rotation }, error) {
	b := in.Body
	if !slices.Contains(fleet.KeyKinds, b.Kind) {
		return nil, wrong(fleet.BadRequest, "there is no key of kind %s; there are hmac, signing and ca", quote(b.Kind))
	}
	overlap := defaultOverlap
	if b.Overlap != "" {
		d, err := time.ParseDuration(b.Overlap)
		switch {
		case b.Kind != fleet.KeyCA:
			return nil, wrong(fleet.BadRequest, "overlap is for the CA alone; a key of kind %s has a fixed one", b.Kind)
		case err != nil || d < minOverlap || d > maxOverlap:
			return nil, wrong(fleet.BadRequest, "overlap %s is not a duration from 1s to 2160h", quote(b.Overlap))
		}
		overlap = d
	}
	h, err := head(ctx, "/v1/keys/rotate", in.Key, b)
	if err != nil {
		return nil, err
	}
	res, err := s.cfg.Rotate(ctx, h, b.Kind, overlap)
	if err != nil {
		return nil, err
	}
	if err := refused(res); err != nil {
		return nil, err
	}
	all := s.cfg.Keys().Keys
	i := slices.IndexFunc(all, func(k api.Key) bool { return fmt.Sprintf("%s/%d", k.Kind, k.Generation) == res.ID })
	if i < 0 {
		return nil, fmt.Errorf("the key %s is not there after its rotation: %w", res.ID, fleet.Internal)
	}
	return &struct{ Body api.Rotation }{api.Rotation{Key: all[i], Next: next(b.Kind, all, overlap)}}, nil
}

// next says what happens after a rotation.
func next(kind string, all []api.Key, overlap time.Duration) string {
	switch kind {
	case fleet.KeyHMAC:
		old := 0
		for _, k := range all {
			if k.Runners != nil && !k.Active {
				old += *k.Runners
			}
		}
		return fmt.Sprintf("Runners get their new keys as they are connected, without a pause; %d use an old one now, and `tugline hub keys` shows how many still do. "+
			"One that does not connect within %d days has to enrol again with `tugline hub ticket --for RUNNER`.", old, int(fleet.HMACKeep.Hours()/24))
	case fleet.KeySigning:
		return "Orders are signed with the new key from now on, and every runner learns it from the old one, also one that is offline now. There is nothing to do."
	}
	kept := overlap.String()
	if n := overlap / (24 * time.Hour); n > 1 && overlap == n*24*time.Hour {
		kept = fmt.Sprintf("%d days", n)
	}
	return fmt.Sprintf("Runners learn the new CA as they are connected, and the hubs show its certificates once all of them have; the old one stays trusted for %s. "+
		"Give people who keep a copy of the hub's ca.pem the new one before that ends (`tugline hub keys --ca` prints it); a runner that does not connect until then has to enrol again.", kept)
}
