package state

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// heldKinds counts slots by the kind of work that occupies them.
type heldKinds struct{ manual, automation int }

func (h heldKinds) plus(automated bool, n int) heldKinds {
	if automated {
		h.automation += n
	} else {
		h.manual += n
	}
	return h
}

func (h heldKinds) all() int { return h.manual + h.automation }

// held counts the slots of a runner that are occupied.
func (t *txn) held(r fleet.RunnerID) heldKinds {
	manual, automation := View{t.base}.HeldKinds(r)
	now := t.slots[r]
	return heldKinds{manual + now.manual, automation + now.automation}
}

// hold says that a row of an open attempt came (1) or went (-1).
func (t *txn) hold(o open, n int) {
	if o.Holds {
		t.slots[o.Runner] = t.slots[o.Runner].plus(o.Slot.Automated, n)
	}
}

// HasRoom says whether a runner that offers so many slots of each kind, and of which so
// many are occupied, has one for a job. Whatever is under way occupies capacity: a
// bound that was lowered is kept by work that ends, and the kinds together never take
// more than both bounds.
func HasRoom(automated bool, manual, automation, base, auto int) bool {
	if automated && automation >= auto || !automated && manual >= base {
		return false
	}
	return manual+automation < base+auto
}

// HeldKinds counts the slots of a runner that are occupied by manual work and by
// automation.
func (v View) HeldKinds(r fleet.RunnerID) (manual, automation int) {
	var h heldKinds
	each(v.tx, tableOpen, "id_prefix", func(o *opened) bool {
		if o.Holds {
			h = h.plus(o.Slot.Automated, 1)
		}
		return true
	}, opensOf(r))
	return h.manual, h.automation
}

// Reserved gives the bytes of disk that attempts are expected to take which were
// assigned to a runner after a time and occupy a slot of it.
func (v View) Reserved(r fleet.RunnerID, since time.Time) int64 {
	n := int64(0)
	v.OccupiedOf(r, func(o Occupied) bool {
		if o.Since.After(since) {
			n += o.Reserve
		}
		return true
	})
	return n
}
