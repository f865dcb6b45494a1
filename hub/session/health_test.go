package session

import (
	"context"
	"crypto/ed25519"
	crand "crypto/rand"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// quiet is a transport that takes everything and counts nudges.
type quiet struct{ nudges int }

func (q *quiet) send(wire.Type, []byte) {}
func (q *quiet) nudge()                 { q.nudges++ }
func (q *quiet) close(wire.Goodbye)     {}

// bench is a server without sockets and stores, and one enrolled runner: heartbeats
// are given to its sessions as a transport would.
type machineBench struct {
	*hub
	journal string
}

func newMachineBench(t testing.TB, adjust ...func(*Config)) *machineBench {
	t.Helper()
	b := &machineBench{&hub{t: t, machine: state.New(), leading: true}, "j-1"}
	pub, priv, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b.keys.Store(&Keys{
		Cluster: testCluster, Masters: map[uint64][]byte{1: random(t, 32)},
		Signing: priv, SigningID: "k1", Chain: []wire.SigningKey{{ID: "k1", Key: pub}},
	})
	c := Config{
		Proposer: b, Keys: b.keys.Load, Leading: func() bool { return true },
		Spool: struct{ Spool }{}, Blobs: struct{ Blobs }{},
		Standing: func() Standing { return Standing{Epoch: 1, Term: 1, Index: b.View().Meta().Index} },
	}
	for _, f := range adjust {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	b.srv = s
	b.must(&state.InitCluster{Cluster: testCluster, Epoch: 1})
	ticket := b.ticket()
	b.must(&state.Enrol{Ticket: wire.SecretHash(ticket), ID: "r-1", Name: "box", SignKey: random(t, 32), BoxKey: random(t, 32)})
	b.must(&state.UpdateRunner{ID: "r-1", Facts: &fleet.RunnerFacts{Slots: 2}})
	return b
}

// connect begins a session, as after a handshake.
func (b *machineBench) connect() *session {
	x := b.srv.newSession("s-"+crand.Text(), wire.Hello{Runner: "r-1", JournalID: b.journal}, wire.SessionKey{})
	x.generation, x.master, x.out = 1, 1, new(quiet)
	if err := b.srv.enter(x); err != nil {
		panic(err) // the server is not being closed
	}
	return x
}

func beat(t testing.TB, x *session, hb wire.Heartbeat) wire.HeartbeatReply {
	t.Helper()
	body, err := wire.Encode(hb)
	if err != nil {
		t.Fatal(err)
	}
	var rep wire.HeartbeatReply
	b, err := x.heartbeat(body)
	if err == nil && b != nil {
		err = wire.Decode(b, &rep)
	}
	if err != nil || b == nil {
		t.Fatalf("heartbeat: %v, goodbye %+v", err, x.goodbye())
	}
	return rep
}

func (b *machineBench) seen() fleet.Presence {
	p, _ := b.srv.PresenceOf("r-1")
	return p
}

func sample(free int64) *fleet.Health {
	v := fleet.Volume{Path: "/w", Known: true, Free: free, Total: 1 << 40, Inodes: 5, Nodes: 9}
	return &fleet.Health{Workspace: v, Cache: v, UserIdle: -1, Docker: fleet.Docker{State: fleet.DockerUnknown}}
}

// TestHealthyIdleRunnerIsAlwaysAdmissible: a virtual hour of a runner that has nothing
// to do, with the jitter of its heartbeats, samples that take their time, and new
// sessions in between, is one in which its last sample is never too old.
func TestHealthyIdleRunnerIsAlwaysAdmissible(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration // as the hub chooses it
		probe    time.Duration // the longest that a sample takes
	}{
		{"a small fleet", 10 * time.Second, time.Second},
		{"often", 5 * time.Second, 8 * time.Second},
		{"a large fleet", 30 * time.Second, time.Second},
		{"a large fleet of slow machines", 30 * time.Second, 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newMachineBench(t, func(k *Config) { k.IdleInterval = c.interval })
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan struct{})
				go func() { defer close(ran); b.srv.Run(ctx) }()
				defer func() { cancel(); <-ran }()
				idleHour(t, b, c.probe)
			})
		})
	}
}

