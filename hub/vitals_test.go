package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestAMachineInTroubleIsToldOf: from a runner's heartbeats to the record, the history, the
// alerts and the webhook.
func TestAMachineInTroubleIsToldOf(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), true)
	var mu sync.Mutex
	posted := map[string]fleet.Alert{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a fleet.Alert
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.ID != r.Header.Get("Tugline-Alert") {
			t.Errorf("posted %+v, %v, as %q", a, err, r.Header.Get("Tugline-Alert"))
		}
		mu.Lock()
		defer mu.Unlock()
		posted[a.ID] = a
	}))
	defer hook.Close()
	n.must(&state.Set{Name: fleet.SettingAlertWebhook, Value: hook.URL + "/secret"})
	n.must(&state.Set{Name: fleet.SettingFloorStart, Value: "plenty"})
	r := n.connect(n.ticketFor(1), 0)
	r.hear()
	room := fleet.Volume{Path: "/data", Known: true, Free: 40 << 30, Total: 100 << 30, Inodes: -1}
	low := room
	low.Free = 3 << 30
	sample := &fleet.Health{Workspace: room, Cache: room, Docker: fleet.Docker{State: fleet.DockerReady, Compose: "2.30.0", Verified: true}}
	r.say(wire.Heartbeat{Slots: 2, Count: 1, Health: sample})
	r.hear()
	record := func() *fleet.HealthRecord { it, _ := n.hub.entries.View().Runner(r.id); return it.Health }
	n.eventually("the machine has Docker on record", func() bool { return record() != nil && record().HadOnce })
	r.say(wire.Heartbeat{Slots: 2, Count: 1,
		Health:   &fleet.Health{Workspace: low, Cache: room},
		Pressure: &fleet.Pressure{Volumes: []fleet.Volume{low}, Floor: 10 << 30, Usage: []fleet.ClassUsage{{Class: "worktrees", Bytes: 50 << 30}}},
	})
	r.hear()
	alerts := func() (out []string) {
		for _, a := range n.hub.entries.View().Alerts(9) {
			out = append(out, a.Kind)
			if a.Delivered == nil || a.Failed != "" || a.Runner != r.id {
				return nil
			}
		}
		slices.Sort(out)
		return out
	}
	n.eventually("both alerts are delivered", func() bool { return strings.Join(alerts(), " ") == "low_disk storage_pressure" })
	if f, there := record().Fault(fleet.FaultDisk); !there || !strings.Contains(f.Detail, "3.0 GiB free at /data") {
		t.Errorf("on record: %+v", record())
	}
	mu.Lock()
	for _, a := range posted {
		if a.Kind == state.AlertPressure && (a.Pressure == nil || !strings.Contains(a.Text, "/data has 3.0 GiB of 100.0 GiB free; 10.0 GiB should be free; used by worktrees 50.0 GiB")) {
			t.Errorf("posted of the pressure: %+v", a)
		}
	}
	if len(posted) != 2 {
		t.Errorf("%d alerts were posted; want 2", len(posted))
	}
	mu.Unlock()
	// Whatever else a runner says of it, and whoever leads, there is one in five minutes.
	said := n.hub.entries.now().Unix()
	n.eventually("the next second", func() bool { return n.hub.entries.now().Unix() > said })
	newTerm(n.hub).raisePressure(t.Context(), r.id, &fleet.Pressure{Volumes: []fleet.Volume{low}, Floor: 10 << 30})
	if got := len(n.hub.entries.View().Alerts(9)); got != 2 {
		t.Errorf("%d alerts after the same was said again; want 2", got)
	}
	var h api.HealthHistory
	if code := n.call("GET", "/v1/runners/"+string(r.id)+"/health?window=1h", "", nil, &h); code != 200 || len(h.Points) == 0 || h.Points[0].Docker != fleet.DockerReady {
		t.Errorf("the history: %d, %+v", code, h)
	}
	var st api.Status
	if code := n.call("GET", "/v1/status", "", nil, &st); code != 200 || len(st.Warnings) != 1 || !strings.Contains(st.Warnings[0], "floor_start") {
		t.Errorf("status: %d, warnings %q; want one of floor_start", code, st.Warnings)
	}
	r.say(wire.Heartbeat{Slots: 2, Count: 1, Health: &fleet.Health{Workspace: room, Cache: room}})
	r.hear()
	n.eventually("the fault is over", func() bool { _, there := record().Fault(fleet.FaultDisk); return !there })
}

