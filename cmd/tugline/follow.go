package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	cancelWindow = 3 * time.Second // for the second Ctrl-C
	outageTold   = 5 * time.Second // of a lost connection before the user is told
	sealWait     = 2 * time.Second // for the rest of the output, once the turn has ended
	pushWait     = time.Minute     // for the outcome of the push, once the turn has succeeded
	restWait     = 500 * time.Millisecond
	streamQuiet  = 90 * time.Second // follow.quiet
)

// errQuiet ends a stream on which not even a sign of life came.
var errQuiet = errors.New("it fell silent")

// followOptions say how a job is followed.
type followOptions struct {
	raw  bool // of an agent: what its CLI wrote, not what that means
	turn int  // the turn that counts; 0 is the newest
}

// follow shows a job until it ends.
type follow struct {
	a    *app
	c    *client
	id   fleet.JobID
	opt  followOptions
	show *renderer

	last    string // id of the newest event that was shown
	over    bool   // the hub said that the turn has ended and nothing more comes
	job     *api.Job
	said    string // the newest line of status
	attempt int    // whose output is shown
	window  time.Duration
	quiet   time.Duration // without a byte, after which a stream counts as broken
	ended   time.Time     // when the turn was seen to have ended
	push    time.Duration // how long its push is waited for
}

// follow shows a job until it ends, and ends with its exit code.
func (a *app) follow(ctx context.Context, c *client, id fleet.JobID, opt followOptions) error {
	signals, off := a.interrupts()
	defer off()
	return a.newFollow(c, id, opt).run(ctx, signals)
}

func (a *app) newFollow(c *client, id fleet.JobID, opt followOptions) *follow {
	return &follow{a: a, c: c, id: id, opt: opt, show: newRenderer(a.out, a.ttyOut, a.colourOut()), window: cancelWindow, quiet: streamQuiet, push: pushWait}
}

// run follows and listens for the user who wants to leave: the first Ctrl-C leaves
// the job to itself, a second one soon after it cancels the job.
func (f *follow) run(ctx context.Context, signals <-chan os.Signal) error {
	for cancelled := false; ; {
		inner, stop := context.WithCancel(ctx)
		end := make(chan error, 1)
		go func() { end <- f.watch(inner) }()
		select {
		case err := <-end:
			stop()
			return f.finish(err)
		case s := <-signals:
			stop()
			<-end
			f.show.flush()
			if s != os.Interrupt || cancelled {
				f.a.say("job %s goes on by itself; `tugline job logs -f %s` comes back to it", f.id, f.id)
				return silent(exitInterrupted)
			}
			f.a.say("job %s goes on by itself; Ctrl-C again within %s cancels it\n  tugline job logs -f %s    come back\n  tugline job cancel %s     cancel", f.id, f.window, f.id, f.id)
			select {
			case s := <-signals:
				if s != os.Interrupt {
					return silent(exitInterrupted)
				}
			case <-time.After(f.window):
				return silent(exitInterrupted)
			}
			cancelled = true
			if _, err := f.c.act(ctx, "/v1/jobs/"+string(f.id)+"/cancel", api.Cancel{}, nil); err != nil && !errors.Is(err, fleet.Conflict) {
				return err
			}
			f.a.say("asked to cancel job %s; Ctrl-C leaves it to the hub", f.id)
		}
	}
}

// finish shows what came of it.
func (f *follow) finish(err error) error {
	f.show.flush()
	if err != nil {
		return err
	}
	state, push := f.state(), f.pushed()
	if f.unsealed() && !f.a.json {
		f.a.say("note: the runner has not sent the whole output yet; `tugline job logs %s` shows it later", f.id)
	}
	if push.text != "" && !f.a.json {
		f.a.say("%s", push.text)
	}
	switch {
	case f.a.json:
	case state != f.job.State:
		f.a.say("turn %d %s; turn %d is %s", f.opt.turn, words(state), f.job.Turn, words(f.job.State))
	default:
		f.a.summary(f.a.err, f.a.colourErr(), f.job)
	}
	if push.failed() {
		return silent(exitFailed)
	}
	return silent(stateExit(state))
}

