package hub

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestBelieve(t *testing.T) {
	built := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		wall, state time.Time
		told        bool
		says        string // empty: believed
	}{
		"the same":                   {wall: at, state: at},
		"an hour ahead":              {wall: at.Add(time.Hour), state: at},
		"a weekend ahead":            {wall: at.Add(66 * time.Hour), state: at},
		"a week ahead":               {wall: at.Add(7 * day), state: at},
		"more than a week ahead":     {wall: at.Add(7*day + 1), state: at, says: "--accept-clock"},
		"ten years ahead":            {wall: at.AddDate(10, 0, 0), state: at, says: "2036-06-01"},
		"ten years ahead, told":      {wall: at.AddDate(10, 0, 0), state: at, told: true},
		"an hour behind":             {wall: at.Add(-time.Hour), state: at},
		"a day behind":               {wall: at.Add(-day), state: at},
		"more than a day behind":     {wall: at.Add(-day - 1), state: at, says: "2026-05-30"},
		"behind, told":               {wall: at.Add(-9 * day), state: at, told: true},
		"1970":                       {wall: time.Unix(0, 0), state: at, says: "before this program was built"},
		"1970, told":                 {wall: time.Unix(0, 0), state: at, told: true, says: "before this program was built"},
		"a new cluster":              {wall: at},
		"a new cluster before built": {wall: built.Add(-1), says: "before this program was built"},
	} {
		t.Run(name, func(t *testing.T) {
			err := believe(c.wall, c.state, built, c.told)
			if c.says == "" {
				if err != nil {
					t.Errorf("not believed: %v", err)
				}
				return
			}
			if !errors.Is(err, fleet.ClockSkew) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want %s that names %q", err, fleet.ClockSkew, c.says)
			}
		})
	}
}

func TestStampNeverLeapsOrGoesWrong(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for off, want := range map[time.Duration]time.Duration{-time.Hour: -time.Hour, 0: 0, time.Hour: time.Hour, 66 * time.Hour: time.Hour} {
		if got := stamp(at.Add(off), at, step(at.Add(off), at, false)).Sub(at); got != want {
			t.Errorf("%s off: the entry is stamped %s off; want %s", off, got, want)
		}
	}
	if got := stamp(at, time.Time{}, maxStep); !got.Equal(at) {
		t.Errorf("the first entry is stamped %s; want %s", got, at)
	}
	// Ten years that somebody says are right are made up in reasonable time.
	now, wall, n := at, at.AddDate(10, 0, 0), 0
	for ; wall.Sub(now) > maxStep; n++ {
		now = stamp(wall, now, step(wall, now, true))
	}
	if n > 5000 {
		t.Errorf("ten years took %d entries", n)
	}
}

// turned is a clock that a test can turn.
type turned struct{ off atomic.Int64 }

func (c *turned) now() time.Time          { return time.Now().Add(time.Duration(c.off.Load())) }
func (c *turned) turn(d time.Duration)    { c.off.Store(int64(d)) }
func (n *node) stateTime() (at time.Time) { return n.hub.entries.View().Meta().Time }
func (n *node) queue(key string) (int, api.Problem) {
	n.t.Helper()
	var p api.Problem
	st := n.call("POST", "/v1/jobs", key, api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &p)
	return st, p
}

func TestClockThatJumps(t *testing.T) {
	var c turned
	n := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true}, c.now)
	if st, _ := n.queue("a"); st != http.StatusCreated {
		t.Fatalf("submit: %d", st)
	}
	before := n.stateTime()
	for name, off := range map[string]time.Duration{"ten years on": 10 * 365 * day, "two days back": -2 * day, "1970": time.Unix(0, 0).Sub(time.Now())} {
		c.turn(off)
		st, p := n.queue("b")
		if st != http.StatusServiceUnavailable || p.Code != fleet.ClockSkew || !strings.Contains(p.Detail, "clock") {
			t.Errorf("%s: submit gave %d %s %q; want 503 %s", name, st, p.Code, p.Detail, fleet.ClockSkew)
		}
		if st := n.call("GET", "/readyz", "", nil, &p); st != http.StatusServiceUnavailable || p.Code != fleet.ClockSkew {
			t.Errorf("%s: readyz gave %d %s", name, st, p.Code)
		}
		if st := n.call("GET", "/v1/jobs", "", nil, nil); st != http.StatusOK {
			t.Errorf("%s: reading gave %d", name, st)
		}
	}
	if got := n.stateTime().Sub(before); got > time.Minute {
		t.Errorf("state time went on by %s", got)
	}
	c.turn(0) // set right again
	if st, p := n.queue("b"); st != http.StatusCreated {
		t.Errorf("with the clock set right: %d %s", st, p.Detail)
	}
	// An hour either way is no reason to stop.
	for _, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		c.turn(off)
		if st, p := n.queue("c" + off.String()); st != http.StatusCreated {
			t.Errorf("%s off: %d %s", off, st, p.Detail)
		}
	}
}

func TestHubThatWasOff(t *testing.T) {
	dir := t.TempDir()
	n := startWith(t, Config{Dir: dir, Bootstrap: true}, time.Now)
	n.queue("a")
	n.stop()
	for _, c := range []struct {
		off    time.Duration
		accept bool
		works  bool
	}{{3 * day, false, true}, {30 * day, false, false}, {30 * day, true, true}} {
		var clock turned
		clock.turn(c.off)
		n := startWith(t, Config{Dir: dir, AcceptClock: c.accept}, clock.now)
		st, p := n.queue("after " + c.off.String())
		if works := st == http.StatusCreated; works != c.works {
			t.Errorf("off for %s, accept %t: %d %s", c.off, c.accept, st, p.Detail)
		}
		if behind := clock.now().Sub(n.stateTime()); c.works && behind > maxStep {
			t.Errorf("off for %s: state time is still %s behind", c.off, behind)
		}
		n.stop()
	}
}

func TestOneEntryTakesTimeAnHourAtMost(t *testing.T) {
	var c turned
	h, err := newHub(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Bootstrap: true}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	set := func() error {
		_, err := h.entries.Propose(t.Context(), &state.Set{Name: "x", Value: "y"})
		return err
	}
	for until := time.Now().Add(10 * time.Second); set() != nil; { // nobody leads yet
		if time.Now().After(until) {
			t.Fatal("no leader after 10 s")
		}
		<-time.After(5 * time.Millisecond)
	}
	c.turn(3 * day)
	for range 3 {
		before := h.entries.View().Meta().Time
		if err := set(); err != nil {
			t.Fatal(err)
		}
		if got := h.entries.View().Meta().Time.Sub(before); got != time.Hour {
			t.Errorf("with the clock three days on, one entry took state time %s further; want 1h", got)
		}
	}
}
