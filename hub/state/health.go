package state

import (
	"cmp"
	"slices"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var _ = register(func() Command { return new(RecordHealth) })

// maxReports bounds the machines of one entry.
const maxReports = 256

// RecordHealth records what was seen of machines' health: the last figures, and which
// faults began or ended. Whom to tell of that is decided here, so that whoever leads
// next tells nothing twice.
type RecordHealth struct {
	Runners []HealthReport `json:"runners"` // at most 256; one that is not enrolled is passed over
}

// HealthReport is what was seen of one machine.
type HealthReport struct {
	ID       fleet.RunnerID    `json:"id"`
	Free     int64             `json:"free"`   // bytes of the workspace; below 0: not known
	Memory   int64             `json:"memory"` // available bytes; below 0: not known
	Docker   fleet.DockerState `json:"docker"`
	Verified bool              `json:"verified,omitempty"` // Docker and Compose have answered: from now on it is a fault when they do not
	Begun    []FaultReport     `json:"begun,omitempty"`    // faults that are there, old ones too
	Ended    []FaultReport     `json:"ended,omitempty"`    // faults that are not; one of neither list stays as it is
}

// FaultReport says of one fault that it is there, or is not, and why.
type FaultReport struct {
	Kind   fleet.FaultKind `json:"kind"`
	Detail string          `json:"detail,omitempty"`
}

func (*RecordHealth) kind() Kind { return 50 }

func (c *RecordHealth) apply(t *txn) Result {
	if len(c.Runners) > maxReports {
		return refuse(fleet.TooLarge, "health of %d machines in one entry, at most %d", len(c.Runners), maxReports)
	}
	for _, rep := range c.Runners {
		for _, f := range slices.Concat(rep.Begun, rep.Ended) {
			if !slices.Contains(fleet.FaultKinds, f.Kind) {
				return refuse(fleet.BadRequest, "there is no fault of kind %q", f.Kind)
			}
		}
	}
	told := 0
	for _, rep := range c.Runners {
		if r, _ := t.editRunner(rep.ID); r != nil {
			told = t.health(r, &rep, told)
		}
	}
	return Result{}
}

// health records the report of one machine. told counts the alerts of the entry.
func (t *txn) health(r *fleet.Runner, rep *HealthReport, told int) int {
	var h fleet.HealthRecord
	if r.Health != nil {
		h = *r.Health
	}
	news := h.Docker != rep.Docker
	h.At, h.Free, h.Memory, h.Docker = t.now(), rep.Free, rep.Memory, rep.Docker
	h.HadOnce = h.HadOnce || rep.Verified
	h.Faults, h.Changes = slices.Clone(h.Faults), slices.Clone(h.Changes)
	tell := func(kind, text string) {
		told++
		t.alert(&fleet.Alert{ID: t.alertID(told), At: t.now(), Kind: kind, Runner: r.ID, Name: r.Name, Text: r.Name + ": " + text})
		news = true
	}
	class := func(kind fleet.FaultKind, on bool, text string) {
		h.Changes = append(h.Changes, fleet.ClassChange{Kind: kind, On: on, At: t.now(), Text: text})
		if n := len(h.Changes) - fleet.MaxClassChanges; n > 0 {
			h.Changes = h.Changes[n:]
		}
		news = true
	}
	for _, e := range rep.Ended {
		f := faultOf(&h, e.Kind)
		if f == nil || f.Over != nil {
			continue
		}
		f.Over = at(t.now())
		text := fleet.CutText(e.Detail, maxReason)
		class(e.Kind, false, orElse(text, "well again"))
		if told := overWords(e.Kind); toldOf(f) {
			if text != "" {
				told += ": " + text
			}
			tell(AlertRecovered, told)
		}
	}
	for _, b := range rep.Begun {
		if b.Kind == fleet.FaultDocker && !h.HadOnce {
			continue // it never had it: nothing is lost
		}
		text := fleet.CutText(b.Detail, maxReason)
		switch f := faultOf(&h, b.Kind); {
		case f == nil:
			h.Faults = append(h.Faults, fleet.Fault{Kind: b.Kind, Since: t.now(), Detail: text})
			class(b.Kind, true, text)
		case f.Over != nil:
			f.Since, f.Detail, f.Over = t.now(), text, nil
			class(b.Kind, true, text)
		default:
			f.Detail = text
		}
	}
	for i := range h.Faults {
		if f := &h.Faults[i]; AlertDue(*f, t.now()) {
			f.Alerted = at(t.now())
			tell(alertOf(f.Kind), faultWords(f.Kind)+": "+orElse(f.Detail, "no details"))
		}
	}
	r.Health = &h
	t.insert(tableRunners, r)
	if news { // figures alone are none
		t.changed(Change{What: "runner", Runner: r})
	}
	return told
}

// AlertDue says whether people are to be told of a fault: it goes on, they were not
// told of it since it began, and the last alert about the same is long enough ago.
func AlertDue(f fleet.Fault, now time.Time) bool {
	return f.Over == nil && !toldOf(&f) && (f.Alerted == nil || now.Sub(*f.Alerted) >= fleet.AlertEvery)
}

// toldOf says whether people were told of a fault since it began last.
func toldOf(f *fleet.Fault) bool { return f.Alerted != nil && !f.Alerted.Before(f.Since) }

func faultOf(h *fleet.HealthRecord, kind fleet.FaultKind) *fleet.Fault {
	i := slices.IndexFunc(h.Faults, func(f fleet.Fault) bool { return f.Kind == kind })
	if i < 0 {
		return nil
	}
	return &h.Faults[i]
}

// faultWords tell a kind of fault to people, and overWords that it is over.
func faultWords(kind fleet.FaultKind) string {
	words := map[fleet.FaultKind]string{
		fleet.FaultDisk: "low disk space", fleet.FaultMemory: "low memory", fleet.FaultDocker: "no Docker", fleet.FaultOffline: "offline",
	}
	return cmp.Or(words[kind], string(kind))
}

func overWords(kind fleet.FaultKind) string {
	words := map[fleet.FaultKind]string{
		fleet.FaultDisk: "enough disk space again", fleet.FaultMemory: "enough memory again", fleet.FaultDocker: "Docker again", fleet.FaultOffline: "back online",
	}
	return cmp.Or(words[kind], string(kind)+" is over")
}

func alertOf(kind fleet.FaultKind) string {
	kinds := map[fleet.FaultKind]string{
		fleet.FaultDisk: AlertDisk, fleet.FaultMemory: AlertMemory, fleet.FaultDocker: AlertDocker, fleet.FaultOffline: AlertOffline,
	}
	return cmp.Or(kinds[kind], string(kind))
}
