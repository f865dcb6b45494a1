package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// artifact finds one file of a job: the newest of that name.
func (c *client) artifact(ctx context.Context, id, name string) (api.Artifact, error) {
	var as api.Artifacts
	if _, err := c.read(ctx, jobPath(id, "/artifacts"), nil, &as); err != nil {
		return api.Artifact{}, err
	}
	for _, f := range slices.Backward(as.Artifacts) {
		if f.Name == name {
			if !f.Stored {
				return f, fail(exitFailed, "the %s of job %s is not on the hub: it is still being uploaded, or its keep time has passed", name, id)
			}
			return f, nil
		}
	}
	return api.Artifact{}, errNoArtifact
}

var errNoArtifact = errors.New("no such artifact")

func artifactPath(id string, f api.Artifact) (string, url.Values) {
	return jobPath(id, "/artifacts/"+url.PathEscape(f.Name)), url.Values{"turn": {fmt.Sprint(f.Turn)}, "attempt": {fmt.Sprint(f.Attempt)}}
}

// nothingNew says why a job has no commits to show.
func nothingNew(j *api.Job) error {
	switch {
	case !j.State.Ended():
		return fail(exitFailed, "job %s is %s and has no result yet; `tugline job logs -f %s` follows it", j.ID, words(j.State), j.ID)
	case j.Spec.Repo == nil:
		return fail(exitFailed, "job %s had no repository, so there are no changes", j.ID)
	}
	return fail(exitFailed, "job %s changed nothing that was committed; `tugline job get %s` shows what it left", j.ID, j.ID)
}

func (a *app) jobDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff ID", Short: "The changes of a job, as a patch", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		Example: "  tugline job diff 01jq8\n  tugline job diff 01jq8 | git apply --3way",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			j, _, err := c.job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			f, err := c.artifact(cmd.Context(), string(j.ID), "patch")
			if errors.Is(err, errNoArtifact) {
				return nothingNew(j)
			}
			if err != nil {
				return err
			}
			path, q := artifactPath(string(j.ID), f)
			return c.download(cmd.Context(), path, q, a.out)
		},
	}
}

func (a *app) jobPullCommand() *cobra.Command {
	var into, branch string
	c := &cobra.Command{
		Use: "pull ID", Short: "Fetch a job's branch into your repository", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		Long: `Fetch a job's commits into the repository here, as a branch that is not checked out. A
branch that has other commits is left as it is.`,
		Example: "  tugline job pull 01jq8 && git log tugline/01jq8…\n  tugline job pull 01jq8 --into ~/src/app --branch fix-login",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			return a.pull(cmd.Context(), c, args[0], into, branch)
		},
	}
	c.Flags().StringVar(&into, "into", ".", "`DIR` of the repository to fetch into")
	c.Flags().StringVar(&branch, "branch", "", "`NAME` for the branch (default that of the job)")
	return a.jsonFlag(c)
}

func (a *app) pull(ctx context.Context, c *client, id, into, branch string) error {
	j, _, err := c.job(ctx, id)
	if err != nil {
		return err
	}
	l, err := worktree.Inspect(ctx, into)
	if err != nil {
		return err
	}
	f, err := c.artifact(ctx, string(j.ID), "bundle")
	if errors.Is(err, errNoArtifact) {
		return nothingNew(j)
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tugline-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "result.bundle")
	path, q := artifactPath(string(j.ID), f)
	if err := c.save(ctx, path, q, file, f.SHA256); err != nil {
		return err
	}
	branch = first(branch, j.Branch, "tugline/"+string(j.ID))
	got, err := worktree.FetchBundle(ctx, l.Top, file, "", branch)
	if errors.Is(err, fleet.InputMissing) {
		if err := a.pullBase(ctx, c, j, l.Top, filepath.Join(dir, "base.bundle"), branch+"-base"); err != nil {
			return err
		}
		got, err = worktree.FetchBundle(ctx, l.Top, file, "", branch)
	}
	if errors.Is(err, fleet.InputMissing) {
		return baseMissing(j, l.Top)
	}
	if err != nil {
		return err
	}
	// From here on the commits are safe; that the hub may forget them is a courtesy.
	if _, err := c.act(ctx, jobPath(string(j.ID), "/pulled"), struct{}{}, nil); err != nil {
		a.say("note: the branch is here, but the hub was not told that it may let its copy go: %s", sentence(err))
	}
	if a.json {
		return a.printJSON(struct {
			Job     fleet.JobID `json:"job"`
			Branch  string      `json:"branch"`
			Commit  string      `json:"commit"`
			Base    string      `json:"base_commit"`
			Top     string      `json:"repository"`
			Created bool        `json:"created"`
			Updated bool        `json:"updated"`
		}{j.ID, got.Branch, got.SHA, j.BaseCommit, l.Top, got.Created, got.Updated})
	}
	did := "is already here"
	if got.Created {
		did = "is new here"
	} else if got.Updated {
		did = "was moved on"
	}
	fmt.Fprintf(a.out, "branch %s %s, at %s\n", got.Branch, did, short(got.SHA))
	if j.BaseCommit != "" {
		fmt.Fprintf(a.out, "  git log -p %s..%s\n", short(j.BaseCommit), got.Branch)
	}
	fmt.Fprintf(a.out, "  git merge %s\n", got.Branch)
	return nil
}

