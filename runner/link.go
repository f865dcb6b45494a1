package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// The times of falling back to HTTP and trying WebSockets again.
const (
	upgradeTries = 2
	retryWS      = 10 * time.Minute
)

var errTryWS = errors.New("time to try a WebSocket again")

// link keeps this runner connected and gives the attempts what they need of the hub.
// One goroutine connects and reads; heartbeats, reports and the reconciling of
// desired sets have one each, so that nothing slow delays a heartbeat.
type link struct {
	r    *Runner
	id   *identity
	keys *keyring // of the identity, where it changes
	net  *network

	pulse    pulse
	beatNow  chan bool     // a value: a heartbeat is due; true: at once
	inflight chan struct{} // a token per output frame that may still go out

	mu         sync.Mutex
	session    *session
	changed    chan struct{} // closed and replaced when session changes
	hubs       []string      // base URLs as last learnt, the leader's first
	successors []string      // of a hub that said that it restarts, until another welcomes this runner
	restarting time.Time     // until then the hub's absence is announced
	outputs    map[streamKey]chan wire.OutputAck
	permits    map[uint64]chan wire.PermitReply
	permitID   uint64

	unknown string // signing key that a chain was asked for again; of the reconciler
}

type streamKey struct {
	fence  fleet.Fence
	stream wire.Stream
}

func newLink(r *Runner, id *identity) (*link, error) {
	keys := &keyring{dir: r.cfg.Dir, id: id}
	n, err := newNetwork(id, keys.pins, r.cfg.Dial)
	if err != nil {
		return nil, err
	}
	l := &link{
		r: r, id: id, keys: keys, net: n, beatNow: make(chan bool, 1), inflight: make(chan struct{}, wire.OutputInFlight),
		changed: make(chan struct{}), outputs: map[streamKey]chan wire.OutputAck{}, permits: map[uint64]chan wire.PermitReply{},
	}
	return l, nil
}

