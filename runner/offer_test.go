package runner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

func TestOffered(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	n := func(v int) *int { return &v }
	const gib = 1 << 30
	disk := func(free int64) fleet.Volume {
		return fleet.Volume{Path: "/data", Known: true, Free: free, Total: 100 * gib}
	}
	for _, c := range []struct {
		name     string
		rules    string
		standing standing
		health   *fleet.Health
		now      time.Time
		want     offer
	}{
		{name: "nothing is known", rules: "slots: 2", standing: standing{base: 2, automation: 1}, want: offer{base: 2}},
		{name: "all is well", standing: standing{base: 2, automation: 1},
			health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 64 * gib, Available: 32 * gib}, CPU: &fleet.CPU{Count: 4, Load: 9}, Power: &fleet.Power{}},
			want:   offer{base: 2, automation: n(7)}},
		{name: "an update begins", rules: "paused: back at six", standing: standing{base: 2, update: "2.0.0"}, want: offer{automation: n(0), declining: "updates itself to 2.0.0"}},
		{name: "paused", rules: "paused: back at six", standing: standing{base: 2}, want: offer{automation: n(0), declining: "paused by the owner: back at six"}},
		{name: "quiet hours", rules: "hours: {quiet: ['11:00-13:00']}", standing: standing{base: 2}, want: offer{automation: n(0), declining: "quiet hours until Mon 13:00"}},
		{name: "after quiet hours", rules: "hours: {quiet: ['11:00-13:00']}", standing: standing{base: 2}, now: noon.Add(time.Hour), want: offer{base: 2}},
		{name: "the disk", standing: standing{base: 2, disk: "storage: full"}, want: offer{automation: n(0), declining: "storage: full"}},
		{name: "on battery", rules: "on_battery: 1", standing: standing{base: 3, automation: 2}, health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{OnBattery: true}},
			want: offer{base: 1, automation: n(0), limitedBy: []string{"on battery: 1 slot at most (on_battery)"}}},
		{name: "on battery, with room for automations", rules: "on_battery: 4", standing: standing{base: 3, automation: 2}, health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{OnBattery: true}},
			want: offer{base: 3, automation: n(1), limitedBy: []string{"on battery: 4 slots at most (on_battery)"}}},
		{name: "on battery, nothing", rules: "on_battery: 0", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{OnBattery: true}},
			want: offer{automation: n(0), declining: "on battery: 0 slots at most (on_battery)", limitedBy: []string{"on battery: 0 slots at most (on_battery)"}}},
		{name: "a bound above what there is", rules: "on_battery: 5", standing: standing{base: 3, automation: 2}, health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{OnBattery: true}},
			want: offer{base: 3}},
		{name: "on the mains", rules: "on_battery: 1", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, Power: &fleet.Power{}}, want: offer{base: 3}},
		{name: "somebody works", rules: "user_active: {within: 2m, slots: 1}", standing: standing{base: 3}, health: &fleet.Health{UserIdle: time.Minute},
			want: offer{base: 1, automation: n(0), limitedBy: []string{"somebody works at this machine: 1 slot at most (user_active)"}}},
		{name: "nobody works any more", rules: "user_active: {within: 2m, slots: 1}", standing: standing{base: 3}, health: &fleet.Health{UserIdle: 2 * time.Minute}, want: offer{base: 3}},
		{name: "nobody knows whether somebody works", rules: "user_active: {within: 2m, slots: 1}", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1}, want: offer{base: 3}},
		{name: "the lesser of two", rules: "on_battery: 2\nuser_active: {within: 2m, slots: 1}", standing: standing{base: 3}, health: &fleet.Health{Power: &fleet.Power{OnBattery: true}},
			want: offer{base: 1, automation: n(0), limitedBy: []string{"on battery: 2 slots at most (on_battery)", "somebody works at this machine: 1 slot at most (user_active)"}}},
		{name: "load", rules: "max_load: 1.5", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, CPU: &fleet.CPU{Count: 2, Load: 3.2}},
			want: offer{automation: n(0), declining: "load of 1.6 for each processor, above 1.5 (max_load)"}},
		{name: "load at the bound", rules: "max_load: 1.5", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, CPU: &fleet.CPU{Count: 2, Load: 3}}, want: offer{base: 3}},
		{name: "memory for people", rules: "min_memory: 2GiB", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 16 * gib, Available: gib}},
			want: offer{automation: n(0), declining: "memory: 1 GiB available, below 2 GiB (min_memory)"}},
		{name: "memory for people, not known", rules: "min_memory: 2GiB", standing: standing{base: 3}, health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 16 * gib}},
			want: offer{base: 3, automation: n(3)}},
		{name: "memory for automations", standing: standing{base: 3, automation: 4}, health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 16 * gib, Available: 11 * gib}},
			want: offer{base: 3, automation: n(2), limitedBy: []string{"memory: 2 slots for automations: 11 GiB available, 3 GiB kept, 4 GiB for each (memory)"}}},
		{name: "no memory for automations", standing: standing{base: 3, automation: 1}, health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 6 * gib, Available: 6 * gib}},
			want: offer{base: 3, automation: n(0), limitedBy: []string{"memory: 0 slots for automations: 6 GiB in all, 3 GiB kept, 4 GiB for each (memory)"}}},
		{name: "memory as the owner counts it", rules: "memory: {keep: 1GiB, per_slot: 512MiB}", standing: standing{base: 1, automation: 2}, health: &fleet.Health{UserIdle: -1, Memory: &fleet.Memory{Total: 4 * gib, Available: 2 * gib}},
			want: offer{base: 1, automation: n(2)}},
		{name: "below the owner's own floor", rules: "floors: {select: 50GiB}", standing: standing{base: 1, automation: 2}, health: &fleet.Health{UserIdle: -1, Workspace: disk(60 * gib), Cache: disk(40 * gib)},
			want: offer{base: 1, automation: n(0), limitedBy: []string{"disk: 40 GiB free at /data, below 50 GiB (floors)"}}},
		{name: "at the owner's own floor", rules: "floors: {select: 50GiB}", standing: standing{base: 1, automation: 2}, health: &fleet.Health{UserIdle: -1, Workspace: disk(50 * gib), Cache: disk(60 * gib)}, want: offer{base: 1}},
		{name: "a disk that is not known", rules: "floors: {select: 50GiB}", standing: standing{base: 1, automation: 2}, health: &fleet.Health{UserIdle: -1}, want: offer{base: 1}},
		{name: "an old sample says nothing", rules: "max_load: 1\non_battery: 0", standing: standing{base: 3}, want: offer{base: 3},
			health: &fleet.Health{Age: 4 * time.Minute, CPU: &fleet.CPU{Count: 1, Load: 9}, Power: &fleet.Power{OnBattery: true}, Memory: &fleet.Memory{Total: gib}}},
		{name: "only automations", standing: standing{automation: 2}, want: offer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := ParseOwner([]byte(c.rules))
			if err != nil {
				t.Fatal(err)
			}
			if c.now.IsZero() {
				c.now = noon
			}
			if d := cmp.Diff(c.want, o.offered(c.standing, c.health, c.now), cmp.AllowUnexported(offer{})); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// Whatever the rules and the sample: never more than is configured, and where less is
// offered there is a reason.
func TestOfferedKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := func(name string) Bound { return Bound(rapid.IntRange(-1, 16).Draw(t, name)) }
		o := DefaultOwner()
		o.OnBattery, o.UserActive.Slots = bound("battery"), bound("user")
		o.MaxLoad = rapid.SampledFrom([]float64{0, 0.5, 4}).Draw(t, "max_load")
		o.MinMemory = Bytes(rapid.Int64Range(0, 8<<30).Draw(t, "min_memory"))
		s := standing{base: rapid.IntRange(0, 16).Draw(t, "base"), automation: rapid.IntRange(0, 8).Draw(t, "automation")}
		h := &fleet.Health{
			UserIdle: time.Duration(rapid.Int64Range(-1, int64(10*time.Minute)).Draw(t, "idle")),
			Power:    &fleet.Power{OnBattery: rapid.Bool().Draw(t, "on battery")},
			CPU:      &fleet.CPU{Count: rapid.IntRange(0, 8).Draw(t, "cpus"), Load: rapid.Float64Range(0, 16).Draw(t, "load")},
			Memory:   &fleet.Memory{Total: rapid.Int64Range(0, 64<<30).Draw(t, "total"), Available: rapid.Int64Range(0, 64<<30).Draw(t, "available")},
		}
		got := o.offered(s, h, time.Unix(1e9, 0))
		automation := s.automation
		if got.automation != nil {
			automation = min(automation, *got.automation)
		}
		if got.base < 0 || got.base > s.base || automation < 0 {
			t.Fatalf("offers %d and %d of %+v", got.base, automation, s)
		}
		if less := got.base < s.base || automation < s.automation; less && got.declining == "" && len(got.limitedBy) == 0 {
			t.Fatalf("offers %d and %d of %+v, and does not say why", got.base, automation, s)
		}
		if got.declining != "" && (got.base != 0 || automation != 0) {
			t.Fatalf("declines, and offers %d and %d", got.base, automation)
		}
		for _, bytes := range []int64{h.Memory.Total, h.Memory.Available} {
			if of := max(bytes-3072<<20, 0) / (4096 << 20); h.Memory.Total > 0 && bytes > 0 && int64(automation) > of {
				t.Fatalf("offers %d slots for automations with %+v, of which %d may be had", automation, *h.Memory, of)
			}
		}
		for _, most := range []struct {
			on bool
			n  Bound
		}{{h.Power.OnBattery, o.OnBattery}, {h.UserIdle >= 0 && h.UserIdle < 5*time.Minute, o.UserActive.Slots}} {
			if most.on && most.n >= 0 && got.base+automation > int(most.n) {
				t.Fatalf("offers %d and %d, the owner allows %d", got.base, automation, most.n)
			}
		}
	})
}

