package state

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// A bundle whose job was pulled may be deleted; the commits of a later turn are new
// again and nowhere else.
func TestNewCommitsAreNotPulledYet(t *testing.T) {
	g := newRig(t)
	r := g.enrol("r-1")
	id := g.submit("job-0001", func(s *fleet.Spec) { *s = agentSpec() })
	f := g.run(id, r)
	g.do(g.judged(id, f, fleet.Accept))
	g.do(&MarkPulled{Job: id})
	g.do(&FollowUp{Job: id, Prompt: digest("more")})
	f = g.run(id, r)
	if !g.job(id).Pulled {
		t.Fatal("the first turn's commits are forgotten to be elsewhere")
	}
	c := g.judged(id, f, fleet.Accept)
	c.Evidence = &fleet.Evidence{CommitCount: 2, Descends: true, BundleChecked: true}
	g.do(c)
	if g.job(id).Pulled {
		t.Error("the new turn's commits pass for pulled, so that their only bundle may be deleted")
	}
}
