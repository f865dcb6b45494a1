package hub

import (
	"context"
	"slices"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// deliver posts alerts to the webhook while this node leads.
func (l *term) deliver(ctx context.Context) {
	h := l.hub
	c := newCourier(h.log)
	c.now = h.entries.now
	c.to = func() string { return h.entries.View().Meta().Settings[fleet.SettingAlertWebhook] }
	c.owed = func() []*fleet.Alert { return owedAlerts(h.entries.View()) }
	c.settle = func(ctx context.Context, id, failed string) {
		l.propose(ctx, &state.SettleAlert{ID: id, Failed: failed})
	}
	h.courier.Store(c)
	defer h.courier.CompareAndSwap(c, nil)
	c.run(ctx)
}

// owedAlerts are those of which is neither recorded that they were delivered nor that they
// were given up, oldest first.
func owedAlerts(v state.View) []*fleet.Alert {
	out := slices.DeleteFunc(v.Alerts(fleet.MaxAlerts), func(a *fleet.Alert) bool { return a.Delivered != nil || a.Failed != "" })
	slices.Reverse(out)
	return out
}

// alerted has the courier look at what was recorded.
func (h *Hub) alerted() {
	if c := h.courier.Load(); c != nil {
		poke(c.pokes)
	}
}
