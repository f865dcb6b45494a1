package state

import (
	"bytes"

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
