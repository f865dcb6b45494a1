package fleet

import (
	"fmt"
	"math"
	"time"
)

// OriginKeys gives the budgets that an origin draws on: its own, if it has a name, and
// that of its kind.
func (o Origin) OriginKeys() []string {
	own, kind := o.OriginKey(), Origin{Kind: o.Kind}.OriginKey()
	if own == kind {
		return []string{kind}
	}
	return []string{own, kind}
}

// At gives the budget as it stands at a time: in a new window nothing is spent, and
// what is held is still held.
func (b *Budget) At(now time.Time) *Budget {
	n := *b
	if end, ok := b.Ends(); ok && !now.Before(end) {
		if n.Spent.Runs > 0 {
			n.Before = n.Spent
		}
		n.Spent, n.Begun = Spending{}, time.Time{}
	}
	return &n
}

// Ends gives the end of the present window, where one has begun.
func (b *Budget) Ends() (time.Time, bool) {
	return b.Begun.Add(b.Window), b.Window > 0 && !b.Begun.IsZero()
}

// InUse gives what is spent and held together.
func (b *Budget) InUse() Spending {
	u := b.Spent
	for _, r := range b.Held {
		u.Runs, u.Tokens, u.Wall = u.Runs+1, plus(u.Tokens, r.Tokens), plus(u.Wall, r.Wall)
	}
	return u
}

// Room gives the most that an attempt at a job may use, for which there is room at a
// time, or says why there is none and when there may be some, if that is known.
// Where nobody knows what a run takes, one has all that is left, and the next waits
// for its end.
func (b *Budget) Room(s *Spec, now time.Time) (r Reservation, refused string, until *time.Time) {
	n := b.At(now)
	if end, ok := n.Ends(); ok {
		until = &end
	}
	use := n.InUse()
	if n.Runs > 0 && use.Runs >= n.Runs {
		return r, fmt.Sprintf("the budget of %s has no room: %d of %d runs", b.Origin, use.Runs, n.Runs), until
	}
	if s.Kind == KindAgent {
		r.Tokens = s.MaxTokens
		if r.Tokens == 0 {
			r.Tokens = n.Mean().Tokens
		}
	}
	if n.Tokens > 0 && s.Kind == KindAgent {
		left := n.Tokens - use.Tokens
		if r.Tokens == 0 {
			r.Tokens = max(left, 1)
		}
		if r.Tokens > left {
			if r.Tokens > n.Tokens {
				until = nil // no window is long enough
			}
			return Reservation{}, fmt.Sprintf("the budget of %s has no room: %d of %d tokens are used or held, and a run may take %d", b.Origin, use.Tokens, n.Tokens, r.Tokens), until
		}
	}
	r.Wall = s.Timeouts.Total
	if r.Wall == 0 {
		r.Wall = DefaultTimeout
	}
	if n.Wall > 0 {
		left := n.Wall - use.Wall
		if r.Wall < 0 {
			r.Wall = max(left, 1)
		}
		if r.Wall > left {
			if r.Wall > n.Wall {
				until = nil
			}
			return Reservation{}, fmt.Sprintf("the budget of %s has no room: %s of %s are used or held, and a run may take %s", b.Origin, use.Wall.Round(time.Second), n.Wall, r.Wall), until
		}
	}
	r.Wall = max(r.Wall, 0)
	return r, "", nil
}

// Mean gives what a run takes on average, as far as it is known.
func (b *Budget) Mean() Spending {
	s := b.Spent
	if s.Runs == 0 {
		s = b.Before
	}
	if s.Runs == 0 {
		return Spending{}
	}
	return Spending{Runs: 1, Tokens: s.Tokens / s.Runs, Wall: s.Wall / time.Duration(s.Runs)}
}

// Add gives the sum of both; it never runs over.
func (s Spending) Add(o Spending) Spending {
	return Spending{plus(s.Runs, o.Runs), plus(s.Tokens, o.Tokens), plus(s.Wall, o.Wall)}
}

// plus adds what is not below zero.
func plus[N ~int64](a, b N) N {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
