package worktree

import (
	"context"
	"errors"
	"fmt"
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
	out, err := ws.git.line(ctx, ws.top, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/stash")
	if err != nil {
		return err
	}
	stashed := false
	for l := range strings.Lines(out) {
		sha, ref, _ := strings.Cut(strings.TrimSpace(l), " ")
		if ref == "refs/stash" {
			stashed = true
			continue
		}
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
	if !stashed {
		return nil
	}
	// A stash remembers on which branch it was made.
	stashes, err := ws.git.list(ctx, ws.top, "stash", "list", "-z", "--format=%H %gs")
	if err != nil {
		return err
	}
	for _, entry := range stashes {
		sha, subject, _ := strings.Cut(entry, " ")
		if !strings.Contains(subject, "n "+t.rec.Branch+": ") || !isSHA(sha) {
			continue
		}
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
