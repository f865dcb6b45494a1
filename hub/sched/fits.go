package sched

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// fits says why a runner does not take a job now; an empty code means it does.
func fits(j *fleet.Job, c candidate, now time.Time) Reason {
	if r, ok := capable(j, c.r); !ok {
		return r
	}
	if r, _ := excluded(j, c.r, now); r.Code != "" {
		return r
	}
	return c.ready()
}

// excluded says whether the runner gave this job back and why. The time is when
// that will have passed, where it is known.
func excluded(j *fleet.Job, r *fleet.Runner, now time.Time) (Reason, time.Time) {
	for _, x := range j.Excluded {
		switch {
		case x.Runner != r.ID || x.Facts != r.FactsRev:
		case x.Until == nil:
			return Reason{Runner: r.Name, Code: x.Code, Detail: "gave it back: " + x.Detail}, time.Time{}
		case now.Before(*x.Until):
			return Reason{Runner: r.Name, Code: x.Code, Detail: fmt.Sprintf("gave it back until %s: %s", x.Until.UTC().Format(time.RFC3339), x.Detail)}, *x.Until
		}
	}
	return Reason{}, time.Time{}
}

// ready says why a runner takes nothing at all now; an empty code means it would.
func (c candidate) ready() Reason {
	no := func(code fleet.Code, format string, args ...any) Reason {
		return Reason{Runner: c.r.Name, Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case !c.p.Connected:
		return no(fleet.Unavailable, "is not connected")
	case !c.p.Full:
		return no(fleet.Unavailable, "has just connected and has not shown what it runs")
	case c.p.Declining != "":
		return no(fleet.OwnerPolicy, "takes nothing now: %s", c.p.Declining)
	case c.p.Slots <= 0:
		return no(fleet.NoSlot, "offers no slot")
	case c.free <= 0:
		return no(fleet.NoSlot, "has no free slot of %d", c.p.Slots)
	}
	return Reason{}
}

// capable says whether a runner could take the job at all, were it free.
func capable(j *fleet.Job, r *fleet.Runner) (Reason, bool) {
	no := func(code fleet.Code, format string, args ...any) (Reason, bool) {
		return Reason{Runner: r.Name, Code: code, Detail: fmt.Sprintf(format, args...)}, false
	}
	s, f := j.Spec, r.Facts
	if on := j.Turn().On; on != "" && on != r.ID {
		return no(fleet.SessionGone, "does not hold the session that this follow-up resumes")
	}
	if j.Turn().On == "" && s.On != "" && s.On != r.Name && s.On != string(r.ID) {
		return no(fleet.BadRequest, "is not the runner asked for (%s)", s.On)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Require)) {
		if have, ok := r.Labels[k]; !ok || have != s.Require[k] {
			return no(fleet.BadRequest, "lacks the label %s=%s", k, s.Require[k])
		}
	}
	switch {
	case r.Conflict != "":
		return no(fleet.ClonedIdentity, "is refused until a person decides: %s", r.Conflict)
	case r.Cordoned:
		return no(fleet.Draining, "is cordoned")
	case f.Paused != "":
		return no(fleet.OwnerPolicy, "is paused by its owner: %s", f.Paused)
	case len(f.Origins) > 0 && !slices.Contains(f.Origins, s.Origin.Kind):
		return no(fleet.OwnerPolicy, "does not take %s work", s.Origin.Kind)
	case s.Repo != nil && len(f.Repos) > 0 && !matches(f.Repos, s.Repo.URL):
		return no(fleet.OwnerPolicy, "does not allow the repository %s", s.Repo.URL)
	}
	h, ok := f.Harness(s.Harness)
	switch {
	case !ok:
		return no(fleet.HarnessMissing, "has no %s", s.Harness)
	case h.SignedIn == "no":
		return no(fleet.HarnessSignedOut, "has %s, but not signed in", s.Harness)
	}
	for _, name := range s.Secrets {
		if !slices.Contains(f.Secrets, name) {
			return no(fleet.SecretMissing, "has no secret %s; its owner puts one into secrets.yaml in the runner's data directory", name)
		}
	}
	return Reason{}, true
}

// matches says whether a URL fits one of the owner's patterns, in which * stands
// for any run of characters without a slash and a trailing /** for anything below.
func matches(patterns []string, url string) bool {
	for _, p := range patterns {
		if below, ok := strings.CutSuffix(p, "/**"); ok && strings.HasPrefix(url, below+"/") {
			return true
		}
		if ok, err := path.Match(p, url); err == nil && ok {
			return true
		}
	}
	return false
}
