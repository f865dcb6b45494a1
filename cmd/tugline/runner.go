package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/shared/api"
)

func (a *app) runnerCommand() *cobra.Command {
	return group("runner", "Runners: what is there, and run one here", groupMesh,
		a.runnerListCommand(), a.runnerGetCommand(), a.runnerHealthCommand(), a.runnerRunCommand(), a.runnerInstallCommand(), a.runnerUninstallCommand(), a.runnerDoctorCommand(), a.runnerConfigCommand(),
		a.runnerSlotsCommand(), a.runnerCordonCommand(), a.runnerDrainCommand(), a.runnerAct("resume", "Give a runner work again that was cordoned or drained", "is given work again"),
		a.runnerAct("trust", "Settle a conflict of identity: the next to connect is the runner", "is trusted when it connects next"),
		a.runnerAct("revoke", "Refuse a runner's key; it must enrol anew", "is refused until it enrols anew"),
		a.runnerUpdateCommand(), a.runnerProvisionCommand(), a.runnerRingCommand(), a.runnerRemoveCommand(), a.runnerWorkspacesCommand(), a.runnerDiskCommand(),
	)
}

func (a *app) runnerAct(verb, short, done string) *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: verb + " RUNNER", Short: short, Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		RunE: func(cmd *cobra.Command, args []string) error {
			var r api.Runner
			if done, err := a.answer(cmd.Context(), acting("/v1/runners/"+url.PathEscape(args[0])+"/"+verb, struct{}{}), &r); done {
				return err
			}
			fmt.Fprintf(a.out, "runner %s %s\n", line(r.Name), done)
			return nil
		},
	})
}

func (a *app) runnerRemoveCommand() *cobra.Command {
	var abandon bool
	c := &cobra.Command{
		Use: "remove RUNNER", Aliases: []string{"rm"}, Short: "End a runner's enrolment", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			q := url.Values{}
			if abandon {
				q.Set("abandon_jobs", "true")
			}
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: "/v1/runners/" + url.PathEscape(args[0]), query: q, once: true, patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "runner %s is removed\n", args[0])
			return nil
		},
	}
	c.Flags().BoolVar(&abandon, "abandon-jobs", false, "end its accepted jobs although their processes may still run")
	return c
}

func (a *app) runnerConfigCommand() *cobra.Command {
	var dir string
	check := &cobra.Command{
		Use: "check", Short: "Check runner.yaml and show what is in force", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file := runner.OwnerFile(first(dir, a.runnerDir()))
			if _, err := os.Stat(file); err != nil {
				a.say("there is no %s; the defaults are in force", file)
			}
			o, err := runner.LoadOwner(file)
			if err != nil {
				return usage("%s is not valid, and a running runner keeps its last good rules: %v", file, err)
			}
			for _, wrong := range o.Wrong() {
				a.say("%s: %s", file, wrong)
			}
			if a.json {
				return a.printJSON(ownerShown(o))
			}
			b, err := yamlOf(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "# in force, by %s\n%s", file, b)
			return nil
		},
	}
	check.Flags().StringVar(&dir, "data-dir", "", "the runner's data `DIR`")
	example := &cobra.Command{
		Use: "example", Short: "Print a runner.yaml with every key explained", Args: cobra.NoArgs,
		Example: "  tugline runner config example > ~/.local/share/tugline/runner/runner.yaml",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.out, runner.ExampleOwner)
			return err
		},
	}
	c := group("config", "The owner's rules for the runner here", "", local(a.jsonFlag(check)), local(example))
	return c
}
