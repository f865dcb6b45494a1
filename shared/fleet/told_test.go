package fleet

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTold(t *testing.T) {
	var told Told
	for _, n := range []uint64{2, 5, 0, 1, 1, 5} {
		told = told.With(n)
	}
	if d := cmp.Diff(Told{To: 2, Ahead: []uint64{5}}, told); d != "" {
		t.Error(d)
	}
	for n, want := range []bool{false, true, true, false, false, true, false} {
		if got := told.Has(uint64(n)); got != want {
			t.Errorf("%d is recorded: %t, want %t", n, got, want)
		}
	}
	before := told
	told.With(4).With(3)
	if d := cmp.Diff(before, told); d != "" {
		t.Errorf("a value was changed in place: %s", d)
	}
}

func TestToldInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var told Told
		for _, i := range r.Perm(MaxFacts) {
			if told.Has(uint64(i + 1)) {
				t.Fatalf("%d is recorded before it came: %+v", i+1, told)
			}
			told = told.With(uint64(i + 1))
		}
		if d := cmp.Diff(Told{To: MaxFacts}, told); d != "" {
			t.Fatal(d)
		}
	}
}
