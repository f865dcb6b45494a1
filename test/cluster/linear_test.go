package cluster

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tugline.dev/tugline/shared/fleet"
)

// What people did with one job is to look as if it had been done in one place, one
// after the other, each at some moment between its request and its answer. Beside them
// the job goes on by itself: it may end at any moment, once, and then stays as it is.

type opKind int

const (
	opSubmit opKind = iota
	opGet
	opCancel
)

type input struct {
	op  opKind
	job fleet.JobID
}

type output struct {
	state   fleet.State // as shown
	absent  bool        // there is no such job
	refused bool        // it had ended before
	unknown bool        // there was no answer
}

// known is the model's state of a job: absent, going on, or as it ended.
type known struct {
	there bool
	ended fleet.State
}

// settled gives the state that a job never leaves by itself, or nothing. A lost one
// may come back.
func settled(s fleet.State) fleet.State {
	switch s {
	case fleet.Succeeded, fleet.Failed, fleet.Cancelled:
		return s
	}
	return ""
}

func step(k known, in input, out output) (bool, known) {
	seen := settled(out.state)
	agrees := k.ended == "" || k.ended == seen // what ended stays as it is
	switch {
	case out.unknown:
		return true, k // whether it was cancelled will be seen
	case out.absent:
		return !k.there, k
	case in.op == opSubmit:
		return agrees, known{true, seen} // a repeated one shows how far the job has come
	case !k.there:
		return false, k
	case out.refused:
		return k.ended != fleet.Cancelled, k // it may have ended just now
	}
	return agrees, known{true, seen}
}

var jobModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		by := map[fleet.JobID][]porcupine.Operation{}
		for _, o := range all {
			id := o.Input.(input).job
			by[id] = append(by[id], o)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return known{} },
	Step: func(state, in, out any) (bool, any) {
		ok, next := step(state.(known), in.(input), out.(output))
		return ok, next
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// history is what was asked and answered, in the order in which it was.
type history struct {
	mu  sync.Mutex
	at  int64
	ops []porcupine.Operation
}

// begin notes a request; the returned function notes its answer. One that is never
// called is a request of which nothing is known, not even whether it was made.
func (h *history) begin(client int, in input) func(fleet.JobID, output) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at++
	call := h.at
	return func(id fleet.JobID, out output) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.at++
		in.job = id
		back := h.at
		if out.unknown {
			back = math.MaxInt64 // it may still be done
		}
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
	}
}

// linear says whether the history could have happened in one place.
func (h *history) linear() error {
	h.mu.Lock()
	ops := h.ops
	h.mu.Unlock()
	for _, part := range jobModel.Partition(ops) {
		switch porcupine.CheckOperationsTimeout(single, part, 10*time.Second) {
		case porcupine.Illegal:
			text := "no order explains what was answered about a job:"
			for _, o := range part {
				text += fmt.Sprintf("\n  %d…%d by %d: %s", o.Call, o.Return, o.ClientId, jobModel.DescribeOperation(o.Input, o.Output))
			}
			return fmt.Errorf("%s", text)
		case porcupine.Unknown:
			return fmt.Errorf("a history of %d operations was not judged within 10 s", len(part))
		}
	}
	return nil
}

// single is the model of one job.
var single = porcupine.Model{Init: jobModel.Init, Step: jobModel.Step}

// TestLinear shows that the model finds what it is to find.
func TestLinear(t *testing.T) {
	const job = fleet.JobID("j")
	op := func(call, back int64, kind opKind, out output) porcupine.Operation {
		return porcupine.Operation{Input: input{kind, job}, Call: call, Output: out, Return: back}
	}
	shows := func(s fleet.State) output { return output{state: s} }
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"an ordinary life": {[]porcupine.Operation{
			op(1, 2, opSubmit, shows(fleet.Queued)), op(3, 4, opGet, shows(fleet.Running)), op(5, 6, opGet, shows(fleet.Succeeded)), op(7, 8, opCancel, output{refused: true}),
		}, true},
		"a lost write":             {[]porcupine.Operation{op(1, 2, opSubmit, shows(fleet.Queued)), op(3, 4, opGet, output{absent: true})}, false},
		"a read beside the submit": {[]porcupine.Operation{op(1, 4, opSubmit, shows(fleet.Queued)), op(2, 3, opGet, output{absent: true})}, true},
		"a stale read": {[]porcupine.Operation{
			op(1, 2, opSubmit, shows(fleet.Queued)), op(3, 4, opCancel, shows(fleet.Cancelled)), op(5, 6, opGet, shows(fleet.Queued)),
		}, false},
		"two ends": {[]porcupine.Operation{
			op(1, 2, opSubmit, shows(fleet.Queued)), op(3, 4, opGet, shows(fleet.Failed)), op(5, 6, opGet, shows(fleet.Succeeded)),
		}, false},
		"a cancel of which nothing is known, seen": {[]porcupine.Operation{
			op(1, 2, opSubmit, shows(fleet.Queued)), op(3, math.MaxInt64, opCancel, output{unknown: true}), op(5, 6, opGet, shows(fleet.Cancelled)),
		}, true},
		"a cancel that was refused after it was done": {[]porcupine.Operation{
			op(1, 2, opSubmit, shows(fleet.Queued)), op(3, 4, opCancel, shows(fleet.Cancelled)), op(5, 6, opCancel, output{refused: true}),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := porcupine.CheckOperations(single, c.ops); got != c.ok {
				t.Errorf("linearizable: %t, want %t", got, c.ok)
			}
		})
	}
}
