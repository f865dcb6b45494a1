package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

func TestJitterStaysWithinAFifth(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 2000 {
		d := jitter(time.Second)
		least, most = min(least, d), max(most, d)
	}
	if least < 800*time.Millisecond || most > 1200*time.Millisecond || most-least < 300*time.Millisecond {
		t.Errorf("a second became %s to %s, want it spread over 0.8 to 1.2 s", least, most)
	}
}

func TestBackoffClimbsToItsCap(t *testing.T) {
	var b backoff
	last := time.Duration(0)
	for i := range 12 {
		d := b.wait(maxBackoff)
		if d > maxBackoff*6/5 || i < 6 && d < last {
			t.Errorf("wait %d is %s after %s", i, d, last)
		}
		last = d
	}
	if last < maxBackoff*4/5 {
		t.Errorf("after twelve failures the wait is %s", last)
	}
	if d := b.wait(time.Second); d > 1200*time.Millisecond {
		t.Errorf("while the hub has announced its absence the wait is %s", d)
	}
	b.reset()
	if d := b.wait(maxBackoff); d > minBackoff*6/5 {
		t.Errorf("after a reset the wait is %s", d)
	}
}

func TestSleepShowsByTheClocks(t *testing.T) {
	for _, c := range []struct {
		wall, monotonic time.Duration
		want            bool
	}{
		{time.Hour, time.Hour, false},
		{time.Hour, 2 * time.Second, true},
		{12 * time.Second, 3 * time.Second, false},
		{-time.Hour, time.Second, false}, // the clock was set back
	} {
		if got := leapt(c.wall, c.monotonic); got != c.want {
			t.Errorf("%s on the wall, %s monotonic: slept %v, want %v", c.wall, c.monotonic, got, c.want)
		}
	}
	now := time.Now()
	if slept(now, now.Add(time.Hour)) {
		t.Error("an hour on both clocks is taken for sleep")
	}
}

// quietHub is a transport that takes frames and says nothing.
type quietHub struct {
	frames chan wire.Frame
	closed chan struct{}
}

func (q *quietHub) send(typ wire.Type, body []byte) error {
	select {
	case q.frames <- wire.Frame{Type: typ, Body: body}:
		return nil
	case <-q.closed:
		return errors.New("closed")
	}
}
func (q *quietHub) read() (wire.Frame, error) { <-q.closed; return wire.Frame{}, errors.New("closed") }
func (q *quietHub) expect(time.Duration)      {}
func (q *quietHub) close()                    { close(q.closed) }

// beating runs the heartbeat loop in virtual time.
func beating(t *testing.T, test func(l *link, s *session, next func() (wire.Heartbeat, time.Duration))) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		r, err := New(Config{Dir: dir, Name: "box", Slots: 3, Self: "/self"})
		if err != nil {
			t.Fatal(err)
		}
		r.journal = j
		l := &link{r: r, keys: &keyring{id: &identity{}}, beatNow: make(chan bool, 1)}
		q := &quietHub{frames: make(chan wire.Frame), closed: make(chan struct{})}
		// The hello told less than there is by the time of the first heartbeat.
		s := &session{transport: q, interval: 10 * time.Second, done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.beats(ctx, s) }()
		last := time.Now()
		test(l, s, func() (wire.Heartbeat, time.Duration) {
			f := <-q.frames
			var hb wire.Heartbeat
			if f.Type != wire.TypeHeartbeat || wire.Decode(f.Body, &hb) != nil {
				t.Fatalf("frame of type %d: %s", f.Type, f.Body)
			}
			gap := time.Since(last)
			last = time.Now()
			return hb, gap
		})
		cancel()
		s.end(context.Canceled)
		<-ended
	})
}

