package worktree

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// saveFiles puts what a workspace holds beyond its commit under the rescue ref of its attempt: its files, and beside them
// what was staged otherwise. What was there before stays reachable. The caller holds the lock of the cache.
func (s *Store) saveFiles(ctx context.Context, rec *record) error {
	tmp, done, err := s.tempDir()
	if err != nil {
		return err
	}
	defer done()
	ws := s.workspace(rec).at(s.now())
	at, err := ws.stand(ctx, rec)
	if err != nil {
		return err
	}
	staged, err := ws.stagedTree(ctx, tmp)
	if err != nil {
		return err
	}
	snap, err := s.files(ctx, ws, tmp)
	if err != nil {
		return err
	}
	ref := rescueRef(rec.Job, rec.Fence)
	old, err := ws.git.commit(ctx, ws.top, ref)
	if err != nil {
		return err
	}
	head := at.head
	if head == "" {
		head = at.branch
	}
	parents := []string{head}
	if staged != "" && staged != snap.Tree && staged != at.tree {
		if staged, err = ws.commitTree(ctx, s.signer(ctx), staged, "What was staged\n\nTugline-Commit: rescue\n", head); err != nil {
			return err
		}
		parents = append(parents, staged)
	}
	if old != "" {
		parents = append(parents, old)
	} else {
		old = strings.Repeat("0", len(snap.Tree))
	}
	saved, err := ws.commitTree(ctx, s.signer(ctx), snap.Tree, rescueMessage(rec, rec.Fence), parents...)
	if err != nil {
		return err
	}
	if _, err := ws.git.line(ctx, ws.top, "update-ref", "-m", "tugline: rescue", ref, saved, old); err != nil {
		return fmt.Errorf("save files of job %s: %w", rec.Job, err)
	}
	return nil
}

// files gives all that has to be saved of a workspace: its snapshot, and with it the ignored files that the owner names.
func (s *Store) files(ctx context.Context, ws workspace, tmp string) (*snapshot, error) {
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
	if err != nil || len(s.rescueIgnored) == 0 {
		return snap, err
	}
	ignored, err := ws.git.list(ctx, ws.top, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var named []untracked
	for _, name := range ignored {
		st, err := os.Lstat(filepath.Join(ws.top, name))
		if err != nil || !st.Mode().IsRegular() || !slices.ContainsFunc(s.rescueIgnored, func(p string) bool {
			base, _ := path.Match(p, path.Base(name))
			whole, _ := path.Match(p, name)
			return base || whole
		}) {
			continue
		}
		if !canRead(filepath.Join(ws.top, name)) {
			snap.leave(name, st.Size())
			continue
		}
		named = append(named, untracked{name, st.Size()})
	}
	room := s.untrackedLimit
	g := ws.git.with("GIT_INDEX_FILE=" + snap.Index)
	if err := addFiles(ctx, g, ws.top, snap.fit(named, "", &room)); err != nil {
		return nil, err
	}
	snap.Tree, err = g.line(ctx, ws.top, "write-tree")
	return snap, err
}
