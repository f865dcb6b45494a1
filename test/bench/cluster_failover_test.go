//go:build bench

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

const failovers = 11

// measureFailover kills the node that leads, again and again, while jobs are submitted
// at the others, and takes the time until one of those shows the first assignment that
// was committed after the kill. The nodes and the runner are processes.
func measureFailover(t *testing.T, s *sheet) {
	c := mesh.NewCluster(t, 3)
	c.Slots = slots
	c.Extra = []string{}
	c.StartRunner()
	c.Online()
	var took []float64
	for range failovers {
		lead := c.Leader()
		others := c.Followers()
		<-time.After(2 * time.Second) // the runner, and what the last round began, come to rest
		took = append(took, failover(t, c, lead, others))
		lead.Start()
		c.Voters(3)
	}
	s.most("kill -9 of the leader → first assignment by the next", "s", 3, "≤ 3 s", took...)
	s.note("   the longest", "s", quantile(took, 1))
}

// failover kills a node and gives the seconds until another one has assigned a job.
func failover(t *testing.T, c *mesh.Cluster, lead *mesh.Node, others []*mesh.Node) float64 {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer hc.CloseIdleConnections()
	at := make(chan time.Time, len(others))
	var killed time.Time
	ready := make(chan struct{}) // closed once killed is set
	for _, n := range others {
		cl := &client{t, n.URL(), "Bearer " + c.Token(), hc}
		res, err := cl.do(ctx, http.MethodGet, "/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer res.Body.Close()
			<-ready
			if seen, ok := firstAssignment(bufio.NewScanner(res.Body), killed); ok {
				at <- seen
			}
		})
	}
	killed = time.Now()
	close(ready)
	lead.Kill()
	for _, n := range others {
		cl := &client{t, n.URL(), "Bearer " + c.Token(), hc}
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil { // refused while nobody leads
				if res, err := cl.do(ctx, http.MethodPost, "/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: []string{"/bin/true"}}); err == nil {
					res.Body.Close()
				}
				<-tick.C
			}
		})
	}
	select {
	case seen := <-at:
		return seen.Sub(killed).Seconds()
	case <-ctx.Done():
		t.Fatal("nothing was assigned within a minute after the leader's end")
		return 0
	}
}

// firstAssignment gives the time at which a feed shows an assignment that was made after
// a moment.
func firstAssignment(lines *bufio.Scanner, after time.Time) (time.Time, bool) {
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e api.Event
		if !ok || json.Unmarshal([]byte(data), &e) != nil || e.Job == nil {
			continue
		}
		for _, turn := range e.Job.Turns {
			for _, a := range turn.Attempts {
				if a.AssignedAt.After(after) {
					return time.Now(), true
				}
			}
		}
	}
	return time.Time{}, false
}
