package fleet

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOriginKeys: a named automation draws on its own budget first.
func TestOriginKeys(t *testing.T) {
	for _, c := range []struct {
		o    Origin
		want []string
	}{
		{Origin{}, []string{"manual"}}, {Origin{Kind: "manual"}, []string{"manual"}}, {Origin{Kind: "automation"}, []string{"automation"}},
		{Origin{Kind: "automation", Name: "night"}, []string{"automation:night", "automation"}}, {Origin{Name: "me"}, []string{"manual:me", "manual"}},
	} {
		if got := c.o.OriginKeys(); !slices.Equal(got, c.want) {
			t.Errorf("%+v draws on %v, want %v", c.o, got, c.want)
		}
	}
}

// TestRoom: what one more attempt may use always fits between what is in use and the
// bounds, however a budget stands; a refusal names a bound.
func TestRoom(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		b := &Budget{Origin: "manual", Runs: n("runs", 4), Tokens: n("tokens", 100), Wall: time.Duration(n("hours", 5)) * time.Hour,
			Window: time.Duration(n("window", 2)) * time.Hour, Begun: now.Add(-time.Duration(n("begun", 3)) * time.Hour),
			Spent: Spending{Runs: n("spent runs", 3), Tokens: n("spent tokens", 120), Wall: time.Duration(n("spent hours", 3)) * time.Hour}}
		for range n("held", 3) {
			b.Held = append(b.Held, Reservation{Tokens: n("held tokens", 50), Wall: time.Duration(n("held hours", 3)) * time.Hour})
		}
		s := &Spec{Kind: rapid.SampledFrom([]Kind{KindAgent, KindExec}).Draw(t, "kind"), MaxTokens: n("max tokens", 60),
			Timeouts: Timeouts{Total: rapid.SampledFrom([]time.Duration{0, time.Hour, -1}).Draw(t, "timeout")}}
		r, no, until := b.Room(s, now)
		use := b.At(now).InUse()
		end, ends := b.Ends()
		if over := ends && !now.Before(end); over && b.At(now).Spent != (Spending{}) || !over && b.At(now).Spent != b.Spent {
			t.Fatalf("in the window until %v is spent %+v", end, b.At(now).Spent)
		}
		if no != "" {
			if r != (Reservation{}) || b.Runs+b.Tokens+int64(b.Wall) == 0 || until != nil && !until.After(now) {
				t.Fatalf("%+v refuses %q until %v and yet %+v", b, no, until, r)
			}
			return
		}
		if r.Tokens < 0 || r.Wall < 0 || b.Runs > 0 && use.Runs+1 > b.Runs || s.Kind == KindAgent && b.Tokens > 0 && use.Tokens+r.Tokens > b.Tokens ||
			b.Wall > 0 && use.Wall+r.Wall > b.Wall {
			t.Fatalf("%+v with %+v in use has room for %+v", b, use, r)
		}
		if s.Kind == KindAgent && b.Tokens > 0 && r.Tokens == 0 {
			t.Fatal("an agent takes no tokens")
		}
	})
	most := Spending{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	if got := most.Add(Spending{1, 1, 1}); got != most {
		t.Errorf("a sum runs over: %+v", got)
	}
}