// idleHour plays the runner: a sample every 20 s, the last of them on the next beat,
// and a beat at once where the next one would come when what the hub has is old.
func idleHour(t *testing.T, b *machineBench, probe time.Duration) {
	const latency = 500 * time.Millisecond // of a beat on its way
	r := rand.New(rand.NewPCG(1, uint64(probe)))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	var last, sent time.Time // begin of the last sample, and of the one that the hub has
	x := b.connect()
	sayBeat := func(full bool) time.Duration {
		hb := wire.Heartbeat{Full: full, Epoch: 1, Slots: 2}
		if full || !last.Equal(sent) {
			hb.Health, sent = sample(1<<38), last
			hb.Health.Age = time.Since(last)
		}
		time.Sleep(upTo(latency))
		rep := beat(t, x, hb)
		return time.Duration(float64(rep.Interval) * (0.8 + 0.4*r.Float64()))
	}
	last = time.Now()
	due := time.Now().Add(sayBeat(true))
	begun := time.Now()
	ready := begun.Add(upTo(probe))
	reconnect := time.Now().Add(7 * time.Minute)
	worst := time.Duration(0)
	for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		p := b.seen()
		age := time.Since(p.HealthAt) + p.Health.Age
		if worst = max(worst, age); !p.Connected || !p.Full || age > fleet.HealthFresh {
			t.Fatalf("%s before the end: connected %v, full %v, its sample %s old", time.Until(end), p.Connected, p.Full, age)
		}
		now := time.Now()
		if !now.Before(ready) {
			last = begun
			if due.After(sent.Add(fleet.HealthFresh - 10*time.Second)) {
				due = now
			}
			begun = last.Add(fleet.HealthEvery)
			ready = begun.Add(upTo(probe))
		}
		if now.After(reconnect) {
			x = b.connect()
			due, reconnect = now.Add(sayBeat(true)), now.Add(7*time.Minute)
		}
		if !now.Before(due) {
			due = time.Now().Add(sayBeat(false))
		}
	}
	if worst < fleet.HealthEvery {
		t.Errorf("the oldest sample was %s old: samples came more often than the runner takes them", worst)
	}
}

func TestMachineInPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMachineBench(t)
		x := b.connect()
		three, none := 3, 0
		caches := []string{"00000000000000bb", "00000000000000aa", "not a cache", "00000000000000aa"}
		h := sample(1 << 38)
		h.Age = 3 * time.Second
		beat(t, x, wire.Heartbeat{Full: true, Epoch: 1, Slots: 4, Automation: &three, LimitedBy: []string{"on battery", "", "load 9.1"}, Health: h, Caches: &caches})
		at := time.Now()
		p := b.seen()
		if d := cmp.Diff(h, p.Health); d != "" {
			t.Errorf("sample (-want +got):\n%s", d)
		}
		if !p.HealthAt.Equal(at) || p.Caches != "00000000000000aa 00000000000000bb" || p.LimitedBy != "on battery; load 9.1" || *p.Automation != 3 {
			t.Errorf("%+v", p)
		}
		still := func(what string) {
			t.Helper()
			p := b.seen()
			if p.Health != b.seen().Health || p.Health == nil || !p.HealthAt.Equal(at) || p.Caches != "00000000000000aa 00000000000000bb" {
				t.Errorf("%s: %+v; want what it told last", what, p)
			}
		}
		time.Sleep(10 * time.Second)
		beat(t, x, wire.Heartbeat{Epoch: 1, Slots: 4})
		still("after a beat without")
		if p := b.seen(); p.Automation != nil || p.LimitedBy != "" {
			t.Errorf("%+v; what the owner's rules offer is told by every beat", p)
		}
		x.end(wire.Goodbye{Code: fleet.SessionEnded})
		still("while it is away")
		time.Sleep(time.Minute)
		x = b.connect()
		still("in a new session")
		beat(t, x, wire.Heartbeat{Full: true, Epoch: 1, Slots: 4, Automation: &none, Caches: &[]string{}})
		if p := b.seen(); p.Caches != "" || p.Health == nil || *p.Automation != 0 {
			t.Errorf("%+v; want no caches and the old sample", p)
		}
		b.journal = "j-2"
		x = b.connect()
		if p := b.seen(); p.Health != nil || !p.HealthAt.IsZero() {
			t.Errorf("%+v; a new journal is another machine's, for all that is known", p)
		}
	})
}

