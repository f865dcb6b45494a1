package circuit

import (
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Ask is a start that circuits may refuse.
type Ask struct {
	Runner   fleet.RunnerID
	Harness  string
	Provider string
	Account  string
	Model    string
	Docker   bool // it needs Docker

	Automated bool // asked for by an automation
}

// AskOf gives what a start of the job's newest turn on a runner asks for.
func AskOf(j *fleet.Job, r *fleet.Runner) Ask {
	a := Ask{Runner: r.ID, Automated: j.Spec.Automated(), Docker: j.Spec.Needs != nil && j.Spec.Needs.Docker || j.Learned != nil && j.Learned.Docker}
	if j.Spec.Kind == fleet.KindAgent {
		ch := j.ChoiceOf(j.Turn())
		h, _ := r.Facts.Harness(ch.Harness)
		a.Harness, a.Provider, a.Account, a.Model = ch.Harness, ch.Provider(), h.AccountOf(ch.Provider()), ch.Model
	}
	return a
}

// Prefixes gives what the ids of all circuits start with that may concern the start.
func (a Ask) Prefixes() []string {
	p := []string{Of(fleet.ScopeHost, a.Runner)}
	if a.Provider != "" {
		all := func(s fleet.Scope) string {
			return strings.TrimSuffix(fleet.CircuitID(s, "", Everywhere, a.Provider, "", ""), "-/-/-")
		}
		p = append(p, Of(fleet.ScopeModel, a.Runner), Of(fleet.ScopeProvider, a.Runner), all(fleet.ScopeModel), all(fleet.ScopeProvider))
	}
	return p
}

// concerns says whether a circuit is over what the start asks for.
func (a Ask) concerns(c *fleet.Circuit) bool {
	switch {
	case c.Runner != "" && c.Runner != a.Runner:
		return false
	case c.Class == fleet.CircuitDocker && !a.Docker || c.Automation && !a.Automated:
		return false
	case c.Scope == fleet.ScopeHost:
		return true
	case a.Provider == "" || c.Provider != a.Provider && (c.Class != fleet.CircuitLost || c.Provider != a.Harness):
		return false
	case c.Account != "" && a.Account != "" && c.Account != a.Account:
		return false
	case c.Scope == fleet.ScopeModel && c.Model != a.Model:
		return false
	}
	return c.Class != fleet.CircuitModel || c.State == fleet.CircuitBlocked || slices.Contains(c.Runners, a.Runner)
}

// Verdict is what circuits say of a start.
type Verdict string

// The verdicts.
const (
	Pass  Verdict = "pass"
	Probe Verdict = "probe" // it may, as the one that tries half-open circuits
	No    Verdict = "no"
)

// Answer is a verdict, and in words for people why, until when, and what would change it.
type Answer struct {
	Verdict Verdict
	Probes  []string   // circuits to be tried, by id
	Circuit string     // the one that refuses
	Detail  string     // goes on where a runner's name stands before it
	Until   *time.Time // when it lets a probe, or everything, pass; nil: no time does
	Change  string     // what would change it
}

// Set is the circuits of one look at the state, at hand for many starts.
type Set struct {
	by    map[fleet.RunnerID][]*fleet.Circuit // "": over all runners
	taken map[string]fleet.JobID
}

// NewSet takes in circuits; closed ones refuse nothing and are left out.
func NewSet(cs []*fleet.Circuit) *Set {
	s := &Set{by: map[fleet.RunnerID][]*fleet.Circuit{}, taken: map[string]fleet.JobID{}}
	for _, c := range cs {
		if c.State != fleet.CircuitClosed {
			s.by[c.Runner] = append(s.by[c.Runner], c)
		}
	}
	return s
}

// Touches says whether any circuit may concern starts on a runner. Where none does,
// every start passes.
func (s *Set) Touches(r fleet.RunnerID) bool { return len(s.by[""])+len(s.by[r]) > 0 }

// Take gives half-open circuits to a job, so that no other one tries them as well.
func (s *Set) Take(ids []string, job fleet.JobID) {
	for _, id := range ids {
		s.taken[id] = job
	}
}

// Passes says whether the circuits let a start pass. Of several that refuse the one is
// told that holds longest.
func (s *Set) Passes(a Ask, now time.Time) Answer {
	out := Answer{Verdict: Pass}
	var worst *fleet.Circuit
	for _, r := range [...]fleet.RunnerID{"", a.Runner} {
		for _, c := range s.by[r] {
			if !a.concerns(c) {
				continue
			}
			switch {
			case !s.refusing(c, now):
				if At(c, now) == fleet.CircuitHalf {
					out.Probes = append(out.Probes, c.ID)
				}
			case worst == nil || holdsLonger(c, worst, now):
				worst = c
			}
		}
	}
	if worst != nil {
		return s.refusal(worst, now)
	}
	if len(out.Probes) > 0 {
		slices.Sort(out.Probes)
		out.Verdict = Probe
	}
	return out
}

// holdsLonger says whether c refuses for longer than d: a blocked one for longest, one
// that is being tried for shortest.
func holdsLonger(c, d *fleet.Circuit, now time.Time) bool {
	rank := func(c *fleet.Circuit) int {
		switch At(c, now) {
		case fleet.CircuitBlocked:
			return 2
		case fleet.CircuitOpen:
			return 1
		}
		return 0
	}
	if x, y := rank(c), rank(d); x != y {
		return x > y
	} else if x == 1 && !c.Until.Equal(*d.Until) {
		return c.Until.After(*d.Until)
	}
	return c.ID < d.ID
}
