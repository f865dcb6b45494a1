package fleet

import "time"

// Bounds of slots.
const (
	MaxSlots          = 16 // base and automation together
	MaxAutomation     = 8  // automation slots of a runner
	DefaultAutomation = 1  // where nobody set another number
)

// Origins of a job, by who decided to run it.
const (
	Manual     = "manual"
	Automation = "automation"
)

// Automated says whether the job was asked for by an automation, not a person.
func (s *Spec) Automated() bool { return s.Origin.Kind == Automation }

// AutomationSlots gives the automation slots that the hub allows on a runner; with the
// base slots they are never more than MaxSlots.
func (r *Runner) AutomationSlots() int {
	n := DefaultAutomation
	if r.Automation != nil {
		n = *r.Automation
	}
	return max(0, min(n, MaxAutomation, MaxSlots-r.Facts.Slots))
}

// Hold keeps new work from a runner by a person's decision.
type Hold struct {
	Drain    bool       `json:"drain,omitempty"` // what it has is waited for; else it is only given nothing new
	Since    time.Time  `json:"since"`
	Until    *time.Time `json:"until,omitempty"`    // ends by itself then
	Deadline *time.Time `json:"deadline,omitempty"` // of a drain
	Cancel   bool       `json:"cancel,omitempty"`   // at the deadline what still runs is cancelled, its work rescued
	Passed   bool       `json:"passed,omitempty"`   // the deadline was acted on
	Reason   string     `json:"reason,omitempty"`
	Actor    string     `json:"actor,omitempty"`
}

// HeldAt says whether the runner is held at a time.
func (r *Runner) HeldAt(now time.Time) bool {
	return r.Cordoned || r.Hold != nil && (r.Hold.Until == nil || now.Before(*r.Hold.Until))
}

// Limits are what the hub tells a runner about its automation. A runner that was never
// told takes none; one that was keeps to the last it heard.
type Limits struct {
	Automation int    `json:"automation"` // slots
	Floors     Floors `json:"floors"`
}
