package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/shared/fleet"
)

// classWords says what is in a class, and when it goes.
var classWords = map[string]string{
	"worktrees": "workspaces of jobs; see `tugline runner workspaces`",
	"build":     "what builds make again in them; first to go where the disk is short",
	"caches":    "repositories' caches; gone when unused for keep_caches",
	"logs":      "jobs whose output the hub does not have whole yet",
	"harness":   "the agent CLIs' own; never touched",
	"docker":    "all of Docker's on this machine; see docker in runner.yaml",
	"other":     "journal, logs and keys of the runner",
}

func (a *app) runnerDiskCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "disk", Short: "What takes the disk of the runner here, by class", Args: cobra.NoArgs,
		Long: `Count what the runner on this machine and its agent CLIs take on the disk, by class and the
largest first, while it runs or not. That takes a minute at most. Where a disk is short, the runner
gives back in this order: directories of builds of ended jobs, caches that may go, workspaces whose
time is over.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := filepath.Abs(first(dir, a.runnerDir()))
			if err != nil {
				return err
			}
			d, err := runner.InspectDisk(cmd.Context(), at)
			if err != nil {
				return fail(exitFailed, "%v", err)
			}
			if a.json {
				return a.printJSON(struct {
					Usage   []fleet.ClassUsage   `json:"usage"`
					Partial bool                 `json:"partial"`
					Own     int64                `json:"own"`
					Limit   int64                `json:"limit,omitempty"`
					Volume  fleet.Volume         `json:"volume"`
					Relief  *runner.DockerRelief `json:"docker_relief,omitempty"`
				}{d.Usage, d.Partial, d.Own, d.Limit, d.Volume, d.Relief})
			}
			return a.showDisk(d)
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "the runner's data `DIR` (default ~/.local/share/tugline/runner)")
	return local(a.jsonFlag(c))
}

func (a *app) showDisk(d runner.Disk) error {
	t := table{head: []string{"CLASS", "SIZE", "FILES", "WHAT"}}
	for _, u := range d.Usage {
		t.add(u.Class, size(u.Bytes), count(u.Files), classWords[u.Class])
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	limit := "no limit"
	if d.Limit > 0 {
		limit = "at most " + size(d.Limit)
	}
	fmt.Fprintf(a.out, "the runner's own: %s, %s\n", size(d.Own), limit)
	if v := d.Volume; v.Known {
		fmt.Fprintf(a.out, "free: %s of %s at %s\n", size(v.Free), size(v.Total), line(v.Path))
	}
	if d.Relief != nil {
		fmt.Fprintf(a.out, "%s ago: %s\n", span(max(time.Since(d.Relief.At), 0)), d.Relief)
	}
	if d.Partial {
		a.say("there is more than was counted in a minute")
	}
	return nil
}
