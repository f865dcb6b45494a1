package runner

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/shared/fleet"
)

// Bound is a number of slots, or AllSlots.
type Bound int

// AllSlots is no bound.
const AllSlots Bound = -1

// UnmarshalYAML reads a number or the word all.
func (b *Bound) UnmarshalYAML(n *yaml.Node) error {
	var v int
	switch err := n.Decode(&v); {
	case n.Value == "all":
		*b = AllSlots
		return nil
	case err != nil || v < 0 || v > fleet.MaxSlots:
		return fmt.Errorf("line %d: slots %q: want 0 to %d, or all", n.Line, n.Value, fleet.MaxSlots)
	}
	*b = Bound(v)
	return nil
}

// MarshalYAML writes it as it may be given.
func (b Bound) MarshalYAML() (any, error) {
	if b < 0 {
		return "all", nil
	}
	return int(b), nil
}

// UserActive bounds the slots while somebody touched the machine within a time.
type UserActive struct {
	Within Keep  `yaml:"within"`
	Slots  Bound `yaml:"slots"`
}

// MemoryShares are the bytes kept for everything else, and those that a job of an
// automation is expected to take.
type MemoryShares struct {
	Keep    Bytes `yaml:"keep"`
	PerSlot Bytes `yaml:"per_slot"`
}

// Floors are bytes that must be free for the work of automations; 0 leaves them to the
// hub, and of the two the higher counts.
type Floors struct {
	Select Bytes `yaml:"select"`
	Start  Bytes `yaml:"start"`

	wrong []string // what could not be read, and what holds instead
}

// UnmarshalYAML reads the floors. A mistake here does not cost the rest of the rules:
// the default holds in its place, and Wrong says so.
func (f *Floors) UnmarshalYAML(n *yaml.Node) error {
	*f = Floors{}
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			f.Select, f.Start = fleet.DefaultSelectFloor, fleet.DefaultStartFloor
			f.wrong = append(f.wrong, fmt.Sprintf("line %d: floors: want select and start; %s and %s hold", n.Line, attempt.Size(fleet.DefaultSelectFloor), attempt.Size(fleet.DefaultStartFloor)))
		}
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		var into *Bytes
		var standard Bytes
		switch key.Value {
		case "select":
			into, standard = &f.Select, fleet.DefaultSelectFloor
		case "start":
			into, standard = &f.Start, fleet.DefaultStartFloor
		default:
			f.wrong = append(f.wrong, fmt.Sprintf("line %d: floors: unknown key %s", key.Line, fleet.CutText(key.Value, 80)))
			continue
		}
		if err := into.UnmarshalYAML(value); err != nil || value.Kind != yaml.ScalarNode || *into > maxFloor {
			*into = standard
			f.wrong = append(f.wrong, fmt.Sprintf("line %d: floors: %s: %q is no size below 1024 TiB; %s holds", value.Line, key.Value, fleet.CutText(value.Value, 80), attempt.Size(int64(standard))))
		}
	}
	return nil
}

// maxFloor is beyond what any disk has.
const maxFloor = 1 << 50

// Wrong says what of the rules could not be read and was replaced by its default.
func (o Owner) Wrong() []string { return o.Floors.wrong }

// offer is what a runner takes now by its owner's rules.
type offer struct {
	base       int      // slots for what people ask for
	automation *int     // the most for automations; nil: the rules set no bound
	declining  string   // why nothing at all is taken
	limitedBy  []string // why less is offered than is configured
}

// standing is what beside the rules and the machine's health decides what is offered.
type standing struct {
	base       int    // slots as configured
	automation int    // slots for automations that the hub allows
	disk       string // why nothing can be written
	update     string // the version that this runner is about to become
}

// staleSample is the age above which a sample says nothing any more about what the
// machine is doing.
const staleSample = 3 * time.Minute

