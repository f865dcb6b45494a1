package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) hubKeysCommand() *cobra.Command {
	var ca bool
	c := &cobra.Command{
		Use: "keys", Short: "The cluster's keys by generation, without their secrets", Args: cobra.NoArgs,
		Long: `Show the keys of the cluster: which are in use, until when those that were replaced still
count, and how many runners use each generation of the HMAC key.`,
		Example: "  tugline hub keys\n  tugline hub keys --ca > hub-ca.pem",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ca && a.json {
				return usage("--ca and --json exclude each other")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			var ks api.Keys
			raw, err := c.read(cmd.Context(), "/v1/keys", nil, &ks)
			if err != nil {
				return err
			}
			if ca {
				for _, k := range ks.Keys {
					fmt.Fprint(a.out, k.Certificate)
				}
				return nil
			}
			if a.json {
				return a.printRaw(raw)
			}
			now := time.Now()
			t := table{head: []string{"KEY", "GEN", "ID", "STATE", "MADE", "IN USE SINCE", "RUNNERS"}}
			for _, k := range ks.Keys {
				t.add(k.Kind, strconv.FormatUint(k.Generation, 10), k.ID, keyState(&k, now), ago(now, k.MadeAt), ago(now, &k.ActiveSince), keyUsers(&k))
			}
			if err := t.print(a.out); err != nil {
				return err
			}
			if ks.Due != "" {
				a.say("%s", ks.Due)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&ca, "ca", false, "print the certificates of the hub's CAs that are trusted now, as PEM")
	return a.jsonFlag(c)
}

func keyState(k *api.Key, now time.Time) string {
	state := "in use"
	switch {
	case k.Active && k.Kind == fleet.KeyCA && !k.Serves:
		state = "announced"
	case k.Active || k.Until == nil:
	case !k.Holds:
		return "ended " + ago(now, k.Until)
	case k.Serves:
		state = "in use, counts for " + span(k.Until.Sub(now))
	default:
		state = "counts for " + span(k.Until.Sub(now))
	}
	return state
}

func keyUsers(k *api.Key) string {
	if k.Runners == nil {
		return "-"
	}
	return strconv.Itoa(*k.Runners)
}

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
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			var r api.Rotation
			raw, err := c.act(cmd.Context(), "/v1/keys/rotate", b, &r)
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			fmt.Fprintf(a.out, "generation %d of the %s key is %s\n", r.Key.Generation, r.Key.Kind, r.Key.ID)
			a.say("%s", r.Next)
			return nil
		},
	}
	c.Flags().DurationVar(&overlap, "overlap", 7*24*time.Hour, "how long a CA that is replaced stays trusted, a `DURATION` from 1s to 2160h")
	return a.jsonFlag(c)
}
