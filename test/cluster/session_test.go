package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const chunk = 8 << 10 // bytes of output in one frame

// session is a connection of a runner to a hub.
type session struct {
	m     *machine
	hub   string
	id    string
	epoch uint64
	key   wire.SessionKey
	keys  map[string]ed25519.PublicKey
	keyID string
	conn  *websocket.Conn
	seal  *wire.Sealer
	clock time.Duration // the hub's, ahead of this machine's
	in    chan wire.Frame
	err   error // why in was closed
	done  chan struct{}

	interval time.Duration
	beat     time.Time         // when the next heartbeat is due
	full     bool              // the first one went out
	facts    fleet.RunnerFacts // as the hub knows them
	sampled  time.Time         // when the last sample was sent
	said     time.Time         // when the last heartbeat was
	listed   []fleet.Fence     // in it
	reported bool              // a report is unanswered
	patience time.Duration
	quiet    time.Time // until then no report
	flying   int       // output frames that are unanswered
	streams  map[streamID]*cursor
}

type streamID struct {
	fence  fleet.Fence
	stream wire.Stream
}

// cursor is how far a stream is.
type cursor struct{ sent, durable int64 }

func (s *session) cursor(f fleet.Fence, st wire.Stream) *cursor {
	id := streamID{f, st}
	if s.streams[id] == nil {
		s.streams[id] = &cursor{}
	}
	return s.streams[id]
}

// dialled is how a try to connect ended.
type dialled struct {
	hub    string
	leader string // where to turn instead
	s      *session
	err    error
}

// byeError is a goodbye.
type byeError struct{ wire.Goodbye }

func (b byeError) Error() string { return fmt.Sprintf("goodbye: %s: %s", b.Code, b.Detail) }

// hello is what a journal says of itself.
func (b *book) hello() wire.Hello {
	return wire.Hello{Version: wire.Version, Epoch: b.Epoch, JournalID: b.ID, JournalCount: b.Count}
}

// connect opens a session at a hub.
func (m *machine) connect(ctx context.Context, hub string, h wire.Hello) dialled {
	d := dialled{hub: hub}
	dialer := websocket.Dialer{
		Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: 5 * time.Second,
		NetDialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return m.w.dial(ctx, m.id, addr) },
	}
	conn, res, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(hub, "http")+wire.LinkPath(m.who.Runner), nil)
	if res != nil {
		d.leader = res.Header.Get(wire.LeaderHeader)
		res.Body.Close()
	}
	if err != nil {
		d.err = err
		return d
	}
	if d.s, d.err = m.greet(ctx, conn, hub, h); d.err != nil {
		conn.Close()
		d.s = nil
	}
	return d
}

// greet shakes hands.
func (m *machine) greet(ctx context.Context, conn *websocket.Conn, hub string, h wire.Hello) (*session, error) {
	conn.SetReadDeadline(time.Now().Add(wire.HandshakeTime))
	_, challenge, err := conn.ReadMessage()
	if err != nil {
		return nil, err
	}
	f, err := wire.OpenPlain(challenge)
	if err != nil {
		return nil, err
	}
	if f.Type == wire.TypeGoodbye {
		return nil, goodbye(f)
	}
	var c wire.Challenge
	if err := wire.Decode(f.Body, &c); err != nil {
		return nil, err
	}
	s := &session{m: m, hub: hub, conn: conn, clock: time.Until(c.Time), streams: map[streamID]*cursor{}, in: make(chan wire.Frame), done: make(chan struct{})}
	if s.keys, err = wire.VerifyChain(m.who.Signing[0].Key, c.Signing); err != nil {
		return nil, err
	}
	s.keyID, s.epoch = c.Signing[len(c.Signing)-1].ID, c.Epoch
	if c.Epoch < h.Epoch || c.Cluster != m.who.Cluster {
		return nil, fmt.Errorf("cluster %s epoch %d: %w", c.Cluster, c.Epoch, fleet.ClusterMismatch)
	}
	if h.Nonce, err = wire.NewNonce(rand.Reader); err != nil {
		return nil, err
	}
	h.Facts = m.facts()
	s.facts = h.Facts
	h.Runner, h.Generation, h.Cluster, h.MachineID, h.Name, h.Time = m.who.Runner, m.who.Generation, m.who.Cluster, m.id, m.name, time.Now().UTC()
	hello, err := wire.SealHello(m.key, challenge, h)
	if err != nil {
		return nil, err
	}
	if s.key, err = wire.DeriveSession(m.key, c.Nonce, h.Nonce, m.who.Cluster, m.who.Runner); err != nil {
		return nil, err
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, hello); err != nil {
		return nil, err
	}
	s.seal = wire.NewSealer(s.key, wire.LinkUp)
	open := wire.NewOpener(s.key, wire.LinkDown)
	_, b, err := conn.ReadMessage()
	if err != nil {
		return nil, err
	}
	if f, err = open.Open(b); err != nil {
		if plain, no := wire.OpenPlain(b); no == nil && plain.Type == wire.TypeGoodbye {
			bye := goodbye(plain)
			bye.Final = false // anybody could have said so
			return nil, bye
		}
		return nil, err
	}
	if f.Type == wire.TypeGoodbye {
		return nil, goodbye(f)
	}
	var w wire.Welcome
	if err := wire.Decode(f.Body, &w); err != nil {
		return nil, err
	}
	s.id, s.interval, s.beat = w.Session, w.Interval, time.Now()
	conn.SetReadDeadline(time.Time{})
	go s.read(ctx, open)
	return s, nil
}

