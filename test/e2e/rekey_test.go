package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

func TestKeysOfHubsAreReplacedAndRemovedNodesRefused(t *testing.T) {
	t.Parallel()
	c := mesh.NewCluster(t, 3)
	c.StartRunner()
	c.Online()
	argv, ran := lines(c, "long", 100)
	id := c.Detach(append([]string{"exec", "--"}, argv...)...)
	c.State(id, fleet.Running, 20*time.Second)
	twoPorts(t, c)

	lead, before := c.Leader(), connections(c)
	at := time.Now()
	c.Run("hub", "rotate", "mesh")
	t.Logf("three keys were replaced in %s", time.Since(at).Round(time.Millisecond))
	if now := c.Leader(); now != lead {
		t.Errorf("node %d leads after the keys were replaced; before it was node %d", now.N, lead.N)
	}
	if n := connections(c); n != before {
		t.Errorf("the runner connected %d times more while the keys were replaced", n-before)
	}
	c.Voters(3)
	// A node that starts again uses its new key, and the others take it.
	down := c.Followers()[0]
	down.Stop()
	down.Start()
	c.Voters(3)

	// A node that is removed is a stranger at once, and what it knows is replaced.
	gone := c.Followers()[1]
	c.Run("hub", "remove", gone.ID)
	had := applied(c, gone)
	for range 3 {
		c.Run("exec", "--detach", "--", "true")
	}
	if out, _, code := gone.CLI().Try("hub", "ticket"); code == 0 {
		t.Errorf("the removed node made a ticket: %s", out)
	}
	if now := applied(c, gone); now > had+1 {
		t.Errorf("the removed node has applied entry %d; it was at %d when it was removed", now, had)
	}
	var keys api.Keys
	c.Eventually(30*time.Second, "the keys that it held are replaced", func() bool {
		out, _, code := c.Try("hub", "keys", "--json")
		return code == 0 && json.Unmarshal([]byte(out), &keys) == nil && keys.Due == ""
	})
	for _, kind := range []string{fleet.KeyHMAC, fleet.KeySigning} {
		i := slices.IndexFunc(keys.Keys, func(k api.Key) bool { return k.Kind == kind && k.Active })
		if i < 0 || keys.Keys[i].Generation != 2 {
			t.Errorf("the active %s key is %+v; want generation 2", kind, keys.Keys)
		}
	}
	c.Ended(id, 60*time.Second)
	ranOnce(t, ran)
}

// applied is the newest entry that a node shows, as it says itself.
func applied(c *mesh.Cluster, n *mesh.Node) uint64 {
	c.T.Helper()
	var m api.Members
	out, _, _ := n.CLI().Try("hub", "members", "--json")
	if json.Unmarshal([]byte(out), &m) == nil {
		for _, x := range m.Members {
			if x.Self {
				return x.Applied
			}
		}
	}
	return 0
}
