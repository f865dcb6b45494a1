package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func alert(id string) fleet.Alert {
	return fleet.Alert{ID: id, Kind: AlertPressure, Runner: "r1", Name: "r1", Text: "r1: the disk fills up"}
}

func TestRaiseAlert(t *testing.T) {
	g := newRig(t)
	a := alert("one")
	a.At, a.Failed = epoch0.Add(-time.Hour), "nobody asked"
	res, changes := g.apply(Head{Actor: "hub"}, &RaiseAlert{Alert: a})
	if res.ID != "one" || len(changes) != 1 || changes[0].What != "alert" || changes[0].Alert.ID != "one" {
		t.Fatalf("%+v with changes %+v", res, changes)
	}
	if got, _ := g.m.View().Alert("one"); !got.At.Equal(g.now) || got.Failed != "" {
		t.Errorf("%+v; its time is that of the state, and nothing has become of it", got)
	}
	g.repeated(&RaiseAlert{Alert: a})

	// With a spacing the last of its kind about its runner counts.
	every := fleet.PressureEvery
	if res := g.repeated(&RaiseAlert{Alert: alert("two"), Every: every}); res.ID != "one" {
		t.Errorf("the alert that stands for it is %q", res.ID)
	}
	other := alert("three")
	other.Runner = "r2"
	g.do(&RaiseAlert{Alert: other, Every: every})
	other.ID, other.Runner, other.Kind = "four", "r1", AlertUnserved
	g.do(&RaiseAlert{Alert: other, Every: every})
	g.now = g.now.Add(every)
	g.do(&RaiseAlert{Alert: alert("two"), Every: every})

	full := func(change func(*fleet.Alert)) fleet.Alert {
		a := alert("bad")
		a.Pressure = &fleet.Pressure{}
		change(&a)
		return a
	}
	for name, a := range map[string]fleet.Alert{
		"no id":            full(func(a *fleet.Alert) { a.ID = "" }),
		"a long id":        full(func(a *fleet.Alert) { a.ID = strings.Repeat("x", maxAlertID+1) }),
		"no kind":          full(func(a *fleet.Alert) { a.Kind = "" }),
		"no text":          full(func(a *fleet.Alert) { a.Text = "" }),
		"a long text":      full(func(a *fleet.Alert) { a.Text = strings.Repeat("x", maxAlertText+1) }),
		"many volumes":     full(func(a *fleet.Alert) { a.Pressure.Volumes = make([]fleet.Volume, maxVolumes+1) }),
		"many classes":     full(func(a *fleet.Alert) { a.Pressure.Usage = make([]fleet.ClassUsage, maxUsage+1) }),
		"a long name":      full(func(a *fleet.Alert) { a.Name = strings.Repeat("x", maxAlertID+1) }),
		"a long runner id": full(func(a *fleet.Alert) { a.Runner = fleet.RunnerID(strings.Repeat("x", maxAlertID+1)) }),
	} {
		if res := g.try(&RaiseAlert{Alert: a}); res.Code != fleet.BadRequest {
			t.Errorf("%s: %q (%s)", name, res.Code, res.Detail)
		}
	}
}

func TestSettleAlert(t *testing.T) {
	g := newRig(t)
	g.refused(fleet.NotFound, &SettleAlert{ID: "one"})
	g.do(&RaiseAlert{Alert: alert("one")})
	g.do(&RaiseAlert{Alert: alert("two")})
	g.do(&SettleAlert{ID: "one"})
	if a, _ := g.m.View().Alert("one"); a.Delivered == nil || !a.Delivered.Equal(g.now) || a.Failed != "" {
		t.Errorf("%+v; want it delivered", a)
	}
	g.repeated(&SettleAlert{ID: "one", Failed: "too late"})
	g.do(&SettleAlert{ID: "two", Failed: "it answers 500"})
	if a, _ := g.m.View().Alert("two"); a.Delivered != nil || a.Failed != "it answers 500" {
		t.Errorf("%+v; want it given up", a)
	}
	g.repeated(&SettleAlert{ID: "two"})
	if n := g.m.View().Count("alerts"); n != 2 {
		t.Errorf("%d alerts are counted", n)
	}
}

// TestAlertsAreBounded: the oldest go, also after a restored snapshot.
func TestAlertsAreBounded(t *testing.T) {
	g := newRig(t)
	const more = 20
	for i := range fleet.MaxAlerts + more {
		if i == fleet.MaxAlerts {
			g.m = restored(t, snapshot(t, g.m))
		}
		g.do(&RaiseAlert{Alert: alert(fmt.Sprintf("a-%d", i))})
	}
	all := g.m.View().Alerts(2 * fleet.MaxAlerts)
	if len(all) != fleet.MaxAlerts || g.m.View().Count("alerts") != fleet.MaxAlerts {
		t.Fatalf("%d alerts, counted %d", len(all), g.m.View().Count("alerts"))
	}
	if !slices.IsSortedFunc(all, func(a, b *fleet.Alert) int { return b.At.Compare(a.At) }) || all[0].ID != fmt.Sprintf("a-%d", fleet.MaxAlerts+more-1) || all[len(all)-1].ID != fmt.Sprintf("a-%d", more) {
		t.Errorf("from %s to %s; want the newest first and the oldest gone", all[0].ID, all[len(all)-1].ID)
	}
	if n := len(g.m.View().Alerts(3)); n != 3 {
		t.Errorf("%d alerts where 3 were asked for", n)
	}
	snap := snapshot(t, g.m)
	if again := snapshot(t, restored(t, snap)); string(snap) != string(again) {
		t.Error("a restored snapshot differs")
	}
}
