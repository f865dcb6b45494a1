package hub

import (
	"testing"

	"tugline.dev/tugline/hub/gate"
	"tugline.dev/tugline/shared/fleet"
)

// A follow-up that only answers is not accepted for what an earlier turn committed.
func TestEarlierCommitsProveNothingOfThisTurn(t *testing.T) {
	turn := func(n int, tip string) *fleet.Turn {
		return &fleet.Turn{N: n, Current: 1, Attempts: []*fleet.Attempt{{
			N: 1, Fence: fleet.Fence{Epoch: 1, Index: uint64(n)}, Exit: &fleet.Exit{Reason: "exited"}, Failure: fleet.ClassOK,
			Evidence: &fleet.Evidence{Base: "b", Tip: tip, CommitCount: 1, Descends: true, BundleChecked: true},
		}}}
	}
	for _, c := range []struct {
		tips []string
		want fleet.Decision
	}{{[]string{"x"}, fleet.Accept}, {[]string{"x", "x"}, fleet.Ask}, {[]string{"x", "y"}, fleet.Accept}, {[]string{"x", "", "x"}, fleet.Ask}} {
		j := &fleet.Job{Spec: fleet.Spec{Kind: fleet.KindAgent, Repo: &fleet.Repo{URL: "u"}}}
		for i, tip := range c.tips {
			j.Turns = append(j.Turns, turn(i+1, tip))
		}
		a := *j.Current()
		a.Evidence = (&Hub{}).check(j, &a)
		if v := gate.Judge(j.Spec, &a); v.Decision != c.want {
			t.Errorf("tips %v: %s (%v), want %s", c.tips, v.Decision, v.Reasons, c.want)
		}
	}
}
