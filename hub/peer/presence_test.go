package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

func (n *node) see(all ...fleet.Presence) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.present = all
}

func (n *node) heardOf() []fleet.RunnerID {
	all, _, _ := n.Peers.Presence()
	var ids []fleet.RunnerID
	for _, p := range all {
		ids = append(ids, p.Runner)
	}
	return ids
}

func TestPresenceIsRelayed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	a, b := c.nodes["n-a"], c.nodes["n-b"]
	beat := time.Now().Add(-300 * time.Millisecond)
	one := fleet.Presence{Runner: "r-1", Connected: true, Session: "s", Transport: "ws", LastBeat: beat, Interval: 5 * time.Second, Slots: 3, Full: true, Address: "192.0.2.1:5"}
	a.see(one, fleet.Presence{Runner: "r-2"})
	a.applied.Store(7)
	until(t, "the follower hears of the runners", func() bool { return len(b.heardOf()) == 2 })
	all, from, age := b.Peers.Presence()
	if from != "n-a" || age < 0 || age > Unknown {
		t.Errorf("from %q, %s ago", from, age)
	}
	if off := all[0].LastBeat.Sub(beat); off.Abs() > 2*time.Second {
		t.Errorf("the last beat is off by %s", off)
	}
	all[0].LastBeat = beat
	if d := cmp.Diff([]fleet.Presence{one, {Runner: "r-2"}}, all); d != "" {
		t.Error(d)
	}
	if mine, from, age := a.Peers.Presence(); from != "n-a" || age != 0 || len(mine) != 2 {
		t.Errorf("on the leader %v from %q %s ago", mine, from, age)
	}
	a.see(fleet.Presence{Runner: "r-2", Connected: true, LastBeat: time.Now()}, fleet.Presence{Runner: "r-3"})
	a.tellNow()
	until(t, "what changed comes too", func() bool {
		all, _, _ := b.Peers.Presence()
		return len(all) == 2 && all[0].Runner == "r-2" && all[0].Connected && all[1].Runner == "r-3"
	})
	a.Live("job-1", []fleet.Event{{Type: "text", Text: "half a sen"}})
	until(t, "partial events come", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.live) == 1 && b.live[0].Text == "half a sen"
	})
	if err := b.Ready(); !errors.Is(err, fleet.Unavailable) || !strings.Contains(err.Error(), "7") {
		t.Errorf("a follower that has not caught up: %v", err)
	}
	b.applied.Store(7)
	if err := b.Ready(); err != nil {
		t.Errorf("one that has: %v", err)
	}
	nobody := ""
	b.leader.Store(&nobody)
	if err := b.Ready(); !errors.Is(err, fleet.Unavailable) {
		t.Errorf("one without a leader: %v", err)
	}
}

// TestPresenceOfTheNextLeader: after an election the new leader's view counts, and
// the old one's does not come back.
func TestPresenceOfTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	b := c.nodes["n-b"]
	c.nodes["n-a"].see(fleet.Presence{Runner: "r-old"})
	until(t, "the first leader is heard", func() bool { return len(b.heardOf()) == 1 })
	c.nodes["n-c"].see(fleet.Presence{Runner: "r-new"})
	c.elect("n-c")
	until(t, "the next leader is heard", func() bool {
		_, from, _ := b.Peers.Presence()
		return from == "n-c" && reflect.DeepEqual(b.heardOf(), []fleet.RunnerID{"r-new"})
	})
	if b.heard.take(line{From: "n-a", Term: 1, Whole: true}, time.Now()) {
		t.Error("what a former leader says is believed")
	}
}

func TestPresenceGrowsOld(t *testing.T) {
	h := &heard{}
	if _, from, _ := h.presence(time.Now()); from != "" {
		t.Errorf("before anything was heard: from %q", from)
	}
	at := time.Now()
	h.take(line{From: "n-a", Term: 1, Clock: time.Minute, Whole: true, Set: []sighting{{Presence: fleet.Presence{Runner: "r-1"}, Beat: 50 * time.Second}}}, at)
	all, from, age := h.presence(at.Add(4 * time.Second))
	if from != "n-a" || age != 4*time.Second || len(all) != 1 || !all[0].LastBeat.Equal(at.Add(-10*time.Second)) {
		t.Errorf("%v from %q %s ago; want one that beat 10 s before it was heard of", all, from, age)
	}
	// A message counts as a whole, and one that was cut off not at all.
	h.take(line{From: "n-a", Term: 1, Whole: true, More: true, Set: []sighting{{Presence: fleet.Presence{Runner: "r-2"}}}}, at)
	if all, _, _ := h.presence(at); len(all) != 1 || all[0].Runner != "r-1" {
		t.Errorf("in the middle of a message %v", all)
	}
	h.take(line{From: "n-a", Term: 1, Clock: time.Minute, Whole: true, Set: []sighting{{Presence: fleet.Presence{Runner: "r-3"}}}}, at)
	if all, _, _ := h.presence(at); len(all) != 1 || all[0].Runner != "r-3" {
		t.Errorf("after a message that was cut off, and another one: %v", all)
	}
	for range maxParts {
		h.take(line{From: "n-a", Term: 1, More: true}, at)
	}
	if h.take(line{From: "n-a", Term: 1, More: true}, at) {
		t.Error("a message without an end is taken")
	}
	if all, from, _ = h.presence(at.Add(Unknown + 1)); from != "" || len(all) != 0 {
		t.Errorf("after %s: %v from %q; want unknown", Unknown, all, from)
	}
}

