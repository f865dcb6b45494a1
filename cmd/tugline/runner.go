package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/shared/api"
)

func (a *app) runnerCommand() *cobra.Command {
	return group("runner", "Runners: what is there, and run one here", groupMesh,
		a.runnerListCommand(), a.runnerGetCommand(), a.runnerRunCommand(), a.runnerConfigCommand(),
		a.runnerAct("cordon", "Give a runner no new work", "is given no new work"),
		a.runnerAct("resume", "Give a runner work again", "is given work again"),
		a.runnerAct("trust", "Settle a conflict of identity: the next to connect is the runner", "is trusted when it connects next"),
		a.runnerAct("revoke", "Refuse a runner's key; it must enrol anew", "is refused until it enrols anew"),
		a.runnerRemoveCommand(),
	)
}

func (a *app) runnerListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Runners and whether they are connected", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rs api.Runners
			if done, err := a.answer(cmd.Context(), reading("/v1/runners", nil), &rs); done {
				return err
			}
			if len(rs.Runners) == 0 {
				fmt.Fprintln(a.out, "No runner is enrolled. Make a ticket with `tugline hub ticket`.")
				return nil
			}
			now := time.Now()
			t := table{head: []string{"NAME", "STATE", "SLOTS", "HEARTBEAT", "SYSTEM", "HARNESSES", "NOTES"}}
			for _, r := range rs.Runners {
				t.add(r.Name, runnerState(&r), fmt.Sprintf("%d/%d", r.Slots.Used, r.Slots.Offered), ago(now, r.LastBeat), r.OS+"/"+r.Arch, harnessNames(&r), runnerNotes(&r))
			}
			if err := t.print(a.out); err != nil {
				return err
			}
			if text := seenText(&rs.Runners[0]); text != "" {
				a.say("%s", text)
			}
			return nil
		},
	})
}

// seenText says who saw the runners' connections, "" where it was the hub that was asked.
func seenText(r *api.Runner) string {
	switch {
	case r.State == "unknown" && r.From == "":
		return "no node leads that this hub hears, so that nobody knows which runners are connected"
	case r.Age > 0:
		return fmt.Sprintf("as seen by hub node %s %s ago", r.From, span(time.Duration(r.Age)*time.Millisecond))
	}
	return ""
}

func runnerState(r *api.Runner) string {
	if r.Hold != nil {
		return r.State + ", cordoned"
	}
	return r.State
}

func harnessNames(r *api.Runner) string {
	var names []string
	for _, h := range r.Harnesses {
		n := h.Name
		if h.SignedIn == "no" {
			n += "(signed out)"
		}
		names = append(names, n)
	}
	return strings.Join(names, ",")
}

func runnerNotes(r *api.Runner) string {
	var notes []string
	for _, n := range append([]string{revokedText(r), r.Conflict, r.Declining}, r.Alerts...) {
		if n != "" {
			notes = append(notes, n)
		}
	}
	if len(notes) == 0 {
		return labelText(r.Labels)
	}
	return strings.Join(notes, "; ")
}

// revokedText says how a runner whose key was revoked comes back, "" of others.
func revokedText(r *api.Runner) string {
	if r.State != "revoked" {
		return ""
	}
	return "its key was revoked; `tugline hub ticket --for " + r.Name + "` lets it enrol anew"
}

func labelText(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

func (a *app) runnerGetCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "get RUNNER", Aliases: []string{"show"}, Short: "One runner, by name or id", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		RunE: func(cmd *cobra.Command, args []string) error {
			var r api.Runner
			if done, err := a.answer(cmd.Context(), reading("/v1/runners/"+url.PathEscape(args[0]), nil), &r); done {
				return err
			}
			a.describeRunner(&r, time.Now())
			return nil
		},
	})
}

func (a *app) describeRunner(r *api.Runner, now time.Time) {
	fmt.Fprintf(a.out, "runner %s %s (%s)\n", line(r.Name), runnerState(r), r.ID)
	show := func(name, value string) {
		if value = line(value); value != "" {
			fmt.Fprintf(a.out, "  %-12s %s\n", name, value)
		}
	}
	show("heartbeat", strings.TrimSpace(ago(now, r.LastBeat)+" "+r.Transport))
	show("address", r.Address)
	show("seen", seenText(r))
	show("slots", fmt.Sprintf("%d of %d used", r.Slots.Used, r.Slots.Offered))
	show("system", r.OS+"/"+r.Arch+", tugline "+r.Version)
	show("permissions", "up to "+string(r.Permissions))
	show("labels", labelText(r.Labels))
	show("enrolled", ago(now, &r.EnrolledAt))
	show("revoked", revokedText(r))
	show("conflict", r.Conflict)
	show("declines", r.Declining)
	for _, n := range r.Alerts {
		show("alert", n)
	}
	for _, h := range r.Harnesses {
		show("harness", strings.TrimSuffix(strings.TrimSpace(h.Name+" "+h.Version)+signedWord(h.SignedIn)+": "+h.Detail, ": "))
	}
	for _, j := range r.Jobs {
		show("job", string(j))
	}
}

func signedWord(s string) string {
	switch s {
	case "no":
		return ", signed out"
	case "unknown":
		return ", signed in or not is unknown"
	}
	return ""
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
