package fleet

import "slices"

// Told is which numbered facts of an attempt are recorded. Zero: none.
type Told struct {
	To    uint64   `json:"to,omitempty"`    // all up to this number
	Ahead []uint64 `json:"ahead,omitempty"` // of those after it, in order
}

// Has says whether the fact of that number is recorded. One without a number never is.
func (t Told) Has(n uint64) bool { return n > 0 && (n <= t.To || slices.Contains(t.Ahead, n)) }

// With gives what is recorded once the fact of that number is, too. Numbers may come in
// any order.
func (t Told) With(n uint64) Told {
	if n == 0 || t.Has(n) {
		return t
	}
	at, _ := slices.BinarySearch(t.Ahead, n)
	ahead := slices.Insert(slices.Clone(t.Ahead), at, n)
	for len(ahead) > 0 && ahead[0] == t.To+1 {
		t.To, ahead = ahead[0], ahead[1:]
	}
	t.Ahead = ahead
	if len(ahead) == 0 {
		t.Ahead = nil
	}
	return t
}
