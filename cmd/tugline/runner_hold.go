package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func runnerPath(id, below string) string { return "/v1/runners/" + url.PathEscape(id) + below }

func (a *app) runnerSlotsCommand() *cobra.Command {
	var b api.SetSlots
	c := &cobra.Command{
		Use: "slots RUNNER --automation N", Short: "Set how many jobs of automations a runner may have", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		Long: `Set how many jobs of automations (--automation NAME of run and exec) a runner may have at a time.
Its base slots, for people's jobs, are its owner's to set, in runner.yaml or with --slots. Both
together are at most 16. What runs already runs on.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("automation") {
				return usage("--automation is missing; give a number from 0, which turns automation off there, to %d", fleet.MaxAutomation)
			}
			if b.Automation < 0 || b.Automation > fleet.MaxAutomation {
				return usage("--automation %d is not from 0 to %d", b.Automation, fleet.MaxAutomation)
			}
			var r api.Runner
			if done, err := a.answer(cmd.Context(), acting(runnerPath(args[0], "/slots"), b), &r); done {
				return err
			}
			fmt.Fprintf(a.out, "runner %s has %s\n", line(r.Name), slotsText(&r.Slots))
			for _, l := range r.Slots.LimitedBy {
				fmt.Fprintf(a.out, "  limited by %s\n", line(l))
			}
			return nil
		},
	}
	c.Flags().IntVar(&b.Automation, "automation", 0, "`N` jobs of automations at a time, 0 to 8 (required)")
	return a.jsonFlag(c)
}

func slotsText(s *api.Slots) string {
	text := plural(s.Base, "base slot", "base slots") + " and " + plural(s.Automation, "automation slot", "automation slots")
	if s.Effective < s.Automation {
		text += fmt.Sprintf(", of which %d can be used now", s.Effective)
	}
	return text
}

func (a *app) runnerCordonCommand() *cobra.Command {
	var length time.Duration
	var b api.Cordon
	c := &cobra.Command{
		Use: "cordon RUNNER", Short: "Give a runner no new work", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		Example: `  tugline runner cordon studio --for 2h --reason "backup runs"`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if b.For, err = lasting(cmd, "for", length, time.Minute); err != nil {
				return err
			}
			return a.hold(cmd, args[0], "/cordon", b)
		},
	}
	c.Flags().DurationVar(&length, "for", 0, "it ends by itself after a `DURATION` (default with `tugline runner resume`)")
	c.Flags().StringVar(&b.Reason, "reason", "", "`TEXT` that is shown where work waits for it")
	return a.jsonFlag(c)
}

func (a *app) runnerDrainCommand() *cobra.Command {
	var length, deadline time.Duration
	var b api.Drain
	c := &cobra.Command{
		Use: "drain RUNNER", Short: "Give a runner no new work and wait for what it has", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		Long: `Give a runner no new work and let it finish what it has. At the deadline what has not begun goes
back to the queue at no cost; what runs goes on, unless --then cancel: then it is cancelled, and
what it has changed is kept under a rescue ref.`,
		Example: "  tugline runner drain studio --deadline 30m --then cancel --reason \"moves house\"\n  tugline runner resume studio",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := oneOf("then", b.Then, "finish", "cancel"); err != nil {
				return err
			}
			if b.Then != "" && deadline == 0 {
				return usage("--then says what happens at the deadline; give --deadline too, such as 30m")
			}
			if b.For, err = lasting(cmd, "for", length, time.Minute); err != nil {
				return err
			}
			if b.Deadline, err = lasting(cmd, "deadline", deadline, time.Second); err != nil {
				return err
			}
			return a.hold(cmd, args[0], "/drain", b)
		},
	}
	c.Flags().DurationVar(&deadline, "deadline", 0, "`DURATION` until what has not begun goes back to the queue (default never)")
	c.Flags().StringVar(&b.Then, "then", "", "`WHAT` becomes of running work at the deadline: finish (default) or cancel")
	c.Flags().DurationVar(&length, "for", 0, "it ends by itself after a `DURATION` (default with `tugline runner resume`)")
	c.Flags().StringVar(&b.Reason, "reason", "", "`TEXT` that is shown where work waits for it")
	c.RegisterFlagCompletionFunc("then", cobra.FixedCompletions([]cobra.Completion{"finish", "cancel"}, cobra.ShellCompDirectiveNoFileComp))
	return a.jsonFlag(c)
}

// lasting gives the text of a duration that was given by a flag, "" where none was.
func lasting(cmd *cobra.Command, flag string, d, least time.Duration) (string, error) {
	if !cmd.Flags().Changed(flag) {
		return "", nil
	}
	if d < least {
		return "", usage("--%s %s is too short; give %s or more", flag, d, span(least))
	}
	return d.String(), nil
}

// hold keeps new work from a runner and tells for how long.
func (a *app) hold(cmd *cobra.Command, id, verb string, body any) error {
	if err := given(cmd, "reason"); err != nil {
		return err
	}
	var r api.Runner
	if done, err := a.answer(cmd.Context(), acting(runnerPath(id, verb), body), &r); done {
		return err
	}
	fmt.Fprintf(a.out, "runner %s: %s\n", line(r.Name), line(first(holdText(r.Hold, time.Now()), "not held")))
	if r.Hold != nil && r.Hold.Drain && len(r.Jobs) > 0 {
		fmt.Fprintf(a.out, "  %s: %s\n", plural(len(r.Jobs), "job is there", "jobs are there"), jobList(r.Jobs))
	}
	return nil
}

func jobList(ids []fleet.JobID) (text string) {
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		if i == 5 {
			return text + fmt.Sprintf("and %d more", len(ids)-i)
		}
		text += string(id)
	}
	return text
}