// pullBase brings back what a job began at where that was handed over: with
// uncommitted changes it is a commit that no repository but the job's own has.
func (a *app) pullBase(ctx context.Context, c *client, j *api.Job, top, file, branch string) error {
	if j.Spec.Repo == nil || j.Spec.Repo.Bundle == "" {
		return baseMissing(j, top)
	}
	d := j.Spec.Repo.Bundle
	err := c.save(ctx, "/v1/blobs/"+string(d), nil, file, d)
	if errors.Is(err, fleet.BlobMissing) {
		return baseMissing(j, top)
	}
	if err != nil {
		return err
	}
	if _, err = worktree.FetchBundle(ctx, top, file, "", branch); err != nil {
		if errors.Is(err, fleet.InputMissing) {
			return baseMissing(j, top)
		}
		return err
	}
	a.say("branch %s is what the job began at, as it was sent with its uncommitted changes", branch)
	return nil
}

func baseMissing(j *api.Job, top string) error {
	return fail(exitFailed, "%s does not have the commit %s that job %s began at; fetch it first, or give the right repository with --into", top, short(j.BaseCommit), j.ID)
}

func (a *app) jobArtifactsCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "artifacts ID [NAME]", Aliases: []string{"artifact"}, Short: "Files of a job: list them, or get one", Args: from("ID", "NAME"), ValidArgsFunction: a.completeJobs,
		Example: "  tugline job artifacts 01jq8\n  tugline job artifacts 01jq8 bundle -o result.bundle",
		RunE: func(cmd *cobra.Command, args []string) error {
			if out != "" && len(args) < 2 {
				return usage("-o needs the name of the artifact before it; `tugline job artifacts %s` lists them", args[0])
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			if len(args) == 2 {
				return a.getArtifact(cmd.Context(), c, args[0], args[1], out)
			}
			var as api.Artifacts
			raw, err := c.read(cmd.Context(), jobPath(args[0], "/artifacts"), nil, &as)
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			if len(as.Artifacts) == 0 {
				fmt.Fprintln(a.out, "The job has no files.")
				return nil
			}
			t := table{head: []string{"NAME", "SIZE", "TURN", "ATTEMPT", "STORED", "SHA-256"}}
			for _, f := range as.Artifacts {
				stored := "yes"
				if !f.Stored {
					stored = "no"
				}
				t.add(f.Name, size(f.Size), fmt.Sprint(f.Turn), fmt.Sprint(f.Attempt), stored, string(f.SHA256))
			}
			return t.print(a.out)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write to; - or none: standard output")
	return a.jsonFlag(c)
}

func (a *app) getArtifact(ctx context.Context, c *client, id, name, out string) error {
	f, err := c.artifact(ctx, id, name)
	if errors.Is(err, errNoArtifact) {
		return usage("job %s has no artifact %q; `tugline job artifacts %s` lists them", id, name, id)
	}
	if err != nil {
		return err
	}
	path, q := artifactPath(id, f)
	if out == "" || out == "-" {
		if a.ttyOut && f.Type != "text/x-diff" && f.Type != "text/plain" {
			return usage("%s is not text, and this is a terminal; give -o FILE", name)
		}
		return c.download(ctx, path, q, a.out)
	}
	if err := c.save(ctx, path, q, out, f.SHA256); err != nil {
		return err
	}
	a.say("wrote %s, %s", out, size(f.Size))
	return nil
}
