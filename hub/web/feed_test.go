package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// feedEvent is one event of the feed as it came.
type feedEvent struct {
	id, name string
	data     string
}

// feedOf opens the feed and gives its events, those that only tell the time left out.
func (w *world) feedOf(last string) func() feedEvent {
	r := w.events("/v1/feed", last)
	return func() feedEvent {
		w.t.Helper()
		timer := time.AfterFunc(patience, func() { r.res.Body.Close() })
		defer timer.Stop()
		var e feedEvent
		for {
			line, err := r.r.ReadString('\n')
			if err != nil {
				w.t.Fatalf("read the feed: %v", err)
			}
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				if e.name != "" && e.name != "tick" {
					return e
				}
				e = feedEvent{}
			}
		}
	}
}

func as[T any](t testing.TB, e feedEvent, name string) (out T) {
	t.Helper()
	if e.name != name {
		t.Fatalf("told %s %s; want %s", e.name, e.data, name)
	}
	if err := json.Unmarshal([]byte(e.data), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// gather reads changes until all that is wanted was told.
func gather(t testing.TB, next func() feedEvent, enough func(api.FeedChanges) bool) (all []api.FeedChanges, last string) {
	t.Helper()
	var sum api.FeedChanges
	for !enough(sum) {
		e := next()
		if e.name == "presence" {
			continue
		}
		c := as[api.FeedChanges](t, e, "changes")
		all, last = append(all, c), e.id
		sum.Jobs, sum.Runners, sum.Circuits, sum.Alerts = append(sum.Jobs, c.Jobs...), append(sum.Runners, c.Runners...), append(sum.Circuits, c.Circuits...), append(sum.Alerts, c.Alerts...)
		sum.JobsGone, sum.RunnersGone, sum.Stale = append(sum.JobsGone, c.JobsGone...), append(sum.RunnersGone, c.RunnersGone...), append(sum.Stale, c.Stale...)
	}
	return all, last
}

func TestFeedTellsWhatChanged(t *testing.T) {
	w := newWorld(t)
	lead := w.enrolled("lead")
	next := w.feedOf("")
	hello := next()
	if got := as[api.FeedTick](t, hello, "hello"); got.Node != "n-test" || got.Leader != "n-test" || got.Epoch != 1 || got.Index != w.View().Meta().Index || hello.id != fmt.Sprintf("1-%d", got.Index) || got.Audit != 0 {
		t.Errorf("hello %q %+v", hello.id, got)
	}
	id := w.submitted("make")
	f := w.running(id, lead)
	w.finished(id, f, 0, true)
	get[api.Circuit](w, request{method: "POST", path: "/v1/circuits/open", role: fleet.RoleAdmin, body: api.OpenCircuit{Scope: fleet.ScopeHost, Runner: "lead", Reason: "call"}})
	w.must(&state.Set{Name: "a", Value: "b"})
	w.must(&state.RaiseAlert{Alert: fleet.Alert{ID: "a-1", Kind: "unserved", Text: "nobody can"}})
	all, _ := gather(t, next, func(c api.FeedChanges) bool {
		return len(c.Jobs) > 0 && c.Jobs[len(c.Jobs)-1].State == fleet.Succeeded && len(c.Circuits) > 0 && len(c.Alerts) > 0 && slices.Contains(c.Stale, "settings")
	})
	// A job that went through five states was not told five times over.
	if jobs := 0; len(all) < 4 {
		for _, c := range all {
			jobs += len(c.Jobs)
		}
		if jobs > len(all) {
			t.Errorf("one job was told %d times in %d tellings", jobs, len(all))
		}
	}
	w.must(&state.RemoveRunner{ID: lead})
	_, last := gather(t, next, func(c api.FeedChanges) bool { return slices.Contains(c.RunnersGone, lead) })
	if last != fmt.Sprintf("1-%d", w.View().Meta().Index) {
		t.Errorf("the last place is %s, at index %d", last, w.View().Meta().Index)
	}

	// Who comes back is told what it missed, and that presence was not followed.
	again := w.submitted("test")
	back := w.feedOf(last)
	if h := back(); h.name != "hello" || h.id != "" {
		t.Errorf("back: %+v; want a hello that leaves the place as it was", h)
	}
	if p := as[api.FeedPresence](t, back(), "presence"); !p.Stale {
		t.Errorf("back: %+v", p)
	}
	got, _ := gather(t, back, func(c api.FeedChanges) bool { return len(c.Jobs) > 0 })
	if got[0].Jobs[0].ID != again || len(got[0].Alerts) > 0 {
		t.Errorf("missed: %+v", got)
	}
}

func TestFeedSaysReset(t *testing.T) {
	w := newWorld(t)
	w.submitted("make")
	for _, last := range []string{"1-999999", "7-1", "x"} {
		next := w.feedOf(last)
		at := fmt.Sprintf("1-%d", w.View().Meta().Index)
		if h := next(); h.name != "hello" || h.id != at {
			t.Errorf("%s: %+v", last, h)
		}
		if r := next(); as[api.FeedReset](t, r, "reset").Detail == "" || r.id != at {
			t.Errorf("%s: %+v", last, r)
		}
	}
	w.drop()
	next := w.feedOf("1-1")
	for e := next(); ; e = next() {
		if e.name == "reset" {
			if e.id != fmt.Sprintf("1-%d", w.View().Meta().Index) {
				t.Errorf("reset to %s", e.id)
			}
			break
		}
	}
	id := w.submitted("after")
	if all, _ := gather(t, next, func(c api.FeedChanges) bool { return len(c.Jobs) > 0 }); all[len(all)-1].Jobs[0].ID != id {
		t.Errorf("after a reset: %+v", all)
	}
	w.must(&state.RaiseEpoch{To: 9, Cause: "restore"})
	for e := next(); ; e = next() {
		if e.name == "reset" {
			if !strings.HasPrefix(e.id, "9-") {
				t.Errorf("in another epoch the place is %s", e.id)
			}
			return
		}
	}
}

// Too many changes to be told each are told as such, and cost no more memory than the rest.
func TestFeedOfManyChanges(t *testing.T) {
	f := &feed{}
	f.pending.index = 1
	for i := range 50_000 {
		f.add(uint64(i+2), true, state.Change{What: "job", Job: &fleet.Job{ID: fleet.JobID(fmt.Sprint("j", i))}})
		f.add(uint64(i+2), true, state.Change{What: "runner", Runner: &fleet.Runner{ID: fleet.RunnerID(fmt.Sprint("r", i%1000))}})
	}
	p := f.pending
	if len(p.jobs) != maxFeedRows || len(p.runners) != maxFeedRows || !p.stale["jobs"] || !p.stale["runners"] || p.index != 50_001 {
		t.Errorf("%d jobs, %d runners, stale %v, at %d", len(p.jobs), len(p.runners), p.stale, p.index)
	}
}

func TestFeedTellsPresence(t *testing.T) {
	var mu sync.Mutex
	seen := []fleet.Presence{}
	w := newWorld(t, func(c *Config) {
		c.Presence = func() []fleet.Presence {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(seen)
		}
	})
	lead := w.enrolled("lead")
	w.enrolled("other")
	next := w.feedOf("")
	as[api.FeedTick](t, next(), "hello")
	beat := time.Now()
	set := func(p fleet.Presence) {
		mu.Lock()
		defer mu.Unlock()
		seen = []fleet.Presence{p}
	}
	set(fleet.Presence{Runner: lead, Connected: true, Interval: time.Hour, LastBeat: beat, Slots: 4})
	p := as[api.FeedPresence](t, next(), "presence")
	if len(p.Runners) != 1 || p.Runners[0].State != "online" || p.Runners[0].ID != lead || p.From != "n-test" {
		t.Errorf("came: %+v", p)
	}
	set(fleet.Presence{Runner: lead, Connected: true, Interval: time.Hour, LastBeat: beat.Add(time.Second), Slots: 4})
	p = as[api.FeedPresence](t, next(), "presence")
	if len(p.Runners) != 0 || p.Beats[lead] != beat.Add(time.Second).UnixMilli() {
		t.Errorf("beat: %+v", p)
	}
	set(fleet.Presence{Runner: lead, LastBeat: beat.Add(time.Second)})
	if p = as[api.FeedPresence](t, next(), "presence"); len(p.Runners) != 1 || p.Runners[0].State != "offline" {
		t.Errorf("left: %+v", p)
	}
}
