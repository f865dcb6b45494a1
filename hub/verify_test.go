package hub

import (
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Two commits, and what a bundle looks like that brings one on top of the other.
var (
	base = strings.Repeat("1", 40)
	tip  = strings.Repeat("2", 40)
	good = bundleOf("-" + base + " begin\n")
)

func bundleOf(prerequisites string) string {
	return "# v2 git bundle\n" + prerequisites + tip + " refs/heads/x\n\nPACK"
}

// oneCommit is the evidence of an attempt that made a commit.
func oneCommit(bundle string) *fleet.Evidence {
	return &fleet.Evidence{Base: base, Tip: tip, CommitCount: 1, Descends: true, Bundle: digestOf(bundle), BundleSize: int64(len(bundle))}
}

// settled gives a job's state and the reasons of its verdict.
func (n *node) settled(id fleet.JobID) (fleet.State, string) {
	n.t.Helper()
	j, ok := n.hub.entries.View().Job(id)
	if !ok {
		n.t.Fatalf("no job %s", id)
	}
	v := j.Turn().Verdict
	if v == nil {
		return j.State, ""
	}
	return j.State, strings.Join(v.Reasons, "; ")
}

// The hub has no git: it holds what git proved elsewhere against the stored bundle.
// One that is here and says something else is nothing to wait for.
func TestBundleIsHeldAgainstTheEvidence(t *testing.T) {
	n := start(t, t.TempDir(), true)
	other := strings.Repeat("3", 40)
	for name, c := range map[string]struct {
		bundle string
		base   string // that the attempt was accepted on
		want   fleet.State
		says   string
	}{
		"as promised":        {good, base, fleet.Succeeded, "1 new commit verified"},
		"on another commit":  {bundleOf("-" + other + " x\n"), base, fleet.NeedsReview, "the bundle builds on " + other},
		"on one commit more": {bundleOf("-" + base + " x\n-" + other + " x\n"), base, fleet.NeedsReview, "the bundle builds on " + other},
		"on nothing":         {bundleOf(""), base, fleet.NeedsReview, "does not build on the base"},
		"of another base":    {good, other, fleet.NeedsReview, "the attempt was accepted on " + other},
		"without the tip":    {strings.ReplaceAll(good, tip, other), base, fleet.NeedsReview, "does not bring the tip"},
		"that is no bundle":  {"a file of another kind", base, fleet.NeedsReview, "cannot be read"},
		"that is cut short":  {good[:60], base, fleet.NeedsReview, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			n.put(c.bundle)
			id := n.agent("make commits: " + name)
			n.finish(n.absent(), id, c.base, oneCommit(c.bundle), nil)
			(&term{hub: n.hub, since: time.Now()}).verify(t.Context())
			if s, why := n.settled(id); s != c.want || !strings.Contains(why, c.says) {
				t.Errorf("the job is %s (%s); want %s, with %q", s, why, c.want, c.says)
			}
		})
	}
}

// A bundle that has not come is waited for: for a quarter of an hour since its runner
// was heard, and no longer than that where the runner has sent all it had.
func TestMissingBundleIsWaitedFor(t *testing.T) {
	var clock turned
	n := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true}, clock.now)
	n.connect(n.ticketFor(1), 1)
	var heard fleet.RunnerID
	n.eventually("the runner is heard", func() bool {
		for _, r := range n.hub.entries.View().Runners() {
			if p, ok := n.hub.sessions.PresenceOf(r.ID); ok && !p.LastBeat.IsZero() {
				heard = r.ID
			}
		}
		return heard != ""
	})
	leads := func(since time.Duration) { (&term{hub: n.hub, since: time.Now().Add(-since)}).verify(t.Context()) }
	is := func(id fleet.JobID, want fleet.State, when string) {
		t.Helper()
		if s, why := n.settled(id); s != want {
			t.Fatalf("%s the job is %s (%s); want %s", when, s, why, want)
		}
	}

	away := n.agent("its runner stays away")
	n.finish(n.absent(), away, base, oneCommit(good), nil)
	leads(fleet.EvidenceWait - time.Minute)
	is(away, fleet.Verifying, "14 minutes after the last contact")
	leads(fleet.EvidenceWait + time.Second)
	is(away, fleet.NeedsReview, "15 minutes after the last contact")
	if _, why := n.settled(away); !strings.Contains(why, "evidence incomplete: ") {
		t.Errorf("the verdict says %q; want what is missing", why)
	}

	there := n.agent("its runner is there")
	f := n.finish(heard, there, base, oneCommit(good), nil)
	leads(time.Hour)
	is(there, fleet.Verifying, "while the runner is heard")
	n.seal(there, f)
	leads(time.Hour)
	is(there, fleet.Verifying, "at the end of its output")
	clock.turn(fleet.EvidenceWait + time.Second)
	n.agent("whatever takes the new time into the log")
	leads(fleet.EvidenceWait - time.Minute)
	is(there, fleet.Verifying, "with a leader that may not have looked everywhere yet")
	leads(time.Hour)
	is(there, fleet.NeedsReview, "15 minutes after the runner had sent all")

	n.put(good)
	(&term{hub: n.hub}).late(t.Context())
	is(there, fleet.Succeeded, "once the bundle has come")
	is(away, fleet.Succeeded, "once the bundle has come")
}