// offered gives what is offered at a time. h is the last sample of the machine, nil for
// none: what is not known bounds nothing.
func (o Owner) offered(s standing, h *fleet.Health, now time.Time) offer {
	if h == nil || h.Age > staleSample {
		h = &fleet.Health{UserIdle: -1}
	}
	if why := o.declines(s, h, now); why != "" {
		none := 0
		return offer{automation: &none, declining: why}
	}
	out := offer{base: s.base}
	all := AllSlots // in all
	atMost := func(n Bound, why, key string) {
		if n < 0 || int(n) >= s.base+s.automation {
			return
		}
		out.limitedBy = append(out.limitedBy, fmt.Sprintf("%s: %s at most (%s)", why, countOf(int(n), "slot"), key))
		if all < 0 || n < all {
			all = n
		}
	}
	if h.Power != nil && h.Power.OnBattery {
		atMost(o.OnBattery, "on battery", "on_battery")
	}
	if h.UserIdle >= 0 && h.UserIdle < time.Duration(o.UserActive.Within) {
		atMost(o.UserActive.Slots, "somebody works at this machine", "user_active")
	}
	most := fleet.MaxAutomation
	if all >= 0 {
		out.base = min(out.base, int(all))
		most = min(most, int(all)-out.base)
		out.automation = &most
	}
	if n, why := o.Memory.slots(h.Memory); why != "" {
		if n < s.automation {
			out.limitedBy = append(out.limitedBy, why)
		}
		most = min(most, n)
		out.automation = &most
	}
	if why := o.Floors.low(h); why != "" && s.automation > 0 {
		most = 0
		out.automation = &most
		out.limitedBy = append(out.limitedBy, why)
	}
	if all == 0 {
		out.declining = strings.Join(out.limitedBy, "; ")
	}
	return out
}

// declines says why nothing is taken at all.
func (o Owner) declines(s standing, h *fleet.Health, now time.Time) string {
	end, quiet := o.quietUntil(now)
	switch {
	case s.update != "":
		return "updates itself to " + s.update
	case o.Paused != "":
		return "paused by the owner: " + fleet.CutText(o.Paused, 200)
	case quiet:
		return "quiet hours until " + end.Format("Mon 15:04")
	case s.disk != "":
		return s.disk
	case o.MaxLoad > 0 && h.CPU != nil && h.CPU.Load > o.MaxLoad*float64(max(h.CPU.Count, 1)):
		return fmt.Sprintf("load of %.1f for each processor, above %.4g (max_load)", h.CPU.Load/float64(max(h.CPU.Count, 1)), o.MaxLoad)
	case o.MinMemory > 0 && h.Memory != nil && h.Memory.Available > 0 && h.Memory.Available < int64(o.MinMemory):
		return fmt.Sprintf("memory: %s available, below %s (min_memory)", attempt.Size(h.Memory.Available), attempt.Size(int64(o.MinMemory)))
	}
	return ""
}

// low says which volume has less free than the owner wants for automations to be placed
// here. The hub sees to a floor of its own.
func (f Floors) low(h *fleet.Health) string {
	for _, v := range []fleet.Volume{h.Workspace, h.Cache} {
		if v.Known && v.Free < int64(f.Select) {
			return fmt.Sprintf("disk: %s free at %s, below %s (floors)", attempt.Size(v.Free), v.Path, attempt.Size(int64(f.Select)))
		}
	}
	return ""
}

// slots gives the jobs of automations for which there is memory; without a reason
// nothing is known of it.
func (m MemoryShares) slots(have *fleet.Memory) (n int, why string) {
	if have == nil || have.Total <= 0 {
		return 0, ""
	}
	of := func(bytes int64) int {
		return int(min(max(bytes-int64(m.Keep), 0)/int64(m.PerSlot), fleet.MaxSlots))
	}
	n, bytes, what := of(have.Total), have.Total, "in all"
	if have.Available > 0 && of(have.Available) < n {
		n, bytes, what = of(have.Available), have.Available, "available"
	}
	return n, fmt.Sprintf("memory: %s for automations: %s %s, %s kept, %s for each (memory)", countOf(n, "slot"),
		attempt.Size(bytes), what, attempt.Size(int64(m.Keep)), attempt.Size(int64(m.PerSlot)))
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// offer gives what is offered now.
func (r *Runner) offer() offer {
	told, ever := r.limits()
	if !ever {
		told.Automation = fleet.DefaultAutomation
	}
	h := r.sampled()
	r.mu.Lock()
	owner, disk, becomes := r.owner, cmp.Or(r.noRoom, r.lowDisk, r.retention.over()), r.updates.busy
	r.mu.Unlock()
	return owner.offered(standing{base: r.slots(owner), automation: told.Automation, disk: disk, update: becomes}, h, time.Now())
}

// slots gives those for what people ask for, as configured.
func (r *Runner) slots(o Owner) int {
	switch {
	case r.cfg.Slots == NoSlots:
		return 0
	case r.cfg.Slots > 0:
		return r.cfg.Slots
	}
	return o.Slots
}
