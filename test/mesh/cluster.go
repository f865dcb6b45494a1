package mesh

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
)

// Cluster is several hub nodes as processes of their own, on loopback, with one runner
// beside them if the test starts it. Its own command line knows all nodes.
type Cluster struct {
	*Mesh
	Nodes []*Node

	adjust []func(*Node)
}

// Node is one hub node.
type Node struct {
	N       int // from 1
	ID      string
	Dir     string
	Listen  string // TCP, for people and runners
	UDP     string
	Process *Process
	Extra   []string // of its command line
	TLS     bool     // it listens at all addresses of the machine, and so by https

	cluster *Cluster
}

// NewCluster starts n hub nodes and waits until all of them vote; adjust may change
// each before it starts.
func NewCluster(t *testing.T, n int, adjust ...func(*Node)) *Cluster {
	t.Helper()
	c := &Cluster{Mesh: New(t), adjust: adjust}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			if n.Process != nil {
				n.Process.Stop()
				if t.Failed() {
					t.Logf("--- node %d (%s) said:\n%s", n.N, n.ID, Tail(n.Process.Said(), 6000))
				}
			}
		}
	})
	first := c.newNode()
	c.Listen, c.Public = first.Listen, first.URL()
	first.start("--bootstrap")
	c.Eventually(30*time.Second, "the first node is ready", func() bool {
		first.alive()
		_, _, code := first.CLI().Try("hub", "status", "--json")
		return code == 0
	})
	c.Secret = c.Token()
	for range n - 1 {
		c.Join()
	}
	c.Voters(n)
	return c
}

func (c *Cluster) newNode() *Node {
	n := &Node{N: len(c.Nodes) + 1, Listen: freePort(c.T), UDP: freePort(c.T), cluster: c}
	n.Dir = filepath.Join(c.Dir, "hub")
	if n.N > 1 {
		n.Dir += fmt.Sprint(n.N)
	}
	for _, f := range c.adjust {
		f(n)
	}
	c.Nodes = append(c.Nodes, n)
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL())
	}
	c.Hubs = strings.Join(urls, ",")
	return n
}

// Join starts one more node, with a ticket of its own; extra goes to the making of it,
// such as --replace ID.
func (c *Cluster) Join(extra ...string) *Node {
	c.T.Helper()
	var k api.Ticket
	c.JSON(&k, append([]string{"hub", "ticket", "--role", "hub", "--json"}, extra...)...)
	n := c.newNode()
	n.start("--ticket", k.Ticket)
	c.Eventually(60*time.Second, "the node has joined", func() bool {
		n.alive()
		return n.identify()
	})
	return n
}

// Voters waits until n nodes vote and answer.
func (c *Cluster) Voters(n int) {
	c.T.Helper()
	c.Eventually(90*time.Second, fmt.Sprintf("%d nodes vote", n), func() bool {
		m, ok := c.Members()
		voters := 0
		for _, x := range m.Members {
			if x.Role == "voter" && x.Health == "ok" {
				voters++
			}
		}
		return ok && m.Leader != "" && voters == n
	})
	for _, x := range c.Nodes {
		x.identify()
	}
}

// Members is what a node that answers says of all.
func (c *Cluster) Members() (m api.Members, ok bool) {
	out, _, code := c.Try("hub", "members", "--json")
	return m, code == 0 && json.Unmarshal([]byte(out), &m) == nil
}

// Leader waits until a node leads and all that run know it, and gives it.
func (c *Cluster) Leader() *Node {
	c.T.Helper()
	var lead *Node
	c.Eventually(30*time.Second, "a node leads", func() bool {
		lead = nil
		for _, n := range c.Nodes {
			if !n.Runs() {
				continue
			}
			var m api.Members
			out, _, code := n.CLI().Try("hub", "members", "--json")
			if code != 0 || json.Unmarshal([]byte(out), &m) != nil {
				return false
			}
			at := slices.IndexFunc(c.Nodes, func(x *Node) bool { return x.ID == m.Leader && x.Runs() })
			if at < 0 || lead != nil && lead != c.Nodes[at] {
				return false
			}
			lead = c.Nodes[at]
		}
		return lead != nil
	})
	return lead
}

// Followers are the nodes that run and do not lead.
func (c *Cluster) Followers() []*Node {
	c.T.Helper()
	lead := c.Leader()
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return n == lead || !n.Runs() })
}

// URL is where the node serves people and runners.
func (n *Node) URL() string {
	if n.TLS {
		return "https://" + n.Listen
	}
	return "http://" + n.Listen
}

// CLI is the command line that knows this node only.
func (n *Node) CLI() *Mesh {
	m := *n.cluster.Mesh
	m.Hubs = n.URL()
	return &m
}

func (n *Node) start(extra ...string) {
	n.cluster.T.Helper()
	listen := n.Listen
	if n.TLS {
		_, port, _ := net.SplitHostPort(listen)
		listen = ":" + port
	}
	args := append([]string{"hub", "run", "--data-dir", n.Dir, "--listen", listen, "--mesh-listen", n.UDP}, n.Extra...)
	n.Process = n.cluster.Launch(fmt.Sprintf("node %d", n.N), append(args, extra...)...)
}

// Start starts the node again after its end and waits until it serves.
func (n *Node) Start() {
	n.cluster.T.Helper()
	n.start()
	n.cluster.Eventually(30*time.Second, fmt.Sprintf("node %d serves", n.N), func() bool {
		n.alive()
		_, _, code := n.CLI().Try("hub", "status", "--json")
		return code == 0
	})
}

// Kill ends the node with -9.
func (n *Node) Kill() { n.Process.Kill() }

// Stop ends the node as an operator would.
func (n *Node) Stop() { n.Process.Stop() }

// Pause stops the node's process without ending it, and Resume has it go on.
func (n *Node) Pause()  { n.Process.Pause() }
func (n *Node) Resume() { n.Process.Resume() }

// Wipe removes the node's data; it must not run.
func (n *Node) Wipe() {
	if err := os.RemoveAll(n.Dir); err != nil {
		n.cluster.T.Fatal(err)
	}
}

// Runs says whether the node's process lives.
func (n *Node) Runs() bool { return n.Process.Runs() }

// alive fails the test where the node has ended by itself.
func (n *Node) alive() {
	n.cluster.T.Helper()
	if !n.Runs() {
		n.cluster.T.Fatalf("node %d ended:\n%s", n.N, n.Process.Said())
	}
}

// identify reads which node lives in the directory.
func (n *Node) identify() bool {
	var id struct {
		Node string `json:"node"`
	}
	b, err := os.ReadFile(filepath.Join(n.Dir, "node.json"))
	if err != nil || json.Unmarshal(b, &id) != nil {
		return false
	}
	n.ID = id.Node
	return n.ID != ""
}
