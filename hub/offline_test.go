package hub

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// absent is a runner, its record, and a leader that looks for it every ten seconds, in
// made-up time.
type absent struct {
	*silentWorld
	alerts []string
}

// sinceWhen is a time, and no length of one: people may be told of it long after.
var sinceWhen = regexp.MustCompile(`^not heard since \d{4}-\d\d-\d\d \d\d:\d\d UTC(, when this hub began to lead)?$`)

func newAbsent() *absent {
	w := &absent{silentWorld: newSilent()}
	w.runner.JournalID = "j"
	w.runner.Health = &fleet.HealthRecord{Free: 7, Memory: 8, Docker: fleet.DockerReady}
	w.lease.spread = time.Second
	return w
}

// look records what there is to record, as the state does it.
func (w *absent) look(t *testing.T, d time.Duration) {
	t.Helper()
	w.lease.now = w.start.Add(d)
	for _, rep := range offlines([]*fleet.Runner{&w.runner}, w.lease, w.lease.now) {
		if rep.ID != "r" || rep.Free != 7 || rep.Memory != 8 || rep.Docker != fleet.DockerReady {
			t.Fatalf("after %s: the record's figures become %+v", d, rep)
		}
		h := *w.runner.Health
		for _, f := range rep.Ended {
			w.alerts = append(w.alerts, fmt.Sprintf("%s recovered", d))
			over := w.lease.now
			h.Faults[0].Over = &over
			if !strings.HasPrefix(f.Detail, "heard again after ") {
				t.Errorf("after %s: %q", d, f.Detail)
			}
		}
		for _, f := range rep.Begun {
			if was, offline := h.Fault(fleet.FaultOffline); !offline {
				var alerted *time.Time
				if len(h.Faults) > 0 {
					alerted = h.Faults[0].Alerted
				}
				h.Faults = []fleet.Fault{{Kind: fleet.FaultOffline, Since: w.lease.now, Alerted: alerted}}
			} else if !state.AlertDue(was, w.lease.now) {
				t.Errorf("after %s: reported again", d)
			}
			if state.AlertDue(h.Faults[0], w.lease.now) {
				w.alerts = append(w.alerts, fmt.Sprintf("%s offline", d))
				at := w.lease.now
				h.Faults[0].Alerted = &at
			}
			if !sinceWhen.MatchString(f.Detail) {
				t.Errorf("after %s: %q", d, f.Detail)
			}
		}
		w.runner.Health = &h
	}
}

func (w *absent) until(t *testing.T, from, to time.Duration) {
	t.Helper()
	for d := from; d < to; d += 10 * time.Second {
		w.look(t, d)
	}
}

func (w *absent) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := strings.Join(w.alerts, ", "); got != strings.Join(want, ", ") {
		t.Errorf("%s: told %q; want %q", what, got, want)
	}
}

func TestOfflineIsToldOnce(t *testing.T) {
	w := newAbsent()
	w.heard = 5 * time.Second
	w.until(t, 10*time.Second, 3*time.Minute)
	w.want(t, "while it may be started anew")
	w.until(t, 3*time.Minute, 20*time.Minute)
	w.want(t, "after 20 minutes", "3m10s offline")
	w.heard = 20 * time.Minute
	w.until(t, 20*time.Minute, 20*time.Minute+15*time.Second)
	w.want(t, "when it is heard again", "3m10s offline", "20m0s recovered")
	// It goes again: people were told half an hour ago at the earliest.
	w.until(t, 21*time.Minute, 40*time.Minute)
	w.want(t, "when it went again", "3m10s offline", "20m0s recovered", "33m10s offline")
}

// TestNewLeaderRaisesNoAlarm: not in its first minutes, and not of what was told before.
func TestNewLeaderRaisesNoAlarm(t *testing.T) {
	w := newAbsent()
	w.until(t, 0, 3*time.Minute)
	w.want(t, "in its first minutes")
	w.until(t, 3*time.Minute, 4*time.Minute)
	w.want(t, "after that", "3m10s offline")
	w.leads(5 * time.Minute)
	w.until(t, 5*time.Minute, 30*time.Minute)
	w.want(t, "with the next leader", "3m10s offline")
	w.leads(30 * time.Minute)
	w.heard = 31 * time.Minute
	w.until(t, 31*time.Minute, 31*time.Minute+15*time.Second)
	w.want(t, "when that hears it", "3m10s offline", "31m0s recovered")
}

func TestWhoIsNotMissed(t *testing.T) {
	held, past := time.Hour, -time.Hour
	for name, c := range map[string]struct {
		change func(*fleet.Runner, time.Time)
		missed bool
	}{
		"any":             {func(*fleet.Runner, time.Time) {}, true},
		"never came":      {func(r *fleet.Runner, _ time.Time) { r.JournalID = "" }, false},
		"revoked":         {func(r *fleet.Runner, _ time.Time) { r.Floor = r.Generation + 1 }, false},
		"in conflict":     {func(r *fleet.Runner, _ time.Time) { r.Conflict = "two" }, false},
		"cordoned":        {func(r *fleet.Runner, _ time.Time) { r.Cordoned = true }, false},
		"held":            {func(r *fleet.Runner, at time.Time) { r.Hold = hold(at, &held, nil) }, false},
		"held until then": {func(r *fleet.Runner, at time.Time) { r.Hold = hold(at, &past, nil) }, true},
	} {
		w := newAbsent()
		w.lease.now = w.start.Add(time.Hour)
		c.change(&w.runner, w.lease.now)
		if got := len(offlines([]*fleet.Runner{&w.runner}, w.lease, w.lease.now)) > 0; got != c.missed {
			t.Errorf("%s: missed %t; want %t", name, got, c.missed)
		}
	}
}

// hold gives one with an end and a deadline so long after a time.
func hold(at time.Time, until, deadline *time.Duration) *fleet.Hold {
	h := &fleet.Hold{Since: at.Add(-2 * time.Hour), Drain: deadline != nil}
	if until != nil {
		end := at.Add(*until)
		h.Until = &end
	}
	if deadline != nil {
		end := at.Add(*deadline)
		h.Deadline = &end
	}
	return h
}

func TestHoldsEnd(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	soon, now, past := time.Second, time.Duration(0), -time.Second
	passed := hold(at, nil, &past)
	passed.Passed = true
	for name, c := range map[string]struct {
		hold *fleet.Hold
		want string
	}{
		"none":                        {nil, ""},
		"without end":                 {hold(at, nil, nil), ""},
		"not yet":                     {hold(at, &soon, &soon), ""},
		"its end":                     {hold(at, &now, nil), "resume"},
		"a deadline":                  {hold(at, &soon, &now), "deadline"},
		"a deadline that was":         {passed, ""},
		"an end and a deadline":       {hold(at, &past, &past), "resume"},
		"a deadline and no other end": {hold(at, nil, &past), "deadline"},
	} {
		got := ""
		for _, cmd := range holds([]*fleet.Runner{{ID: "r", Hold: c.hold}}, at) {
			switch cmd := cmd.(type) {
			case *state.HoldRunner:
				if got += "resume"; cmd.ID != "r" || cmd.Hold != nil {
					t.Errorf("%s: %+v", name, cmd)
				}
			case *state.PassDeadline:
				if got += "deadline"; cmd.Runner != "r" {
					t.Errorf("%s: %+v", name, cmd)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