// watch reads the job's events over as many connections as it takes.
func (f *follow) watch(ctx context.Context) error {
	var wait backoff
	out := outage{say: f.a.say}
	defer out.over()
	for {
		var err error
		if !f.over {
			var got bool
			if got, err = f.stream(ctx, out.over); got {
				wait = 0
			}
		}
		if f.over {
			if err = f.settle(ctx); err == nil {
				err = f.rest(ctx)
			}
			if err == nil {
				return nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !repeatable(err, false):
			return f.c.explain(ctx, err)
		case err != nil:
			if since := out.begin(f.c.explain(ctx, err)); since > f.a.patient() {
				return fail(exitUnreachable, "the hub did not come back within %s; job %s goes on by itself: `tugline job logs -f %s` comes back to it", span(since), f.id, f.id)
			}
		}
		if err := f.c.rest(ctx, &wait, err); err != nil {
			return err
		}
	}
}

// settle reads the job as it is now that the turn has ended.
func (f *follow) settle(ctx context.Context) error {
	res, err := f.c.send(ctx, request{method: http.MethodGet, path: "/v1/jobs/" + string(f.id)}, nil, "application/json")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	var j api.Job
	if err := decode(b, &j); err != nil {
		return err
	}
	if f.a.json && (f.job == nil || f.job.Revision != j.Revision) {
		if err := f.line(api.Event{Type: "job", Job: &j}); err != nil {
			return writeFailed(err)
		}
	}
	f.job = &j
	return nil
}

// rest waits for what comes after the end of a turn, but not for ever: the seal of its
// output, and the outcome of its push.
func (f *follow) rest(ctx context.Context) error {
	if f.ended.IsZero() {
		f.ended = time.Now()
		if p := f.pushed(); p.pending && !f.a.json {
			f.a.say("%s", dim.on(f.a.colourErr(), "succeeded; waits for the push to "+line(f.job.Spec.Push)))
		}
	}
	for wait := restWait / 16; ; wait = min(2*wait, restWait) {
		age := time.Since(f.ended)
		if (age >= sealWait || !f.unsealed()) && (age >= f.push || !f.pushed().pending) {
			return nil
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		if err := f.settle(ctx); err != nil {
			return err
		}
	}
}

// unsealed says whether output of the followed turn may still be on its way.
func (f *follow) unsealed() bool {
	j := f.job
	return j.Exit != nil && !j.Log.Sealed && (f.opt.turn == 0 || f.opt.turn == j.Turn)
}

// pushed says what became of the push of the followed turn.
func (f *follow) pushed() push {
	n := f.opt.turn
	if n == 0 {
		n = f.job.Turn
	}
	return pushOf(f.job, n)
}

// state gives the state of the turn that is followed, which a later one may have
// left behind.
func (f *follow) state() fleet.State {
	if n := f.opt.turn; n > 0 && n < f.job.Turn && n <= len(f.job.Turns) {
		return f.job.Turns[n-1].State
	}
	return f.job.State
}

func (f *follow) line(e api.Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = f.a.out.Write(append(b, '\n'))
	return err
}

// stream reads one connection. It is nil where the hub ended the stream itself.
func (f *follow) stream(ctx context.Context, opened func()) (got bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(f.quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	defer func() {
		if err != nil && context.Cause(ctx) == errQuiet {
			err = errQuiet // what was cut off says nothing of why
		}
	}()
	q := url.Values{"until_ended": {"true"}}
	if f.opt.turn > 0 {
		q.Set("turn", strconv.Itoa(f.opt.turn))
	}
	req := request{method: http.MethodGet, path: "/v1/jobs/" + string(f.id) + "/events", query: q, lastEvent: f.last}
	hub := f.c.hub()
	res, err := f.c.send(ctx, req, nil, "text/event-stream")
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	opened()
	events := newSSE(res.Body, func() { quiet.Reset(f.quiet) })
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			f.c.ring.passOver(hub) // also where it only fell silent
			return got, err
		}
		if err := f.handle(e); err != nil {
			return got, err
		}
		got = true
		if e.id != "" {
			f.last = e.id
		}
	}
}

// handle shows one event.
func (f *follow) handle(e sseEvent) error {
	var ev api.Event
	if err := json.Unmarshal(e.data, &ev); err != nil {
		return fail(exitFailed, "the hub sent an event that cannot be read (%v); is it of another release?", err)
	}
	if ev.Job != nil && f.opt.turn == 0 {
		f.opt.turn = ev.Job.Turn
	}
	switch {
	case ev.Type == "end":
		if strings.HasPrefix(ev.Detail, fleet.LogCut) && !f.a.json {
			f.a.say("%s", line(ev.Detail))
		}
		f.over = true
	case ev.Type == "reset" && ev.ID == string(f.id) && ev.Detail != "" && !strings.Contains(ev.Detail, "deleted"):
		return fail(exitFailed, "%s; `tugline job logs -f %s` begins anew", line(ev.Detail), f.id)
	case ev.Type == "reset" && ev.ID == string(f.id):
		return fail(exitFailed, "the record of job %s was deleted", f.id)
	}
	if f.a.json {
		if ev.Job != nil {
			f.job = ev.Job
		}
		_, err := f.a.out.Write(append(e.data, '\n'))
		return writeFailed(err)
	}
	switch {
	case ev.Job != nil:
		f.status(ev.Job)
	case ev.Output != nil:
		return writeFailed(f.output(ev.Output))
	case ev.Item != nil && ev.Type == "live":
		f.show.live(*ev.Item)
	case ev.Item != nil:
		f.show.event(*ev.Item)
	}
	return writeFailed(f.show.err)
}

func writeFailed(err error) error {
	if err == nil {
		return nil
	}
	return fail(exitFailed, "cannot write the output: %v; the job goes on", err)
}

// output writes what the process wrote, to where it wrote it.
func (f *follow) output(o *api.Output) error {
	if o.Attempt != f.attempt {
		if f.attempt != 0 {
			f.a.say("attempt %d begins", o.Attempt)
		}
		f.attempt = o.Attempt
	}
	b := []byte(o.Text)
	if len(o.Base64) > 0 {
		b = o.Base64
	}
	if o.Stream == "mark" {
		f.a.say("%s", markText(b))
		return nil
	}
	if f.job != nil && f.job.Kind == fleet.KindAgent && !f.opt.raw {
		return nil // its events say it better
	}
	w := f.a.out
	if o.Stream == "stderr" {
		w = f.a.err
	}
	_, err := w.Write(b)
	return err
}

// markText says in words where output is missing.
func markText(b []byte) string {
	var m fleet.Mark
	if err := json.Unmarshal(b, &m); err != nil {
		return "note: " + line(string(b))
	}
	switch m.Reason {
	case fleet.MarkOutputCap:
		return "note: the job wrote more than is kept; what follows is not recorded"
	case fleet.MarkDiskLow:
		return "note: the runner's disk is nearly full; what follows is not recorded"
	case fleet.MarkResumed:
		return fmt.Sprintf("note: the record goes on; %s so far are missing", size(m.DroppedBytes))
	}
	return fmt.Sprintf("note: %s of output are missing (%s)", size(m.DroppedBytes), line(m.Reason))
}

// status says on standard error what changed.
func (f *follow) status(j *api.Job) {
	f.job = j
	if text := statusLine(j); text != "" && text != f.said {
		f.said = text
		f.show.flush()
		f.a.say("%s", dim.on(f.a.colourErr(), text))
	}
}

// statusLine tells where a job stands, "" where its summary is about to.
func statusLine(j *api.Job) string {
	text := ""
	switch j.State {
	case fleet.Queued:
		return "queued: " + line(first(queuedWhy(j), "waits for a runner"))
	case fleet.Assigned:
		text = "given to " + j.Runner
	case fleet.Preparing:
		text = "preparing on " + j.Runner
	case fleet.Running:
		text = "running on " + j.Runner
		if j.Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", j.Attempt)
		}
		if j.Choice > 0 {
			text += " with " + j.Effective.String()
		}
	case fleet.Verifying:
		return "finished; the evidence is being checked"
	default:
		return ""
	}
	switch {
	case cancelling(j) != "":
		text = cancelling(j)
	case j.Reason.Code != string(j.State) && j.Reason.Code != "":
		text += ": " + line(first(j.Reason.Detail, j.Reason.Code))
	}
	return line(text)
}

// outage is a time without a connection. The user hears of it only once it lasts.
type outage struct {
	say   func(string, ...any)
	since time.Time
	timer *time.Timer
	told  *atomic.Bool
}

// begin starts it, if it has not begun, and gives its age.
func (o *outage) begin(why error) time.Duration {
	if o.since.IsZero() {
		told, say := new(atomic.Bool), o.say
		o.since, o.told = time.Now(), told
		o.timer = time.AfterFunc(outageTold, func() {
			told.Store(true)
			say("%s; the job goes on, reconnecting", sentence(why))
		})
	}
	return time.Since(o.since)
}

// over ends it.
func (o *outage) over() {
	if o.since.IsZero() {
		return
	}
	o.timer.Stop()
	if o.told.Load() {
		o.say("connected again after %s", span(time.Since(o.since)))
	}
	o.since = time.Time{}
}
