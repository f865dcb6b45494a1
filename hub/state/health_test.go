package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// saw gives a report of one machine: "+disk" is a fault that is there, "-disk" one
// that is not.
func saw(id fleet.RunnerID, faults ...string) HealthReport {
	rep := HealthReport{ID: id, Free: 5 << 30, Memory: 8 << 30, Docker: fleet.DockerReady, Verified: true}
	for _, f := range faults {
		one := FaultReport{Kind: fleet.FaultKind(f[1:]), Detail: "3 GiB free at /data"}
		if f[0] == '+' {
			rep.Begun = append(rep.Begun, one)
		} else {
			one.Detail = ""
			rep.Ended = append(rep.Ended, one)
		}
	}
	return rep
}

// TestAlertsOfHealth: one alert a state, spaced by fault and machine, and that a fault
// is over is told only to those who were told of it.
func TestAlertsOfHealth(t *testing.T) {
	type step struct {
		after  time.Duration // since the start
		faults string        // of r1
		want   string        // alerts of this step
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"once a state", []step{{0, "+disk", "low_disk"}, {time.Minute, "+disk", ""}, {3 * time.Hour, "+disk", ""}, {4 * time.Hour, "-disk", "recovered"}, {5 * time.Hour, "-disk", ""}}},
		{"well from the start", []step{{0, "-disk -memory -docker -offline", ""}}},
		{"each fault has its own", []step{{0, "+disk +memory", "low_disk low_memory"}, {time.Minute, "-disk +docker +offline", "recovered docker_lost offline"}}},
		{"flapping", []step{{0, "+disk", "low_disk"}, {time.Minute, "-disk", "recovered"}, {2 * time.Minute, "+disk", ""}, {3 * time.Minute, "-disk", ""}, {4 * time.Minute, "+disk", ""}, {29 * time.Minute, "+disk", ""}, {30 * time.Minute, "+disk", "low_disk"}, {31 * time.Minute, "+disk", ""}, {32 * time.Minute, "-disk", "recovered"}}},
		{"a later report of something else is in time too", []step{{0, "+disk", "low_disk"}, {time.Minute, "-disk", "recovered"}, {2 * time.Minute, "+disk", ""}, {40 * time.Minute, "-memory", "low_disk"}}},
		{"over before it was told", []step{{0, "+disk", "low_disk"}, {time.Minute, "-disk", "recovered"}, {2 * time.Minute, "+disk", ""}, {time.Hour, "-disk", ""}}},
		{"long apart", []step{{0, "+disk", "low_disk"}, {time.Minute, "-disk", "recovered"}, {30 * time.Minute, "+disk", "low_disk"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.enrol("r1")
			begin := g.now.Add(time.Second)
			for i, s := range c.steps {
				g.now = begin.Add(s.after - time.Second)
				_, changes := g.apply(Head{Actor: "hub"}, &RecordHealth{Runners: []HealthReport{saw("r1", strings.Fields(s.faults)...)}})
				var got []string
				for _, ch := range changes {
					if ch.What == "alert" {
						got = append(got, ch.Alert.Kind)
					}
				}
				if d := cmp.Diff(s.want, strings.Join(got, " ")); d != "" {
					t.Errorf("step %d, %s after the start (-want +got):\n%s", i+1, s.after, d)
				}
			}
			if n := len(g.m.View().Audit(0, 100)); n != 3 {
				t.Errorf("%d audit records; what the hub sees leaves none", n)
			}
		})
	}
}

func TestDockerIsLostOnlyWhereItWas(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	rep := saw("r1", "+docker")
	rep.Verified, rep.Docker = false, fleet.DockerAbsent
	g.do(&RecordHealth{Runners: []HealthReport{rep}})
	if h := g.runner("r1").Health; len(h.Faults)+len(h.Changes)+len(g.m.View().Alerts(9)) > 0 {
		t.Errorf("%+v; it never had Docker", h)
	}
	g.do(&RecordHealth{Runners: []HealthReport{saw("r1", "-docker")}})
	g.do(&RecordHealth{Runners: []HealthReport{rep}})
	if _, is := g.runner("r1").Health.Fault(fleet.FaultDocker); !is {
		t.Errorf("%+v; it had Docker, and lost it", g.runner("r1").Health)
	}
}