// run connects again and again until ctx ends or the hub sends this runner away.
func (l *link) run(ctx context.Context) error {
	defer l.net.close()
	var ladder backoff
	failedUpgrades, httpUntil := 0, time.Time{}
	for {
		mode := l.r.transportMode()
		useHTTP := mode == "http" || mode == "auto" && time.Now().Before(httpUntil)
		s, err := l.connect(ctx, useHTTP)
		ended := err == nil
		if ended {
			failedUpgrades = 0
			again := func() bool { return false }
			if mode == "auto" && useHTTP {
				again = time.AfterFunc(time.Until(httpUntil), func() { s.end(errTryWS) }).Stop
			}
			err = l.serve(ctx, s)
			again()
			ladder.after(time.Since(s.began), s.answered.Load())
		} else if errors.Is(err, errUpgrade) && mode == "auto" && !useHTTP {
			if failedUpgrades++; failedUpgrades >= upgradeTries {
				failedUpgrades, httpUntil = 0, time.Now().Add(retryWS)
				ladder.reset()
				l.r.log.Warn("no WebSocket gets through; using plain requests", "again_after", retryWS.String(), "err", err)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errRekeyed) || errors.Is(err, errChainAgain) {
			continue
		}
		if away := l.sentAway(err); away != nil {
			return away
		}
		wait := l.pause(&ladder, ended, err)
		l.away(wait, err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// sentAway says whether a goodbye means not to come back. One that is not
// authenticated is believed only so far that this attempt failed, unless a new ticket
// is there: a hub that has no key of this runner can't prove that it knows none.
func (l *link) sentAway(err error) error {
	var g *goodbyeError
	switch {
	case (errors.Is(err, errUnpinned) || errors.Is(err, fleet.SigningKeyUnknown)) && l.r.newTicket(l.id):
		// The ticket pins the hub that is to be believed, whoever answers here.
		return &StandDown{Code: fleet.RunnerRevoked, Detail: err.Error(), Name: l.id.Name}
	case !errors.As(err, &g):
		return nil
	case g.proven && (g.Final || g.Code == fleet.Superseded):
	case g.Code == fleet.RunnerUnknown && l.r.newTicket(l.id):
	case g.Code == fleet.BadSignature && l.r.newTicket(l.id):
		// It has no key that this runner's comes from: all were made anew.
		return &StandDown{Code: fleet.RunnerRevoked, Detail: g.Detail, Name: l.id.Name}
	default:
		return nil
	}
	return &StandDown{Code: g.Code, Detail: g.Detail, Name: l.id.Name}
}

// greet opens a session at one hub. Where a new key is not known there, the former one
// is tried.
func (l *link) greet(ctx context.Context, base string, useHTTP bool, t turn) (*session, wire.Welcome, pointer, error) {
	g := greeting{r: l.r, id: l.id, pinned: l.keys.pinned(), turn: t}
	var fresh bool
	g.key, fresh = l.keys.hello()
	dial := func() (*session, wire.Welcome, pointer, error) {
		if useHTTP {
			return g.dialHTTP(ctx, l.net, base)
		}
		return g.dialWS(ctx, l.net, base)
	}
	s, w, where, err := dial()
	if fresh && errors.Is(err, fleet.BadSignature) && ctx.Err() == nil {
		g.key, fresh = l.keys.former(), false
		l.r.log.Warn("the hub does not know this runner's new key; the former one is tried", "err", err)
		s, w, where, err = dial()
	}
	if err != nil {
		return nil, w, where, err
	}
	if err := l.keys.welcomed(fresh, s.chain); err != nil {
		l.r.trouble(err) // it is found out again at the next handshake
	}
	return s, w, pointer{}, nil
}

// serve runs one session to its end.
func (l *link) serve(ctx context.Context, s *session) error {
	l.r.log.Info("connected", "hub", s.base, "transport", s.kind)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	var work sync.WaitGroup
	sets := make(chan wire.HeartbeatReply, 1)
	work.Go(func() { l.beats(ctx, s) })
	work.Go(func() { l.reports(ctx, s) })
	work.Go(func() { l.reconciles(ctx, s, sets) })
	work.Go(func() { l.moves(ctx, s) })
	work.Go(func() { l.doubts(ctx, s) })
	l.enter(s)
	s.end(l.read(s, sets))
	l.leave(s)
	cancel()
	stop()
	work.Wait()
	return s.err
}

func (l *link) enter(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	l.r.forgetAnswers()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) leave(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = nil
	close(l.changed)
	l.changed = make(chan struct{})
}

// current waits for a session.
func (l *link) current(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		s, changed := l.session, l.changed
		l.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read takes frames in until the session ends.
func (l *link) read(s *session, sets chan wire.HeartbeatReply) error {
	for {
		s.clockMu.Lock()
		interval := s.interval
		s.clockMu.Unlock()
		s.expect(dead(interval))
		f, err := s.transport.read()
		if err != nil {
			return err
		}
		s.spoke()
		if err := l.take(s, f, sets); err != nil {
			return err
		}
	}
}

func (l *link) take(s *session, f wire.Frame, sets chan wire.HeartbeatReply) error {
	switch f.Type {
	case wire.TypeHeartbeatReply:
		s.answered.Store(true)
		l.r.updates.once.Do(func() { close(l.r.updates.acked) })
		l.pulse.beat()
		var rep wire.HeartbeatReply
		if err := wire.Decode(f.Body, &rep); err != nil {
			return fmt.Errorf("decode heartbeat reply: %w", err)
		}
		s.heard(rep.Time)
		l.leads(rep.Leader)
		l.knows(s.base, rep.Hubs)
		if len(rep.Mesh) > 0 {
			l.r.cfg.OnTunnels(rep.Mesh)
		}
		s.clockMu.Lock()
		s.interval = bounded(rep.Interval)
		s.clockMu.Unlock()
		l.r.errands.take(rep.Errands, time.Now())
		// Each is the whole set: one that was not looked at yet is replaced.
		select {
		case old := <-sets:
			rep.Limits = cmp.Or(rep.Limits, old.Limits) // told once a session
		default:
		}
		sets <- rep
	case wire.TypeNudge:
		l.beat(true)
	case wire.TypeReportAck:
		var ack wire.ReportAck
		if err := wire.Decode(f.Body, &ack); err != nil {
			return fmt.Errorf("decode acknowledgement: %w", err)
		}
		return l.settle(s, ack)
	case wire.TypeOutputAck:
		var ack wire.OutputAck
		if err := wire.Decode(f.Body, &ack); err != nil {
			return fmt.Errorf("decode acknowledgement of output: %w", err)
		}
		l.mu.Lock()
		c := l.outputs[streamKey{ack.Fence, ack.Stream}]
		l.mu.Unlock()
		if c != nil {
			select {
			case c <- ack:
			default:
			}
		}
	case wire.TypePermitReply:
		var rep wire.PermitReply
		if err := wire.Decode(f.Body, &rep); err != nil {
			return fmt.Errorf("decode permit: %w", err)
		}
		l.mu.Lock()
		c := l.permits[rep.ID]
		l.mu.Unlock()
		if c != nil {
			select {
			case c <- rep:
			default:
			}
		}
	case wire.TypeRestarting:
		var re wire.Restarting
		if err := wire.Decode(f.Body, &re); err != nil {
			return fmt.Errorf("decode restart: %w", err)
		}
		l.restarts(re)
	case wire.TypeGoodbye:
		return goodbyeOf(f)
	}
	return nil // a type of a newer hub is not for this runner
}

// beat asks for a heartbeat: at once, or soon.
func (l *link) beat(atOnce bool) {
	select {
	case l.beatNow <- atOnce:
	default:
		if atOnce { // it must not be taken for a lesser one
			select {
			case <-l.beatNow:
			default:
			}
			select {
			case l.beatNow <- true:
			default:
			}
		}
	}
}

// Changed is of attempt.Hub.
func (l *link) Changed() { l.beat(false) }

// ackTime bounds the wait for one acknowledgement; after it the session is taken for
// broken in one direction and ended.
const ackTime = 60 * time.Second

// Append is of attempt.Hub. It says the same bytes again on every new session.
func (l *link) Append(ctx context.Context, job fleet.JobID, fence fleet.Fence, st attempt.Stream, offset int64, data []byte) (int64, error) {
	key := streamKey{fence, wire.Stream(st)}
	body, err := wire.EncodeOutput(wire.Output{Job: job, Fence: fence, Stream: key.stream, Offset: offset, Data: data})
	if err != nil {
		return offset, err
	}
	acks := make(chan wire.OutputAck, 1)
	l.mu.Lock()
	l.outputs[key] = acks
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.outputs, key)
		l.mu.Unlock()
	}()
	select {
	case l.inflight <- struct{}{}:
		defer func() { <-l.inflight }()
	case <-ctx.Done():
		return offset, context.Cause(ctx)
	}
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		s, err := l.current(ctx)
		if err != nil {
			return offset, err
		}
		select {
		case <-acks: // of an earlier session
		default:
		}
		if err := s.send(wire.TypeOutput, body); err != nil {
			s.end(err)
			continue
		}
		ack, err := await(ctx, s, acks)
		switch {
		case ctx.Err() != nil:
			return offset, context.Cause(ctx)
		case err != nil:
			wait = minBackoff
			continue
		case ack.Code == "":
			return ack.Durable, nil
		case ack.Code == fleet.SpoolGap || !ack.Retry:
			return ack.Durable, fmt.Errorf("%s: %w", ack.Detail, ack.Code)
		}
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return offset, context.Cause(ctx)
		}
	}
}

// await takes an answer within a session.
func await[T any](ctx context.Context, s *session, answers <-chan T) (T, error) {
	var none T
	timer := time.NewTimer(ackTime)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a, nil
	case <-s.done:
		return none, s.err
	case <-timer.C:
		err := fmt.Errorf("the hub does not acknowledge: %w", context.DeadlineExceeded)
		s.end(err)
		return none, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// Permit is of attempt.Hub.
func (l *link) Permit(ctx context.Context, job fleet.JobID, fence fleet.Fence, p journal.Push) error {
	answers := make(chan wire.PermitReply, 1)
	l.mu.Lock()
	l.permitID++
	id := l.permitID
	l.permits[id] = answers
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.permits, id)
		l.mu.Unlock()
	}()
	body, err := wire.Encode(wire.Permit{ID: id, Job: job, Fence: fence, Remote: p.Remote, Ref: p.Ref, SHA: p.SHA})
	if err != nil {
		return err
	}
	for {
		s, err := l.current(ctx)
		if err != nil {
			return err
		}
		if err := s.send(wire.TypePermit, body); err != nil {
			s.end(err)
			continue
		}
		rep, err := await(ctx, s, answers)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			continue
		case rep.Granted:
			return nil
		case rep.Code == "":
			rep.Code = fleet.Forbidden
		}
		return fmt.Errorf("%s: %w", rep.Detail, rep.Code)
	}
}

// Live is of attempt.Hub.
func (l *link) Live(job fleet.JobID, fence fleet.Fence, events []fleet.Event) {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s == nil {
		return
	}
	if body, err := wire.Encode(wire.Live{Job: job, Fence: fence, Events: events}); err == nil {
		_ = s.send(wire.TypeLive, body) // worth nothing later
	}
}
