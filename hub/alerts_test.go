package hub

import (
	"fmt"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// TestPressureIsPostedSeldom: two disks are full for two hours, and their runners say so
// every five minutes. All of it is on record; the webhook hears of each once in half an
// hour, whatever became of the posts before, and of a third machine's at once.
func TestPressureIsPostedSeldom(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := &queue{t: t, Machine: state.New(), at: start}
	q.do(&state.InitCluster{Cluster: "c", Epoch: 1})
	posted := map[fleet.RunnerID][]string{}
	raise := func(kind string, r fleet.RunnerID) {
		t.Helper()
		id := fmt.Sprintf("%s-%s-%s", kind, r, q.at.Format("15:04"))
		q.do(&state.RaiseAlert{Alert: fleet.Alert{ID: id, Kind: kind, Runner: r, Text: "box: low"}, Every: fleet.PressureEvery})
	}
	for n := range 25 {
		q.at = start.Add(time.Duration(n) * fleet.PressureEvery)
		raise(state.AlertPressure, "r1")
		if n >= 2 {
			raise(state.AlertPressure, "r2")
		}
		if n == 4 {
			raise(state.AlertPressure, "r3")
			raise(state.AlertUnserved, "r1")
		}
		for _, a := range owedAlerts(q.View()) {
			posted[a.Runner] = append(posted[a.Runner], a.Kind+" "+a.At.Format("15:04"))
			q.do(&state.SettleAlert{ID: a.ID, Failed: []string{"", "not delivered"}[n%2]})
		}
	}
	if n := len(q.View().Alerts(fleet.MaxAlerts)); n != 25+23+2 {
		t.Errorf("%d alerts are on record", n)
	}
	for r, want := range map[fleet.RunnerID]string{
		"r1": "[storage_pressure 00:00 unserved 00:20 storage_pressure 00:30 storage_pressure 01:00 storage_pressure 01:30 storage_pressure 02:00]",
		"r2": "[storage_pressure 00:10 storage_pressure 00:40 storage_pressure 01:10 storage_pressure 01:40]",
		"r3": "[storage_pressure 00:20]",
	} {
		if got := fmt.Sprint(posted[r]); got != want {
			t.Errorf("of %s was posted %s\nwant %s", r, got, want)
		}
	}
	// Oldest first.
	q.at = q.at.Add(time.Hour)
	raise(state.AlertPressure, "r2")
	q.at = q.at.Add(time.Minute)
	raise(state.AlertPressure, "r1")
	if got := owedAlerts(q.View()); len(got) != 2 || got[0].Runner != "r2" || got[1].Runner != "r1" {
		t.Errorf("owed: %+v", got)
	}
}
