package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// jobOrphansCommand is for what the hub lost the record of when it was recovered or
// restored, and what came back from the runners.
func (a *app) jobOrphansCommand() *cobra.Command {
	c := a.orphanListCommand()
	c.Use, c.Aliases = "orphans", []string{"orphan"}
	c.Short = "Results whose job's record was lost; adopt or discard them"
	c.Long = `When the hub was recovered or restored, it may have lost the record of work that runners
already did. Each such attempt runs to its end, and its result waits here: adopted, it
counts as an attempt of its job, and its evidence decides; discarded, it is let go. On its
runner a rescue ref keeps what it did in any case.`
	c.Example = "  tugline job orphans\n  tugline job orphans adopt 1-4711\n  tugline job orphans discard 1-4711 --yes"
	c.AddCommand(a.orphanListCommand(), a.orphanAdoptCommand(), a.orphanDiscardCommand())
	return c
}

func (a *app) orphanListCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Orphans that wait for a decision", Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			if all {
				q.Set("all", "true")
			}
			var os api.Orphans
			if done, err := a.answer(cmd.Context(), reading("/v1/orphans", q), &os); done {
				return err
			}
			if len(os.Orphans) == 0 {
				fmt.Fprintln(a.out, "No orphan waits for a decision.")
				return nil
			}
			t := table{head: []string{"ID", "STATE", "JOB", "RUNNER", "FINISHED", "ENDED AS", "LEFT"}}
			now := time.Now()
			for _, o := range os.Orphans {
				t.add(o.ID, o.State, string(o.Job), o.RunnerName, ago(now, &o.FinishedAt), string(o.Failure), orphanLeft(&o))
			}
			if err := t.print(a.out); err != nil {
				return err
			}
			if i := slices.IndexFunc(os.Orphans, func(o api.Orphan) bool { return o.State == "waiting" }); i >= 0 {
				id := os.Orphans[i].ID
				a.say("next: `tugline job orphans adopt %s` makes it an attempt of its job, `tugline job orphans discard %s --yes` lets it go", id, id)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "settled ones too")
	return a.jsonFlag(c)
}

// orphanLeft tells in a few words what there is of an orphan.
func orphanLeft(o *api.Orphan) string {
	var left []string
	if o.Commits > 0 {
		left = append(left, plural(o.Commits, "commit", "commits"))
	}
	if o.LogBytes > 0 {
		left = append(left, size(o.LogBytes)+" of output")
	}
	if !o.LogSealed {
		left = append(left, "more may come")
	}
	return strings.Join(left, ", ")
}

func orphanPath(id, verb string) string { return "/v1/orphans/" + url.PathEscape(id) + "/" + verb }

func (a *app) orphanAdoptCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "adopt ID", Short: "Make an orphan an attempt of its job", Args: exactly("ID"),
		Long: `Make an orphan an attempt of its job. A job that is not on record comes back with this one
attempt. Where the job is on record and nothing else was begun in that turn, the result
settles it; else it is kept beside what the job has come to.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var o api.Orphan
			if done, err := a.answer(cmd.Context(), acting(orphanPath(args[0], "adopt"), nil), &o); done {
				return err
			}
			fmt.Fprintf(a.out, "orphan %s is an attempt of job %s now; `tugline job get %s` shows what that came to\n", o.ID, o.Job, o.Job)
			return nil
		},
	})
}

func (a *app) orphanDiscardCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "discard ID", Short: "Let an orphan's result go", Args: exactly("ID"),
		Long: `Let an orphan's result go: the hub deletes its output and its commits in time. What its
runner saved under a rescue ref stays on that machine.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usage("this lets the result of orphan %s go; add --yes if it is not wanted", args[0])
			}
			var o api.Orphan
			if done, err := a.answer(cmd.Context(), acting(orphanPath(args[0], "discard"), nil), &o); done {
				return err
			}
			where := ""
			if o.RescueRef != "" {
				where = fmt.Sprintf("; %s on %s keeps its work", o.RescueRef, o.RunnerName)
			}
			fmt.Fprintf(a.out, "orphan %s is %s%s\n", o.ID, fleet.OrphanDiscarded, where)
			return nil
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "yes, it is not wanted")
	return a.jsonFlag(c)
}
