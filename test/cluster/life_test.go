package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	firstPause = 100 * time.Millisecond // before a runner connects again
	lastPause  = 5 * time.Second
	lookEvery  = 10 * time.Second // at what time alone changes, at most
)

// life is one run of a runner's process. One goroutine does everything but read.
type life struct {
	m    *machine
	ctx  context.Context
	book *book

	ready    map[fleet.Fence]time.Time // when an attempt will be prepared
	answered map[fleet.Fence]bool      // of those of which nothing is here
	uploaded map[fleet.Fence]bool      // artifacts that are stored
	loading  bool                      // an upload is under way
	loaded   chan upload

	s      *session // nil: not connected
	hubs   []string // URLs in the order in which they are tried
	dialed chan dialled
	dials  bool
	next   time.Time // to connect
	pause  time.Duration
}

// upload is how one ended.
type upload struct {
	fence fleet.Fence
	ok    bool
}

func newLife(m *machine, ctx context.Context) *life {
	l := &life{
		m: m, ctx: ctx, book: m.read(), ready: map[fleet.Fence]time.Time{}, answered: map[fleet.Fence]bool{}, uploaded: map[fleet.Fence]bool{},
		loaded: make(chan upload, 1), dialed: make(chan dialled, 1), pause: firstPause, next: time.Now(),
	}
	for _, n := range m.w.hubs.nodes {
		l.hubs = append(l.hubs, n.url)
	}
	for i := range m.chance(len(l.hubs)) {
		l.hubs[0], l.hubs[i] = l.hubs[i], l.hubs[0]
	}
	return l
}

// run goes on until the process is killed.
func (l *life) run() {
	defer func() {
		if l.s != nil {
			l.s.close()
		}
		if l.dials {
			if d := <-l.dialed; d.s != nil {
				d.s.close()
			}
		}
		if l.loading {
			<-l.loaded
		}
	}()
	if !l.recall() {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, ok := l.work()
		if !ok {
			return
		}
		timer.Reset(time.Until(due))
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case d := <-l.dialed:
			l.connected(d)
		case u := <-l.loaded:
			l.loading = false
			if u.ok {
				l.uploaded[u.fence] = true
			} else if l.s != nil {
				l.s.quiet = time.Now().Add(time.Second)
			}
		case f, open := <-l.frames():
			if !open {
				l.lost(l.s.err)
				continue
			}
			if err := l.take(f); err != nil {
				l.lost(err)
			}
		}
		if l.ctx.Err() != nil {
			return
		}
	}
}

func (l *life) frames() <-chan wire.Frame {
	if l.s == nil {
		return nil
	}
	return l.s.in
}

// recall decides, from the journal and from what still runs, how attempts go on that an
// earlier run of this runner had.
func (l *life) recall() bool {
	for _, r := range l.book.Attempts {
		state, _ := l.m.find(r.Fence)
		switch journal.Decide(r.Progress, state) {
		case journal.ReportLost:
			l.say(r, wire.ReportItem{Lost: &wire.Lost{Detail: "the machine went down under it"}})
			l.say(r, wire.ReportItem{Gone: true})
			r.Progress.Ended = true
		case journal.ReportGone:
			l.say(r, wire.ReportItem{Gone: true})
			r.Progress.Ended = true
		case journal.Adopt, journal.Finish:
			r.Progress.Intent = true
		case journal.ResumePrepare:
			l.ready[r.Fence] = time.Now().Add(l.plan(r).prepare)
		}
	}
	return len(l.book.Attempts) == 0 && l.book.Count > 0 || l.m.sync(l.ctx, l.book)
}

func (l *life) plan(r *record) *plan { return l.m.w.plans.of(r.Job, r.Fence) }

// say puts an item about an attempt into the outbox.
func (l *life) say(r *record, it wire.ReportItem) {
	it.Job, it.Fence = r.Job, r.Fence
	l.book.put(it)
}

