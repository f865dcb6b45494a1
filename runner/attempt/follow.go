package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// feed is what the goroutines that follow one process share.
type feed struct {
	spool *process.Spool
	exit  *process.Exit // set once the process is over; nil if its end was not recorded
	mask  mask

	mu      sync.Mutex
	output  int64         // whole frames of the spool seen by the parser
	events  int64         // bytes of the events file
	derived bool          // both are final
	grown   chan struct{} // closed and replaced when one of them grows
	lacks   error         // why the hub will not hold one of the streams whole
}

// incomplete notes that a stream will never be whole at the hub.
func (f *feed) incomplete(stream string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lacks = errors.Join(f.lacks, fmt.Errorf("%s: %w", stream, err))
}

func (f *feed) lacking() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lacks
}

func (f *feed) grow(output, events int64, final bool) {
	f.mu.Lock()
	f.output, f.events, f.derived = output, events, f.derived || final
	close(f.grown)
	f.grown = make(chan struct{})
	f.mu.Unlock()
}

// at gives the present lengths, and a channel that is closed when they change.
func (f *feed) at() (output, events int64, final bool, grown <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.output, f.events, f.derived, f.grown
}

func (a *Attempt) eventsFile() string { return filepath.Join(a.dir, "events.jsonl") }

// fromProcess goes on with an attempt that was launched before this runner started.
func (a *Attempt) fromProcess(ctx context.Context) error {
	a.mu.Lock()
	closeOnce(a.permit)
	a.mu.Unlock()
	status, err := process.Attach(a.processDir())
	if err != nil {
		return err
	}
	if status.State == process.Running {
		a.enter(Running, "running", "")
	}
	return a.follow(ctx, status)
}

