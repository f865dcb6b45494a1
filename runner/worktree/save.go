package worktree

import (
	"context"
	"fmt"
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
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
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
