package state

import (
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

// Commands of old that came to do more say so by their field Rules, and do what they
// always did without it: an old log leads where it led. The rules are that circuits,
// budgets and retries are kept.

// rulesGeneration is that of the rules, and of every field that came with them.
const rulesGeneration = 5

// currentRules is what Rules is set to.
const currentRules = 1

// WithRules gives a command as all nodes of the cluster can apply it: with the rules
// where every one of them knows them, else without anything that came with them, which
// an older node would not keep. The command itself is left as it is.
func WithRules(c Command, nodes []*fleet.HubNode) Command {
	rules := currentRules
	if _, held := behind(rulesGeneration, nodes, nil); held {
		rules = 0
	}
	switch c := c.(type) {
	case *AssignJob:
		n := *c
		if n.Rules = rules; rules == 0 {
			n.Choice, n.Reserve, n.Probes, n.Base, n.Automation = 0, 0, nil, 0, 0
			n.Slots = max(n.Slots, c.Base)
		}
		return &n
	case *AcceptAttempt:
		n := *c
		n.Rules = rules
		return &n
	case *DeclineAttempt:
		n := *c
		n.Rules = rules
		return &n
	case *RecordFacts:
		n := *c
		n.Rules = rules
		return &n
	case *FinishAttempt:
		n := *c
		if n.Rules = rules; rules == 0 {
			n.RetryAfter, n.StatedEnd, n.Acted, n.Account, n.Footprint = 0, "", false, "", 0
			n.Class = oldClass(n.Class)
		}
		return &n
	case *LoseAttempt:
		n := *c
		n.Rules = rules
		return &n
	case *AttemptGone:
		n := *c
		n.Rules = rules
		return &n
	case *RetryJob:
		n := *c
		n.Rules = rules
		return &n
	case *SubmitJob:
		if _, held := behind(browserGeneration, nodes, nil); !held || c.Title == "" {
			return c
		}
		n := *c
		n.Title = ""
		return &n
	case *UpdateRunner:
		_, held := behind(releasesGeneration, nodes, nil)
		if !held || c.Facts == nil {
			return c
		}
		n, f := *c, *c.Facts
		f.Update = nil
		if rules == 0 {
			f.Barred = nil
			f.Harnesses = slices.Clone(f.Harnesses)
			for i := range f.Harnesses {
				f.Harnesses[i].Account, f.Harnesses[i].Models = "", nil
			}
		}
		n.Facts = &f
		return &n
	}
	return c
}

// oldClass names a class by what it was told as before it had a name of its own.
func oldClass(c fleet.FailureClass) fleet.FailureClass {
	switch c {
	case fleet.ClassStalled:
		return fleet.ClassTimeout
	case fleet.ClassDocker:
		return fleet.ClassTaskFailed
	}
	return c
}

// ruled says whether a job asks for something that came with the rules.
func ruled(s *fleet.Spec) bool {
	return s.Priority != 0 || s.Needs != nil || len(s.Fallbacks) > 0 || s.Retries != nil || s.MaxTokens != 0
}
