package main

import (
	"fmt"
	"strconv"
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
			var ks api.Keys
			if done, err := a.answer(cmd.Context(), reading("/v1/keys", nil), &ks); done {
				return err
			}
			if ca {
				for _, k := range ks.Keys {
					fmt.Fprint(a.out, k.Certificate)
				}
				return nil
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
