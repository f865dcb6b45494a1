//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/test/mesh"
)

const (
	crowd       = 500             // runners that a cluster brings over at once
	findsWithin = 3 * time.Second // of a new leader's first answer
)

// TestSoakCrowdFindsTheNewLeader: five hundred runners, each with its own real connection,
// and the leader is killed: they are all with the next one within three seconds of its
// beginning to lead.
func TestSoakCrowdFindsTheNewLeader(t *testing.T) {
	c := mesh.NewCluster(t, 3)
	var k api.Ticket
	c.JSON(&k, "hub", "ticket", "--uses", fmt.Sprint(crowd), "--json")
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for i := range crowd {
		r, err := runner.New(runner.Config{
			Dir: filepath.Join(c.Dir, "crowd", fmt.Sprint(i)), Name: fmt.Sprint("crowd-", i), Slots: 1, Ticket: k.Ticket, Self: mesh.Binary(), Version: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Errorf("runner %d: %v", i, err)
			}
		})
		if i%25 == 24 { // so many enrol at a time
			c.Eventually(30*time.Second, "they are enrolled", func() bool { return enrolled(c.Dir) > i })
		}
	}
	status := func(n *mesh.Node) (s api.Status, ok bool) {
		out, _, code := n.CLI().Try("hub", "status", "--json")
		return s, code == 0 && json.Unmarshal([]byte(out), &s) == nil
	}
	for round := range 3 {
		lead := c.Leader()
		c.Eventually(time.Minute, "all are connected", func() bool {
			s, ok := status(lead)
			return ok && s.Online == crowd
		})
		before := used()
		killed := time.Now()
		lead.Kill()
		var next *mesh.Node
		c.Eventually(20*time.Second, "another node leads", func() bool {
			for _, n := range c.Nodes {
				if n == lead {
					continue
				}
				if s, ok := status(n); ok && s.Leader == n.ID && s.From == n.ID {
					next = n
				}
			}
			return next != nil
		})
		led := time.Now()
		online := 0
		c.Eventually(30*time.Second, "all have found it", func() bool {
			s, ok := status(next)
			online = s.Online
			return ok && online == crowd
		})
		took := time.Since(led)
		t.Logf("round %d: another node leads %s after the kill, all %d runners are with it %s later; CPU of the runners and the test %s", round+1, led.Sub(killed).Round(time.Millisecond), crowd, took.Round(time.Millisecond), (used() - before).Round(time.Millisecond))
		if took > findsWithin {
			t.Errorf("all were with the new leader after %s; want %s", took, findsWithin)
		}
		lead.Start()
		c.Voters(3)
	}
}

// enrolled counts the runners that are.
func enrolled(dir string) int {
	all, _ := filepath.Glob(filepath.Join(dir, "crowd", "*", "identity.json"))
	return len(all)
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
