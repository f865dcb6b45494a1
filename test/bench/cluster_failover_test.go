//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

const failovers = 11

// measureFailover kills the node that leads, again and again. At each of the others
// jobs are submitted all the while, and the time ends when the first is assigned. The
// nodes and the runner are processes.
func measureFailover(t *testing.T, s *sheet) {
	c := mesh.NewCluster(t, 3)
	c.Slots = slots
	c.StartRunner()
	c.Online()
	var took, accepted []float64
	for range failovers {
		lead := c.Leader()
		others := c.Followers()
		<-time.After(2 * time.Second) // the runner, and what the last round began, come to rest
		served, assigned := failover(t, c, lead, others)
		accepted, took = append(accepted, served), append(took, assigned)
		lead.Start()
		c.Voters(3)
	}
	s.note("   part: kill -9 of the leader → a job is taken", "s", accepted...)
	s.most("kill -9 of the leader → first assignment by the next", "s", 3, "≤ 3 s", took...)
	s.note("   the longest", "s", quantile(took, 1))
}

// failover kills a node and gives the seconds until others have taken a job and until
// one of them has assigned it.
func failover(t *testing.T, c *mesh.Cluster, lead *mesh.Node, others []*mesh.Node) (taken, assigned float64) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer hc.CloseIdleConnections()
	at, took := make(chan time.Time, 1), make(chan time.Time, 1)
	killed := time.Now()
	lead.Kill()
	for _, n := range others {
		cl := &client{t, n.URL(), "Bearer " + c.Token(), hc}
		wg.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ; ctx.Err() == nil; <-tick.C { // what is handed on to the dead leader is not waited for
				wg.Go(func() { place(ctx, cl, took, at) })
			}
		})
	}
	select {
	case seen := <-at:
		return (<-took).Sub(killed).Seconds(), seen.Sub(killed).Seconds()
	case <-ctx.Done():
		t.Fatal("nothing was assigned within a minute after the leader's end")
		return 0, 0
	}
}

// place submits a job once, and tells when it was taken and when it is assigned.
func place(ctx context.Context, c *client, taken, assigned chan<- time.Time) {
	first := func(to chan<- time.Time) {
		select {
		case to <- time.Now():
		default: // another job was faster
		}
	}
	var j api.Job
	c.try(ctx, http.MethodPost, "/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: []string{"/bin/true"}}, &j)
	if j.ID == "" {
		return // refused while nobody leads
	}
	first(taken)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		if c.try(ctx, http.MethodGet, "/v1/jobs/"+string(j.ID), nil, &j); len(j.Turns) > 0 && len(j.Turns[0].Attempts) > 0 {
			first(assigned)
			return
		}
	}
}

// try is call where an error is to be expected.
func (c *client) try(ctx context.Context, method, path string, body, into any) {
	res, err := c.do(ctx, method, path, body)
	if err != nil {
		return
	}
	defer res.Body.Close()
	json.NewDecoder(res.Body).Decode(into) // what is not read is asked for again
}