func TestRecordHealth(t *testing.T) {
	g := newRig(t)
	g.enrol("r1")
	g.enrol("r2")
	res, changes := g.apply(Head{Actor: "hub"}, &RecordHealth{Runners: []HealthReport{saw("r1", "+disk"), saw("gone"), saw("r2")}})
	if res.Code != "" || len(changes) != 3 {
		t.Fatalf("%+v with %d changes; want an alert and both machines, whose Docker is news", res, len(changes))
	}
	began := g.now
	h := g.runner("r1").Health
	want := &fleet.HealthRecord{At: began, Free: 5 << 30, Memory: 8 << 30, Docker: fleet.DockerReady, HadOnce: true,
		Faults:  []fleet.Fault{{Kind: fleet.FaultDisk, Since: began, Detail: "3 GiB free at /data", Alerted: &began}},
		Changes: []fleet.ClassChange{{Kind: fleet.FaultDisk, On: true, At: began, Text: "3 GiB free at /data"}}}
	if d := cmp.Diff(want, h); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
	a := g.m.View().Alerts(9)
	if len(a) != 1 || a[0].Text != "r1: low disk space: 3 GiB free at /data" || a[0].Runner != "r1" || a[0].Name != "r1" || !a[0].At.Equal(began) {
		t.Errorf("alerts %+v", a)
	}
	for kind, want := range map[fleet.FaultKind][2]string{
		fleet.FaultMemory:  {"r2: low memory: 3 GiB free at /data", "r2: enough memory again"},
		fleet.FaultDocker:  {"r2: no Docker: 3 GiB free at /data", "r2: Docker again"},
		fleet.FaultOffline: {"r2: offline: 3 GiB free at /data", "r2: back online"},
		fleet.FaultDisk:    {"r2: low disk space: 3 GiB free at /data", "r2: enough disk space again"},
	} {
		g.do(&RecordHealth{Runners: []HealthReport{saw("r2", "+"+string(kind))}})
		begun := g.m.View().Alerts(1)[0].Text
		g.do(&RecordHealth{Runners: []HealthReport{saw("r2", "-"+string(kind))}})
		if over := g.m.View().Alerts(1)[0].Text; begun != want[0] || over != want[1] {
			t.Errorf("%s is told as %q, and its end as %q; want %q", kind, begun, over, want)
		}
	}
	// Figures alone are kept and are no news.
	rep := saw("r1", "+disk")
	rep.Free, rep.Begun[0].Detail = 1<<30, "1 GiB free at /data"
	_, changes = g.apply(Head{Actor: "hub"}, &RecordHealth{Runners: []HealthReport{rep}})
	if f, _ := g.runner("r1").Health.Fault(fleet.FaultDisk); len(changes) != 0 || g.runner("r1").Health.Free != 1<<30 || f.Detail != "1 GiB free at /data" || !f.Since.Equal(began) {
		t.Errorf("%d changes, record %+v", len(changes), g.runner("r1").Health)
	}
	if h.Free != 5<<30 || len(h.Changes) != 1 {
		t.Errorf("a record that was given out has changed: %+v", h)
	}
	for range fleet.MaxClassChanges {
		g.do(&RecordHealth{Runners: []HealthReport{saw("r1", "-disk")}})
		g.do(&RecordHealth{Runners: []HealthReport{saw("r1", "+disk")}})
	}
	if h := g.runner("r1").Health; len(h.Changes) != fleet.MaxClassChanges || !h.Changes[fleet.MaxClassChanges-1].At.Equal(g.now) || len(h.Faults) != 1 {
		t.Errorf("%d changes and %d faults are kept", len(h.Changes), len(h.Faults))
	}
	g.refused(fleet.BadRequest, &RecordHealth{Runners: []HealthReport{saw("r2", "+disk"), saw("r1", "+noise")}})
	g.refused(fleet.TooLarge, &RecordHealth{Runners: slices.Repeat([]HealthReport{saw("r1")}, maxReports+1)})
	snap := snapshot(t, g.m)
	if again := snapshot(t, restored(t, snap)); string(snap) != string(again) {
		t.Error("a restored snapshot differs")
	}
}

// TestAlertSpacingProperty: however faults come and go, two alerts about one fault of
// one machine are at least the spacing apart, every fault that lasts is told, and
// nothing is told to be over that was not told to be there.
func TestAlertSpacingProperty(t *testing.T) {
	kindOf := map[string]fleet.FaultKind{AlertDisk: fleet.FaultDisk, AlertMemory: fleet.FaultMemory}
	rapid.Check(t, func(rt *rapid.T) {
		g := newRig(t)
		g.enrol("r1")
		g.enrol("r2")
		last, open := map[string]time.Time{}, map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			g.now = g.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "minutes")) * time.Minute)
			id := rapid.SampledFrom([]fleet.RunnerID{"r1", "r2"}).Draw(rt, "runner")
			rep := saw(id, rapid.SampledFrom([]string{"+disk", "-disk", "+memory", "-memory"}).Draw(rt, "fault"))
			_, changes := g.apply(Head{Actor: "hub"}, &RecordHealth{Runners: []HealthReport{rep}})
			for _, c := range changes {
				if c.What != "alert" {
					continue
				}
				a := c.Alert
				if a.Kind == AlertRecovered {
					kind := fleet.FaultDisk
					if strings.Contains(a.Text, "memory") {
						kind = fleet.FaultMemory
					}
					key := fmt.Sprint(a.Runner, kind)
					if !open[key] {
						rt.Fatalf("%s: nobody was told that it began", a.Text)
					}
					open[key] = false
					continue
				}
				key := fmt.Sprint(a.Runner, kindOf[a.Kind])
				if was, ok := last[key]; ok && a.At.Sub(was) < fleet.AlertEvery {
					rt.Fatalf("%s: told %s after the last", a.Text, a.At.Sub(was))
				}
				last[key], open[key] = a.At, true
			}
			for _, f := range g.runner(id).Health.Faults {
				if AlertDue(f, g.now) {
					rt.Fatalf("%s of %s is due, and was not told", f.Kind, id)
				}
			}
		}
	})
}
