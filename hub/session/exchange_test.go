package session

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestExchangeRow drives the push channel with requests that are repeated, left
// out, reordered, changed and lost at random, and holds it to its promises: the
// next request is taken, a repeat of the last one gets the very same answer,
// anything else that verifies ends the session, and what does not verify changes
// nothing. Whatever happened, every chunk that was acknowledged is stored once.
func TestExchangeRow(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	rapid.Check(t, func(rt *rapid.T) {
		j, f := h.assign(a.id)
		x := a.exchange()
		seal := func(seq uint64, offset int64) []byte {
			b, err := wire.EncodeOutput(wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Offset: offset, Data: []byte{byte('a' + offset%26)}})
			if err != nil {
				rt.Fatal(err)
			}
			return wire.Seal(x.sk, wire.PushUp, wire.TypeOutput, seq, b)
		}
		var seq uint64
		var size int64
		var last, answer []byte
		var sent [][]byte
		ended := false
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			step := rapid.SampledFrom([]string{"next", "next", "next", "lost", "repeat", "older", "skip", "damaged", "both"}).Draw(rt, "step")
			var body []byte
			legal := false
			switch step {
			case "next", "lost": // of a lost one the runner does not see the answer
				body, legal = seal(seq+1, size), true
			case "both": // two frames in one request
				body, legal = append(seal(seq+1, size), seal(seq+2, size+1)...), true
			case "repeat":
				if last == nil {
					continue
				}
				body, legal = last, true
			case "older":
				if len(sent) < 2 {
					continue
				}
				body = sent[rapid.IntRange(0, len(sent)-2).Draw(rt, "which")]
			case "skip":
				body = seal(seq+2, size)
			case "damaged":
				body = seal(seq+1, size)
				body[rapid.IntRange(wire.HeaderSize, len(body)-1).Draw(rt, "at")] ^= 0x80
			}
			status, _, reply := a.ask(x.session, wire.ChannelPush, body)
			switch {
			case step == "damaged":
				if status != http.StatusUnauthorized {
					rt.Fatalf("a damaged request got %d: %s", status, reply)
				}
				continue
			case !legal:
				if status != http.StatusConflict {
					rt.Fatalf("%s got %d: %s", step, status, reply)
				}
				ended = true
			case status != http.StatusOK:
				rt.Fatalf("%s got %d: %s", step, status, reply)
			case step == "repeat":
				if !bytes.Equal(reply, answer) {
					rt.Fatal("a repeat got another answer")
				}
				continue
			default:
				frames, err := x.down["push"].OpenAll(reply)
				if err != nil {
					rt.Fatal(err)
				}
				if n := map[string]int{"next": 1, "lost": 1, "both": 2}[step]; len(frames) != n {
					rt.Fatalf("%s got %d frames", step, len(frames))
				}
				seq, size = seq+uint64(len(frames)), size+int64(len(frames))
				last, answer, sent = body, reply, append(sent, body)
			}
			if ended {
				break
			}
		}
		if end, _ := h.spool.Size(streamKey(j, f, wire.StreamOutput)); end != size {
			rt.Fatalf("%d bytes are stored, %d were acknowledged", end, size)
		}
		p, _ := h.srv.PresenceOf(a.id)
		if p.Connected == ended {
			rt.Fatalf("ended is %v, but connected is %v", ended, p.Connected)
		}
	})
}

// TestExchangeSides sees that poll and push have rows of their own, that a push is
// answered while a poll is held, and that only a push counts as life.
func TestExchangeSides(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	x := a.exchange()
	a.beat(x)
	before, _ := h.srv.PresenceOf(a.id)
	type answer struct {
		frames []wire.Frame
		err    error
	}
	held := make(chan answer, 1)
	go func() {
		frames, err := x.roundTrip("poll", wire.TypePoll, nil)
		held <- answer{frames, err}
	}()
	j, f := h.assign(a.id)
	eventually(t, "the poll is held", func() bool {
		h.srv.mu.Lock()
		defer h.srv.mu.Unlock()
		return len(h.srv.byID[x.session].out.(*exchanger).poll.turn) == 0
	})
	after, _ := h.srv.PresenceOf(a.id)
	if !after.LastBeat.Equal(before.LastBeat) {
		t.Error("a poll counted as life")
	}
	a.beat(x)
	h.srv.Nudge(a.id)
	got := <-held
	if got.err != nil || len(got.frames) != 2 || got.frames[0].Type != wire.TypeNudge || got.frames[1].Type != wire.TypeHeartbeatReply {
		t.Fatalf("poll was answered with %+v, %v", got.frames, got.err)
	}
	var rep wire.HeartbeatReply
	if err := wire.Decode(got.frames[1].Body, &rep); err != nil || len(rep.Desired) != 1 || rep.Desired[0].Fence != f || rep.Desired[0].Job != j {
		t.Errorf("the poll's desired set is %+v, %v", rep.Desired, err)
	}
	if status, _, _ := a.ask(x.session, wire.ChannelPoll, wire.Seal(x.sk, wire.PushUp, wire.TypePoll, 2, nil)); status != http.StatusUnauthorized {
		t.Errorf("a frame of push was taken by poll: %d", status)
	}
}

