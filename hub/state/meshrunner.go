package state

import (
	"bytes"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// meshKeyOf refuses a mesh key that a runner can't have: two that share one would take
// each other's packets.
func (t *txn) meshKeyOf(c *Enrol, k *fleet.Ticket) Result {
	if len(c.MeshKey) == 0 {
		return Result{}
	}
	if len(c.MeshKey) != fleet.MeshKeyBytes {
		return refuse(fleet.BadRequest, "a mesh key has %d bytes, not %d", fleet.MeshKeyBytes, len(c.MeshKey))
	}
	v := View{t.Txn}
	for _, r := range v.Runners() {
		if r.ID != k.For && bytes.Equal(r.MeshKey, c.MeshKey) {
			return refuse(fleet.Conflict, "runner %s has this mesh key; a copied data directory can't be a second runner: give it an empty one", r.Name)
		}
	}
	for _, n := range v.AllNodes() {
		if bytes.Equal(n.MeshKey, c.MeshKey) || bytes.Equal(n.NextMeshKey, c.MeshKey) {
			return refuse(fleet.Conflict, "hub node %s has this mesh key", n.ID)
		}
	}
	return Result{}
}

// MeshRunners gives the runners that the hubs' tunnel lets in: those with a mesh key
// that are not removed and whose key was not revoked.
func (v View) MeshRunners() []*fleet.Runner {
	var out []*fleet.Runner
	for _, r := range v.Runners() {
		if len(r.MeshKey) > 0 && r.Generation >= r.Floor {
			out = append(out, r)
		}
	}
	return out
}

// RunnerGuests gives the runners' tickets by whose guest key somebody may ask to be
// enrolled through the tunnel: unused ones until their end, used ones for the same
// runner a day longer.
func (v View) RunnerGuests(now time.Time) []*fleet.Ticket {
	var out []*fleet.Ticket
	each(v.tx, tableTickets, "id", func(k *fleet.Ticket) bool {
		live := k.Uses > 0 && !now.After(k.ExpiresAt) || len(k.Consumed) > 0 && !now.After(k.ExpiresAt.Add(KeepKeys))
		if k.Role != fleet.TicketHub && len(k.Guest) > 0 && live {
			out = append(out, k)
		}
		return true
	})
	return out
}
