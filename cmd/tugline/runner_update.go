package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) runnerUpdateCommand() *cobra.Command {
	var ring, version, dir string
	var downgrade, approve bool
	c := &cobra.Command{
		Use: "update [RUNNER]", Short: "Give a runner or a ring a release, or approve one here", ValidArgsFunction: a.completeRunners,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("`%s` does not take %q; see `%s --help`", cmd.CommandPath(), args[1], cmd.CommandPath())
			}
			return nil
		},
		Long: `Give a RUNNER a release whatever its ring, or with --ring offer one to a whole ring and those
before it, also where it was halted or failed. The runner takes it when no job is there and its
owner's rules allow it. An older version needs --downgrade, and the runner then stays at it.

With --approve, on the runner's own machine: let it take the release that waits for its owner
(updates: ask in runner.yaml).`,
		Example: "  tugline runner update studio\n  tugline runner update --ring early\n  tugline runner update studio --version 1.3.0 --downgrade\n  tugline runner update --approve",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case approve && (len(args) > 0 || ring != "" || version != "" || downgrade):
				return usage("--approve is about the runner on this machine, and goes with --data-dir alone")
			case approve:
				return a.approveUpdate(first(dir, a.runnerDir()))
			case dir != "":
				return usage("--data-dir goes with --approve")
			case len(args) == 1 && ring != "":
				return usage("give a RUNNER or --ring, not both; `tugline runner ring RUNNER RING` puts a runner into a ring")
			case ring != "" && downgrade:
				return usage("--downgrade is for one RUNNER")
			case ring != "":
				return a.offerRelease(cmd, ring, version)
			case len(args) == 0:
				return usage("give a RUNNER, --ring RING or --approve; see `%s --help`", cmd.CommandPath())
			}
			var r api.Runner
			if done, err := a.answer(cmd.Context(), acting(runnerPath(args[0], "/update"), api.UpdateRunner{Version: version, Downgrade: downgrade}), &r); done {
				return err
			}
			fmt.Fprintf(a.out, "runner %s: %s\n", line(r.Name), line(updateText(&r)))
			return nil
		},
	}
	c.Flags().StringVar(&ring, "ring", "", "offer the release to the `RING` canary, early or all, and those before it")
	c.Flags().StringVar(&version, "version", "", "`VERSION` to give (default the newest)")
	c.Flags().BoolVar(&downgrade, "downgrade", false, "it may be older than what runs there")
	c.Flags().BoolVar(&approve, "approve", false, "let the runner of this machine take the release that waits for its owner")
	c.Flags().StringVar(&dir, "data-dir", "", "the runner's data `DIR`, with --approve")
	c.RegisterFlagCompletionFunc("ring", cobra.FixedCompletions(ringNames(), cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(c)
}

func ringNames() []cobra.Completion {
	var out []cobra.Completion
	for _, r := range fleet.Rings {
		out = append(out, string(r))
	}
	return out
}

// approveUpdate is the owner's word on the machine.
func (a *app) approveUpdate(dir string) error {
	p, err := packaged()
	if err != nil {
		return fail(exitFailed, "%s", sentence(err))
	}
	w, ok, err := runner.Waiting(dir)
	switch {
	case p.Manager != "":
		return fail(exitFailed, "this program is managed by %s: `%s` updates it", p.Manager, p.UpdatedBy())
	case err != nil:
		return fail(exitFailed, "what waits can't be read: %v", err)
	case !ok:
		return fail(exitFailed, "no release waits for its owner in %s", dir)
	}
	if err := runner.Approve(dir, w); err != nil {
		return fail(exitFailed, "the approval can't be kept: %v", err)
	}
	if a.json {
		return a.printJSON(w)
	}
	fmt.Fprintf(a.out, "%s is approved; the runner takes it when no job is here\n", line(w.Version))
	return nil
}

// offerRelease offers a release to a ring; without a version the newest one.
func (a *app) offerRelease(cmd *cobra.Command, ring, version string) error {
	if fleet.Ring(ring).Rank() < 0 {
		return usage("--ring %q is none of canary, early and all", ring)
	}
	if version == "" {
		c, err := a.dial()
		if err != nil {
			return err
		}
		defer c.close()
		var rs api.Releases
		if _, err := c.read(cmd.Context(), "/v1/releases", nil, &rs); err != nil {
			return err
		}
		if len(rs.Releases) == 0 {
			return fail(exitFailed, "the hub has no releases; add one with `tugline hub release add DIR`")
		}
		version = rs.Releases[0].Version
	}
	var rel api.Release
	if done, err := a.answer(cmd.Context(), acting(releasePath(version, "/offer"), api.OfferRelease{Ring: fleet.Ring(ring)}), &rel); done {
		return err
	}
	fmt.Fprintf(a.out, "release %s is offered to the ring %s\n", line(rel.Version), rel.Ring)
	return nil
}

func (a *app) runnerRingCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ring RUNNER RING", Short: "Set how early a runner is given new releases", Args: exactly("RUNNER", "RING"), ValidArgsFunction: a.completeRunners,
		Long: `Put a runner into the ring canary, early or all (the default): releases come to canaries first,
and to a further ring when they have proved themselves in the one before.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if fleet.Ring(args[1]).Rank() < 0 {
				return usage("%q is none of canary, early and all", args[1])
			}
			var r api.Runner
			if done, err := a.answer(cmd.Context(), acting(runnerPath(args[0], "/ring"), api.SetRing{Ring: fleet.Ring(args[1])}), &r); done {
				return err
			}
			fmt.Fprintf(a.out, "runner %s is in the ring %s\n", line(r.Name), r.Ring)
			return nil
		},
	}
	return a.jsonFlag(c)
}

// updateText tells how a runner stands with updates, "" where there is nothing to tell.
func updateText(r *api.Runner) string {
	var parts []string
	if r.Wanted != nil && r.Wanted.Version != r.Version {
		parts = append(parts, r.Wanted.Version+" is asked for")
	}
	if u := r.Update; u != nil {
		if u.Offered != "" && !slices.Contains(parts, u.Offered+" is asked for") {
			parts = append(parts, u.Offered+" is offered")
		}
		if u.Waits != "" && (u.Offered != "" || u.Policy == "off") {
			parts = append(parts, u.Waits)
		}
		switch u.State {
		case "failed":
			parts = append(parts, "the update to "+u.To+" failed: "+u.Why)
		case "rolled_back":
			parts = append(parts, "the update to "+u.To+" was taken back: "+u.Why)
		case "trying":
			parts = append(parts, u.To+" is not confirmed yet")
		}
	}
	return strings.Join(parts, "; ")
}
