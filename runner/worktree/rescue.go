package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// keepAside saves branches and stashes of the attempt that are not part of the result, because jobs of one repository
// share these names and the next one may move or drop them.
func (t *Tree) keepAside(ctx context.Context, ws workspace, fence fleet.Fence, tip string, res *Result) error {
	been, err := ws.visited()
	if err != nil {
		return err
	}
	kept := func(kind, name string) string {
		return fmt.Sprintf("refs/tugline/kept/%s/%s/%s/%s", t.Job, fence, kind, name)
	}
	out, err := ws.git.line(ctx, ws.top, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
	if err != nil {
		return err
	}
	for l := range strings.Lines(out) {
		sha, ref, _ := strings.Cut(strings.TrimSpace(l), " ")
		if !been[sha] || strings.HasPrefix(ref, "refs/heads/tugline/") || ref == t.rec.branchRef() {
			continue
		}
		n, err := ws.ownCommits(ctx, sha, tip)
		if err != nil || n == 0 {
			continue
		}
		name := strings.TrimPrefix(ref, "refs/heads/")
		if _, err := ws.git.line(ctx, ws.top, "update-ref", kept("branch", name), sha); err != nil {
			return err
		}
		res.note("branch %q with %d commits is not part of the result; it is kept as %s", name, n, kept("branch", name))
	}
	stashes, err := ws.stashes(ctx, t.rec.Branch, been)
	if err != nil {
		return err
	}
	for _, sha := range stashes {
		ref := kept("stash", sha[:12])
		if _, err := ws.git.line(ctx, ws.top, "update-ref", ref, sha); err != nil {
			return err
		}
		res.note("a stash was left; it is kept as %s", ref)
	}
	return nil
}

// visited gives every commit that HEAD of this worktree ever stood at.
func (w workspace) visited() (map[string]bool, error) {
	data, err := os.ReadFile(filepath.Join(w.gitDir, "logs", "HEAD"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	been := make(map[string]bool)
	for l := range strings.Lines(string(data)) {
		if parts := strings.SplitN(l, " ", 3); len(parts) == 3 {
			been[parts[1]] = true
		}
	}
	return been, nil
}

// rescue puts a commit under the attempt's rescue ref. What an earlier harvest of the same attempt put there stays
// reachable.
func (t *Tree) rescue(ctx context.Context, ws workspace, fence fleet.Fence, commit string, res *Result) error {
	ref := rescueRef(t.Job, fence)
	res.RescueRef = ref
	old, err := ws.git.commit(ctx, ws.top, ref)
	if err != nil || old == commit {
		return err
	}
	if old != "" {
		oldTree, err1 := ws.git.tree(ctx, ws.top, old)
		newTree, err2 := ws.git.tree(ctx, ws.top, commit)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		follows, err := ws.git.isAncestor(ctx, ws.top, commit, old)
		if err != nil {
			return err
		}
		sameParent, err := ws.sameParent(ctx, old, commit)
		if err != nil || oldTree == newTree && (follows || sameParent) {
			return err
		}
		if commit, err = ws.commitTree(ctx, t.store.signer(ctx), newTree, rescueMessage(t.rec, fence), commit, old); err != nil {
			return err
		}
	}
	_, err = ws.git.line(ctx, ws.top, "update-ref", "-m", "tugline: rescue", ref, commit)
	return err
}

// packRescue writes what was put under the rescue ref as files that can leave this machine.
func (s *Store) packRescue(ctx context.Context, rec *record, req HarvestRequest, res *Result) error {
	if res.RescueRef == "" {
		return nil
	}
	c := s.cacheAt(rec.Cache, rec.Generation, rec.URL)
	saved, err := c.git.commit(ctx, c.path, res.RescueRef)
	if err != nil || saved == "" {
		return err
	}
	from := res.Tip
	if from == "" {
		if from, err = c.git.emptyTree(ctx, c.path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(req.Out, 0o700); err != nil {
		return err
	}
	patch, err := writeFile(filepath.Join(req.Out, "rescue.patch"), func(w io.Writer) error {
		_, err := c.git.run(ctx, call{dir: c.path, stdout: w, args: diffArgs("--patch", "--binary", "--full-index", from, saved)})
		return err
	})
	if err != nil {
		return fmt.Errorf("write rescue patch: %w", err)
	}
	if patch.size > 0 {
		res.RescuePatchPath = patch.path
	}
	var prerequisites []string
	if rec.Base != "" {
		prerequisites = []string{rec.Base}
	}
	bundle, err := c.git.writeBundle(ctx, c.path, filepath.Join(req.Out, "rescue.bundle"), prerequisites, saved, res.RescueRef)
	if err != nil {
		return err
	}
	res.RescueBundlePath = bundle.path
	return nil
}

func (w workspace) sameParent(ctx context.Context, a, b string) (bool, error) {
	pa, err1 := w.git.commit(ctx, w.top, a+"^")
	pb, err2 := w.git.commit(ctx, w.top, b+"^")
	return pa == pb, errors.Join(err1, err2)
}

func rescueRef(job fleet.JobID, fence fleet.Fence) string {
	return fmt.Sprintf("refs/tugline/rescue/%s/%s", job, fence)
}

func rescueMessage(rec *record, fence fleet.Fence) string {
	return fmt.Sprintf("What job %s left uncommitted\n\nTugline-Commit: rescue\nTugline-Job: %s\nTugline-Fence: %s\n", rec.Job, rec.Job, fence)
}
