package web

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	sealTime   = 30 * time.Second // for the rest of a finished attempt's bytes
	jobEnded   = "the turn has ended"
	logMissing = "the log is incomplete: the runner has not sent the rest"
)

// follow is one reader of one job: changes of the job, and the streams of its
// accepted attempts one after the other. The reader's place is named by the turn
// where it began, the index of the last change, and of the attempt it reads the
// index of the fence and both offsets.
type follow struct {
	server *Server
	job    fleet.JobID
	until  bool // end with the turn

	turn   int
	index  uint64
	fence  uint64
	output int64
	events int64
	reset  string // why the reader's place is worth nothing

	st       *stream
	current  *reading
	patience <-chan time.Time // while bytes are awaited that may never come
	short    bool             // they did not come
}

func (f *follow) id() string {
	return fmt.Sprintf("%d-%d-%d-%d-%d-%d", f.server.cfg.Log.View().Meta().Epoch, f.index, f.turn, f.fence, f.output, f.events)
}

// resume takes the place that id named.
func (f *follow) resume(last string) error {
	var n [6]uint64
	parts := strings.Split(last, "-")
	if len(parts) != len(n) {
		return wrong(fleet.BadRequest, "Last-Event-ID %s is not one that this stream gave", quote(last))
	}
	for i, p := range parts {
		var err error
		if n[i], err = strconv.ParseUint(p, 10, 63); err != nil {
			return wrong(fleet.BadRequest, "Last-Event-ID %s is not one that this stream gave", quote(last))
		}
	}
	m := f.server.cfg.Log.View().Meta()
	if n[0] != m.Epoch {
		f.reset = "the event id given is of another epoch"
		return nil
	}
	n[1] = min(n[1], m.Index) // of a change that is not there yet: nothing after now may be missed
	f.index, f.turn, f.fence, f.output, f.events = n[1], int(n[2]), n[3], int64(n[4]), int64(n[5])
	return nil
}

// run streams until the reader leaves or, where asked for, the turn has ended.
func (f *follow) run(st *stream, ctx context.Context) {
	f.st = st
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	jobs := make(chan *fleet.Job)
	wg.Go(func() { f.watch(ctx, jobs) })
	live, leave := f.server.live.watch(f.job)
	defer leave()
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	defer func() { f.stop() }()
	if f.reset != "" {
		st.send("", api.Event{Type: "reset", ID: string(f.job), Detail: f.reset})
	}
	var job *fleet.Job
	for st.fail == nil {
		var items chan item
		if f.current != nil {
			items = f.current.items
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			st.comment("still here")
		case j, ok := <-jobs:
			if !ok {
				return
			}
			if j == nil {
				st.send("", api.Event{Type: "reset", ID: string(f.job), Detail: "the job's record was deleted"})
				return
			}
			job = j
			f.tell(j)
			f.advance(ctx, j)
		case it := <-items:
			if it.err != nil {
				f.broken(it.err)
				return
			}
			f.deliver(it)
			if it.end {
				f.advance(ctx, job)
			}
		case evs := <-live:
			for _, e := range evs {
				st.send("", api.Event{Type: "live", Item: &e})
			}
		case <-f.patience:
			f.short, f.patience = true, nil
			if f.current != nil {
				f.current.last()
			}
		}
		if job != nil && f.until && f.ended(job) {
			detail := jobEnded
			if f.short {
				detail = logMissing
			} else if note := f.cut(job); note != "" {
				detail = note
			}
			st.send("", api.Event{Type: "end", Detail: detail})
			return
		}
	}
}

// broken ends a stream whose recorded bytes cannot be read on.
func (f *follow) broken(err error) {
	f.server.log.Warn("stream of a job ended early", "job", f.job, "err", err)
	if errors.Is(err, fleet.ErrBadFrame) {
		f.st.send("", api.Event{Type: "reset", ID: string(f.job), Detail: "the recorded output cannot be read from the event id given"})
	}
}

