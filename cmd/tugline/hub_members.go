package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
)

func (a *app) hubMembersCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "members", Short: "The hub nodes: who leads, who votes, who lags", Args: cobra.NoArgs,
		Long: `List the hub nodes as the leader sees them. A learner gets every entry and has no vote yet; it
is given one when it has caught up, output and files included. LACKS is what a node does not have
yet of output and files; ? says that this is not known yet. Where no node leads, the node that was
asked tells what it knows. Nodes that were removed are listed with --all.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			var m api.Members
			raw, err := c.read(cmd.Context(), "/v1/members", nil, &m)
			switch {
			case err != nil:
				return err
			case a.json && all:
				return a.printRaw(raw)
			case a.json:
				return a.printPresent(raw)
			case all:
				return a.showNodes(&m)
			}
			return a.showMembers(&m)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "nodes that were removed too")
	return a.jsonFlag(c)
}

// removed says of a node, as the hub tells of it, that it belongs to the cluster no more.
func removed(n api.Member) bool { return n.Role == "removed" }

// printPresent prints what a hub said of the nodes, as it said it, without the removed.
func (a *app) printPresent(raw []byte) error {
	var said map[string]json.RawMessage
	var nodes []json.RawMessage
	err := json.Unmarshal(raw, &said)
	if err == nil {
		err = json.Unmarshal(said["members"], &nodes)
	}
	if err != nil {
		return a.printRaw(raw) // which says what is wrong with it
	}
	present := slices.DeleteFunc(nodes, func(b json.RawMessage) bool {
		var n api.Member
		return json.Unmarshal(b, &n) == nil && removed(n)
	})
	if said["members"], err = json.Marshal(present); err != nil {
		return err
	}
	return a.printJSON(said)
}

// showMembers shows the nodes that belong to the cluster.
func (a *app) showMembers(m *api.Members) error {
	present := *m
	present.Members = slices.DeleteFunc(slices.Clone(m.Members), removed)
	return a.showNodes(&present)
}

func (a *app) showNodes(m *api.Members) error {
	t := table{full: true, head: []string{"NODE", "ROLE", "HEALTH", "HEARD", "APPLIED", "LAG", "LACKS", "FREE", "VERSION", "ADDRESS"}}
	for _, n := range m.Members {
		role := n.Role
		if n.Leader {
			role = "leader"
		}
		heard := "never"
		switch {
		case n.ID == m.SeenBy:
			heard = "-"
		case n.LastContact != nil:
			heard = span(time.Duration(*n.LastContact)*time.Millisecond) + " ago"
		}
		t.add(n.ID, role, strings.ReplaceAll(n.Health, "_", " "), heard, strconv.FormatUint(n.Applied, 10), strconv.FormatUint(n.Lag, 10),
			lacks(&n), size(n.DiskFree), n.Version, first(n.URL, strings.Join(n.Endpoints, " ")))
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	for _, n := range m.Members {
		if n.Detail != "" && n.Health != "ok" {
			fmt.Fprintf(a.out, "%s: %s\n", n.ID, n.Detail)
		}
	}
	for _, w := range slices.Concat(m.Warnings, heldBack(m)) {
		fmt.Fprintf(a.out, "warning: %s\n", w)
	}
	return nil
}

// heldBack tells which nodes keep the cluster from what newer ones could do.
func heldBack(m *api.Members) (out []string) {
	newest := 0
	for _, n := range m.Members {
		if n.Role != "removed" {
			newest = max(newest, n.Kinds)
		}
	}
	for _, n := range m.Members {
		if n.Role != "removed" && n.Kinds < newest {
			out = append(out, fmt.Sprintf("%s runs version %s, which cannot read all that newer nodes can write: that waits until it is upgraded", n.ID, first(n.Version, "unknown")))
		}
	}
	return out
}

// lacks is what a node lacks of output and files, for people.
func lacks(n *api.Member) string {
	switch {
	case n.Replication:
		return size(n.UnderReplicated)
	case n.UnderReplicated > 0:
		return "over " + size(n.UnderReplicated)
	}
	return "?"
}

func (a *app) hubRemoveCommand() *cobra.Command {
	var force bool
	var why string
	c := &cobra.Command{
		Use: "remove NODE", Short: "Take a hub node out of the cluster for good", Args: exactly("NODE"),
		Long: `Take a hub node out of the cluster. Its keys are refused at once, on every node, and it never
comes back under its id: to join the machine again, empty its data directory and give it a new
ticket. Removing is refused where too few voters that answer would be left, unless --force.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			q := url.Values{}
			if force {
				q.Set("force", "true")
			}
			if why != "" {
				q.Set("why", why)
			}
			path := "/v1/members/" + url.PathEscape(args[0])
			if len(q) > 0 {
				path += "?" + q.Encode()
			}
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: path, patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is removed\n", args[0])
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "even if too few voters that answer are left")
	c.Flags().StringVar(&why, "why", "", "`TEXT` that the node is told when it comes back")
	return c
}

func (a *app) hubTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use: "transfer-leader [NODE]", Short: "Have another hub node lead", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var b api.Transfer
			if len(args) > 0 {
				b.To = args[0]
			}
			m, err := a.postMembers(cmd.Context(), "/v1/members/transfer", b)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s leads\n", first(m.Leader, "no node"))
			return nil
		},
	}
}

func (a *app) hubDrainCommand() *cobra.Command {
	var back bool
	c := &cobra.Command{
		Use: "drain [NODE]", Short: "Prepare a hub node for a planned stop", Args: cobra.MaximumNArgs(1),
		Long: `Prepare a hub node (without NODE: the one that leads) for a planned stop: it gives leadership
away, tells its runners where to turn, and does not lead again until it is restarted or
drained --back. Stopping a node with SIGTERM does the same by itself.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, verb := "leader", "drain"
			if len(args) > 0 {
				id = args[0]
			}
			if back {
				verb = "undrain"
				if len(args) == 0 {
					return usage("`tugline hub drain --back` needs the NODE; `tugline hub members` lists them")
				}
			}
			m, err := a.postMembers(cmd.Context(), "/v1/members/"+url.PathEscape(id)+"/"+verb, nil)
			if err != nil {
				return err
			}
			if back {
				fmt.Fprintf(a.out, "%s may lead again\n", id)
				return nil
			}
			if id == "leader" {
				id = "the node that led"
			}
			fmt.Fprintf(a.out, "%s is drained and may be stopped; %s leads\n", id, first(m.Leader, "no node"))
			return nil
		},
	}
	c.Flags().BoolVar(&back, "back", false, "let a drained node lead again")
	return c
}

// postMembers does something with the hub nodes and gives how they are then.
func (a *app) postMembers(ctx context.Context, path string, body any) (m api.Members, err error) {
	_, err = a.answer(ctx, request{method: http.MethodPost, path: path, body: body, patience: actPatience}, &m)
	return m, err
}