func TestHeartbeatsKeepTheHubsInterval(t *testing.T) {
	beating(t, func(_ *link, s *session, next func() (wire.Heartbeat, time.Duration)) {
		if hb, gap := next(); !hb.Full || gap != 0 || hb.Slots != 3 || hb.Facts == nil {
			t.Errorf("first heartbeat %+v after %s, want a full one at once, with the facts that the hello lacked", hb, gap)
		}
		for range 200 {
			if hb, gap := next(); hb.Full || gap < 8*time.Second || gap > 12*time.Second {
				t.Fatalf("heartbeat %+v after %s, want 8 to 12 s", hb, gap)
			}
		}
		s.clockMu.Lock()
		s.interval = time.Second
		s.clockMu.Unlock()
		next() // was due already
		if _, gap := next(); gap > 1200*time.Millisecond {
			t.Errorf("after the hub asked for one a second: %s", gap)
		}
	})
}

func TestHeartbeatsComeWhenSomethingHappens(t *testing.T) {
	beating(t, func(l *link, _ *session, next func() (wire.Heartbeat, time.Duration)) {
		next()
		l.beat(true)
		if _, gap := next(); gap != 0 {
			t.Errorf("a nudge was answered after %s", gap)
		}
		for range 50 {
			l.Changed()
		}
		if _, gap := next(); gap > settleTime {
			t.Errorf("a change was shown after %s", gap)
		}
		if _, gap := next(); gap < 8*time.Second {
			t.Errorf("fifty changes at once made a second heartbeat after %s", gap)
		}
		l.r.alert("x", "facts changed")
		l.Changed()
		if hb, _ := next(); hb.Facts == nil || len(hb.Facts.Alerts) != 1 {
			t.Errorf("facts %+v, want the new alert", hb.Facts)
		}
		if hb, _ := next(); hb.Facts != nil {
			t.Error("facts are told again although nothing changed")
		}
	})
}

// However acknowledgements come, items of one attempt leave in order and one report
// at a time, and none is forgotten.
func TestOutboxKeepsOrderWithinAnAttempt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := &outbox{sent: map[uint64]fleet.Fence{}, busy: map[fleet.Fence]int{}, retry: map[fleet.Fence]retry{}}
		now := time.Unix(1e9, 0)
		var pending []journal.Item
		seq := uint64(0)
		done := map[fleet.Fence]uint64{}
		var open [][]journal.Item
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				seq++
				pending = append(pending, journal.Item{Seq: seq, Fence: fleet.Fence{Index: rapid.Uint64Range(1, 3).Draw(rt, "fence")}})
			case 1:
				items := o.pick(pending, bodyOnly, now)
				for _, it := range items {
					for _, other := range open {
						for _, x := range other {
							if x.Fence == it.Fence {
								rt.Fatalf("item %d of %s left beside %d", it.Seq, it.Fence, x.Seq)
							}
						}
					}
				}
				if len(items) > 0 {
					open = append(open, items)
				}
			case 2:
				if len(open) == 0 {
					continue
				}
				n := rapid.IntRange(0, len(open)-1).Draw(rt, "report")
				items := open[n]
				open = append(open[:n], open[n+1:]...)
				var list []settled
				held := map[fleet.Fence]bool{}
				for _, it := range items {
					again := held[it.Fence] || rapid.Bool().Draw(rt, "retry")
					held[it.Fence] = again
					list = append(list, settled{it.Seq, again})
					if again {
						continue
					}
					if it.Seq <= done[it.Fence] {
						rt.Fatalf("item %d of %s settled after %d", it.Seq, it.Fence, done[it.Fence])
					}
					done[it.Fence] = it.Seq
					for i, p := range pending {
						if p.Seq == it.Seq {
							pending = append(pending[:i:i], pending[i+1:]...)
							break
						}
					}
				}
				o.settle(list, now)
				now = now.Add(time.Hour)
			}
		}
		for _, items := range open {
			for _, it := range items {
				o.settle([]settled{{it.Seq, true}}, now)
			}
		}
		now = now.Add(time.Hour)
		left := map[uint64]bool{}
		for {
			items := o.pick(pending, bodyOnly, now)
			if len(items) == 0 {
				break
			}
			for _, it := range items {
				left[it.Seq] = true
				o.settle([]settled{{it.Seq, false}}, now)
				pending = pending[1:]
			}
		}
		if len(pending) != 0 {
			rt.Fatalf("%d items never leave", len(pending))
		}
	})
}

func bodyOnly(it journal.Item) int { return len(it.Body) }
