package session

import (
	"reflect"
	"slices"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/wire"
)

// hubNews gives the URLs of all hubs, to a runner that was told others in this session: one
// whose session lasts while every other node is replaced must find them when it ends.
func (x *session) hubNews() []string {
	now := x.srv.cfg.Hubs()
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.Equal(now, x.hubs) {
		return nil
	}
	x.hubs = now
	return now
}

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
