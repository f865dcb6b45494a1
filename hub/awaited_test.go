package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestRunnersOfTheLeaderBeforeAreAwaitedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := func(id string, ago time.Duration, connected bool) fleet.Presence {
			return fleet.Presence{Runner: fleet.RunnerID(id), Connected: connected, LastBeat: time.Now().Add(-ago), Slots: 2, Session: "s"}
		}
		w := expecting([]fleet.Presence{was("r-back", 2*time.Second, true), was("r-late", 3*time.Second, true), was("r-gone", time.Hour, false)}, []fleet.RunnerID{"r-busy", "r-busy", "r-gone"})
		own := []fleet.Presence{was("r-back", 0, true), was("r-late", time.Minute, false)}
		find := func(id string) (p fleet.Presence) {
			for _, q := range w.beside(own) {
				if string(q.Runner) == id {
					p = q
				}
			}
			return p
		}
		if p := find("r-back"); !p.Connected || p.Awaited {
			t.Errorf("a runner that is back is shown as %+v", p)
		}
		if p := find("r-late"); p.Connected || !p.Awaited || p.Slots != 0 || p.Session != "" || time.Since(p.LastBeat) != 3*time.Second {
			t.Errorf("one that is expected is shown as %+v", p)
		}
		if p := find("r-gone"); p.Awaited {
			t.Errorf("one that was away before is awaited: %+v", p)
		}
		if p := find("r-busy"); p.Connected || !p.Awaited {
			t.Errorf("one that has work and was not told of yet is shown as %+v", p)
		}
		// It came, and went.
		own[1].LastBeat = time.Now()
		if p := find("r-late"); p.Awaited {
			t.Errorf("one that came and went is awaited still: %+v", p)
		}
		own[1].LastBeat = time.Now().Add(-time.Minute)
		time.Sleep(awaitTime + time.Second)
		if p := find("r-late"); p.Awaited {
			t.Errorf("after %s it is awaited still", awaitTime)
		}
	})
}
