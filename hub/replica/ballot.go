package replica

import "cmp"

// Ballot orders those who write. Epoch and Term say who leads; Round counts how
// often that leader had to give up bytes which it had already handed on, so that
// what it wrote instead is told from them. The zero ballot stands for the leader in
// whose term a stream began.
type Ballot struct {
	Epoch, Term, Round uint64
}

// Compare is negative if b is older than c, 0 if they are one, else positive.
func (b Ballot) Compare(c Ballot) int {
	return cmp.Or(cmp.Compare(b.Epoch, c.Epoch), cmp.Compare(b.Term, c.Term), cmp.Compare(b.Round, c.Round))
}

// IsZero says whether b is the ballot of a stream's first leader.
func (b Ballot) IsZero() bool { return b == Ballot{} }

// term is the ballot without its round: the leader.
func (b Ballot) term() Ballot { return Ballot{Epoch: b.Epoch, Term: b.Term} }

// stamp says under whose ballot the whole of a node's copy of a stream was last
// known to be what that leader had.
type stamp struct {
	Ballot Ballot
	// Mixed: bytes of a later ballot were put behind it, so that two copies with
	// this ballot need not be one the beginning of the other.
	Mixed bool
}