// work does what is due and says when something will be next; false: the process died.
func (l *life) work() (time.Time, bool) {
	now := time.Now()
	due := now.Add(lookEvery)
	soon := func(t time.Time) {
		if t.Before(due) {
			due = t
		}
	}
	changed := false
	for _, r := range l.book.Attempts {
		p := &r.Progress
		switch {
		case p.Ended || p.Finished:
			changed = l.seal(r) || changed
		case p.Intent:
			did, at := l.follow(r)
			changed = did || changed
			soon(at)
		case p.Acked:
			p.Intent = true
			if !l.m.sync(l.ctx, l.book) {
				return due, false
			}
			if l.m.chance(50) == 0 { // there is a moment between the record and the start
				select {
				case <-time.After(20 * time.Millisecond):
				case <-l.ctx.Done():
					return due, false
				}
			}
			if l.ctx.Err() != nil {
				return due, false
			}
			l.m.launch(r)
			soon(now)
		case !r.Asked:
			if at := l.ready[r.Fence]; at.After(now) {
				soon(at)
				break
			}
			p.Acked = l.m.w.opt.Broken == hasty
			r.Asked, changed = true, true
			l.say(r, wire.ReportItem{Accepted: &wire.Accepted{Permissions: fleet.PermWorkspace}})
		}
	}
	if changed && !l.m.sync(l.ctx, l.book) {
		return due, false
	}
	switch {
	case l.s != nil:
		if err := l.speak(soon); err != nil {
			l.lost(err)
			soon(l.next)
		}
	case l.dials:
	case !l.next.After(now):
		l.dial()
	default:
		soon(l.next)
	}
	return due, true
}

// follow looks at an attempt's process: what it says, and how it ended.
func (l *life) follow(r *record) (changed bool, due time.Time) {
	now := time.Now()
	state, x := l.m.find(r.Fence)
	switch state {
	case journal.Running:
		part := x.plan.run / time.Duration(len(x.plan.notes)+1)
		for r.Notes < len(x.plan.notes) && now.Sub(x.start) >= part*time.Duration(r.Notes+1) {
			l.note(r, x.plan)
			changed = true
		}
		if at := x.start.Add(x.plan.run / 3); r.answers(x) && !now.Before(at) {
			l.respond(r)
			changed = true
		}
		return changed, x.next()
	case journal.Gone:
		return false, now.Add(lookEvery)
	}
	for r.Notes < len(x.plan.notes) && !x.stopped {
		l.note(r, x.plan)
		changed = true
	}
	if r.answers(x) && !x.stopped {
		l.respond(r)
		changed = true
	}
	if len(x.plan.artifact) > 0 && !x.stopped && !l.uploaded[r.Fence] {
		return changed, l.upload(r, x.plan)
	}
	f := &wire.Finished{
		Exit: fleet.Exit{Code: x.plan.code, Reason: "exited"}, Class: fleet.ClassOK, StartedAt: x.start.UTC(), FinishedAt: x.end.UTC(),
		Output: int64(len(x.wrote(wire.StreamOutput))), Events: int64(len(x.wrote(wire.StreamEvents))),
		Evidence: &fleet.Evidence{NoRepo: true},
	}
	switch {
	case x.stopped:
		f.Exit = fleet.Exit{Code: -1, Signal: "TERM", Reason: "stopped"}
		f.Class = fleet.ClassTaskFailed
	case passing(x.ends.class):
		x.refuse(f)
	case x.plan.code != 0:
		f.Class = fleet.ClassTaskFailed
	}
	if len(x.plan.artifact) > 0 && !x.stopped {
		f.Evidence.Artifacts = []fleet.Artifact{{Name: "result.bin", Digest: wire.BodyDigest(x.plan.artifact), Size: int64(len(x.plan.artifact))}}
	}
	if r.Harness != "" {
		f.Usage, f.Account = &fleet.Usage{InputTokens: x.plan.tokens / 2, OutputTokens: x.plan.tokens / 2}, x.account
	}
	if err := wire.SignFinished(l.m.sign, r.Job, r.Fence, f); err != nil {
		l.m.w.t.Errorf("sign a result: %v", err)
	}
	l.say(r, wire.ReportItem{Finished: f})
	r.Progress.Finished = true
	return true, now
}