func TestFloorsOfTheOwner(t *testing.T) {
	for _, c := range []struct {
		file  string
		want  Floors
		wrong string
	}{
		{file: "floors: {select: 12GiB, start: 30GiB}", want: Floors{Select: 12 << 30, Start: 30 << 30}},
		{file: "floors:\n", want: Floors{}},
		{file: "floors: {select: plenty, start: 30GiB}", want: Floors{Select: 10 << 30, Start: 30 << 30}, wrong: `select: "plenty" is no size`},
		{file: "floors: {start: -1}", want: Floors{Start: 20 << 30}, wrong: `start: "-1" is no size`},
		{file: "floors: {start: 99999TiB}", want: Floors{Start: 20 << 30}, wrong: `start: "99999TiB" is no size below 1024 TiB`},
		{file: "floors: {start: [1]}", want: Floors{Start: 20 << 30}, wrong: "start"},
		{file: "floors: {begin: 1GiB}", want: Floors{}, wrong: "unknown key begin"},
		{file: "floors: 20GiB", want: Floors{Select: 10 << 30, Start: 20 << 30}, wrong: "want select and start"},
	} {
		o, err := ParseOwner([]byte("slots: 3\n" + c.file + "\n"))
		if err != nil || o.Slots != 3 {
			t.Errorf("%s: the other rules are %+v, %v", c.file, o, err)
			continue
		}
		wrong := strings.Join(o.Wrong(), "; ")
		if o.Floors.Select != c.want.Select || o.Floors.Start != c.want.Start || (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %+v; want %+v and a word about %q", c.file, o.Floors, c.want, c.wrong)
		}
		if wrong != "" && !strings.Contains(wrong, "line 2") {
			t.Errorf("%s: %q names no line", c.file, wrong)
		}
	}
}

