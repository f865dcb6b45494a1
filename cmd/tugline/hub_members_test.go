package main

import (
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
