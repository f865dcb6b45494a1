package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestWhatAnEndTells: all that retries, circuits and reservations go by is recorded,
// and what cannot be so is cut, for an end is never refused for it.
func TestWhatAnEndTells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		told wire.Finished
		want state.FinishAttempt
	}{
		{"nothing", wire.Finished{}, state.FinishAttempt{}},
		{"all", wire.Finished{RetryAfter: time.Minute, StatedEnd: "resets 3am", Acted: true, Account: "5f", Footprint: 7 << 30},
			state.FinishAttempt{RetryAfter: time.Minute, StatedEnd: "resets 3am", Acted: true, Account: "5f", Footprint: 7 << 30}},
		{"below zero", wire.Finished{RetryAfter: -time.Minute, Footprint: -1}, state.FinishAttempt{}},
		{"too much", wire.Finished{RetryAfter: 1 << 62, StatedEnd: strings.Repeat("x", 100<<10), Account: strings.Repeat("y", 100<<10), Footprint: 1 << 62},
			state.FinishAttempt{RetryAfter: fleet.QuotaFarthest, StatedEnd: fleet.CutText(strings.Repeat("x", 100<<10), maxPath), Account: fleet.CutText(strings.Repeat("y", 100<<10), maxPath), Footprint: fleet.MaxFloor}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			a := h.enrolled()
			k := a.link()
			j, f := h.assign(a.id)
			fin := c.told
			fin.Exit, fin.Class, fin.FinishedAt = fleet.Exit{Reason: "exited"}, fleet.ClassOK, time.Now()
			if err := wire.SignFinished(a.sign, j, f, &fin); err != nil {
				t.Fatal(err)
			}
			ok(t, a.report(k,
				wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}},
				wire.ReportItem{Job: j, Fence: f, Facts: []wire.Fact{{Seq: 1, Kind: "responded", Value: json.RawMessage("true")}}},
				wire.ReportItem{Job: j, Fence: f, Finished: &fin}))
			h.mu.Lock()
			last := h.commands[len(h.commands)-1]
			h.mu.Unlock()
			got, is := last.(*state.FinishAttempt)
			if !is || got.RetryAfter != c.want.RetryAfter || got.StatedEnd != c.want.StatedEnd || got.Acted != c.want.Acted || got.Account != c.want.Account || got.Footprint != c.want.Footprint {
				t.Errorf("recorded as %+v", last)
			}
			if !h.job(j).Turn().Attempts[0].Responded {
				t.Error("that its provider responded is not recorded")
			}
		})
	}
}
