package e2e

import (
	"bytes"
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

// post has the leader take n jobs of about 2 KB that nobody runs, so that its log is long.
func post(t *testing.T, lead *mesh.Node, token string, n int) {
	t.Helper()
	body, err := json.Marshal(api.Submit{Kind: fleet.KindExec, Argv: []string{"echo", strings.Repeat("x", 2000)}})
	if err != nil {
		t.Fatal(err)
	}
	const at = 16
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: at}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			for range n / at {
				req, err := http.NewRequest(http.MethodPost, lead.URL()+"/v1/jobs", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode != http.StatusCreated {
					t.Errorf("a job was answered with %s", res.Status)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestNodesJoinAndAreReplacedAfterKeysOfHubsWere: a node that joins reads a long log in
// which all keys are that the others ever had. It is killed meanwhile, votes in the end,
// and is replaced after one more change of all keys.
func TestNodesJoinAndAreReplacedAfterKeysOfHubsWere(t *testing.T) {
	t.Parallel()
	c := mesh.NewCluster(t, 1)
	post(t, c.Nodes[0], c.Token(), 2560)
	c.Run("hub", "rotate", "mesh")
	late := c.Join()
	late.Kill()
	late.Start()
	c.Voters(2)
	c.Join()
	c.Voters(3)
	c.Run("hub", "rotate", "mesh")
	c.Run("hub", "rotate", "mesh")

	// With one node away no key is replaced, and people are told which one it is.
	late.Kill()
	refused := func(key string) bool {
		_, said, code := c.Try("hub", "rotate", key)
		return code != 0 && strings.Contains(said, late.ID) && strings.Contains(said, "hub remove "+late.ID)
	}
	c.Eventually(20*time.Second, "the refusal names the node", func() bool { return refused("mesh") })
	at := time.Now()
	if !refused("mesh") || !refused("signing") {
		t.Error("it is not named again")
	}
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("two refusals took %s; the hub knew that the node was away", took)
	}
	c.Join("--replace", late.ID)
	c.Voters(3)
	c.Run("hub", "rotate", "mesh")
	c.Voters(3)
}
