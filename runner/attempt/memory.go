package attempt

import (
	"context"
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// memory looks at the machine's memory now, where the job requires some or is an
// automation's, of which each is expected to take a share. What is not known bounds an
// automation as little as it bounds what is offered; a job that requires memory is not
// begun on trust.
func (a *Attempt) memory(ctx context.Context, p Policy) error {
	need, automated := a.needs().Memory, a.asg.Spec.Automated()
	if need <= 0 && !automated || a.permitted() {
		return nil
	}
	var free int64 // 0: not known
	if m := a.host.Memory(ctx); m != nil {
		free = m.Available
	}
	switch {
	case need > 0 && free <= 0:
		return &decline{code: fleet.MemoryTight, after: tightAfter, detail: fmt.Sprintf("the job needs %s of memory, and how much is available is not known", Size(need))}
	case need > 0 && free < need:
		return &decline{code: fleet.MemoryTight, after: tightAfter, detail: fmt.Sprintf("%s of memory are available, the job needs %s", Size(free), Size(need))}
	case automated && free > 0 && free-p.MemoryKept < p.MemoryShare:
		return &decline{
			code: fleet.MemoryLow, after: fleet.HostFaultPause,
			detail: fmt.Sprintf("%s of memory are available, %s are kept, and a job of an automation may take %s (memory)", Size(free), Size(p.MemoryKept), Size(p.MemoryShare)),
		}
	}
	return nil
}
