package cluster

import (
	"slices"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// matter is a command that did something, with the state before and after.
type matter struct {
	c             *court
	head          state.Head
	cmd           state.Command
	before, after state.View
	res           state.Result
	changes       []state.Change
}

// now is the time that the records went by.
func (m *matter) now() time.Time { return m.after.Meta().Time }

func (m *matter) judge() {
	switch cmd := m.cmd.(type) {
	case *state.AssignJob:
		m.assigned(cmd)
	case *state.AcceptAttempt:
		m.about(cmd.Job, cmd.Fence)
		m.accepted(cmd)
	case *state.ReleaseProbe:
		m.released(cmd)
	case *state.FinishAttempt:
		m.about(cmd.Job, cmd.Fence)
		m.finished(cmd)
	case *state.RecordFacts:
		m.about(cmd.Job, cmd.Fence)
	case *state.DeclineAttempt:
		m.about(cmd.Job, cmd.Fence)
	case *state.LoseAttempt:
		m.about(cmd.Job, cmd.Fence)
	case *state.AttemptGone:
		m.about(cmd.Job, cmd.Fence)
	}
	m.reservations()
}

// assigned: the runner had a slot of the kind, nobody held it, its machine was fit by what
// it had told, no circuit refused, each that is tried is tried by one, the pause was over
// and the budgets had room.
func (m *matter) assigned(cmd *state.AssignJob) {
	m.c.cases["assigned"]++
	old, ok := m.before.Job(cmd.Job)
	r, known := m.before.Runner(cmd.Runner)
	j, there := m.after.Job(cmd.Job)
	if !ok || !known || !there {
		m.c.wrong("job %s was given to %s, and one of them is not on record", cmd.Job, cmd.Runner)
		return
	}
	m.hasSlot(old, r)
	if h := r.Hold; r.Cordoned || h != nil && (h.Until == nil || m.now().Before(*h.Until)) {
		m.c.wrong("job %s was given to %s, which is held", j.ID, r.Name)
	}
	m.fit(old, r)
	for _, c := range m.before.Circuits() {
		if over(c, old, r) && refuses(c, m.now()) {
			m.c.wrong("job %s was given to %s, and circuit %s refuses it", j.ID, r.Name, c.ID)
		}
	}
	_, a := j.Find(m.res.Fence)
	for _, id := range a.Probes {
		m.c.cases["probed"]++
		m.triedByOne(id, a)
	}
	if nb := old.Turn().NotBefore; nb != nil && m.now().Before(*nb) {
		m.c.wrong("job %s was tried again before its pause was over", j.ID)
	}
	m.withinBudget(j)
}

// hasSlot: all that was under way on the runner left a slot of the job's kind.
func (m *matter) hasSlot(j *fleet.Job, r *fleet.Runner) {
	manual, automation := held(m.before, r.ID)
	base := m.c.w.owner(r.ID).slots
	auto := fleet.DefaultAutomation
	if r.Automation != nil {
		auto = *r.Automation
	}
	switch isAuto := j.Spec.Origin.Kind == fleet.Automation; {
	case isAuto && automation >= auto, !isAuto && manual >= base, manual+automation >= base+auto:
		m.c.wrong("job %s of %s was given to %s, which has %d manual and %d automation attempts in %d slots and %d for automation",
			j.ID, j.Spec.Origin.Kind, r.Name, manual, automation, base, auto)
	}
}

// held counts what occupies a runner.
func held(v state.View, r fleet.RunnerID) (manual, automation int) {
	each(v, func(j *fleet.Job, _ *fleet.Turn, a *fleet.Attempt) {
		switch {
		case a.Runner != r || !a.HoldsSlot():
		case j.Spec.Origin.Kind == fleet.Automation:
			automation++
		default:
			manual++
		}
	})
	return manual, automation
}

// each walks all attempts.
func each(v state.View, f func(*fleet.Job, *fleet.Turn, *fleet.Attempt)) {
	v.JobsOldest(func(j *fleet.Job) bool {
		for _, tu := range j.Turns {
			for _, a := range tu.Attempts {
				f(j, tu, a)
			}
		}
		return true
	})
}

// fit: by one of the samples that a leader may have gone by, the machine could take it.
func (m *matter) fit(j *fleet.Job, r *fleet.Runner) {
	docker := j.Spec.Needs != nil && j.Spec.Needs.Docker || j.Learned != nil && j.Learned.Docker
	auto := j.Spec.Origin.Kind == fleet.Automation
	if !docker && !auto {
		return
	}
	m.c.cases["fit"]++
	had, room := false, false
	for _, h := range m.c.w.owner(r.ID).known() {
		had = had || h.Docker.State == fleet.DockerReady && h.Docker.Compose != ""
		room = room || h.Workspace.Known && h.Cache.Known && min(h.Workspace.Free, h.Cache.Free) >= fleet.DefaultSelectFloor
	}
	if docker && !had {
		m.c.wrong("job %s needs Docker and was given to %s, which by all that it told lacks it", j.ID, r.Name)
	}
	if auto && !room {
		m.c.wrong("job %s of an automation was given to %s, which by all that it told has too little room", j.ID, r.Name)
	}
}

// refuses says whether a circuit lets nothing pass, not even one that tries it.
func refuses(c *fleet.Circuit, now time.Time) bool {
	switch c.State {
	case fleet.CircuitBlocked:
		return true
	case fleet.CircuitHalf:
		return c.Probe != nil
	case fleet.CircuitOpen:
		switch {
		case c.Until == nil || now.Before(*c.Until):
			return true
		case c.Class == fleet.CircuitBurst || c.Class == fleet.CircuitOperator:
			return false
		}
		return c.Probe != nil
	}
	return false
}

// over says whether a circuit is over what a job is to be started with on a runner.
func over(c *fleet.Circuit, j *fleet.Job, r *fleet.Runner) bool {
	docker := j.Spec.Needs != nil && j.Spec.Needs.Docker || j.Learned != nil && j.Learned.Docker
	switch {
	case c.Runner != "" && c.Runner != r.ID, c.Automation && j.Spec.Origin.Kind != fleet.Automation, c.Class == fleet.CircuitDocker && !docker:
		return false
	case c.Scope == fleet.ScopeHost:
		return true
	case j.Spec.Kind != fleet.KindAgent:
		return false
	}
	ch := j.ChoiceOf(j.Turn())
	account := ""
	for _, h := range r.Facts.Harnesses {
		if h.Name == ch.Harness {
			account = h.Account
		}
	}
	provider := map[string]string{"codex": "openai", "claude": "anthropic"}[ch.Harness]
	switch {
	case c.Provider != provider, c.Account != "" && c.Account != account, c.Scope == fleet.ScopeModel && c.Model != ch.Model:
		return false
	}
	return c.Class != fleet.CircuitModel || c.State == fleet.CircuitBlocked || slices.Contains(c.Runners, r.ID)
}

// triedByOne: no other attempt tries a circuit, as far as a hub can know.
func (m *matter) triedByOne(id string, a *fleet.Attempt) {
	c, _ := m.before.Circuit(id)
	if c == nil {
		m.c.wrong("attempt %s tries circuit %s, which is not on record", a.Fence, id)
		return
	}
	each(m.after, func(j *fleet.Job, _ *fleet.Turn, o *fleet.Attempt) {
		if o.Fence == a.Fence || !slices.Contains(o.Probes, id) || o.Fence.Less(c.Since) || o.State != fleet.AttemptAssigned && o.State != fleet.AttemptRunning {
			return
		}
		if told := o.Responded || c.Scope == fleet.ScopeHost && c.Class != fleet.CircuitDocker && o.AcceptedAt != nil; told {
			return // it has had its verdict
		}
		if owner := m.c.w.owner(o.Runner); owner.alive(o.Fence) {
			m.c.wrong("circuit %s is tried by %s while %s tries it", id, a.Fence, o.Fence)
		}
	})
}

// released: a trial that shows life keeps its lease.
func (m *matter) released(cmd *state.ReleaseProbe) {
	m.c.cases["released"]++
	c, _ := m.before.Circuit(cmd.ID)
	if c == nil || c.Probe == nil || c.Probe.Fence != cmd.Fence {
		return
	}
	j, ok := m.before.Job(c.Probe.Job)
	if !ok {
		return
	}
	if _, a := j.Find(cmd.Fence); a != nil && (a.State == fleet.AttemptAssigned || a.State == fleet.AttemptRunning) && m.c.w.owner(a.Runner).alive(a.Fence) {
		m.c.wrong("circuit %s was taken from %s, which is alive", cmd.ID, cmd.Fence)
	}
}

// withinBudget: what the budgets of a job's origin have spent and hold is within their
// bounds right after it was given away.
func (m *matter) withinBudget(j *fleet.Job) {
	for _, key := range keys(j.Spec.Origin) {
		b, ok := m.after.Budget(key)
		if !ok {
			continue
		}
		m.c.cases["budgeted"]++
		spent := b.Spent
		if b.Window > 0 && !b.Begun.IsZero() && !m.now().Before(b.Begun.Add(b.Window)) {
			spent = fleet.Spending{}
		}
		for _, r := range b.Held {
			spent.Runs, spent.Tokens, spent.Wall = spent.Runs+1, spent.Tokens+r.Tokens, spent.Wall+r.Wall
		}
		if b.Runs > 0 && spent.Runs > b.Runs || b.Tokens > 0 && spent.Tokens > b.Tokens && j.Spec.Kind == fleet.KindAgent || b.Wall > 0 && spent.Wall > b.Wall {
			m.c.wrong("with job %s the budget of %s has %+v in use, above its bounds of %d runs, %d tokens and %s", j.ID, key, spent, b.Runs, b.Tokens, b.Wall)
		}
	}
}

// keys lists the budgets that an origin draws on.
func keys(o fleet.Origin) []string {
	if o.Name == "" {
		return []string{o.Kind}
	}
	return []string{o.Kind + ":" + o.Name, o.Kind}
}

// reservations: whatever a budget holds is for an attempt that occupies a slot, and there
// once.
func (m *matter) reservations() {
	for _, b := range m.after.Budgets() {
		seen := map[fleet.Fence]bool{}
		for _, r := range b.Held {
			j, ok := m.after.Job(r.Job)
			if !ok {
				m.c.wrong("the budget of %s holds something for job %s, which is not on record", b.Origin, r.Job)
				continue
			}
			if _, a := j.Find(r.Fence); a == nil || !a.HoldsSlot() || seen[r.Fence] {
				m.c.wrong("the budget of %s holds something for %s of job %s, which is not under way", b.Origin, r.Fence, r.Job)
			}
			seen[r.Fence] = true
		}
	}
}

// accepted: a turn is executed no more often than its budget says.
func (m *matter) accepted(cmd *state.AcceptAttempt) {
	j, ok := m.after.Job(cmd.Job)
	if !ok {
		return
	}
	tu, _ := j.Find(cmd.Fence)
	n, whole := 0, 4
	for _, a := range tu.Attempts {
		if a.AcceptedAt != nil && !a.Free && a.Stop != "cancelled" {
			n++
		}
	}
	if j.Spec.Retries != nil {
		whole = 1 + *j.Spec.Retries
	}
	m.c.cases["accepted"]++
	if n > whole+tu.Granted {
		m.c.wrong("job %s is executed %d times, and its budget is %d and %d granted", j.ID, n, whole, tu.Granted)
	}
}

// about: what an attempt comes to changes circuits over its own runner, or over a model.
func (m *matter) about(id fleet.JobID, f fleet.Fence) {
	j, ok := m.after.Job(id)
	if !ok {
		return
	}
	_, a := j.Find(f)
	for _, ch := range m.changes {
		if c := ch.Circuit; c != nil && a != nil && c.Runner != a.Runner && (c.Runner != "" || c.Scope != fleet.ScopeModel) {
			m.c.wrong("attempt %s on %s changed circuit %s", f, a.Runner, c.ID)
		}
	}
}

// finished: only what a provider refused opens its circuits, and only an attempt that was
// given away after one opened last.
func (m *matter) finished(cmd *state.FinishAttempt) {
	for _, ch := range m.changes {
		c := ch.Circuit
		if c == nil || ch.Removed || c.State != fleet.CircuitOpen && c.State != fleet.CircuitBlocked || !c.OpenedAt.Equal(m.now()) {
			continue
		}
		m.c.cases["opened: "+string(c.Class)]++
		if was, ok := m.before.Circuit(c.ID); ok && cmd.Fence.Less(was.Since) {
			m.c.wrong("circuit %s was opened by attempt %s, which is older than its last opening", c.ID, cmd.Fence)
		}
		if c.Scope != fleet.ScopeHost && !cmd.Class.Provider() && cmd.Class != fleet.ClassHarnessStartup {
			m.c.wrong("circuit %s was opened by an attempt that ended as %s", c.ID, cmd.Class)
		}
	}
}