func goodbye(f wire.Frame) byeError {
	var b wire.Goodbye
	if err := wire.Decode(f.Body, &b); err != nil {
		b.Detail = err.Error()
	}
	return byeError{b}
}

// read hands frames on until the connection ends.
func (s *session) read(ctx context.Context, open *wire.Opener) {
	defer close(s.in)
	for {
		s.conn.SetReadDeadline(time.Now().Add(100 * time.Second))
		_, b, err := s.conn.ReadMessage()
		var f wire.Frame
		if err == nil {
			f, err = open.Open(b)
		}
		if err != nil {
			s.err = err
			return
		}
		select {
		case s.in <- f:
		case <-s.done:
			s.err = net.ErrClosed
			return
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

func (s *session) close() {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.conn.Close()
}

func (s *session) send(t wire.Type, v any) error {
	body, ok := v.([]byte)
	if !ok {
		var err error
		if body, err = wire.Encode(v); err != nil {
			return err
		}
	}
	s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	return s.conn.WriteMessage(websocket.BinaryMessage, s.seal.Seal(t, body))
}

// verify checks an order and gives it.
func (s *session) verify(d wire.Desired, epoch uint64) (wire.Order, error) {
	return wire.VerifyOrder(s.keys, *d.Order, d.Body, wire.Want{Cluster: s.m.who.Cluster, Epoch: epoch, Runner: s.m.who.Runner}, time.Now().Add(s.clock))
}

// again has the outbox wait before it is said once more.
func (s *session) again() {
	s.patience = min(max(2*s.patience, time.Second), 30*time.Second)
	s.quiet = time.Now().Add(s.patience)
}

// take takes in a frame.
func (l *life) take(f wire.Frame) error {
	s := l.s
	switch f.Type {
	case wire.TypeGoodbye:
		return goodbye(f)
	case wire.TypeNudge:
		s.beat = time.Now()
	case wire.TypeHeartbeatReply:
		var r wire.HeartbeatReply
		if err := wire.Decode(f.Body, &r); err != nil {
			return err
		}
		s.clock, s.interval = time.Until(r.Time), r.Interval
		l.m.heard(s.listed, s.said)
		s.beat = time.Now().Add(r.Interval*4/5 + l.m.between(0, r.Interval*2/5+1))
		return l.obey(r)
	case wire.TypeReportAck:
		var a wire.ReportAck
		if err := wire.Decode(f.Body, &a); err != nil {
			return err
		}
		s.reported = false
		if !l.settled(a) {
			return l.ctx.Err()
		}
	case wire.TypeOutputAck:
		var a wire.OutputAck
		if err := wire.Decode(f.Body, &a); err != nil {
			return err
		}
		l.heard(a)
	case wire.TypeRestarting:
		var r wire.Restarting
		if err := wire.Decode(f.Body, &r); err != nil {
			return err
		}
		if len(r.Successors) > 0 {
			l.prefer(r.Successors[0])
		}
		return errors.New("the hub restarts")
	}
	return nil
}

// heard takes in how far a stream is durable.
func (l *life) heard(a wire.OutputAck) {
	s := l.s
	c := s.cursor(a.Fence, a.Stream)
	s.flying = max(0, s.flying-1)
	switch {
	case a.Code == "":
		l.m.w.ledger.durable(a)
		c.durable = max(c.durable, a.Durable)
	case a.Code == fleet.SpoolGap || a.Retry:
		c.sent, c.durable = a.Durable, min(c.durable, a.Durable)
		if a.Code == fleet.SpoolGap {
			c.durable = a.Durable
		} else {
			s.quiet = time.Now().Add(time.Second)
		}
	default:
		c.sent = 1 << 60 // nothing more of it is wanted
		l.m.w.ledger.refused(a)
	}
}

// speak says to the hub what is due.
func (l *life) speak(soon func(time.Time)) error {
	s, now := l.s, time.Now()
	if !s.beat.After(now) {
		if err := s.send(wire.TypeHeartbeat, l.heartbeat()); err != nil {
			return err
		}
		s.full = true
		s.beat = now.Add(3 * s.interval) // no reply by then is none at all
		if s.beat.Sub(now) < 15*time.Second {
			s.beat = now.Add(15 * time.Second)
		}
	}
	soon(s.beat)
	if s.quiet.After(now) {
		soon(s.quiet)
		return nil
	}
	if !s.reported && len(l.book.Outbox) > 0 && s.full {
		s.reported = true
		if err := s.send(wire.TypeReport, wire.Report{Items: l.book.Outbox[:min(len(l.book.Outbox), 50)]}); err != nil {
			return err
		}
	}
	for _, r := range l.book.Attempts {
		if r.Progress.Ended {
			continue
		}
		state, x := l.m.find(r.Fence)
		if state == journal.Gone {
			continue
		}
		for _, name := range []wire.Stream{wire.StreamOutput, wire.StreamEvents} {
			have, c := x.wrote(name), s.cursor(r.Fence, name)
			for c.sent < int64(len(have)) && s.flying < wire.OutputInFlight {
				part := have[c.sent:min(int64(len(have)), c.sent+chunk)]
				if l.m.w.opt.Broken == sloppy {
					part = bytes.ToUpper(part)
				}
				body, err := wire.EncodeOutput(wire.Output{Job: r.Job, Fence: r.Fence, Stream: name, Offset: c.sent, Data: part})
				if err != nil {
					return err
				}
				if err := s.send(wire.TypeOutput, body); err != nil {
					return err
				}
				c.sent += int64(len(part))
				s.flying++
			}
		}
	}
	return nil
}

// heartbeat is the runner's whole view.
func (l *life) heartbeat() wire.Heartbeat {
	b := l.book
	hb := wire.Heartbeat{Full: !l.s.full, Epoch: b.Epoch, Term: b.Term, Index: b.Index, Slots: l.m.offered(), Count: b.Count}
	l.s.listed = l.s.listed[:0]
	if hb.Full {
		hb.Keys = &wire.KeysHeld{HMAC: max(l.m.who.Master, 1), Signing: l.s.keyID}
	}
	for _, r := range b.Attempts {
		v := wire.AttemptView{Job: r.Job, Fence: r.Fence, Phase: "preparing"}
		p := r.Progress
		switch {
		case p.Finished:
			v.Phase = "finished"
		case p.Ended:
			v.Phase = "gone"
		case p.Stop != "":
			v.Phase = "stopping"
		case p.Intent:
			v.Phase = "running"
		case p.Acked:
			v.Phase = "ready"
		}
		hb.Attempts = append(hb.Attempts, v)
		if v.Phase != "gone" {
			l.s.listed = append(l.s.listed, r.Fence)
		}
	}
	if now := time.Now(); now.Sub(l.s.sampled) >= fleet.HealthEvery {
		l.s.sampled, hb.Health = now, l.m.health()
		l.m.sampled(hb.Health)
	}
	if f := l.m.facts(); !reflect.DeepEqual(f, l.s.facts) {
		l.s.facts, hb.Facts = f, &f
	}
	l.s.said = time.Now()
	return hb
}

// upload stores an attempt's artifact and says when to look again.
func (l *life) upload(r *record, p *plan) time.Time {
	now := time.Now()
	if l.s == nil || l.loading || l.s.quiet.After(now) {
		return now.Add(time.Second)
	}
	l.loading = true
	s, f := l.s, r.Fence
	go func() { l.loaded <- upload{f, s.store(l.ctx, p.artifact) == nil} }()
	return now.Add(lookEvery)
}

// store uploads a blob.
func (s *session) store(ctx context.Context, b []byte) error {
	d := wire.BodyDigest(b)
	path := wire.BlobPath(s.m.who.Runner, d)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.hub+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	nonce, err := wire.NewNonce(rand.Reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", wire.BlobAuth(s.key, s.id, http.MethodPut, req.URL.EscapedPath(), nonce))
	res, err := s.m.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusCreated {
		var p wire.Problem
		_ = json.Unmarshal(text, &p)
		return fmt.Errorf("store an artifact: %d %s: %s", res.StatusCode, p.Code, p.Detail)
	}
	s.m.w.ledger.stored(d)
	return nil
}