// watch sends the job now and after every change; nil when its record is gone.
func (f *follow) watch(ctx context.Context, jobs chan<- *fleet.Job) {
	defer close(jobs)
	put := func(j *fleet.Job) bool {
		select {
		case jobs <- j:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for ctx.Err() == nil {
		v := f.server.cfg.Log.View()
		j, ok := v.Job(f.job)
		if !ok {
			put(nil)
			return
		}
		sub, err := f.server.cfg.Feed.Subscribe(v.Meta().Index)
		if err != nil {
			continue // the feed moved on between the two looks
		}
		alive := put(j)
		for alive {
			_, _, c, err := sub.Next(ctx)
			if err != nil {
				break
			}
			if c.Job != nil && c.Job.ID == f.job {
				if c.Removed {
					put(nil)
					sub.Close()
					return
				}
				alive = put(c.Job)
			}
		}
		sub.Close()
	}
}

// tell sends a change of the job, unless the reader has it from before.
func (f *follow) tell(j *fleet.Job) {
	if j.Revision <= f.index {
		return
	}
	f.index = j.Revision
	sh := f.server.show(f.server.cfg.Log.View(), j)
	f.st.send(f.id(), api.Event{Type: "job", Job: &sh})
}

// advance begins to read the next attempt when the one before it has been read to
// its end, and sees when no more bytes of that can come.
func (f *follow) advance(ctx context.Context, j *fleet.Job) {
	for {
		tu, next := f.next(j)
		if f.current != nil {
			_, was := j.Find(f.current.attempt.Fence)
			over := next != nil || f.until && f.turnEnded(j)
			switch {
			case was == nil || was.Log.Sealed:
				f.current.last()
			case over && was.State != fleet.AttemptRunning && was.State != fleet.AttemptFinished:
				f.current.last()
			case over && was.State == fleet.AttemptFinished && f.patience == nil && !f.short:
				f.patience = time.After(sealTime)
			}
			if f.current.left > 0 {
				return
			}
		}
		if next == nil {
			return
		}
		f.stop()
		if next.Fence.Index != f.fence {
			f.fence, f.output, f.events = next.Fence.Index, 0, 0
		}
		f.patience, f.short = nil, false
		f.current = read(ctx, f.server.cfg.Spool, f.job, tu.N, next, f.output, f.events)
	}
}

// next gives the accepted attempt to read after the present one; at the beginning
// the one that the reader was at, or the newest of the turn.
func (f *follow) next(j *fleet.Job) (*fleet.Turn, *fleet.Attempt) {
	var turn *fleet.Turn
	var found *fleet.Attempt
	for _, tu := range j.Turns {
		if tu.N < f.turn || f.until && tu.N > f.turn {
			continue
		}
		for _, a := range tu.Attempts {
			switch {
			case a.AcceptedAt == nil:
			case f.current != nil:
				if f.current.attempt.Fence.Less(a.Fence) {
					return tu, a
				}
			case f.fence != 0:
				if a.Fence.Index >= f.fence {
					return tu, a
				}
			case tu.N == f.turn || found == nil:
				turn, found = tu, a
			}
		}
	}
	return turn, found
}

// attempt is the one whose streams a reader gets first.
func (f *follow) attempt(j *fleet.Job) *fleet.Attempt {
	_, a := f.next(j)
	return a
}

func (f *follow) turnEnded(j *fleet.Job) bool {
	return len(j.Turns) >= f.turn && j.Turns[f.turn-1].State.Ended()
}

// ended says whether nothing more of the turn will come.
func (f *follow) ended(j *fleet.Job) bool {
	if !f.turnEnded(j) {
		return false
	}
	if _, next := f.next(j); next != nil {
		return false
	}
	return f.current == nil || f.current.left == 0
}

// cut says why the log that was read is without its end; empty where it is whole.
func (f *follow) cut(j *fleet.Job) string {
	if f.current == nil {
		return ""
	}
	_, a := j.Find(f.current.attempt.Fence)
	if a == nil {
		return ""
	}
	return fleet.CutNote(a.Notes)
}

func (f *follow) stop() {
	if f.current != nil {
		f.current.stop()
		f.current = nil
	}
}

func (f *follow) deliver(it item) {
	switch {
	case it.end:
		f.current.left--
	case it.output != nil:
		f.output = it.next
		f.st.send(f.id(), api.Event{Type: "output", Output: it.output})
	case it.event != nil:
		f.events = it.next
		f.st.send(f.id(), api.Event{Type: "event", Item: it.event})
	}
}
