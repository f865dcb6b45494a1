package hub

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
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
		wall, state, expected time.Time
		told                  bool
		says                  string // empty: believed
	}{
		"the same":                   {wall: at, state: at},
		"an hour ahead":              {wall: at.Add(time.Hour), state: at},
		"a day ahead":                {wall: at.Add(day), state: at},
		"more than a day ahead":      {wall: at.Add(day + 1), state: at, says: "hub time accept"},
		"where it should be":         {wall: at.Add(66 * time.Hour), state: at, expected: at.Add(66 * time.Hour)},
		"a day more than it should":  {wall: at.Add(90 * time.Hour), state: at, expected: at.Add(66 * time.Hour)},
		"beyond that":                {wall: at.Add(90*time.Hour + 1), state: at, expected: at.Add(66 * time.Hour), says: "2026-06-04"},
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
			err := believe(c.wall, c.state, c.expected, built, c.told)
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

// turned is a machine whose clock a test can turn, and which it can have sleep or
// start anew.
type turned struct {
	off, slept atomic.Int64
	boot       atomic.Pointer[string]
}

func (c *turned) now() time.Time       { return time.Now().Add(time.Duration(c.off.Load())) }
func (c *turned) turn(d time.Duration) { c.off.Store(int64(d)) }

// sleep has time pass on both clocks, as in a machine that is asleep.
func (c *turned) sleep(d time.Duration) { c.off.Add(int64(d)); c.slept.Add(int64(d)) }

// reboot has time pass while the machine is off.
func (c *turned) reboot(boot string, d time.Duration) {
	c.off.Add(int64(d))
	c.slept.Store(int64(-time.Since(begun)))
	c.boot.Store(&boot)
}

var begun = time.Now()

func (c *turned) up() (string, time.Duration) {
	boot := "first"
	if b := c.boot.Load(); b != nil {
		boot = *b
	}
	return boot, time.Since(begun) + time.Duration(c.slept.Load())
}
func (n *node) stateTime() (at time.Time) { return n.hub.entries.View().Meta().Time }
func (n *node) queue(key string) (int, api.Problem) {
	n.t.Helper()
	var p api.Problem
	st := n.call("POST", "/v1/jobs", key, api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &p)
	return st, p
}

func TestClockThatJumps(t *testing.T) {
	t.Parallel()
	var c turned
	n := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true, uptime: c.up}, c.now)
	if st, _ := n.queue("a"); st != http.StatusCreated {
		t.Fatalf("submit: %d", st)
	}
	before := n.stateTime()
	for name, off := range map[string]time.Duration{"ten years on": 10 * 365 * day, "two days on": 2 * day, "two days back": -2 * day, "1970": time.Unix(0, 0).Sub(time.Now())} {
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

// What the hub did not see is made up where the machine's other clock, or a restart of
// the machine, shows that it was off; a clock that was only set is not believed.
func TestHubThatWasOff(t *testing.T) {
	t.Parallel()
	var c turned
	dir := t.TempDir()
	n := startWith(t, Config{Dir: dir, Bootstrap: true, uptime: c.up}, c.now)
	n.queue("a")
	n.stop()
	for _, s := range []struct {
		name   string
		pass   func()
		accept bool
		works  bool
	}{
		{"stopped for a month", func() { c.sleep(30 * day) }, false, true},
		{"the machine off for a weekend", func() { c.reboot("second", 66*time.Hour) }, false, true},
		{"the machine off for a week", func() { c.reboot("third", 7*day) }, false, true},
		{"a clock that was set two days on", func() { c.off.Add(int64(2 * day)) }, false, false},
		{"and back", func() { c.off.Add(int64(-2 * day)) }, false, true},
		{"the machine off for a month", func() { c.reboot("fourth", 30*day) }, false, false},
		{"that is right", func() {}, true, true},
	} {
		s.pass()
		n := startWith(t, Config{Dir: dir, AcceptClock: s.accept, uptime: c.up}, c.now)
		st, p := n.queue(s.name)
		if works := st == http.StatusCreated; works != s.works {
			t.Errorf("%s: %d %s", s.name, st, p.Detail)
		}
		if behind := c.now().Sub(n.stateTime()); s.works && behind > maxStep {
			t.Errorf("%s: state time is still %s behind", s.name, behind)
		}
		n.stop()
	}
}

// A data directory that says nothing of when the hub was alive, as that of an older
// version or after a power cut, is gone by with the log alone.
func TestHubWithoutASignOfLife(t *testing.T) {
	t.Parallel()
	var c turned
	dir := t.TempDir()
	n := startWith(t, Config{Dir: dir, Bootstrap: true, uptime: c.up}, c.now)
	n.queue("a")
	n.stop()
	for i, text := range []string{"", "{\"alive\":", "{}"} {
		if err := os.WriteFile(filepath.Join(dir, "alive.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.reboot("boot"+text, 66*time.Hour)
		n := startWith(t, Config{Dir: dir, uptime: c.up}, c.now)
		if st, p := n.queue(text); st != http.StatusCreated {
			t.Errorf("file %d: %d %s", i, st, p.Detail)
		}
		n.stop()
	}
}

// A laptop that sleeps with the hub running wakes up to a hub that goes on.
func TestHubThatSleeps(t *testing.T) {
	t.Parallel()
	var c turned
	n := startWith(t, Config{Dir: t.TempDir(), Bootstrap: true, uptime: c.up}, c.now)
	n.queue("a")
	c.sleep(66 * time.Hour)
	for until := time.Now().Add(time.Minute); c.now().Sub(n.stateTime()) > maxStep; {
		if time.Now().After(until) {
			t.Fatalf("state time is %s behind after the sleep", c.now().Sub(n.stateTime()))
		}
		<-time.After(20 * time.Millisecond)
	}
	if st, p := n.queue("b"); st != http.StatusCreated {
		t.Errorf("after the sleep: %d %s", st, p.Detail)
	}
}

// A person's word is taken while nothing else is written, for the clock as it stands,
// and bears their name; the next leap is judged anew.
func TestAcceptedClock(t *testing.T) {
	t.Parallel()
	var c turned
	dir := t.TempDir()
	n := startWith(t, Config{Dir: dir, Bootstrap: true, uptime: c.up}, c.now)
	n.queue("a")
	var got api.Clock
	if st := n.call("POST", "/v1/time/accept", "", nil, &got); st != http.StatusOK || got.Accepted {
		t.Errorf("a clock that is believed: %d %+v; want nothing to accept", st, got)
	}
	var view struct{ Secret string }
	if st := n.call("POST", "/v1/tokens", "v", map[string]string{"role": "operator", "name": "no admin"}, &view); st != http.StatusCreated {
		t.Fatalf("make a token: %d", st)
	}
	c.turn(400 * day)
	if st, p := n.queue("b"); st != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "tugline hub time accept") {
		t.Errorf("before the word: %d %s", st, p.Detail)
	}
	admin := n.token
	n.token = view.Secret
	if st := n.call("POST", "/v1/time/accept", "", nil, nil); st != http.StatusForbidden {
		t.Errorf("an operator's word: %d; want 403", st)
	}
	n.token = "tgl_nobody"
	if st := n.call("POST", "/v1/time/accept", "", nil, nil); st != http.StatusUnauthorized {
		t.Errorf("nobody's word: %d; want 401", st)
	}
	n.token = admin
	if st := n.call("POST", "/v1/time/accept", "", nil, &got); st != http.StatusOK || !got.Accepted {
		t.Fatalf("an admin's word: %d %+v", st, got)
	}
	for until := time.Now().Add(time.Minute); c.now().Sub(n.stateTime()) > maxStep; {
		if time.Now().After(until) {
			t.Fatalf("state time is %s behind after the word", c.now().Sub(n.stateTime()))
		}
		<-time.After(20 * time.Millisecond)
	}
	if st, p := n.queue("c"); st != http.StatusCreated {
		t.Errorf("after the word: %d %s", st, p.Detail)
	}
	var audit api.AuditRecords
	n.call("GET", "/v1/audit?limit=500", "", nil, &audit)
	said := 0
	for _, a := range audit.Records {
		if a.Command == "time.accept" && a.Actor != "" && a.Actor != "hub" {
			said++
		}
	}
	if said != 1 {
		t.Errorf("the audit names who accepted the clock %d times; want once", said)
	}
	c.turn(402 * day)
	if st, _ := n.queue("d"); st != http.StatusServiceUnavailable {
		t.Errorf("a second leap was believed: %d", st)
	}
	// Behind state time it takes days to be with it again, over restarts too.
	c.turn(398 * day)
	if st := n.call("POST", "/v1/time/accept", "", nil, &got); st != http.StatusOK || !got.Accepted {
		t.Fatalf("a clock behind the log: %d %+v", st, got)
	}
	n.stop()
	n = startWith(t, Config{Dir: dir, uptime: c.up}, c.now)
	if st, p := n.queue("e"); st != http.StatusCreated {
		t.Errorf("after a restart: %d %s", st, p.Detail)
	}
	c.turn(time.Unix(0, 0).Sub(time.Now()))
	var p api.Problem
	if st := n.call("POST", "/v1/time/accept", "", nil, &p); st != http.StatusServiceUnavailable || p.Code != fleet.ClockSkew {
		t.Errorf("1970: %d %s; want a refusal", st, p.Code)
	}
}

func TestOneEntryTakesTimeAnHourAtMost(t *testing.T) {
	var c turned
	h, err := newHub(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Bootstrap: true, uptime: c.up}, c.now)
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
	c.sleep(3 * day)
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