// An hour and a half of a runner's time: quiet hours come and go, and what a sample said
// is forgotten when no other follows it.
func TestOffersFollowTheClock(t *testing.T) {
	r := bare(t, "slots: 2\nhours: {quiet: ['00:30-01:00']}\non_battery: 1\n")
	r.told = &fleet.Limits{Automation: 1}
	synctest.Test(t, func(t *testing.T) {
		midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.Local)
		time.Sleep(time.Until(midnight.Add(24 * time.Hour))) // of the zone in which the test runs
		begun := time.Now()
		r.sampled = func() *fleet.Health {
			return &fleet.Health{Age: time.Since(begun), UserIdle: -1, Power: &fleet.Power{OnBattery: true}}
		}
		for minute := range 90 {
			now := r.offer()
			quiet := minute >= 30 && minute < 60
			slots, limited := 2, minute <= 3
			if limited {
				slots = 1
			}
			if quiet {
				slots = 0
			}
			if now.base != slots || (now.declining != "") != quiet || (len(now.limitedBy) > 0) != limited {
				t.Fatalf("%d minutes after midnight: %+v, want %d slots", minute, now, slots)
			}
			if no := r.admits(&fleet.Spec{}); (no != nil) != quiet || quiet && no.Code != fleet.OwnerPolicy {
				t.Fatalf("%d minutes after midnight a job is declined with %+v", minute, no)
			}
			time.Sleep(time.Minute)
		}
	})
}