// answers says whether the provider of an attempt completes a response, and that was not
// told yet.
func (r *record) answers(x proc) bool {
	return r.Harness != "" && !r.Responded && !passing(x.ends.class)
}

// respond tells that the provider completed a response. Its number is beyond all notes.
func (l *life) respond(r *record) {
	r.Responded = true
	l.say(r, wire.ReportItem{Facts: []wire.Fact{{Seq: uint64(len(l.plan(r).notes) + 1), Kind: "responded", At: time.Now().UTC(), Value: []byte("true")}}})
}

// refuse tells the end of an attempt that its provider, or its machine, did not let do
// its work.
func (x proc) refuse(f *wire.Finished) {
	e := x.ends
	f.Exit.Code, f.Class, f.Detail, f.ResetAt, f.RetryAfter = 1, e.class, e.detail, e.resetAt, e.retryAfter
	f.Acted = x.plan.acted
	if x.plan.session {
		f.SessionID = "session"
	}
}

func (l *life) note(r *record, p *plan) {
	text := p.notes[r.Notes]
	r.Notes++
	l.say(r, wire.ReportItem{Facts: []wire.Fact{{Seq: uint64(r.Notes), Kind: "note", At: time.Now().UTC(), Value: []byte(fmt.Sprintf("%q", text))}}})
}

// seal tells the final lengths, once all bytes of both streams are the hub's.
func (l *life) seal(r *record) bool {
	if l.s == nil || r.Progress.Sealed || r.Progress.Ended {
		return false
	}
	state, x := l.m.find(r.Fence)
	if state != journal.Exited {
		return false
	}
	out, ev := int64(len(x.wrote(wire.StreamOutput))), int64(len(x.wrote(wire.StreamEvents)))
	if l.s.cursor(r.Fence, wire.StreamOutput).durable < out || l.s.cursor(r.Fence, wire.StreamEvents).durable < ev {
		return false
	}
	r.Progress.Sealed = true
	l.say(r, wire.ReportItem{Sealed: &wire.Sealed{Output: out, Events: ev}})
	return true
}

// lost ends a session.
func (l *life) lost(err error) {
	if l.s == nil {
		return
	}
	l.s.close()
	var bye byeError
	if errors.As(err, &bye) && bye.Final {
		l.m.w.wrong("%s was sent away for good: %s %s", l.m.name, bye.Code, bye.Detail)
	}
	l.m.w.debug("%s: session ended: %v", l.m.id, err)
	l.s = nil
	l.later()
}

// later has the runner connect again after a pause.
func (l *life) later() {
	l.next = time.Now().Add(l.pause/2 + l.m.between(0, l.pause/2+1))
	l.pause = min(2*l.pause, lastPause)
}

// dial begins to connect to the hub that comes next.
func (l *life) dial() {
	l.dials = true
	hub, hello := l.hubs[0], l.book.hello()
	go func() { l.dialed <- l.m.connect(l.ctx, hub, hello) }()
}

func (l *life) connected(d dialled) {
	l.dials = false
	if d.s == nil {
		var bye byeError
		if errors.As(d.err, &bye) && bye.Final {
			l.m.w.wrong("%s was sent away for good: %s %s", l.m.name, bye.Code, bye.Detail)
		}
		l.prefer(d.leader)
		if d.leader == "" || d.leader == d.hub {
			l.hubs = append(l.hubs[1:], l.hubs[0])
			l.later()
		} else {
			l.next = time.Now()
		}
		return
	}
	l.s = d.s
	l.answered = map[fleet.Fence]bool{}
	l.pause = firstPause
}

// prefer puts a hub first.
func (l *life) prefer(url string) {
	url = strings.TrimSuffix(url, "/")
	for i, h := range l.hubs {
		if h == url {
			l.hubs[0], l.hubs[i] = l.hubs[i], l.hubs[0]
		}
	}
}
