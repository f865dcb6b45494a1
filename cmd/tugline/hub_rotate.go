package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// keyMesh is what the keys of the nodes' tunnel are called; there is one to each node.
const keyMesh = "mesh"

// rekeyTime bounds the wait for one node to replace its key.
const rekeyTime = time.Minute

func (a *app) hubRotateCommand() *cobra.Command {
	var overlap time.Duration
	c := &cobra.Command{
		Use: "rotate hmac|signing|ca|mesh [NODE]", Short: "Replace one of the cluster's keys while everything runs",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || len(args) == 2 && args[0] != keyMesh {
				return usage("say which key: hmac, signing, ca, or mesh with the NODE whose key it is")
			}
			return nil
		},
		Long: `Replace a key of the cluster. Nothing is restarted, and no job notices.

  hmac      the key that runners' keys are derived from; each runner gets its new one when it
            is connected, and old ones are taken for 30 days
  signing   the key that orders are signed with; runners learn the new one from the old one
  ca        the hub's own CA; both are trusted for the time of --overlap
  mesh      the key of each hub node for the tunnel between them, or of one NODE

It takes nothing away from anybody at once: a runner whose key is known to others is locked
out with ` + "`tugline runner revoke`" + `.`,
		Example:           "  tugline hub rotate hmac\n  tugline hub rotate ca --overlap 72h",
		ValidArgsFunction: cobra.FixedCompletions([]cobra.Completion{fleet.KeyHMAC, fleet.KeySigning, fleet.KeyCA, keyMesh}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == keyMesh {
				return a.rotateMesh(cmd.Context(), args[1:])
			}
			b := api.RotateRequest{Kind: args[0]}
			if !slices.Contains(fleet.KeyKinds, b.Kind) {
				return usage("there is no key %q; there are %s, %s", b.Kind, strings.Join(fleet.KeyKinds, ", "), keyMesh)
			}
			if cmd.Flags().Changed("overlap") {
				if b.Kind != fleet.KeyCA {
					return usage("--overlap is for the ca alone; the %s key has a fixed time", b.Kind)
				}
				if overlap < time.Second || overlap > 90*24*time.Hour {
					return usage("--overlap %s is not from 1s to 2160h", overlap)
				}
				b.Overlap = overlap.String()
			}
			var r api.Rotation
			if done, err := a.answer(cmd.Context(), acting("/v1/keys/rotate", b), &r); done {
				return err
			}
			fmt.Fprintf(a.out, "generation %d of the %s key is %s\n", r.Key.Generation, r.Key.Kind, r.Key.ID)
			a.say("%s", r.Next)
			return nil
		},
	}
	c.Flags().DurationVar(&overlap, "overlap", 7*24*time.Hour, "how long a CA that is replaced stays trusted, a `DURATION` from 1s to 2160h")
	return a.jsonFlag(c)
}

// rotateMesh replaces the keys of the nodes that are named, else of all, one at a time.
func (a *app) rotateMesh(ctx context.Context, nodes []string) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	if len(nodes) == 0 {
		var m api.Members
		if _, err := c.read(ctx, "/v1/members", nil, &m); err != nil {
			return err
		}
		for _, n := range m.Members {
			if n.RemovedAt == nil {
				nodes = append(nodes, n.ID)
			}
		}
	}
	done := []string{}
	for _, id := range nodes {
		r := request{method: http.MethodPost, path: "/v1/members/" + url.PathEscape(id) + "/rotate", once: true, patience: actPatience, timeout: rekeyTime}
		if _, _, err := c.call(ctx, r); err != nil {
			return err
		}
		done = append(done, id)
		if !a.json {
			fmt.Fprintf(a.out, "node %s has a new key for the tunnel\n", id)
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"rotated": done})
	}
	a.say("Tickets for hub nodes that were made before may not work any more; make new ones with `tugline hub ticket --role hub`.")
	return nil
}