// TestRelayProperty: whatever comes and goes, a follower that heard every message
// knows what the leader saw last, also one that came late; no line is too long.
func TestRelayProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRelay()
		type listener struct {
			*follower
			heard heard
		}
		var all []*listener
		samples, sampled := map[fleet.RunnerID]*fleet.Health{}, map[fleet.RunnerID]time.Time{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "joins") {
				f, _ := r.enter()
				all = append(all, &listener{follower: f})
			}
			seen := map[fleet.RunnerID]fleet.Presence{}
			for range rapid.IntRange(0, 3).Draw(t, "blocks") {
				first, n := rapid.IntRange(0, 900).Draw(t, "first"), rapid.IntRange(0, 400).Draw(t, "n")
				slots := rapid.IntRange(0, 3).Draw(t, "slots")
				for i := range n {
					id := fleet.RunnerID(fmt.Sprintf("r-%05d", first+i))
					seen[id] = fleet.Presence{Runner: id, Slots: slots, Connected: slots > 0}
				}
			}
			anew, caches := rapid.IntRange(1, 9).Draw(t, "new samples"), rapid.IntRange(0, 2).Draw(t, "caches")
			for id, p := range seen { // as a session keeps them: a sample is the same until there is another
				if n := int(id[len(id)-1]-'0') + 1; n%anew == 0 || samples[id] == nil {
					samples[id] = &fleet.Health{Zone: string(id), Reserved: int64(n), Workspace: fleet.Volume{Known: true, Free: 1 << 30}}
					sampled[id] = time.Now()
				}
				if p.Connected {
					slots := p.Slots
					p.Health, p.HealthAt, p.Automation = samples[id], sampled[id], &slots
					p.Caches = strings.Repeat("0123456789abcdef ", 40*caches)
				}
				seen[id] = p
			}
			var now []fleet.Presence
			for _, p := range seen {
				now = append(now, p)
			}
			if err := r.tell(line{From: "n-a", Term: 1}, now); err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				for _, text := range strings.Split(strings.TrimSuffix(string(<-l.queue), "\n"), "\n") {
					if len(text) > maxLine {
						t.Fatalf("a line of %d bytes", len(text))
					}
					var in line
					if err := json.Unmarshal([]byte(text), &in); err != nil {
						t.Fatal(err)
					}
					l.heard.take(in, time.Now())
				}
				got := map[fleet.RunnerID]fleet.Presence{}
				knows, _, _ := l.heard.presence(time.Now())
				for _, p := range knows {
					got[p.Runner] = p
				}
				if d := cmp.Diff(seen, got, cmpopts.EquateApproxTime(patience)); d != "" {
					t.Fatal(d)
				}
			}
		}
	})
}

// TestSamplesAreToldOnce: a beat that brings neither a new sample nor other caches is
// told without them, and both stay known.
func TestSamplesAreToldOnce(t *testing.T) {
	r := newRelay()
	f, _ := r.enter()
	two := 2
	p := fleet.Presence{Runner: "r-1", Connected: true, LastBeat: time.Now(), Slots: 3, Automation: &two, LimitedBy: "on battery",
		Health: &fleet.Health{Zone: "Europe/Berlin", Docker: fleet.Docker{State: fleet.DockerReady}}, HealthAt: time.Now(), Caches: "0123456789abcdef"}
	var h heard
	tell := func() string {
		t.Helper()
		if err := r.tell(line{From: "n-a", Term: 1}, []fleet.Presence{p}); err != nil {
			t.Fatal(err)
		}
		b := <-f.queue
		var in line
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatal(err)
		}
		h.take(in, time.Now())
		all, _, _ := h.presence(time.Now())
		if d := cmp.Diff([]fleet.Presence{p}, all, cmpopts.EquateApproxTime(time.Second)); d != "" {
			t.Fatal(d)
		}
		return string(b)
	}
	if b := tell(); !strings.Contains(b, "Berlin") || !strings.Contains(b, "abcdef") {
		t.Errorf("first told: %s", b)
	}
	p.LastBeat = time.Now().Add(time.Millisecond)
	again := 2
	p.Automation = &again
	if b := tell(); strings.Contains(b, "Berlin") || strings.Contains(b, "abcdef") || !strings.Contains(b, "beat_ns") {
		t.Errorf("after another beat: %s", b)
	}
	same := 2
	p.Automation = &same
	if b := tell(); strings.Contains(b, "r-1") {
		t.Errorf("when nothing changed: %s", b)
	}
	p.Health, p.HealthAt = &fleet.Health{Zone: "Asia/Tokyo"}, time.Now()
	if b := tell(); !strings.Contains(b, "Tokyo") || strings.Contains(b, "abcdef") {
		t.Errorf("after another sample: %s", b)
	}
	p.Caches, p.Health = "", nil
	p.HealthAt = time.Time{}
	tell()
}

// TestSlowFollower: one that takes nothing misses partial events first, and is then
// let go; the others and the leader don't wait.
func TestSlowFollower(t *testing.T) {
	r := newRelay()
	slow, _ := r.enter()
	if err := r.tell(line{}, nil); err != nil {
		t.Fatal(err)
	}
	for range 10 * maxQueue {
		r.live(line{Job: "j", Live: []fleet.Event{{Type: "text"}}})
	}
	if n := len(slow.queue); n != maxQueue/2 {
		t.Errorf("%d messages wait; want half of the room left for presence", n)
	}
	for range maxQueue {
		if err := r.tell(line{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range slow.queue { // closed
		n++
	}
	if n != maxQueue {
		t.Errorf("%d messages waited when it was let go, want %d", n, maxQueue)
	}
	r.live(line{Job: "j", Live: []fleet.Event{{Text: strings.Repeat("x", maxPartial)}}}) // nobody is there
	r.close()
	if _, ok := r.enter(); ok {
		t.Error("a closed relay takes somebody in")
	}
}
