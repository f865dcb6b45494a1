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

// addWorktree registers the tree with git; no file is checked out yet. The caller holds the lock.
func (s *Store) addWorktree(ctx context.Context, c *cache, rec *record, start string) error {
	if err := s.keepOldBranch(ctx, c, rec, start); err != nil {
		return err
	}
	if err := s.save(rec); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(rec.Path), 0o700); err != nil {
		return fmt.Errorf("make worktree: %w", err)
	}
	args := []string{"worktree", "add", "--lock", "--no-track", "--no-checkout", "-B", rec.Branch, "--", rec.Path, start}
	if start == "" {
		empty, err := c.emptyCommit(ctx, s.signer(ctx))
		if err != nil {
			return err
		}
		args = []string{"worktree", "add", "--lock", "--detach", "--no-checkout", "--", rec.Path, empty}
	}
	add := func() error {
		_, err := c.git.run(ctx, call{dir: c.path, args: args})
		return err
	}
	// What an interrupted add or a deleted tree left registered would be in the way.
	if err := unregister(c.path, rec.Path); err != nil {
		return err
	}
	if err := s.patiently(ctx, c.hold, c.path, add); err != nil {
		// So would what an agent registered itself; ours are locked and stay.
		if _, pruneErr := c.git.line(ctx, c.path, "worktree", "prune"); pruneErr != nil {
			return err
		}
		if err := s.patiently(ctx, c.hold, c.path, add); err != nil {
			if strings.Contains(err.Error(), "already checked out") {
				return fault(fleet.Conflict, err, "branch %s is in use by another job's worktree on this runner; give this job another branch, or wait for the other to end", rec.Branch)
			}
			return err
		}
	}
	admin, err := adminDir(rec.Path)
	if err != nil {
		return err
	}
	rec.Admin = admin
	if start == "" {
		if _, err := c.git.in(admin).line(ctx, c.path, "symbolic-ref", "HEAD", rec.branchRef()); err != nil {
			return err
		}
	} else if rec.Base != "" {
		if err := s.setRef(ctx, c, "refs/tugline/base/"+string(rec.Job), rec.Base); err != nil {
			return err
		}
	}
	return s.save(rec)
}

// keepOldBranch saves what a branch of the same name pointed to, because it is about to be set anew.
func (s *Store) keepOldBranch(ctx context.Context, c *cache, rec *record, start string) error {
	old, err := c.git.commit(ctx, c.path, rec.branchRef())
	if err != nil || old == "" || old == start {
		return err
	}
	ref := fmt.Sprintf("refs/tugline/kept/%s/%s/before-%.12s", rec.Job, rec.Fence, old)
	if err := s.setRef(ctx, c, ref, old); err != nil {
		return err
	}
	if start == "" {
		err = s.setRef(ctx, c, "-d", rec.branchRef(), old)
	}
	return err
}

// setRef runs update-ref under the hold.
func (s *Store) setRef(ctx context.Context, c *cache, args ...string) error {
	return s.patiently(ctx, c.hold, c.path, func() error {
		_, err := c.git.run(ctx, call{dir: c.path, args: append([]string{"update-ref"}, args...)})
		return err
	})
}

// emptyCommit gives a commit without files, on which git can found a worktree that is then made unborn.
func (c *cache) emptyCommit(ctx context.Context, id Identity) (string, error) {
	tree, err := c.git.emptyTree(ctx, c.path)
	if err != nil {
		return "", err
	}
	return c.git.as(id).line(ctx, c.path, "commit-tree", "--no-gpg-sign", "-m", "empty", tree)
}

// emptyTree makes sure that the tree without entries exists and gives its name.
func (g git) emptyTree(ctx context.Context, dir string) (string, error) {
	return g.line(ctx, dir, "hash-object", "-w", "-t", "tree", "/dev/null")
}

// unregister makes a cache forget the worktree at a path. Unlike git's own prune it touches no other, not even one whose
// link an agent has just taken away.
func unregister(common, path string) error {
	entries, err := os.ReadDir(filepath.Join(common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget worktree: %w", err)
	}
	for _, e := range entries {
		admin := filepath.Join(common, "worktrees", e.Name())
		link, err := os.ReadFile(filepath.Join(admin, "gitdir"))
		if err != nil || strings.TrimSuffix(string(link), "\n") != filepath.Join(path, ".git") {
			continue
		}
		if err := os.RemoveAll(admin); err != nil {
			return fmt.Errorf("forget worktree: %w", err)
		}
	}
	return nil
}

// adminDir reads which git directory belongs to a worktree that was just made.
func adminDir(path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(path, ".git"))
	if err != nil {
		return "", fmt.Errorf("read worktree link: %w", err)
	}
	admin, ok := strings.CutPrefix(strings.TrimSuffix(string(data), "\n"), "gitdir: ")
	if !ok || !filepath.IsAbs(admin) {
		return "", fmt.Errorf("read worktree link: %s has an unexpected form", filepath.Join(path, ".git"))
	}
	return admin, nil
}