// TestLimitsAreTold: in the first reply of a session and when they change, which also
// makes the runner beat at once.
func TestLimitsAreTold(t *testing.T) {
	b := newMachineBench(t)
	x := b.connect()
	told := func() *fleet.Limits {
		t.Helper()
		return beat(t, x, wire.Heartbeat{Full: true, Epoch: 1}).Limits
	}
	floors := fleet.Floors{Select: fleet.DefaultSelectFloor, Start: fleet.DefaultStartFloor}
	if d := cmp.Diff(&fleet.Limits{Automation: fleet.DefaultAutomation, Floors: floors}, told()); d != "" {
		t.Errorf("at first (-want +got):\n%s", d)
	}
	if l := told(); l != nil {
		t.Errorf("%+v is told again", l)
	}
	r := func() *fleet.Runner { r, _ := b.View().Runner("r-1"); return r }
	b.srv.RunnerChanged(r())
	four := 4
	b.must(&state.SetSlots{ID: "r-1", Automation: &four})
	if n := x.out.(*quiet).nudges; n != 0 {
		t.Errorf("nudged %d times although it knows all", n)
	}
	b.srv.RunnerChanged(r())
	if n := x.out.(*quiet).nudges; n != 1 {
		t.Errorf("nudged %d times, want once", n)
	}
	if d := cmp.Diff(&fleet.Limits{Automation: 4, Floors: floors}, told()); d != "" {
		t.Errorf("after other slots (-want +got):\n%s", d)
	}
	b.must(&state.Set{Name: fleet.SettingFloorStart, Value: "7GiB"})
	floors.Start = 7 << 30
	if d := cmp.Diff(&fleet.Limits{Automation: 4, Floors: floors}, told()); d != "" {
		t.Errorf("after another floor (-want +got):\n%s", d)
	}
	x = b.connect()
	if d := cmp.Diff(&fleet.Limits{Automation: 4, Floors: floors}, told()); d != "" {
		t.Errorf("in a new session (-want +got):\n%s", d)
	}
}

// TestSightingsHoldUpNobody: who is told of samples may be slow, and heartbeats are
// answered; what it cannot take is dropped.
func TestSightingsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var samples, pressures int
		b := newMachineBench(t, func(c *Config) {
			c.OnHealth = func(r fleet.RunnerID, h *fleet.Health, at time.Time) {
				if <-hold; r != "r-1" || h.Workspace.Free == 0 || at.IsZero() {
					t.Errorf("told of %q %+v at %s", r, h, at)
				}
				samples++
			}
			c.OnPressure = func(_ fleet.RunnerID, p *fleet.Pressure) { pressures += int(p.Floor) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); b.srv.Run(ctx) }()
		x := b.connect()
		start := time.Now()
		for range 2 * maxSightings {
			beat(t, x, wire.Heartbeat{Full: true, Epoch: 1, Health: sample(1 << 38)})
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the replies took %s", d)
		}
		close(hold)
		synctest.Wait()
		if samples < maxSightings || samples > maxSightings+1 {
			t.Errorf("%d samples were told, want as many as wait", samples)
		}
		beat(t, x, wire.Heartbeat{Epoch: 1, Pressure: &fleet.Pressure{Floor: 7}})
		synctest.Wait()
		if pressures != 7 {
			t.Errorf("pressure is told as %d", pressures)
		}
		cancel()
		<-ran
	})
}

