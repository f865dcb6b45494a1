package journal

import (
	"cmp"
	"maps"
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

// state is all that the records of a journal add up to.
type state struct {
	ID       string
	Opens    uint64
	N        uint64 // records ever written
	Next     uint64 // the last outbox number given
	Desired  Desired
	Orders   []string
	Attempts map[fleet.Fence]Attempt
	Outbox   []Item // by number
}

// record is one change; everything in it happens or nothing does.
type record struct {
	N       uint64       `json:"n"`
	Head    *headRecord  `json:"head,omitempty"`
	Desired *Desired     `json:"desired,omitempty"`
	Order   string       `json:"order,omitempty"`
	Orders  []string     `json:"orders,omitempty"`
	Begin   *Attempt     `json:"begin,omitempty"`
	Note    *noteRecord  `json:"note,omitempty"`
	Put     []Item       `json:"put,omitempty"`
	Ack     []uint64     `json:"ack,omitempty"`
	Forget  *fleet.Fence `json:"forget,omitempty"`
}

// headRecord begins a file.
type headRecord struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Opens   uint64 `json:"opens"`
	Next    uint64 `json:"next"`
}

type noteRecord struct {
	Fence    fleet.Fence `json:"fence"`
	Progress Progress    `json:"progress"`
}

const formatVersion = 1

func (s *state) apply(r record) {
	s.N = max(s.N, r.N)
	if r.Head != nil {
		s.ID, s.Opens, s.Next = r.Head.ID, r.Head.Opens, r.Head.Next
	}
	if r.Desired != nil {
		s.Desired = *r.Desired
	}
	s.Orders = append(s.Orders, r.Orders...)
	if r.Order != "" && !slices.Contains(s.Orders, r.Order) {
		s.Orders = append(s.Orders, r.Order)
	}
	if n := len(s.Orders) - maxOrders; n > 0 {
		s.Orders = slices.Delete(s.Orders, 0, n)
	}
	if s.Attempts == nil {
		s.Attempts = map[fleet.Fence]Attempt{}
	}
	if r.Begin != nil {
		s.Attempts[r.Begin.Fence] = *r.Begin
	}
	if r.Note != nil {
		if a, ok := s.Attempts[r.Note.Fence]; ok {
			a.Progress = r.Note.Progress
			s.Attempts[a.Fence] = a
		}
	}
	for _, it := range r.Put {
		s.Outbox = append(s.Outbox, it)
		s.Next = max(s.Next, it.Seq)
	}
	if len(r.Ack) > 0 {
		s.Outbox = slices.DeleteFunc(s.Outbox, func(it Item) bool { return slices.Contains(r.Ack, it.Seq) })
	}
	if r.Forget != nil {
		delete(s.Attempts, *r.Forget)
	}
}

func (s *state) attempts() []Attempt {
	return slices.SortedFunc(maps.Values(s.Attempts), func(a, b Attempt) int {
		return cmp.Or(cmp.Compare(a.Fence.Epoch, b.Fence.Epoch), cmp.Compare(a.Fence.Index, b.Fence.Index))
	})
}

// records gives the shortest list that adds up to s.
func (s *state) records() []record {
	d := s.Desired
	out := []record{{N: s.N, Head: &headRecord{Version: formatVersion, ID: s.ID, Opens: s.Opens, Next: s.Next}, Desired: &d, Orders: s.Orders}}
	for _, a := range s.attempts() {
		out = append(out, record{N: s.N, Begin: &a})
	}
	for _, it := range s.Outbox {
		out = append(out, record{N: s.N, Put: []Item{it}})
	}
	return out
}
