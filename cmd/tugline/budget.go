package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) budgetCommand() *cobra.Command {
	c := group("budget", "Budgets: what people and automations may spend", groupLook,
		a.budgetListCommand(), a.budgetSetCommand(), a.budgetRemoveCommand())
	c.Long = `Budgets bound what an origin of jobs may spend: manual (what people ask for), automation (all of
them together) or automation:NAME. An attempt reserves a run, its time limit and its tokens before it
starts, and gives back what it did not use; jobs for which there is no room wait. Its tokens are the
job's --max-tokens, or else what runs used on average: one that uses more is not stopped, and the
excess counts against what comes after it.`
	return c
}

func budgetPath(origin string) string { return "/v1/budgets/" + url.PathEscape(origin) }

func (a *app) budgetListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Budgets and what is spent of them", Args: cobra.NoArgs,
		Long: "List the budgets. SPENT is by attempts that have ended, HELD what those under way may use at most.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var bs api.Budgets
			if done, err := a.answer(cmd.Context(), reading("/v1/budgets", nil), &bs); done {
				return err
			}
			if len(bs.Budgets) == 0 {
				fmt.Fprintln(a.out, "No budget is set: nothing is bounded. `tugline budget set --help` tells how.")
				return nil
			}
			now := time.Now()
			t := table{head: []string{"ORIGIN", "WHAT", "SPENT", "HELD", "OF", "WINDOW"}, full: !a.ttyOut}
			for _, b := range bs.Budgets {
				for i, row := range budgetRows(&b) {
					origin, window := b.Origin, budgetWindow(&b, now)
					if i > 0 {
						origin, window = "", ""
					}
					t.add(origin, row[0], row[1], row[2], row[3], window)
				}
			}
			return t.print(a.out)
		},
	})
}

// budgetRows gives a row for each bound of a budget: what, spent, held, of.
func budgetRows(b *api.Budget) (rows [][4]string) {
	if b.MaxRuns > 0 {
		rows = append(rows, [4]string{"runs", count(b.Spent.Runs), count(b.Held.Runs), count(b.MaxRuns)})
	}
	if b.MaxTokens > 0 {
		rows = append(rows, [4]string{"tokens", count(b.Spent.Tokens), count(b.Held.Tokens), count(b.MaxTokens)})
	}
	if b.MaxWall != "" {
		rows = append(rows, [4]string{"time", spanText(b.Spent.Wall), spanText(b.Held.Wall), spanText(b.MaxWall)})
	}
	return rows
}

// spanText tells a duration that the hub wrote.
func spanText(s string) string {
	d, err := time.ParseDuration(s)
	if err != nil {
		return s
	}
	if d == 0 {
		return "0"
	}
	return strings.TrimSuffix(span(d), "00m")
}

func budgetWindow(b *api.Budget, now time.Time) string {
	switch {
	case b.Window == "":
		return "for ever"
	case b.Ends == nil || !b.Ends.After(now):
		return spanText(b.Window) + ", from the next run on"
	}
	return spanText(b.Window) + ", until " + when(now, *b.Ends)
}

func (a *app) budgetSetCommand() *cobra.Command {
	var b api.SetBudget
	var wall, window time.Duration
	c := &cobra.Command{
		Use: "set ORIGIN", Short: "Bound what an origin may spend", Args: exactly("ORIGIN"), ValidArgsFunction: a.completeBudgets,
		Long: `Bound what an origin may spend: manual, automation or automation:NAME. It replaces the bounds
there were; what was spent stays counted. A window begins with the first run in it.`,
		Example: "  tugline budget set automation --max-runs 50 --max-tokens 20000000 --window 24h\n  tugline budget set automation:nightly --max-wall 6h --window 24h",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case b.MaxRuns < 0 || cmd.Flags().Changed("max-runs") && b.MaxRuns == 0:
				return usage("--max-runs %d is not above zero", b.MaxRuns)
			case b.MaxTokens < 0 || cmd.Flags().Changed("max-tokens") && b.MaxTokens == 0:
				return usage("--max-tokens %d is not above zero", b.MaxTokens)
			}
			if b.MaxWall, err = lasting(cmd, "max-wall", wall, time.Minute); err != nil {
				return err
			}
			if b.Window, err = lasting(cmd, "window", window, time.Minute); err != nil {
				return err
			}
			if b.MaxRuns == 0 && b.MaxTokens == 0 && b.MaxWall == "" {
				return usage("a budget bounds something: give --max-runs, --max-tokens or --max-wall")
			}
			var is api.Budget
			if done, err := a.answer(cmd.Context(), request{method: http.MethodPut, path: budgetPath(args[0]), body: b, patience: actPatience}, &is); done {
				return err
			}
			var of []string
			for _, row := range budgetRows(&is) {
				what := strings.Replace(row[0], "time", "of running", 1)
				if row[3] == "1" {
					what = strings.TrimSuffix(what, "s")
				}
				of = append(of, row[3]+" "+what)
			}
			fmt.Fprintf(a.out, "%s may spend %s, %s\n", line(is.Origin), strings.Join(of, " and "), budgetWindow(&is, time.Now()))
			return nil
		},
	}
	c.Flags().Int64Var(&b.MaxRuns, "max-runs", 0, "`N` attempts that begin")
	c.Flags().Int64Var(&b.MaxTokens, "max-tokens", 0, "`N` tokens that agents use")
	c.Flags().DurationVar(&wall, "max-wall", 0, "`DURATION` that runs take together")
	c.Flags().DurationVar(&window, "window", 0, "`DURATION` that the bounds are for (default for ever)")
	return a.jsonFlag(c)
}

func (a *app) budgetRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove ORIGIN", Aliases: []string{"rm"}, Short: "Let an origin spend what it likes", Args: exactly("ORIGIN"), ValidArgsFunction: a.completeBudgets,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			if _, _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: budgetPath(args[0]), once: true, patience: actPatience}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s has no budget any more\n", args[0])
			return nil
		},
	}
}

func (a *app) completeBudgets(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out := []cobra.Completion{fleet.Manual, fleet.Automation}
	var bs api.Budgets
	if a.ask("/v1/budgets", nil, &bs) {
		for _, b := range bs.Budgets {
			if strings.Contains(b.Origin, ":") && strings.HasPrefix(b.Origin, start) {
				out = append(out, b.Origin)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