// TestALookHoldsUpNoReply: while a look at the queue goes on, however long, heartbeats are
// answered.
func TestALookHoldsUpNoReply(t *testing.T) {
	n := start(t, t.TempDir(), true)
	r := n.connect(n.ticketFor(1), 0)
	r.hear()
	l := newTerm(n.hub)
	look := l.look()
	looks, done := make(chan struct{}), make(chan struct{})
	release, seen := make(chan struct{}), look.Presence
	look.Presence = func() map[fleet.RunnerID]fleet.Presence {
		close(looks)
		<-release
		return seen()
	}
	n.agent("something that waits")
	go func() { defer close(done); l.placeBy(t.Context(), look) }()
	select {
	case <-looks:
	case <-time.After(10 * time.Second):
		t.Fatal("the look did not begin")
	}
	for range 50 {
		r.say(wire.Heartbeat{Slots: 2, Count: 1})
		r.hear()
	}
	select {
	case <-done:
		t.Error("the look was over meanwhile")
	default:
	}
	close(release)
	<-done
}

// TestVitalsAreBounded: so many machines in an entry, each once; who is removed is
// forgotten; and reports of pressure wait in bounded number.
func TestVitalsAreBounded(t *testing.T) {
	v := newVitals()
	enrolled := true
	v.record = func(fleet.RunnerID) (*fleet.HealthRecord, bool) { return nil, enrolled }
	v.floor = func() int64 { return 10 << 30 }
	v.at = time.Now
	now := time.Now()
	room := fleet.Volume{Known: true, Free: 40 << 30, Total: 100 << 30, Inodes: -1}
	for range 3 {
		for i := range 300 {
			v.sample(fleet.RunnerID(fmt.Sprint("r-", i)), &fleet.Health{Workspace: room, Cache: room}, now)
		}
	}
	v.sample("r-old", &fleet.Health{Age: fleet.HealthFresh + 1, Workspace: room}, now)
	seen, sizes := map[fleet.RunnerID]bool{}, ""
	for some := v.take(reportsAtOnce, now); len(some) > 0; some = v.take(reportsAtOnce, now) {
		sizes += fmt.Sprint(len(some), " ")
		for _, r := range some {
			if seen[r.ID] || r.Free != 40<<30 || r.Memory != -1 || r.Docker != fleet.DockerUnknown {
				t.Errorf("reported: %+v", r)
			}
			seen[r.ID] = true
		}
	}
	if sizes != "64 64 64 64 44 " {
		t.Errorf("reported %sat a time; want 64 at most, 300 in all", sizes)
	}
	v.sample("r-1", &fleet.Health{Workspace: room, Cache: room}, now.Add(time.Second))
	if some := v.take(reportsAtOnce, now); len(some) > 0 {
		t.Errorf("reported again after a second: %+v", some)
	}
	v.sample("r-1", &fleet.Health{Workspace: room, Cache: room}, now.Add(noticeAgain))
	enrolled = false
	v.sample("r-1", &fleet.Health{Workspace: room, Cache: room}, now.Add(noticeAgain))
	if some := v.take(reportsAtOnce, now); len(some) > 0 || len(v.all) != 299 {
		t.Errorf("of a removed machine: %+v; %d are kept in mind", some, len(v.all))
	}
	for i := range 2 * maxPressures {
		v.pressed(fleet.RunnerID(fmt.Sprint("r-", i)), &fleet.Pressure{})
	}
	if n := len(v.takePressures()); n != maxPressures || len(v.takePressures()) != 0 {
		t.Errorf("%d reports of pressure waited", n)
	}
}

// TestReportsFitAnEntry: as many machines as go together, with all that may be said of them.
func TestReportsFitAnEntry(t *testing.T) {
	long := strings.Repeat("\"", 4096)
	var some []state.HealthReport
	for i := range reportsAtOnce {
		rep := state.HealthReport{ID: fleet.RunnerID(fmt.Sprint(strings.Repeat("r", 40), i)), Free: 1 << 60, Memory: 1 << 60, Docker: fleet.DockerUnknown, Verified: true}
		for _, k := range fleet.FaultKinds {
			rep.Begun = append(rep.Begun, state.FaultReport{Kind: k, Detail: long})
		}
		shorten(rep.Begun)
		some = append(some, rep)
	}
	if _, err := state.Encode(state.Head{Actor: "hub"}, &state.RecordHealth{Runners: some}); err != nil {
		t.Error(err)
	}
}
