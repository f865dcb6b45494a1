//go:build bench

package bench

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// measureTasks takes whole tasks through the log of three hubs over the tunnel, beside
// a JetStream of three servers that syncs every write.
func measureTasks(t *testing.T, s *sheet) {
	other := jetstream(t, 3, turnSpan)
	all := threeHubs(t, false)
	h := leads(t, all)
	var runners []fleet.RunnerID
	for range workers / 8 {
		runners = append(runners, enrol(t, h.Hub))
	}
	var lead atomic.Pointer[trioHub]
	lead.Store(h)
	var failed atomic.Int64
	turn := func() (tasks float64, passed time.Duration) {
		var done atomic.Int64
		begin := time.Now()
		rate(workers, turnSpan, func(w int) {
			if err := tryTask(lead.Load().Hub, runners[w/8]); err != nil {
				failed.Add(1)
				lead.Store(leads(t, all))
				return
			}
			done.Add(1)
		})
		return float64(done.Load()), time.Since(begin)
	}
	other() // warm
	turn()
	var ours, theirs, ratio, cost []float64
	for range rounds {
		var n, o float64
		var passed time.Duration
		before, cpu := time.Duration(0), time.Duration(0)
		for range turnsEach {
			o += other() / turnsEach
			before = used()
			k, d := turn()
			cpu += used() - before
			n, passed = n+k, passed+d
		}
		r := n / passed.Seconds()
		ours, theirs, ratio, cost = append(ours, r), append(theirs, o), append(ratio, r/o), append(cost, float64(cpu.Microseconds())/n)
	}
	s.note("JetStream R3, sync always: publish, pull, double ack", "/s", theirs...)
	s.note("whole task on three nodes without a process, 256 workers", "/s", ours...)
	s.note("   CPU a task on three nodes", "µs", cost...)
	s.least("whole task on three nodes ÷ JetStream R3", "", 1.1, "≥ 1.10", ratio...)
	s.note("tasks that failed, over a change of leaders", "", float64(failed.Load()))
}

const (
	perSecond = 200 // jobs that are submitted, whatever becomes of those before
	paceSpan  = 4 * time.Second
	paceCrowd = 16 // runners that are connected to the leader
)

// measurePace has jobs come at a steady pace, and looks at how long it takes until each
// is assigned and until its runner holds the order. Nothing waits for a process: what a
// runner reports is committed as soon as it holds the order.
func measurePace(t *testing.T, s *sheet) {
	all := threeHubs(t, false)
	h := leads(t, all)
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer hc.CloseIdleConnections()
	c := &client{t, h.URL(), "Bearer " + h.token, hc}
	var held sync.Map // when the order of a job arrived
	secret := ticketOf(t, c, paceCrowd)
	var wg sync.WaitGroup
	var puppets []*puppet
	for i := range paceCrowd {
		p, err := enrolPuppet(hc, h.URL(), secret, i)
		if err == nil {
			p.slots = 64
			err = p.link(h.URL(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		puppets = append(puppets, p)
		wg.Go(func() {
			for {
				orders, err := p.orders()
				if err != nil {
					return // the connection was closed
				}
				for _, d := range orders {
					if _, seen := held.LoadOrStore(d.Job, time.Now()); !seen {
						go report(h.Hub, d.Job, d.Fence) // one that is lost with its leader takes a slot of many
					}
				}
			}
		})
	}
	defer func() {
		for _, p := range puppets {
			p.conn.Close()
		}
		wg.Wait()
	}()
	wg.Go(func() {
		for puppetsBeat(puppets) == nil {
			<-time.After(2 * time.Second)
		}
	})
	paced(t, c, h, &held, time.Second) // warm
	var got []paces
	for range rounds {
		got = append(got, paced(t, c, h, &held, paceSpan))
	}
	at := func(q float64, of func(paces) []float64) []float64 {
		return pick(got, func(p paces) float64 { return quantile(of(p), q) })
	}
	submitted, placed, arrived := func(p paces) []float64 { return p.submitted }, func(p paces) []float64 { return p.placed }, func(p paces) []float64 { return p.arrived }
	what := fmt.Sprintf("submit → assignment, %d/s", perSecond)
	s.note("   part: HTTP in → submit committed → answer, p50", "ms", at(0.5, submitted)...)
	s.most(what+", p50", "ms", 4, "≤ 4 ms", at(0.5, placed)...)
	s.most(what+", p99", "ms", 25, "≤ 25 ms", at(0.99, placed)...)
	s.note(fmt.Sprintf("submit → order at its runner, %d/s, p50", perSecond), "ms", at(0.5, arrived)...)
	s.note(fmt.Sprintf("submit → order at its runner, %d/s, p99", perSecond), "ms", at(0.99, arrived)...)
}

// paces are milliseconds from when a submit was due: to its answer, to the assignment as
// the leader applied it, and to the order at its runner.
type paces struct{ submitted, placed, arrived []float64 }

// paced submits for a time.
func paced(t *testing.T, c *client, h *trioHub, held *sync.Map, span time.Duration) (all paces) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	begin := time.Now()
	for n := 0; n < int(span.Seconds()*perSecond) && !t.Failed(); n++ {
		due := begin.Add(time.Duration(n) * time.Second / perSecond)
		for time.Now().Before(due) {
			<-tick.C
		}
		wg.Go(func() {
			var j api.Job
			c.call(http.MethodPost, "/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j)
			if j.ID == "" {
				return // the error is said
			}
			answered := ms(time.Since(due))
			look := time.NewTicker(250 * time.Microsecond)
			defer look.Stop()
			for !assigned(h.inside.View(), j.ID) {
				if time.Since(due) > 30*time.Second {
					t.Errorf("job %s is not assigned", j.ID)
					return
				}
				<-look.C
			}
			took := ms(time.Since(due))
			for at, ok := held.Load(j.ID); ; at, ok = held.Load(j.ID) {
				if ok {
					mu.Lock()
					all.submitted, all.placed = append(all.submitted, answered), append(all.placed, took)
					all.arrived = append(all.arrived, ms(at.(time.Time).Sub(due)))
					mu.Unlock()
					return
				}
				if time.Since(due) > 30*time.Second {
					t.Errorf("job %s does not reach its runner", j.ID)
					return
				}
				<-look.C
			}
		})
	}
	wg.Wait()
	return all
}

func assigned(v state.View, id fleet.JobID) bool {
	j, ok := v.Job(id)
	return ok && len(j.Turns) > 0 && len(j.Turns[0].Attempts) > 0
}

func puppetsBeat(all []*puppet) error {
	for _, p := range all {
		if err := p.say(wire.TypeHeartbeat, p.heartbeat()); err != nil {
			return err
		}
	}
	return nil
}