// follow derives the events of a process, sends both streams, ends it when told to,
// and makes the result of it.
func (a *Attempt) follow(ctx context.Context, status process.Status) error {
	m, err := a.loadMask()
	if err != nil {
		return err
	}
	spool, err := process.OpenSpool(a.processDir())
	if err != nil {
		return fmt.Errorf("open recorded output: %w", err)
	}
	defer spool.Close()
	f := &feed{spool: spool, mask: m, grown: make(chan struct{})}
	events := &eventsSource{feed: f, path: a.eventsFile()}
	defer events.close()

	ctx, cancel := context.WithCancel(ctx)
	over, ended := context.WithCancel(ctx) // ends when no byte is written any more
	var work sync.WaitGroup
	defer work.Wait()
	defer ended()
	defer cancel()

	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	if !ok {
		return fmt.Errorf("find the attempt in the journal: %w", fleet.NotFound)
	}
	sources := map[Stream]source{Output: &outputSource{feed: f}, Events: events}
	a.resend = func(ctx context.Context) {
		for stream, src := range sources {
			a.send(ctx, stream, f, src, false)
		}
	}
	var sealing sync.WaitGroup // both streams are at the hub
	unsealed := !rec.Progress.Sealed
	if unsealed {
		for stream, src := range sources {
			sealing.Add(1)
			work.Go(func() {
				defer sealing.Done()
				a.send(ctx, stream, f, src, !a.resumed)
			})
		}
	}
	work.Go(func() { a.serveCredentials(over) })
	type derivation struct {
		outcome fleet.Outcome
		err     error
	}
	derived := make(chan derivation, 1)
	work.Go(func() {
		o, err := a.derive(ctx, over, f)
		derived <- derivation{o, err}
	})

	if status.State == process.Running {
		if status, err = a.watch(ctx, status.Started.StartedAt); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if status.State == process.Gone && !a.sweep(ctx) {
		return nil
	}
	f.exit = status.Exit
	ended()
	reported := rec.Progress.Finished || rec.Progress.Ended
	if !reported {
		a.enter(Ending, "finishing", "")
	}
	var d derivation
	select {
	case d = <-derived:
	case <-ctx.Done():
		return nil
	}
	if d.err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return d.err
	}
	if !reported {
		sealed, err := a.conclude(ctx, f, d.outcome)
		if err != nil || ctx.Err() != nil {
			return err
		}
		unsealed = unsealed && !sealed
		if f.exit == nil {
			a.enter(Ended, "gone", "")
		} else {
			a.enter(Ended, "finished", "")
		}
	}
	if err := a.upload(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if unsealed {
		sealing.Wait()
		if ctx.Err() != nil {
			return nil
		}
		if err := a.seal(ctx, f); err != nil {
			return err
		}
	}
	if f.exit == nil && !rec.Progress.Finished {
		return a.settleEnd(ctx)
	}
	return a.untilForgotten(ctx)
}

// startedAfter is how long a process runs before its start is worth a report of its
// own; the result tells it anyway.
const startedAfter = 50 * time.Millisecond

// watch waits for the end of the process and passes a stop on. Where the supervisor
// neither obeys a stop nor holds the time limit, the runner does both itself.
func (a *Attempt) watch(ctx context.Context, started time.Time) (process.Status, error) {
	type answer struct {
		status process.Status
		err    error
	}
	ended := make(chan answer, 1)
	go func() {
		s, err := process.Wait(ctx, a.processDir())
		ended <- answer{s, err}
	}()
	stop := a.stop
	var force, limit, untold <-chan time.Time
	rec, _ := a.host.Journal.Attempt(a.asg.Fence)
	if !started.IsZero() && (!a.resumed || rec.Progress.Facts == 0) {
		timer := time.NewTimer(startedAfter)
		defer timer.Stop()
		untold = timer.C
	}
	if left, ok := a.left(started); ok {
		timer := time.NewTimer(left)
		defer timer.Stop()
		limit = timer.C
	}
	reason, detail := process.ReasonTimeout, limitText(bound(a.asg.Spec.Timeouts.Total, fleet.DefaultTimeout))
	for {
		select {
		case <-stop:
			stop, limit = nil, nil
			a.mu.Lock()
			reason, detail = process.ReasonStopped, a.stopReason
			a.mu.Unlock()
			a.enter(Stopping, "stopping", detail)
			if err := process.Stop(a.processDir(), detail); err != nil && !errors.Is(err, process.ErrGone) {
				a.log.Warn("process could not be told to stop", "err", err)
			}
			force = time.After(stopGrace + stopMargin)
		case <-untold:
			a.fact("started", started.UTC())
		case <-limit:
			force = time.After(0)
		case <-force:
			status, err := a.force(reason, detail)
			if err != nil {
				a.log.Warn("process could not be ended", "err", err)
				a.tell("its processes can't be ended: " + err.Error())
			} else if status.State == process.Exited {
				return status, nil // whoever waits may have seen it without its record
			}
			force = time.After(sweepAgain)
		case e := <-ended:
			if ctx.Err() != nil {
				return e.status, nil
			}
			if e.err != nil {
				return e.status, fmt.Errorf("wait for the process: %w", e.err)
			}
			return e.status, nil
		}
	}
}

// derive turns the recorded output into events, from its first byte: the file is a
// function of the frames and of what was asked, so that a restarted runner writes
// the same bytes again. over ends when no byte is written any more and f.exit is set.
func (a *Attempt) derive(ctx, over context.Context, f *feed) (_ fleet.Outcome, err error) {
	defer func() { // what an agent writes must not end the runner
		if p := recover(); p != nil {
			err = fmt.Errorf("derive events: the output is beyond the parser of %s: %v", a.asg.Spec.Harness, p)
		}
	}()
	h, ok := harness.Lookup(a.asg.Spec.Harness)
	if !ok {
		return fleet.Outcome{}, fmt.Errorf("derive events: harness %q: %w", a.asg.Spec.Harness, fleet.HarnessMissing)
	}
	req := harness.ParseRequest{Model: a.model(), Zone: a.zone()}
	if r := a.asg.Resume; r != nil && !a.asg.Fresh {
		req.ResumeID = r.SessionID
		if r.Usage != nil {
			req.PriorUsage = *r.Usage
		}
	}
	d := &derived{a: a, f: f, parser: h.Parser(req)}
	defer func() { _ = d.file.Close() }() // of no file is an error
	if rec, ok := a.host.Journal.Attempt(a.asg.Fence); ok {
		for _, dir := range []string{rec.Progress.Dir, rec.Progress.RealDir} {
			if dir != "" {
				d.roots = append(d.roots, dir)
			}
		}
	}

	buf := make([]byte, 256<<10)
	var off int64
	for {
		size, err := f.spool.Wait(over, off)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return fleet.Outcome{}, ctx.Err()
		case errors.Is(err, io.EOF) || over.Err() != nil:
			if size, err = f.spool.Size(); err != nil {
				return fleet.Outcome{}, fmt.Errorf("derive events: %w", err)
			}
			if size <= off {
				// Nobody writes any more, but the exit may not be known here yet.
				select {
				case <-over.Done():
				case <-ctx.Done():
					return fleet.Outcome{}, ctx.Err()
				}
				return d.end(ctx)
			}
		default:
			return fleet.Outcome{}, fmt.Errorf("derive events: %w", err)
		}
		for off < size {
			n, err := f.spool.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
			if err != nil && !errors.Is(err, io.EOF) {
				return fleet.Outcome{}, fmt.Errorf("derive events: %w", err)
			}
			if n == 0 {
				break
			}
			off += int64(n)
			if err := d.take(ctx, buf[:n]); err != nil {
				return fleet.Outcome{}, err
			}
		}
	}
}

