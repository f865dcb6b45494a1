package cluster

import (
	"fmt"
	"sync"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// ledger is what the runners' side saw happen: what ran, and what the hubs said that
// they have.
type ledger struct {
	wrong func(format string, args ...any)

	mu       sync.Mutex
	runs     map[fleet.JobID][]execution
	acked    map[stream]int64 // bytes that were said to be durable
	notes    map[fleet.Fence]map[string]bool
	finished map[fleet.Fence]fleet.JobID
	accepted map[fleet.Fence]fleet.JobID
	blobs    map[fleet.Digest]bool // true until it was looked for
	items    int
}

type stream struct {
	job   fleet.JobID
	fence fleet.Fence
	name  wire.Stream
}

// execution is one start of a job's process.
type execution struct {
	job     fleet.JobID
	fence   fleet.Fence
	machine *machine
	proc    *proc
	rerun   bool // the job runs again when it is lost
	again   bool // the machine had started the same attempt before
	busy    int  // processes on the machine, this one too
}

func newLedger(wrong func(string, ...any)) *ledger {
	return &ledger{
		wrong: wrong, runs: map[fleet.JobID][]execution{}, acked: map[stream]int64{}, notes: map[fleet.Fence]map[string]bool{},
		finished: map[fleet.Fence]fleet.JobID{}, accepted: map[fleet.Fence]fleet.JobID{}, blobs: map[fleet.Digest]bool{},
	}
}

// begin notes that a process started, and judges whether it might.
func (l *ledger) begin(x execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.accepted[x.fence]; !ok {
		l.wrong("attempt %s of job %s was started without a permit on %s", x.fence, x.job, x.machine.name)
	}
	if x.again {
		l.wrong("attempt %s of job %s was started a second time on %s", x.fence, x.job, x.machine.name)
	}
	if x.busy > x.machine.slots && !x.proc.automated {
		l.wrong("%s runs %d processes in %d slots", x.machine.name, x.busy, x.machine.slots)
	}
	for _, o := range l.runs[x.job] {
		state, p := o.state()
		switch {
		case o.fence == x.fence:
			l.wrong("attempt %s of job %s was started twice, on %s and %s", x.fence, x.job, o.machine.name, x.machine.name)
		case state == journal.Running:
			l.wrong("job %s runs on %s under %s while it runs on %s under %s", x.job, x.machine.name, x.fence, o.machine.name, o.fence)
		case (!p.killed || p.unknown) && passing(p.ends.class) && (!p.plan.acted || p.plan.session):
		case !p.killed:
			l.wrong("job %s runs again under %s although it ended by itself under %s, as %q", x.job, x.fence, o.fence, p.ends.class)
		case !x.rerun:
			l.wrong("job %s runs again under %s although it is to be held when it is lost", x.job, x.fence)
		}
	}
	l.runs[x.job] = append(l.runs[x.job], x)
}

// state tells of the process as it is now.
func (x execution) state() (journal.Process, proc) {
	x.machine.mu.Lock()
	defer x.machine.mu.Unlock()
	switch p := x.proc; {
	case p.end.After(time.Now()):
		return journal.Running, *p
	case p.killed:
		return journal.Gone, *p
	default:
		return journal.Exited, *p
	}
}

// permit notes that a hub said that an attempt's accept is committed.
func (l *ledger) permit(job fleet.JobID, f fleet.Fence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[f] = job
}

// durable notes how much of a stream a hub said that it has.
func (l *ledger) durable(a wire.OutputAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := stream{a.Job, a.Fence, a.Stream}
	l.acked[k] = max(l.acked[k], a.Durable)
}

// refused judges a refusal of output.
func (l *ledger) refused(a wire.OutputAck) {
	switch a.Code {
	case fleet.LogSealed, fleet.NotFound, fleet.StaleFence:
	default:
		l.wrong("output of attempt %s of job %s was refused for good: %s: %s", a.Fence, a.Job, a.Code, a.Detail)
	}
}

// stored notes that a hub said that it has a blob.
func (l *ledger) stored(d fleet.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.blobs[d]; !known {
		l.blobs[d] = true
	}
}

// answered notes what became of a report.
func (l *ledger) answered(it wire.ReportItem, a wire.ItemAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Code != "" {
		switch {
		case a.Code == fleet.StaleFence, a.Code == fleet.NotCurrent, a.Code == fleet.CancelRequested, a.Code == fleet.NotFound:
		case it.Declined != nil && a.Code == fleet.Conflict:
		default:
			l.wrong("a report of attempt %s of job %s was refused for good: %s: %s", it.Fence, it.Job, a.Code, a.Detail)
		}
		return
	}
	l.items++
	switch {
	case it.Accepted != nil:
		l.accepted[it.Fence] = it.Job
	case it.Finished != nil:
		l.finished[it.Fence] = it.Job
	case len(it.Facts) > 0 && it.Facts[0].Kind == "note":
		if l.notes[it.Fence] == nil {
			l.notes[it.Fence] = map[string]bool{}
		}
		var text string
		if _, err := fmt.Sscanf(string(it.Facts[0].Value), "%q", &text); err == nil {
			l.notes[it.Fence][text] = true
		}
	}
}