// TestBetterKnown: who places jobs looks again where a sample makes more possible.
func TestBetterKnown(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		change func(was, is *fleet.Presence)
		want   bool
	}{
		"the same":             {func(was, is *fleet.Presence) { is.Health = was.Health }, false},
		"none":                 {func(was, is *fleet.Presence) { is.Health = nil }, false},
		"the first":            {func(was, is *fleet.Presence) { was.Health = nil }, true},
		"as before":            {func(was, is *fleet.Presence) {}, false},
		"after a stale one":    {func(was, is *fleet.Presence) { was.HealthAt = now.Add(-2 * time.Minute) }, true},
		"after an old one":     {func(was, is *fleet.Presence) { was.Health.Age = 50 * time.Second }, true},
		"Docker is back":       {func(was, is *fleet.Presence) { is.Health.Docker.State = fleet.DockerReady }, true},
		"Compose is back":      {func(was, is *fleet.Presence) { is.Health.Docker.Compose = "2.27" }, true},
		"the disk is known":    {func(was, is *fleet.Presence) { was.Health.Workspace.Known = false }, true},
		"memory is known":      {func(was, is *fleet.Presence) { is.Health.Memory = &fleet.Memory{Total: 1} }, true},
		"much more disk":       {func(was, is *fleet.Presence) { is.Health.Workspace.Free += 2 << 30 }, true},
		"a little more disk":   {func(was, is *fleet.Presence) { is.Health.Workspace.Free += 1 << 20 }, false},
		"less disk":            {func(was, is *fleet.Presence) { is.Health.Workspace.Free -= 2 << 30 }, false},
		"a reservation is off": {func(was, is *fleet.Presence) { was.Health.Reserved = 9 }, true},
	} {
		was := fleet.Presence{Health: sample(1 << 38), HealthAt: now.Add(-20 * time.Second)}
		is := fleet.Presence{Health: sample(1 << 38), HealthAt: now}
		c.change(&was, &is)
		if got := betterKnown(&was, &is); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSoundHealth(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fleet.Health)
		want   func(*fleet.Health) // of the change undone
	}{
		{"a sample of the future", func(h *fleet.Health) { h.Age = -time.Hour }, func(h *fleet.Health) { h.Age = 0 }},
		{"longer than anything lasts", func(h *fleet.Health) { h.Age, h.Uptime, h.UserIdle = math.MaxInt64, math.MaxInt64, math.MaxInt64 }, func(h *fleet.Health) { h.Age, h.Uptime, h.UserIdle = longest, longest, longest }},
		{"below zero", func(h *fleet.Health) { h.Uptime, h.Reserved, h.UserIdle = -1, -1, -9 }, func(h *fleet.Health) { h.Uptime, h.Reserved, h.UserIdle = 0, 0, -1 }},
		{"a long zone", func(h *fleet.Health) { h.Zone = strings.Repeat("x", 1000) }, func(h *fleet.Health) { h.Zone = fleet.CutText(strings.Repeat("x", 1000), maxWord) }},
		{"less than nothing free", func(h *fleet.Health) { h.Workspace.Free = -5 }, func(h *fleet.Health) { h.Workspace = fleet.Volume{Path: "/w", Detail: "its figures cannot be so"} }},
		{"more free than there is", func(h *fleet.Health) { h.Cache.Free = math.MaxInt64 }, func(h *fleet.Health) { h.Cache = fleet.Volume{Path: "/w", Detail: "its figures cannot be so"} }},
		{"figures of what is not known", func(h *fleet.Health) { h.Cache.Known, h.Cache.Detail = false, "it hangs" }, func(h *fleet.Health) { h.Cache = fleet.Volume{Path: "/w", Detail: "it hangs"} }},
		{"inodes that are not counted", func(h *fleet.Health) { h.Cache.Inodes, h.Cache.Nodes = -7, -7 }, func(h *fleet.Health) { h.Cache.Inodes, h.Cache.Nodes = -1, -1 }},
		{"no memory at all", func(h *fleet.Health) { h.Memory = &fleet.Memory{} }, func(h *fleet.Health) {}},
		{"more memory than there is", func(h *fleet.Health) { h.Memory = &fleet.Memory{Total: 5, Available: 6} }, func(h *fleet.Health) {}},
		{"a load below zero", func(h *fleet.Health) { h.CPU = &fleet.CPU{Count: 4, Load: -1} }, func(h *fleet.Health) {}},
		{"a share over all", func(h *fleet.Health) { h.CPU = &fleet.CPU{Count: 4, Load: 2, Used: 3, Pressure: -4} }, func(h *fleet.Health) { h.CPU = &fleet.CPU{Count: 4, Load: 2, Used: 1} }},
		{"too many classes on the disk", func(h *fleet.Health) { h.Usage = append(make([]fleet.ClassUsage, 99), fleet.ClassUsage{}) }, func(h *fleet.Health) { h.Usage = make([]fleet.ClassUsage, maxUsage) }},
		{"less than nothing on the disk", func(h *fleet.Health) { h.Usage = []fleet.ClassUsage{{Class: "caches", Bytes: -1, Files: -2}} }, func(h *fleet.Health) { h.Usage = []fleet.ClassUsage{{Class: "caches"}} }},
		{"busier than busy", func(h *fleet.Health) { h.IO = &fleet.IO{Busy: 2, Pressure: 200, Memory: -1} }, func(h *fleet.Health) { h.IO = &fleet.IO{Busy: 1, Pressure: 100} }},
		{"a full battery", func(h *fleet.Health) { h.Power = &fleet.Power{OnBattery: true, Percent: 300} }, func(h *fleet.Health) { h.Power = &fleet.Power{OnBattery: true, Percent: 100} }},
		{"a battery that is not known", func(h *fleet.Health) { h.Power = &fleet.Power{Percent: -20} }, func(h *fleet.Health) { h.Power = &fleet.Power{Percent: -1} }},
		{"a Docker of another world", func(h *fleet.Health) { h.Docker.State = "splendid" }, func(h *fleet.Health) { h.Docker.State = fleet.DockerUnknown }},
		{"a Docker verified tomorrow", func(h *fleet.Health) { h.Docker.Verified, h.Docker.VerifiedAge = true, -time.Hour }, func(h *fleet.Health) {}},
		{"all well", func(h *fleet.Health) {
			h.Memory, h.Docker = &fleet.Memory{Total: 6, Available: 5}, fleet.Docker{State: fleet.DockerReady, Version: "27", Compose: "2.27", Verified: true, VerifiedAge: time.Minute}
		}, nil},
	} {
		h, want := sample(1<<38), sample(1<<38)
		c.change(h)
		if c.want == nil {
			c.change(want)
		} else {
			c.want(want)
		}
		if d := cmp.Diff(want, soundHealth(h)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestBoundsOfWhatARunnerTells(t *testing.T) {
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, hex16(i))
		}
		return out
	}
	if n := len(strings.Fields(joinCaches(many(5 * maxCaches)))); n != maxCaches {
		t.Errorf("%d caches are kept, at most %d", n, maxCaches)
	}
	long := make([]string, 9*maxReasons)
	for i := range long {
		long[i] = strings.Repeat("y", 9*maxReasonOf)
	}
	if s := joinReasons(long); len(s) > maxReasons*(maxReasonOf+2) {
		t.Errorf("reasons of %d bytes", len(s))
	}
	big, minus := 99, -3
	if *offered(&big) != fleet.MaxAutomation || *offered(&minus) != 0 || offered(nil) != nil {
		t.Error("offered slots are not within bounds")
	}
	p := soundPressure(&fleet.Pressure{Floor: -4, Volumes: make([]fleet.Volume, 99), Usage: []fleet.ClassUsage{{Class: strings.Repeat("z", 999), Bytes: -1, Files: -1}}})
	if len(p.Volumes) != maxVolumes || !p.Partial || p.Floor != 0 || p.Usage[0].Bytes != 0 || p.Usage[0].Files != 0 || len(p.Usage[0].Class) > maxWord {
		t.Errorf("pressure %+v", p)
	}
}

