package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// The hubs' TCP ports are at names that nobody can resolve; only their UDP ports are
// told with addresses.
func TestRunnerThroughTheHubsTunnel(t *testing.T) {
	t.Parallel()
	c := mesh.NewCluster(t, 3, func(n *mesh.Node) {
		n.TLS = true
		n.Extra = []string{"--public-url", fmt.Sprintf("https://node%d.invalid:7440", n.N)}
	})
	c.Ticket, c.Extra = []string{"--via-mesh"}, []string{"--via-mesh"}
	c.StartRunner()
	c.Online()
	var r api.Runner
	c.JSON(&r, "runner", "get", "r1", "--json")
	if !strings.HasPrefix(r.Address, "[fd") && !strings.HasPrefix(r.Address, "fd") {
		t.Errorf("the runner comes from %q; want an address inside the tunnel", r.Address)
	}
	argv, ran := lines(c, "long", 300)
	id := c.Detach(append([]string{"exec", "--"}, argv...)...)
	c.State(id, fleet.Running, 20*time.Second)

	before := connections(c)
	c.Run("hub", "rotate", "mesh")
	if n := connections(c); n != before {
		t.Errorf("the runner connected %d times more while the hubs' keys were replaced", n-before)
	}
	lead := c.Leader()
	before = connections(c)
	lead.Kill()
	took := moved(c, before, time.Now())
	t.Logf("the runner was with the new leader after %s", took.Round(time.Millisecond))

	// It finds the hubs again by what it has learnt, without a ticket.
	c.Runner.Kill()
	c.StartRunner()
	c.Online()
	c.Ended(id, 90*time.Second)
	ranOnce(t, ran)
	c.Eventually(20*time.Second, "the whole log is there", func() bool {
		out, _, _ := c.Try("job", "logs", id)
		return out == numbered(300)
	})

	// Who is removed is a stranger to the tunnel.
	c.Run("runner", "remove", "r1")
	c.Eventually(20*time.Second, "the runner is sent away or cut off", func() bool {
		said := c.Runner.Said()
		return strings.Contains(said, "sent this runner away") || strings.Contains(said, "not connected")
	})
}
