package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// tell says in words what stands against a runner's taking a job. Detail goes on where the
// runner's name stands before it.
func (b *Board) tell(what bar, w *wanted, j *fleet.Job, c *candidate) Reason {
	r := Reason{Runner: c.r.Name, Code: code[what]}
	say := func(change, format string, args ...any) Reason {
		r.Detail, r.Change = fmt.Sprintf(format, args...), change
		return r
	}
	f := &c.r.Facts
	switch what {
	case conflict:
		return say("an admin who removes it and enrols the right machine anew", "is refused until a person decides: %s", c.r.Conflict)
	case sessionGone:
		return tellBound(r, j)
	case notAsked:
		return say("the job is for "+w.on+" alone; submit it without --on for any runner", "is not the runner asked for (%s)", w.on)
	case noLabel:
		label, _ := w.lacks(c.r)
		return say("enrol a runner with the label "+label+", or submit the job without requiring it", "lacks the label %s", label)
	case wrongSystem:
		return say("a runner on "+w.system(), "runs on %s/%s, and the job asks for %s", cmp.Or(f.OS, "?"), cmp.Or(f.Arch, "?"), w.system())
	case paused:
		return say("its owner resumes it", "is paused by its owner: %s", f.Paused)
	case wrongOrigin:
		return say("its owner allows it in runner.yaml (origins)", "does not take %s work", w.origin)
	case wrongRepo:
		return say("its owner allows it in runner.yaml (repositories)", "does not allow the repository %s", w.repo)
	case barred:
		return say("its owner allows it in runner.yaml (harnesses)", "has %s, and its owner does not allow it", w.harness)
	case noHarness:
		switch looked := len(f.Harnesses)+len(f.Barred) > 0; { // one that looked has found exec
		case !looked && !c.connected:
			return say("start it: `tugline runner run`", "has not looked for its agents yet")
		case !looked:
			return say("its first look for them, in a moment", "has not looked for its agents yet")
		}
		change := "install " + w.harness + " there"
		if slices.Contains(fleet.Provisionable(), w.harness) && !fleet.ProvisioningOff(b.v.Meta().Settings) {
			change += ": `tugline runner provision " + c.r.Name + " " + w.harness + "`"
		}
		return say(change, "has no %s", w.harness)
	case signedOut:
		return say("sign in to "+w.harness+" there", "has %s, but not signed in", w.harness)
	case oldHarness:
		h, _ := f.Harness(w.harness)
		return say("update "+w.harness+" there", "has %s %s, and the job asks for %s or later", w.harness, cmp.Or(h.Version, "of an unknown version"), w.needs.HarnessVersion)
	case noModel:
		h, _ := f.Harness(w.harness)
		return say("its owner allows it in runner.yaml (models)", "does not allow the model %s for %s, only %s", w.model, w.harness, strings.Join(h.Models, ", "))
	case noSecret:
		secret, _ := w.hidden(f)
		return say("its owner puts "+secret+" into secrets.yaml in the runner's data directory", "has no secret %s", secret)
	case held:
		return b.tellHold(r, c)
	case offline:
		if c.beat.IsZero() {
			return say("start it: `tugline runner run`", "is offline: it was not seen since this hub began to lead")
		}
		return say("start it: `tugline runner run`", "is offline since %s (%s)", stamp(c.beat), span(b.l.Now.Sub(c.beat)))
	case fresh:
		return say("its first full heartbeat, in a moment", "has just connected and has not shown what it runs")
	case gaveBack:
		x, _ := excluded(j, c.r, b.l.Now)
		r.Code, r.Until = x.Code, x.Until
		if x.Until == nil {
			return say("a change of what the runner says of itself", "gave it back: %s", x.Detail)
		}
		return say("that time, or a change of what the runner says of itself", "gave it back until %s: %s", stamp(*x.Until), x.Detail)
	case circuitOpen:
		a := b.circuits().Passes(circuit.AskOf(j, c.r), b.l.Now)
		r.Detail, r.Change, r.Until = a.Detail, a.Change, a.Until
		return r
	case noDocker:
		return say("start Docker there; it is asked every "+span(fleet.HealthEvery), "%s", c.noDocker(b.l.Now))
	case diskUnknown, memoryUnknown:
		return say("its next sample, in "+span(fleet.HealthEvery)+" or so", "%s", c.unknown(what))
	case diskLow:
		need := w.room()
		whose := "the job needs"
		if w.automated() && b.floor >= need {
			need, whose = b.floor, "automation needs"
		}
		return say(freeing(need, c.avail, c.health.Workspace.Total, "at "+pathOf(c.health.Workspace)), "has %s free at %s%s, and %s %s", size(c.health.Workspace.Free), pathOf(c.health.Workspace), c.promised(), whose, size(need))
	case cacheLow:
		v := c.health.Cache
		return say(freeing(b.floor, v.Free, v.Total, "at "+pathOf(v)), "has %s free at %s, where repositories are cached, and automation needs %s", size(v.Free), pathOf(v), size(b.floor))
	case inodesLow:
		v := c.health.Workspace
		if !fewInodes(v) {
			v = c.health.Cache
		}
		return say("delete files at "+pathOf(v), "has %d of %d inodes free at %s, less than %d %%", v.Inodes, v.Nodes, pathOf(v), inodesLeast)
	case memoryLow:
		return say(freeing(w.needs.Memory, c.health.Memory.Available, c.health.Memory.Total, "of memory there"), "has %s of memory available, and the job needs %s", size(c.health.Memory.Available), size(w.needs.Memory))
	case declining:
		return say("its owner's rules, or what they go by", "takes nothing now: %s", c.declining)
	case autoOff:
		return b.tellOff(r, c)
	case noSlots:
		if c.limited != "" {
			return say("its owner's rules, or what they go by", "offers no slot: %s", c.limited)
		}
		return say("its owner offers some: `tugline runner run --slots`", "offers no slot")
	case full:
		r.Detail, r.Change = c.taken(w.automated()), "the end of a job there"
		return r
	}
	return say("", "takes it next (%s)", c.left(w.automated()))
}

