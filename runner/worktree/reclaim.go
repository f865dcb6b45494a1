package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reclaimed is what Reclaim gave back.
type Reclaimed struct {
	Directories int // of what builds make again
	Bytes       int64
	Retained    Retained
}

// Reclaim gives space back where a disk is short, in this order until there is enough: directories of the given names,
// which builds make again and git ignores, in workspaces of ended jobs, those that were used last at the end; caches that
// may go, however lately they were used; workspaces whose time is over. Nothing goes here that Retain would not let go,
// but for the first.
func (s *Store) Reclaim(ctx context.Context, p Policy, names []string) (Reclaimed, error) {
	var out Reclaimed
	recs, _, err := s.listed()
	if err != nil {
		return out, err
	}
	slices.SortFunc(recs, func(a, b *record) int {
		return cmp.Or(s.lastUse(a).Compare(s.lastUse(b)), strings.Compare(string(a.Job), string(b.Job)))
	})
	var failed []error
	for _, rec := range recs {
		if p.Enough() || ctx.Err() != nil {
			break
		}
		if rec.State != stateReady || p.Busy(rec.Job) || s.unlinked(rec) != "" {
			continue
		}
		if err := s.dropBuilt(ctx, rec, p, names, &out); err != nil {
			failed = append(failed, fmt.Errorf("reclaim from the workspace of job %s: %w", rec.Job, err))
		}
	}
	if p.Enough() {
		return out, errors.Join(failed...)
	}
	now := p
	now.Cache = 0
	failed = append(failed, s.retainCaches(ctx, now, &out.Retained))
	if !p.Enough() && ctx.Err() == nil {
		gone, err := s.Retain(ctx, p)
		gone.Evicted = append(out.Retained.Evicted, gone.Evicted...)
		gone.Bytes += out.Retained.Bytes
		out.Retained, failed = gone, append(failed, err)
	}
	out.Bytes += out.Retained.Bytes
	return out, errors.Join(failed...)
}

// dropBuilt deletes what builds make again from one workspace. A directory with a repository in it stays.
func (s *Store) dropBuilt(ctx context.Context, rec *record, p Policy, names []string, out *Reclaimed) error {
	ws := s.workspace(rec)
	ignored, err := ws.git.list(ctx, ws.top, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
	if err != nil {
		return err
	}
	for _, at := range ignored {
		dir, ok := strings.CutSuffix(at, "/")
		path := filepath.Join(rec.Path, dir)
		if !ok || !slices.Contains(names, filepath.Base(dir)) || !isDir(path) {
			continue
		}
		if HasRepository(path) {
			continue
		}
		bytes := SizeOf(path)
		if gone, err := s.dropDir(rec, path, p); err != nil || !gone {
			return err
		}
		out.Directories++
		out.Bytes += bytes
	}
	return nil
}

// HasRepository says that a directory is or holds a git repository, or can't be looked into.
func HasRepository(dir string) bool {
	why, err := hidden(dir, nil, nil)
	return err != nil || why != "" || exists(filepath.Join(dir, ".git"))
}

// dropDir deletes a directory of a workspace, unless a job has taken that up. The workspace is not used by that.
func (s *Store) dropDir(rec *record, path string, p Policy) (bool, error) {
	trash, err := os.MkdirTemp(filepath.Join(s.dir, "trash"), string(rec.Job)+"-")
	if err != nil {
		return false, err
	}
	s.leaving.Lock()
	top, err := os.Stat(rec.Path)
	busy := p.Busy(rec.Job)
	if err == nil && !busy {
		if err = os.Rename(path, filepath.Join(trash, "built")); err == nil {
			err = os.Chtimes(rec.Path, top.ModTime(), top.ModTime())
		}
	}
	s.leaving.Unlock()
	return err == nil && !busy, errors.Join(err, removeAll(trash))
}
