package state

import (
	"fmt"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const tableKeys = "keys"

var _ = register(func() Command { return new(ActivateKeys) })

// Bounds of what is recorded of a key.
const (
	maxKeyID    = 64
	maxKeyBytes = 8 << 10 // of a public part or proof
	maxKeyKeep  = 3650 * 24 * time.Hour
)

// ActivateKeys makes a new generation of one of the cluster's keys the active one.
// Secrets never ride in it, only what tells whether a node holds the right one: they
// lie on the nodes before it is proposed. The one before counts for Keep longer; without
// Keep none before counts any more, which is for keys that nobody has.
//
// With Serve it says of a CA that is active that hubs show certificates of it now.
type ActivateKeys struct {
	Kind       string        `json:"kind"`
	Generation uint64        `json:"generation"`
	ID         string        `json:"id,omitempty"`
	Public     []byte        `json:"public,omitempty"`
	Proof      []byte        `json:"proof,omitempty"`
	Digest     fleet.Digest  `json:"digest,omitempty"`
	Keep       time.Duration `json:"keep_ns,omitempty"`
	Serve      bool          `json:"serve,omitempty"`
}

func (*ActivateKeys) kind() Kind { return 42 }

func (c *ActivateKeys) apply(t *txn) Result {
	if !slices.Contains(fleet.KeyKinds, c.Kind) || c.Generation == 0 {
		return refuse(fleet.BadRequest, "the cluster has no generation %d of a key %q", c.Generation, c.Kind)
	}
	id := keyName(c.Kind, c.Generation)
	was := first[fleet.ClusterKey](t.Txn, tableKeys, "id", keyID(c.Kind, c.Generation))
	if c.Serve {
		switch {
		case was == nil || c.Kind != fleet.KeyCA:
			return refuse(fleet.NotFound, "there is no %s", id)
		case was.ServesAt != nil:
			return Result{ID: id, Repeated: true}
		}
		n := *was
		n.ServesAt = at(t.now())
		t.putKey(&n)
		return Result{ID: id}
	}
	switch {
	case c.ID == "" || len(c.ID) > maxKeyID || !c.Digest.Valid() || len(c.Public) > maxKeyBytes || len(c.Proof) > maxKeyBytes:
		return refuse(fleet.BadRequest, "%s lacks its id or digest, or is too large", id)
	case c.Keep < 0 || c.Keep > maxKeyKeep:
		return refuse(fleet.BadRequest, "the key before %s cannot count for %s", id, c.Keep)
	case was != nil && was.Digest == c.Digest:
		return Result{ID: id, Repeated: true}
	}
	k := &fleet.ClusterKey{Kind: c.Kind, Generation: c.Generation, ID: c.ID, Public: c.Public, Proof: c.Proof, Digest: c.Digest, At: t.now()}
	if all := (View{t.Txn}).Keys(c.Kind); len(all) > 0 {
		last := all[len(all)-1]
		if last.Generation >= c.Generation {
			return refuse(fleet.Conflict, "%s is active already; another rotation was faster", keyName(c.Kind, last.Generation))
		}
		if c.Keep > 0 {
			all = all[len(all)-1:]
		}
		for _, k := range all {
			if end := t.now().Add(c.Keep); k == last || k.Holds(end) {
				n := *k
				n.Until = at(end)
				t.putKey(&n)
			}
		}
	} else if c.Kind == fleet.KeyCA {
		k.ServesAt = at(t.now())
	}
	t.putKey(k)
	return Result{ID: id}
}

func (t *txn) putKey(k *fleet.ClusterKey) {
	t.insert(tableKeys, k)
	t.changed(Change{What: "keys"})
}

// activeMaster gives the generation of the HMAC key that new keys come from, or 0
// while none is recorded.
func (t *txn) activeMaster() uint64 {
	if all := (View{t.Txn}).Keys(fleet.KeyHMAC); len(all) > 0 {
		return all[len(all)-1].Generation
	}
	return 0
}

// Keys gives what is recorded of the generations of a key, the active one last.
func (v View) Keys(kind string) []*fleet.ClusterKey {
	var out []*fleet.ClusterKey
	each(v.tx, tableKeys, "id_prefix", func(k *fleet.ClusterKey) bool {
		out = append(out, k)
		return true
	}, kind+"/")
	return out
}

func keyID(kind string, generation uint64) string { return kind + "/" + order(generation, "") }

// keyName is what people call a generation of a key.
func keyName(kind string, generation uint64) string { return fmt.Sprintf("%s/%d", kind, generation) }