// tellHold says that a person holds the runner, and for how long.
func (b *Board) tellHold(r Reason, c *candidate) Reason {
	r.Change = fmt.Sprintf("`tugline runner resume %s`", c.r.Name)
	h := c.r.Hold
	if h == nil {
		r.Detail = "is cordoned"
		return r
	}
	r.Detail = "is cordoned"
	if h.Drain {
		r.Detail = "is being drained"
	}
	if h.Until != nil && !c.r.Cordoned {
		r.Until = h.Until
		r.Detail += " until " + stamp(*h.Until)
		r.Change = "that time, or " + r.Change
	}
	if h.Drain && h.Deadline != nil {
		r.Detail += ", with the deadline " + stamp(*h.Deadline)
	}
	r.Detail += ifAny(": "+h.Reason, h.Reason != "")
	return r
}

// tellBound says why a turn goes to another runner alone.
func tellBound(r Reason, j *fleet.Job) Reason {
	if t := j.Turn(); t.Fresh && begunOn(t) == nil {
		r.Detail, r.Change = "is not the runner that this follow-up asks for", "a follow-up with --fresh, and without --on, goes to any runner"
		return r
	}
	r.Detail, r.Change = "does not hold "+boundBy(j), "cancel it; a follow-up with --fresh begins without it"
	return r
}

// boundBy says what there is on one runner alone that the newest turn goes on with.
func boundBy(j *fleet.Job) string {
	if t := j.Turn(); t.N == 1 || t.Fresh {
		if a := begunOn(t); a != nil {
			return fmt.Sprintf("the session of attempt %d, with which the job goes on", a.N)
		}
	}
	return "the session that this follow-up resumes"
}

// begunOn gives the newest attempt that did something on the runner which the turn is
// bound to.
func begunOn(t *fleet.Turn) *fleet.Attempt {
	for _, a := range slices.Backward(t.Attempts) {
		if a.Acted && a.Runner == t.On {
			return a
		}
	}
	return nil
}

