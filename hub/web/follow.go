package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	drainTime  = 500 * time.Millisecond // for bytes of an attempt that will never be sealed
	sealTime   = 30 * time.Second       // for the rest of a finished attempt's bytes
	maxLine    = 1 << 20                // bytes of one agent event
	jobEnded   = "the turn has ended"
	logMissing = "the log is incomplete: the runner has not sent the rest"
)

// follow is one reader of one job: changes of the job, and the streams of its
// attempts one after the other. Its place is named by the index of the last change
// and, of the attempt it reads, the fence's index and both offsets.
type follow struct {
	server *Server
	job    fleet.JobID
	turn   int
	until  bool

	index  uint64
	fence  uint64 // of the attempt being read
	output int64
	events int64

	st      *stream
	current *reading
}

// reading is the attempt whose streams are being read.
type reading struct {
	turn    int
	attempt *fleet.Attempt
	cancel  context.CancelFunc
	left    int // streams that have not ended
	items   chan item
	wg      sync.WaitGroup
}

// item is one frame or event, or the end of a stream.
type item struct {
	output *api.Output
	event  *fleet.Event
	next   int64 // offset behind it
	end    bool
}

func (f *follow) id() string {
	return fmt.Sprintf("%d-%d-%d-%d-%d", f.server.cfg.Log.View().Meta().Epoch, f.index, f.fence, f.output, f.events)
}

func (f *follow) resume(last string) error {
	var epoch uint64
	if _, err := fmt.Sscanf(last, "%d-%d-%d-%d-%d", &epoch, &f.index, &f.fence, &f.output, &f.events); err != nil || f.output < 0 || f.events < 0 {
		return wrong(fleet.BadRequest, "Last-Event-ID %q is not one that this stream gave", last)
	}
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
	var job *fleet.Job
	var deadline <-chan time.Time
	defer func() { f.stop() }()
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
			f.deliver(it)
			if it.end && f.current.left == 0 {
				f.advance(ctx, job)
			}
		case evs := <-live:
			for _, e := range evs {
				st.send("", api.Event{Type: "live", Item: &e})
			}
		case <-deadline:
			st.send("", api.Event{Type: "end", Detail: logMissing})
			return
		}
		if job == nil || !f.until {
			continue
		}
		switch done, wait := f.ended(job); {
		case done:
			st.send("", api.Event{Type: "end", Detail: jobEnded})
			return
		case wait > 0 && deadline == nil:
			deadline = time.After(wait)
		case wait == 0:
			deadline = nil
		}
	}
}

// ended says whether nothing more of the turn will come, or how long to wait for it.
func (f *follow) ended(j *fleet.Job) (bool, time.Duration) {
	if len(j.Turns) < f.turn || !j.Turns[f.turn-1].State.Ended() {
		return false, 0
	}
	a := latest(j.Turns[f.turn-1])
	switch {
	case a == nil || a.AcceptedAt == nil:
		return true, 0
	case f.current != nil && f.current.attempt.Fence == a.Fence && f.current.left == 0:
		return true, 0
	case a.State == fleet.AttemptFinished:
		return false, sealTime
	}
	return false, drainTime
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

// advance begins to read the attempt that should be read now.
func (f *follow) advance(ctx context.Context, j *fleet.Job) {
	tu, a := f.wanted(j)
	if a == nil || f.current != nil && f.current.attempt.Fence == a.Fence {
		return
	}
	if f.current != nil {
		// What is left of an attempt that was replaced comes first, if it can come at all.
		if _, was := j.Find(f.current.attempt.Fence); was != nil && was.Log.Sealed && f.current.left > 0 {
			return
		}
		f.stop()
	}
	if a.Fence.Index != f.fence {
		f.fence, f.output, f.events = a.Fence.Index, 0, 0
	}
	rctx, cancel := context.WithCancel(ctx)
	r := &reading{turn: tu.N, attempt: a, cancel: cancel, left: 2, items: make(chan item, 16)}
	r.wg.Go(func() { f.readOutput(rctx, r, f.output) })
	from := f.events
	r.wg.Go(func() { f.readEvents(rctx, r, from) })
	f.current = r
}

// wanted gives the accepted attempt to read: of the turn asked for, or of the
// newest one where the reader goes on after it.
func (f *follow) wanted(j *fleet.Job) (*fleet.Turn, *fleet.Attempt) {
	n := f.turn
	if !f.until {
		n = len(j.Turns)
		if f.current != nil && f.current.left > 0 && f.current.turn < n {
			n = f.current.turn
		}
	}
	if n > len(j.Turns) {
		return nil, nil
	}
	tu := j.Turns[n-1]
	a := latest(tu)
	if a == nil || a.AcceptedAt == nil {
		return nil, nil
	}
	return tu, a
}

func (f *follow) stop() {
	if f.current == nil {
		return
	}
	f.current.cancel()
	f.current.wg.Wait()
	f.current = nil
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

// readOutput sends the frames of the attempt's output from an offset on.
func (f *follow) readOutput(ctx context.Context, r *reading, from int64) {
	src, err := f.server.cfg.Spool.Reader(ctx, spool.Key{Job: f.job, Fence: r.attempt.Fence, Name: spool.Output}, from, true)
	if err != nil {
		return
	}
	defer src.Close()
	fr := fleet.NewFrameReader(src)
	for {
		frame, err := fr.Next()
		if err != nil {
			f.finish(ctx, r, err)
			return
		}
		o := &api.Output{Turn: r.turn, Attempt: r.attempt.N, Stream: frame.Kind.String(), At: time.UnixMilli(frame.At).UTC()}
		if utf8.Valid(frame.Payload) {
			o.Text = string(frame.Payload)
		} else {
			o.Base64 = append([]byte(nil), frame.Payload...)
		}
		if !r.put(ctx, item{output: o, next: from + fr.Offset()}) {
			return
		}
	}
}

// readEvents sends the normalised events of the attempt from an offset on.
func (f *follow) readEvents(ctx context.Context, r *reading, from int64) {
	src, err := f.server.cfg.Spool.Reader(ctx, spool.Key{Job: f.job, Fence: r.attempt.Fence, Name: spool.Events}, from, true)
	if err != nil {
		return
	}
	defer src.Close()
	lines := bufio.NewReaderSize(io.Reader(src), 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			f.finish(ctx, r, err)
			return
		}
		from += int64(len(line))
		var e fleet.Event
		if len(line) > maxLine || json.Unmarshal(line, &e) != nil {
			continue
		}
		if !r.put(ctx, item{event: &e, next: from}) {
			return
		}
	}
}

func (f *follow) finish(ctx context.Context, r *reading, err error) {
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		f.server.log.Warn("stream of a job ended early", "job", f.job, "err", err)
	}
	r.put(ctx, item{end: true})
}

func (r *reading) put(ctx context.Context, it item) bool {
	select {
	case r.items <- it:
		return true
	case <-ctx.Done():
		return false
	}
}
