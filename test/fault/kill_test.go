//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// storm hands jobs in at three hubs while hubs and runners are killed with -9 at random
// moments: one, the same twice in a row, one and then another while the first comes
// back, all hubs at once. Whatever was acknowledged must be on record afterwards, must
// have run exactly once, and its output must be whole at every hub.
func storm(t *testing.T, last time.Duration) {
	c := prepare(t, 3)
	c.found()
	for range 2 {
		c.addRunner(4).start()
	}
	c.online()
	w := c.work()
	over := time.Now().Add(last)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var names []string
	for k := range 3 {
		wg.Go(func() {
			for i := 0; time.Now().Before(over); i++ {
				name := fmt.Sprintf("job-%d-%d", k, i)
				if _, err := w.trySubmit(name, 1+rand.IntN(12), 2*time.Minute); err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
				<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
			}
		})
	}
	kills, runnerKills := 0, 0
	again := func(h *hub) {
		h.p.Kill()
		kills++
		<-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond)
		h.start()
	}
	for time.Now().Before(over) {
		<-time.After(time.Duration(rand.IntN(3000)) * time.Millisecond)
		h := c.hubs[rand.IntN(len(c.hubs))]
		switch rand.IntN(8) {
		case 0, 1, 2:
			again(h)
		case 3: // twice in a row
			again(h)
			<-time.After(time.Duration(rand.IntN(500)) * time.Millisecond)
			again(h)
		case 4: // another one while the first comes back
			again(h)
			again(c.others(h)[rand.IntN(2)])
		case 5: // all at once
			for _, h := range c.hubs {
				h.p.Kill()
				kills++
			}
			for _, h := range c.hubs {
				h.start()
			}
		default:
			r := c.runners[rand.IntN(len(c.runners))]
			r.p.Kill()
			runnerKills++
			<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond)
			r.start()
		}
	}
	wg.Wait()
	c.voters(3)
	succeeded, lost := 0, 0
	for _, name := range names {
		j := c.ended(w.jobs[name], 2*time.Minute)
		switch traces := w.traces(name); {
		case j.State == fleet.Succeeded && traces == "began\nended\n":
			succeeded++
			w.kept(name)
		case j.State == fleet.Lost && (traces == "" || traces == "began\n" || traces == "began\nended\n"):
			lost++ // its runner was killed between the intent to start it and its start
		default:
			t.Errorf("job %s (%s) is %s (%s) and ran as %q", name, j.ID, j.State, j.Reason.Detail, traces)
		}
	}
	if got := c.count(); got != len(names) {
		t.Errorf("%d jobs on record; want %d", got, len(names))
	}
	t.Logf("%d jobs, hubs killed %d times, runners %d times: %d succeeded, %d lost", len(names), kills, runnerKills, succeeded, lost)
	if lost > runnerKills || succeeded < len(names)*8/10 {
		t.Errorf("%d of %d succeeded, %d are lost, with %d kills of runners", succeeded, len(names), lost, runnerKills)
	}
}

func TestStormOfKills(t *testing.T) {
	t.Parallel()
	storm(t, time.Minute)
}