// tellOff says why the runner has no slot for automation.
func (b *Board) tellOff(r Reason, c *candidate) Reason {
	switch n := c.r.AutomationSlots(); {
	case n == 0 && c.r.Automation != nil && *c.r.Automation == 0:
		r.Detail = "has no slots for automation: they are turned off on the hub"
		r.Change = fmt.Sprintf("`tugline runner slots %s --automation 1`", c.r.Name)
	case n == 0:
		r.Detail = fmt.Sprintf("has no slots for automation: its %d base slots are all that a runner may have", c.r.Facts.Slots)
		r.Change = "fewer base slots: `tugline runner run --slots`"
	default:
		r.Detail = "offers no slot for automation now" + ifAny(": "+c.limited, c.limited != "")
		r.Change = "its owner's rules, or what they go by"
	}
	return r
}

// noDocker says why Docker does not count as there.
func (c *candidate) noDocker(now time.Time) string {
	if c.health == nil {
		return "needs Docker, and has sent no sample of its health yet"
	}
	d := c.health.Docker
	versions := "Docker " + cmp.Or(d.Version, "of an unknown version")
	if d.Compose != "" {
		versions += " with Compose " + d.Compose
	}
	last := "; Docker and Compose never answered both"
	if d.Verified {
		last = fmt.Sprintf("; %s last answered %s ago", versions, span(c.verified()))
	}
	why := ifAny(": "+d.Detail, d.Detail != "")
	switch {
	case d.State == fleet.DockerAbsent:
		return "has no Docker" + why + last
	case d.State == fleet.DockerDown:
		return "has a Docker daemon that does not answer" + why + last
	case d.State != fleet.DockerReady:
		return "does not know in time whether Docker answers" + why + last
	case !d.Verified:
		return "has " + versions + ", and no Compose that answers" + why
	}
	return fmt.Sprintf("has %s, last verified %s ago, and a job that needs it starts within %s of that", versions, span(c.verified()), span(fleet.DockerFresh))
}

// unknown says what of a machine is not known well enough to go by.
func (c *candidate) unknown(what bar) string {
	h := c.health
	switch {
	case h == nil:
		return "has sent no sample of its health yet"
	case c.age > fleet.HealthFresh:
		return fmt.Sprintf("sent the last sample of its health %s ago, and none older than %s counts", span(c.age), span(fleet.HealthFresh))
	case what == memoryUnknown:
		return "cannot tell how much memory is available"
	}
	v := h.Workspace
	if v.Known {
		v = h.Cache
	}
	return fmt.Sprintf("cannot tell how much is free at %s%s", pathOf(v), ifAny(": "+v.Detail, v.Detail != ""))
}

// promised says what of the free bytes is not to be had.
func (c *candidate) promised() string {
	n := c.health.Workspace.Free - c.avail
	return ifAny(", "+size(n)+" of it promised to other jobs", n > 0)
}

// freeing says what to free, where it can be had at all.
func freeing(need, free, total int64, where string) string {
	if total > 0 && need > total {
		return fmt.Sprintf("more than the %s in all %s, or asking for less", size(total), where)
	}
	return fmt.Sprintf("free %s %s", size(need-free), where)
}

// taken says what takes the slots.
func (c *candidate) taken(auto bool) string {
	offered, kind := c.base, ""
	if auto {
		offered, kind = c.auto, " for automation"
	}
	s := fmt.Sprintf("has no free slot of %d%s: %s", offered, kind, c.runs())
	return s + ifAny("; "+c.limited, c.limited != "")
}

// left says what is free.
func (c *candidate) left(auto bool) string {
	offered, kind := c.base, "slots"
	if auto {
		offered, kind = c.auto, "slots for automation"
	}
	return fmt.Sprintf("%d of %d %s free", c.free(auto), offered, kind)
}

// runs says what occupies the runner.
func (c *candidate) runs() string {
	switch {
	case c.automated == 0:
		return fmt.Sprintf("%d manual", c.manual)
	case c.manual == 0:
		return fmt.Sprintf("%d automated", c.automated)
	}
	return fmt.Sprintf("%d manual, %d automated", c.manual, c.automated)
}

func ifAny(s string, yes bool) string {
	if yes {
		return s
	}
	return ""
}

func pathOf(v fleet.Volume) string { return cmp.Or(v.Path, "its workspace") }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span rounds a length of time to what matters to people.
func span(d time.Duration) string {
	s := max(d, 0).Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size writes bytes for people.
func size(n int64) string {
	const gib, mib = 1 << 30, 1 << 20
	switch {
	case n >= gib || n <= -gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	case n == 0:
		return "0"
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/mib)
}
