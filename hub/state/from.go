package state

// Entries of people carry the address that their request came from, in a form of its
// own: it is written only once every node of the cluster can read it, for a node that
// met it and could not would have to stop.
const (
	formatFrom     = 2
	fromGeneration = 3
)

// MayTellFrom says whether entries may carry addresses.
func (v View) MayTellFrom() bool {
	for _, n := range v.Nodes() {
		if n.Kinds < fromGeneration {
			return false
		}
	}
	return true
}