func hex16(n int) string {
	const digits = "0123456789abcdef"
	b := []byte("0000000000000000")
	for i := len(b) - 1; n > 0; i, n = i-1, n/16 {
		b[i] = digits[n%16]
	}
	return string(b)
}

// FuzzHeartbeat: whatever a runner says of its machine, its heartbeat is answered or
// its session ends, and what is kept of it is within bounds.
func FuzzHeartbeat(f *testing.F) {
	for _, s := range []string{
		`{"full":true,"epoch":1,"slots":2,"count":1}`,
		`{"epoch":1,"slots":-1,"automation":-9,"limited_by":["a","","b"],"caches":["0123456789abcdef","0123456789ABCDEF"]}`,
		`{"epoch":1,"automation":99,"caches":[],"health":{"age_ns":-5,"workspace":{"known":true,"free":9,"total":8},"cache":{"known":true,"free":-1},"user_idle_ns":-9,"docker":{"state":"odd","verified":true,"verified_ns":-1}}}`,
		`{"epoch":1,"health":{"age_ns":9223372036854775807,"reserved":-1,"memory":{"total":-1},"cpu":{"count":-1,"load":1e308,"used":-1},"io":{"busy":9,"pressure":-9,"memory":1e9},"power":{"percent":-50},"uptime_ns":-1,"zone":"\u0000"}}`,
		`{"epoch":1,"health":null,"pressure":{"volumes":[{"path":"/","known":true,"free":1,"total":2}],"floor":-1,"usage":[{"class":"","bytes":-1}]}}`,
	} {
		f.Add([]byte(s))
	}
	b := newMachineBench(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		x := b.connect()
		rep, err := x.heartbeat(body)
		if err != nil || rep == nil {
			return
		}
		p := b.seen()
		if len(p.Caches) > maxCaches*(cacheDigits+1) || len(p.LimitedBy) > maxReasons*(maxReasonOf+2) || p.Slots < 0 ||
			p.Automation != nil && (*p.Automation < 0 || *p.Automation > fleet.MaxAutomation) {
			t.Fatalf("presence %+v", p)
		}
		if h := p.Health; h != nil {
			text, err := json.Marshal(h)
			if err != nil || len(text) > 64<<10 || !utf8.Valid(text) {
				t.Fatalf("a sample of %d bytes: %v", len(text), err)
			}
			if h.Age < 0 || h.Age > longest || h.Docker.VerifiedAge > longest || h.Reserved < 0 || h.Workspace.Free < 0 || h.Workspace.Free > h.Workspace.Total || h.Memory != nil && h.Memory.Available > h.Memory.Total {
				t.Fatalf("sample %s", text)
			}
		}
	})
}
