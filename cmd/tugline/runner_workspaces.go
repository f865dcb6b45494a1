package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// keptWorkspace is a workspace as programs get it.
type keptWorkspace struct {
	Job         fleet.JobID `json:"job"`
	Path        string      `json:"path"`
	Repository  string      `json:"repository,omitempty"`
	Branch      string      `json:"branch,omitempty"`
	Next        string      `json:"next"` // keep, save, delete, look
	Why         string      `json:"why"`
	Until       *time.Time  `json:"until,omitempty"` // without it: without limit, where it is kept
	LastUse     *time.Time  `json:"last_use,omitempty"`
	Own         int         `json:"own_commits"`
	Uncommitted bool        `json:"uncommitted"`
	RescueRef   string      `json:"rescue_ref,omitempty"`
	Save        []string    `json:"save,omitempty"` // commands
}

// keptCache is a repository's cache likewise.
type keptCache struct {
	Repository string     `json:"repository"`
	Path       string     `json:"path"`
	Next       string     `json:"next"`
	Why        string     `json:"why"`
	Until      *time.Time `json:"until,omitempty"`
	LastUse    *time.Time `json:"last_use,omitempty"`
	Worktrees  int        `json:"worktrees"`
	Only       []string   `json:"only_here,omitempty"` // refs
	Contents   int        `json:"lfs_only_here,omitempty"`
	Save       []string   `json:"save,omitempty"` // commands
}

func (a *app) runnerWorkspacesCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "workspaces", Short: "What the runner here keeps of jobs: why, until when, how to save it", Args: cobra.NoArgs,
		Long: `List the workspaces of jobs and the caches of repositories that the runner on this machine keeps,
while it runs or not: why each is kept, until when, and the command that saves what is here alone.
NEXT is what the runner does with it: keep; save, which puts files that are not committed under a
rescue ref; delete; or look: nothing can be proved of it, and it stays until somebody has looked.
What was saved goes by itself later; what was copied goes when its directory is deleted by hand.
Nothing is changed by this.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := filepath.Abs(first(dir, a.runnerDir()))
			if err != nil {
				return err
			}
			kept, err := runner.InspectKept(cmd.Context(), at)
			if err != nil {
				return fail(exitFailed, "%v", err)
			}
			if a.json {
				return a.printJSON(keptJSON(kept))
			}
			return a.showKept(kept, time.Now())
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "the runner's data `DIR` (default ~/.local/share/tugline/runner)")
	return local(a.jsonFlag(c))
}

func keptJSON(kept runner.Kept) any {
	moment := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC().Truncate(time.Second)
		return &t
	}
	out := struct {
		Workspaces []keptWorkspace `json:"workspaces"`
		Caches     []keptCache     `json:"caches"`
	}{[]keptWorkspace{}, []keptCache{}}
	for _, w := range kept.Workspaces {
		out.Workspaces = append(out.Workspaces, keptWorkspace{
			Job: w.Job, Path: w.Path, Repository: w.URL, Branch: w.Branch, Next: string(w.Do), Why: w.Why, Until: moment(w.Until),
			LastUse: moment(w.LastUse), Own: w.Own, Uncommitted: w.Dirty, RescueRef: w.Rescue, Save: w.Commands,
		})
	}
	for _, c := range kept.Caches {
		out.Caches = append(out.Caches, keptCache{
			Repository: c.Repository, Path: c.Path, Next: string(c.Do), Why: c.Why, Until: moment(c.Until), LastUse: moment(c.LastUse),
			Worktrees: c.Worktrees, Only: c.Only, Contents: c.Contents, Save: c.Commands,
		})
	}
	return out
}

func (a *app) showKept(kept runner.Kept, now time.Time) error {
	if len(kept.Workspaces)+len(kept.Caches) == 0 {
		fmt.Fprintln(a.out, "nothing is kept here")
		return nil
	}
	for _, w := range kept.Workspaces {
		fmt.Fprintf(a.out, "job %s  %s: %s\n  %s\n", line(string(w.Job)), next(w.Decision, now), line(w.Why), line(w.Path))
		for _, command := range w.Commands {
			fmt.Fprintf(a.out, "  save it: %s\n", clean(command))
		}
	}
	for _, c := range kept.Caches {
		fmt.Fprintf(a.out, "cache of %s  %s: %s\n  %s\n", line(c.Repository), next(c.Decision, now), line(c.Why), line(c.Path))
		for _, command := range c.Commands {
			fmt.Fprintf(a.out, "  save it: %s\n", clean(command))
		}
	}
	return nil
}

// next words what is done with something, and until when it stays.
func next(d worktree.Decision, now time.Time) string {
	if d.Do == worktree.Keep && !d.Until.IsZero() {
		return fmt.Sprintf("kept until %s (%s)", d.Until.Local().Format("01-02 15:04"), span(max(d.Until.Sub(now), 0)))
	}
	switch d.Do {
	case worktree.Keep:
		return "kept"
	case worktree.Save:
		return "to be saved"
	case worktree.Delete:
		return "to be deleted"
	}
	return "kept for a look"
}
