package sched

import "math/bits"

// set is a set of runners by their place on the board.
type set []uint64

// room gives an empty set that may hold n, in the memory of s if that is enough.
func (s set) room(n int) set {
	n = (n + 63) / 64
	if cap(s) < n {
		return make(set, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) drop(i int)     { s[i/64] &^= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// put has i in the set, or not.
func (s set) put(i int, in bool) {
	if in {
		s.add(i)
	} else {
		s.drop(i)
	}
}

// nextOf gives the least that is in both sets and not below from, or -1.
func nextOf(a, b set, from int) int {
	n := from / 64
	if n >= len(a) {
		return -1
	}
	w := a[n] & b[n] &^ (1<<(from%64) - 1)
	for w == 0 {
		if n++; n == len(a) {
			return -1
		}
		w = a[n] & b[n]
	}
	return n*64 + bits.TrailingZeros64(w)
}
