package main

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/api"
)

func TestWhatIsNotKnownOfANodeIsShownAsSuch(t *testing.T) {
	for want, n := range map[string]api.Member{
		"0 B":          {Replication: true},
		"1 B":          {Replication: true, UnderReplicated: 1},
		"?":            {},
		"over 2.0 KiB": {UnderReplicated: 2000},
	} {
		if got := lacks(&n); got != want {
			t.Errorf("%+v: %q; want %q", n, got, want)
		}
	}
	if (api.Member{}).Whole() || !(api.Member{Replication: true}).Whole() {
		t.Error("a node of which nothing is known counts as whole, or one that lacks nothing does not")
	}
}

func TestMembersTellWhoHoldsNewCommandsBack(t *testing.T) {
	old, late := api.Member{ID: "n-old", Role: "voter", Version: "v1", Kinds: 2}, api.Member{ID: "n-gone", Role: "removed", Kinds: 1}
	one, two := api.Member{ID: "n-1", Role: "voter", Kinds: 3}, api.Member{ID: "n-2", Role: "learner", Kinds: 3}
	s := newShell(t, "")
	if err := s.showMembers(&api.Members{Members: []api.Member{one, old, late, two}}); err != nil {
		t.Fatal(err)
	}
	has(t, "with an old node", s.out.String(), "warning: n-old runs version v1", "until it is upgraded")
	if n := strings.Count(s.out.String(), "warning:"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, s.out)
	}
	if got := heldBack(&api.Members{Members: []api.Member{one, two, late}}); got != nil {
		t.Errorf("without one: %q", got)
	}
}
