package session

import (
	"slices"
	"sync/atomic"
	"testing"
)

// TestHubsAreToldWhenTheyChange: once, in a session that lasts.
func TestHubsAreToldWhenTheyChange(t *testing.T) {
	t.Parallel()
	var hubs atomic.Pointer[[]string]
	now := func(urls ...string) { hubs.Store(&urls) }
	now("http://a", "http://b")
	h := newHub(t, func(c *Config) { c.Hubs = func() []string { return *hubs.Load() } })
	for name, open := range map[string]func(*agent) talk{
		"ws": func(a *agent) talk { return a.link() }, "http": func(a *agent) talk { return a.exchange() },
	} {
		who := h.enrolled()
		k := open(who)
		if rep := who.beat(k); rep.Hubs != nil {
			t.Errorf("%s: %v is told again", name, rep.Hubs)
		}
		now("http://a", "http://c")
		if rep := who.beat(k); !slices.Equal(rep.Hubs, []string{"http://a", "http://c"}) {
			t.Errorf("%s: %v is told", name, rep.Hubs)
		}
		if rep := who.beat(k); rep.Hubs != nil {
			t.Errorf("%s: %v is told again", name, rep.Hubs)
		}
		now("http://a", "http://b")
		who.beat(k)
	}
}
