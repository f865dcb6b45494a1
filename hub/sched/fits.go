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
// The time is when a passing reason will have passed, where that is known.
func fits(j *fleet.Job, c candidate, now time.Time) (Reason, time.Time) {
	no := func(code fleet.Code, format string, args ...any) (Reason, time.Time) {
		return Reason{Runner: c.r.Name, Code: code, Detail: fmt.Sprintf(format, args...)}, time.Time{}
	}
	if r, ok := capable(j, c.r); !ok {
		return r, time.Time{}
	}
	for _, x := range j.Excluded {
		if x.Runner != c.r.ID || x.Facts != c.r.FactsRev {
			continue
		}
		if x.Until == nil {
			return no(x.Code, "declined: %s", x.Detail)
		}
		if now.Before(*x.Until) {
			r, _ := no(x.Code, "declined until %s: %s", x.Until.UTC().Format(time.RFC3339), x.Detail)
			return r, *x.Until
		}
	}
	switch {
	case !c.p.Connected:
		return no(fleet.Unavailable, "is not connected")
	case !c.p.Full:
		return no(fleet.Unavailable, "has just connected and has not shown what it runs")
	case c.p.Declining != "":
		return no(fleet.OwnerPolicy, "takes nothing now: %s", c.p.Declining)
	case c.free <= 0:
		return no(fleet.NoSlot, "all %d slots are taken", c.p.Slots)
	}
	return Reason{}, time.Time{}
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
			return no(fleet.SecretMissing, "has no secret %s", name)
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
