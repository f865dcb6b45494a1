package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestLogOfALostDiskIsSealedWhereItEnds: once a runner says that it has nothing of an
// attempt that has ended, its log is sealed at what the hub holds, and says that it is cut
// where that is less than there was.
func TestLogOfALostDiskIsSealedWhereItEnds(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	lost := wire.Lost{Detail: "nothing of it is here"}
	for name, c := range map[string]struct {
		promised, sent int
		cut            bool
	}{
		"some is missing":     {100, 40, true},
		"all is missing":      {100, 0, true},
		"it came whole":       {40, 40, false},
		"there never was any": {0, 0, false},
	} {
		j, f := h.assign(a.id)
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Accepted: &wire.Accepted{}}))
		fin := &wire.Finished{Exit: fleet.Exit{Reason: "exited"}, FinishedAt: time.Now().UTC(), Output: int64(c.promised)}
		if err := wire.SignFinished(a.sign, j, f, fin); err != nil {
			t.Fatal(err)
		}
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Finished: fin}))
		if c.sent > 0 {
			if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Data: make([]byte, c.sent)}); ack.Code != "" {
				t.Fatalf("%s: %+v", name, ack)
			}
		}
		// The seal is not recorded at the first try: the runner says it again.
		h.mu.Lock()
		h.fail = func(cmd state.Command) error {
			if _, is := cmd.(*state.SealLog); is {
				return fleet.Unavailable
			}
			return nil
		}
		h.mu.Unlock()
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Lost: &lost}), fleet.Unavailable, true)
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		ok(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Lost: &lost}))
		got := h.job(j)
		at := got.Current()
		if !at.Log.Sealed || at.Log.Durable != int64(c.sent) || got.State != fleet.Succeeded || at.State != fleet.AttemptFinished {
			t.Errorf("%s: job %s, attempt %s, log %+v", name, got.State, at.State, at.Log)
		}
		if n := len(at.Notes); (fleet.CutNote(at.Notes) != "") != c.cut || c.cut && (n != 1 || !strings.Contains(at.Notes[0], fmt.Sprintf("%d of 100", c.sent))) {
			t.Errorf("%s: notes %q", name, at.Notes)
		}
		if ack := a.wrote(k, wire.Output{Job: j, Fence: f, Stream: wire.StreamOutput, Offset: int64(c.sent), Data: []byte("more")}); ack.Code != fleet.LogSealed {
			t.Errorf("%s: bytes behind the seal: %+v", name, ack)
		}
		refused(t, a.report(k, wire.ReportItem{Job: j, Fence: f, Lost: &lost}), fleet.NotCurrent, false) // as before
	}
}
