package session

import (
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// offer signs the release that a runner is to have. One that cannot be signed now comes
// with the next beat.
func (s *Server) offer(keys *Keys, v state.View, r *fleet.Runner) *wire.Offer {
	u := s.cfg.Update(v, r)
	if u == nil {
		return nil
	}
	signed, raw, err := s.signed(keys, wire.Order{
		Runner: r.ID, ID: wire.OrderUpdate + "/" + u.Version + "/" + string(u.SHA256) + "/" + u.Asked, Kind: wire.OrderUpdate, Critical: []string{"version", "os", "arch", "sha256", "size", "signature"},
	}, u)
	if err != nil {
		s.cfg.Logger.Error("sign update", "runner", r.ID, "version", u.Version, "err", err)
		return nil
	}
	return &wire.Offer{Order: signed, Body: raw}
}

// install signs the installation that a runner is to make.
func (s *Server) install(keys *Keys, v state.View, r *fleet.Runner) *wire.Offer {
	p := s.cfg.Provision(v, r)
	if p == nil {
		return nil
	}
	signed, raw, err := s.signed(keys, wire.Order{
		Runner: r.ID, ID: wire.OrderProvision + "/" + p.ID, Kind: wire.OrderProvision, Critical: []string{"what", "version", "credentials", "preserve_auth"},
	}, p)
	if err != nil {
		s.cfg.Logger.Error("sign installation", "runner", r.ID, "id", p.ID, "err", err)
		return nil
	}
	return &wire.Offer{Order: signed, Body: raw}
}