// maxKept bounds the room for events that is kept from one piece of output to the next.
const maxKept = 64 << 10

// derived writes the events of one run.
type derived struct {
	a      *Attempt
	f      *feed
	parser harness.Parser
	file   *os.File // made for the first event
	roots  roots
	unsaid []byte // lines that are not in the file yet
	rest   []byte // of a frame that is not whole yet
	frames int64  // bytes of whole frames
	bytes  int64  // of events
	bad    bool   // the spool can't be decoded further
	known  known  // what the hub was told of the CLI's session
}

func (d *derived) take(ctx context.Context, p []byte) error {
	d.rest = append(d.rest, p...)
	at := 0
	for !d.bad {
		fr, n, err := fleet.DecodeFrame(d.rest[at:])
		if errors.Is(err, fleet.ErrShort) {
			break
		}
		if err != nil {
			d.a.log.Error("recorded output is damaged", "offset", d.frames, "err", err)
			d.bad = true
			break
		}
		at += n
		d.frames += int64(n)
		events, live := d.parser.Frame(fr)
		d.write(events)
		if len(live) > 0 {
			for i := range live {
				live[i] = d.f.mask.event(d.roots.event(live[i]))
			}
			d.a.host.Hub.Live(d.a.asg.Job, d.a.asg.Fence, live)
		}
	}
	d.rest = append(d.rest[:0], d.rest[at:]...)
	if d.bad {
		d.rest = d.rest[:0]
	}
	d.a.wait(d.parser.Status())
	d.a.tellSession(&d.known, d.parser)
	d.a.tellResponded(&d.known, d.parser)
	return d.publish(ctx, false)
}

func (d *derived) write(events []fleet.Event) {
	for _, e := range events {
		d.unsaid = append(d.unsaid, d.f.mask.event(d.roots.event(e)).Line()...)
	}
}

// publish brings the lines into the file, once there is room for them, and shows the
// new lengths. What a reader has seen of the file never changes.
func (d *derived) publish(ctx context.Context, final bool) error {
	if len(d.unsaid) > 0 {
		err := d.a.insist(ctx, func() (err error) {
			if d.file == nil {
				if d.file, err = os.OpenFile(d.a.eventsFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
					d.file = nil
					return err
				}
			}
			_, err = d.file.WriteAt(d.unsaid, d.bytes)
			return err
		})
		if err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		d.bytes += int64(len(d.unsaid))
		if d.unsaid = d.unsaid[:0]; cap(d.unsaid) > maxKept {
			d.unsaid = nil
		}
	}
	d.a.mu.Lock()
	d.a.output = d.frames
	d.a.mu.Unlock()
	d.f.grow(d.frames, d.bytes, final)
	return nil
}

func (d *derived) end(ctx context.Context) (fleet.Outcome, error) {
	x := harness.ExitInfo{Code: -1, Reason: "lost"}
	if e := d.f.exit; e != nil {
		x = harness.ExitInfo{Code: e.Code, Signal: e.Signal, Reason: e.Reason}
	}
	events, outcome := d.parser.End(x)
	d.a.tellResponded(&d.known, d.parser)
	d.write(events)
	outcome.Detail = d.f.mask.text(outcome.Detail)
	return outcome, d.publish(ctx, true)
}
