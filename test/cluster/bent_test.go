package cluster

import (
	"slices"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// What hubs may do wrong with placement on purpose: the commands are bent on their way
// from the log to the state, on all nodes alike.
const (
	heedless = "hubs that heed no holds"
	reckless = "hubs that heed no circuits"
	blind    = "hubs that look at no machine's Docker"
	crowding = "hubs that count no slots"
	hurried  = "hubs that take a circuit from who tries it"
)

// bend gives what is applied in the place of a command; nil: the command itself.
func (c *court) bend(entry []byte) []byte {
	if !slices.Contains([]string{heedless, reckless, blind, crowding, hurried}, c.w.opt.Broken) {
		return nil
	}
	head, cmd, err := state.Decode(entry)
	if err != nil {
		return nil
	}
	v := c.state.View()
	var other state.Command
	switch cmd := cmd.(type) {
	case *state.AssignJob:
		if j, ok := v.Job(cmd.Job); ok && c.w.opt.Broken != hurried {
			other = c.elsewhere(v, j, *cmd)
		}
	case *state.RecordFacts:
		if c.w.opt.Broken == hurried {
			other = taken(v)
		}
	}
	if other == nil {
		return nil
	}
	b, err := state.Encode(head, other)
	if err != nil {
		c.wrong("bend a command: %v", err)
		return nil
	}
	return b
}

// elsewhere gives an assignment to a runner that should not have it.
func (c *court) elsewhere(v state.View, j *fleet.Job, cmd state.AssignJob) state.Command {
	now := v.Meta().Time
	for _, r := range v.Runners() {
		m := c.w.owner(r.ID)
		if m == nil || r.Cordoned || j.Spec.On != "" {
			continue
		}
		manual, automation := held(v, r.ID)
		is := false
		switch c.w.opt.Broken {
		case heedless:
			is = r.HeldAt(now)
		case reckless:
			is = slices.ContainsFunc(v.Circuits(), func(k *fleet.Circuit) bool { return over(k, j, r) && refuses(k, now) })
		case blind:
			is = j.Spec.Needs != nil && j.Spec.Needs.Docker && m.number%3 == 0
		case crowding:
			is = manual+automation > m.slots
		}
		if is {
			cmd.Runner, cmd.Rules, cmd.Slots, cmd.Probes = r.ID, 0, 100, nil
			return &cmd
		}
	}
	return nil
}

// taken gives a command that takes a circuit from the attempt that tries it.
func taken(v state.View) state.Command {
	for _, k := range v.Circuits() {
		if k.Probe == nil {
			continue
		}
		if j, ok := v.Job(k.Probe.Job); ok {
			if _, a := j.Find(k.Probe.Fence); a != nil && a.State == fleet.AttemptRunning {
				return &state.ReleaseProbe{ID: k.ID, Fence: k.Probe.Fence}
			}
		}
	}
	return nil
}