// TestExchangeTwice sends the same request twice at the same time: both get the one
// answer.
func TestExchangeTwice(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	x := a.exchange()
	body := x.up["push"].Seal(wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: 5}))
	var wg sync.WaitGroup
	replies := make([][]byte, 4)
	for i := range replies {
		wg.Go(func() { _, _, replies[i] = a.ask(x.session, wire.ChannelPush, body) })
	}
	wg.Wait()
	for _, r := range replies {
		if !bytes.Equal(r, replies[0]) {
			t.Fatal("one request got two answers")
		}
	}
}

// TestExchangeRefused goes through requests that are no exchange.
func TestExchangeRefused(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	x := a.exchange()
	for _, c := range []struct {
		session, channel string
		body             []byte
		status           int
	}{
		{x.session, "shout", []byte("x"), http.StatusBadRequest},
		{"nobody", "push", []byte("x"), http.StatusUnauthorized},
		{"nobody", "open", []byte("x"), http.StatusUnauthorized},
		{x.session, "push", nil, http.StatusBadRequest},
		{x.session, "push", []byte("x"), http.StatusBadRequest},
		{x.session, "push", make([]byte, wire.MaxExchange+1), http.StatusRequestEntityTooLarge},
	} {
		if status, _, reply := a.ask(c.session, c.channel, c.body); status != c.status {
			t.Errorf("%s of %s with %d bytes got %d %s, want %d", c.channel, c.session, len(c.body), status, reply, c.status)
		}
	}
	a.beat(x) // none of it has hurt the session
	link := a.link()
	if status, _, _ := a.ask(link.session, "push", []byte("x")); status != http.StatusUnauthorized {
		t.Errorf("a link's session was used over HTTP: %d", status)
	}
}

// TestExchangeLostAnswer drops the answer at every step of an attempt's way; the
// runner repeats the request and ends where it would have ended.
func TestExchangeLostAnswer(t *testing.T) {
	t.Parallel()
	for lost := range 6 {
		t.Run(fmt.Sprintf("at step %d", lost), func(t *testing.T) {
			h := newHub(t)
			a := h.enrolled()
			j, f := h.assign(a.id)
			x := a.exchange()
			out, err := wire.EncodeOutput(wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: []byte("hello")})
			if err != nil {
				t.Fatal(err)
			}
			item := func(it wire.ReportItem) []byte {
				it.Seq, it.Job, it.Fence = 1, j, f
				return encode(t, wire.Report{Items: []wire.ReportItem{it}})
			}
			for step, s := range []struct {
				typ  wire.Type
				body []byte
			}{
				{wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: 5, Full: true})},
				{wire.TypeReport, item(wire.ReportItem{Accepted: &wire.Accepted{}})},
				{wire.TypeOutput, out},
				{wire.TypeReport, item(a.finished(j, f, 0))},
				{wire.TypeReport, item(wire.ReportItem{Sealed: &wire.Sealed{Output: 5}})},
				{wire.TypeHeartbeat, encode(t, wire.Heartbeat{Count: 6})},
			} {
				body := x.up["push"].Seal(s.typ, s.body)
				status, _, reply := a.ask(x.session, wire.ChannelPush, body)
				if step == lost {
					_, _, again := a.ask(x.session, wire.ChannelPush, body)
					if !bytes.Equal(again, reply) {
						t.Fatalf("step %d got another answer", step)
					}
				}
				if _, err := x.down["push"].OpenAll(reply); err != nil || status != http.StatusOK {
					t.Fatalf("step %d: %d %v", step, status, err)
				}
			}
			got := h.job(j)
			if a := got.Turn().Attempts[0]; got.State != fleet.Succeeded || !a.Log.Sealed || a.Log.Durable != 5 {
				t.Errorf("job is %s, log %+v", got.State, a.Log)
			}
		})
	}
}

// TestExchangeSwept forgets a session that no push keeps alive.
func TestExchangeSwept(t *testing.T) {
	t.Parallel()
	h := newHub(t, func(c *Config) { c.ActiveInterval, c.IdleInterval = 20*time.Millisecond, 20*time.Millisecond })
	a := h.enrolled()
	x := a.exchange()
	var code fleet.Code
	eventually(t, "the session ends", func() bool {
		frames, err := x.roundTrip("poll", wire.TypePoll, nil)
		if err != nil {
			return errors.As(err, &code) && code == fleet.SessionEnded
		}
		return len(frames) == 1 && frames[0].Type == wire.TypeGoodbye
	})
}
