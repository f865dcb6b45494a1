package session

import (
	"reflect"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/wire"
)

// tunnels gives where the hubs' tunnels are, to a runner whose link goes through one
// and that was told otherwise, or nothing, in this session.
func (x *session) tunnels(v state.View) []wire.HubAddress {
	if x.srv.cfg.Tunnels == nil {
		return nil
	}
	if r, ok := v.Runner(x.runner); !ok || len(r.MeshKey) == 0 {
		return nil
	}
	now := x.srv.cfg.Tunnels()
	x.mu.Lock()
	defer x.mu.Unlock()
	if reflect.DeepEqual(now, x.told) {
		return nil
	}
	x.told = now
	return now
}
