package hub

import (
	"context"
	"slices"
	"time"

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
// were given up, oldest first. Reports of storage pressure come every few minutes for as
// long as a disk is full; of one machine's only those are owed that came long enough after
// the last one that was.
func owedAlerts(v state.View) []*fleet.Alert {
	var out []*fleet.Alert
	last := map[fleet.RunnerID]time.Time{}
	for _, a := range slices.Backward(v.Alerts(fleet.MaxAlerts)) {
		if a.Kind == state.AlertPressure {
			if was, ok := last[a.Runner]; ok && a.At.Sub(was) < fleet.AlertEvery {
				continue
			}
			last[a.Runner] = a.At
		}
		if a.Delivered == nil && a.Failed == "" {
			out = append(out, a)
		}
	}
	return out
}

// alerted has the courier look at what was recorded.
func (h *Hub) alerted() {
	if c := h.courier.Load(); c != nil {
		poke(c.pokes)
	}
}
