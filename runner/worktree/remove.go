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

// A Removal says whether a worktree was deleted and, if it is kept, why.
type Removal struct {
	Removed bool
	Bytes   int64  // freed
	Why     string // "" if removed
}

// Remove deletes the worktree of a job if everything in it is proved to be elsewhere: its commit is under a ref, and its
// files are those of that commit or of a rescue commit. Ignored files go with it. Otherwise it is kept and the reason
// given. The job's branch and refs stay in the cache, so that Rebuild can make it again. Nothing may run in it.
func (s *Store) Remove(ctx context.Context, job fleet.JobID) (Removal, error) {
	if err := checkJob(job); err != nil {
		return Removal{}, err
	}
	rec, err := s.load(job)
	if err != nil {
		return Removal{}, err
	}
	if rec == nil {
		if exists(filepath.Join(s.dir, "work", string(job))) {
			return Removal{Why: "its directory was not made by this runner"}, nil
		}
		return Removal{Removed: true}, nil
	}
	h, err := s.lock(ctx, rec.Cache)
	if err != nil {
		return Removal{}, err
	}
	defer h.release()
	out, err := s.remove(ctx, rec)
	if err != nil {
		return out, fmt.Errorf("remove worktree of job %s: %w", job, err)
	}
	return out, nil
}

func (s *Store) remove(ctx context.Context, rec *record) (Removal, error) {
	if exists(rec.Path) && rec.State == stateReady {
		why, err := s.whyKeep(ctx, rec)
		if err != nil || why != "" {
			return Removal{Why: why}, err
		}
	}
	size := sizeOf(rec.Path)
	if err := s.discard(rec); err != nil {
		return Removal{}, err
	}
	if err := unregister(s.workspace(rec).common, rec.Path); err != nil {
		return Removal{}, err
	}
	sweepOld(filepath.Join(s.dir, "trash"), "")
	sweepOld(filepath.Join(s.dir, "tmp"), "w-")
	rec.State = stateRemoved
	return Removal{Removed: true, Bytes: size}, s.save(rec)
}

// whyKeep looks for anything that exists in the worktree only; "" if there is nothing.
func (s *Store) whyKeep(ctx context.Context, rec *record) (string, error) {
	ws := s.workspace(rec)
	if !isDir(rec.Path) || !strings.HasPrefix(rec.Path, filepath.Join(s.dir, "work")+"/") {
		return "its directory was replaced by something else", nil
	}
	if admin, err := adminDir(rec.Path); err != nil || admin != rec.Admin {
		return "its link to git was replaced, perhaps by a repository of its own", nil
	}
	if !isDir(rec.Admin) || !isDir(ws.common) {
		return "git does not know it any more", nil
	}
	at, err := ws.stand(ctx, rec)
	if err != nil {
		return "", err
	}
	if at.operation != "" {
		return "a " + at.operation + " is under way", nil
	}
	if at.head != "" {
		refs, err := ws.git.line(ctx, ws.top, "for-each-ref", "--count=1", "--contains="+at.head, "--format=x")
		if err != nil {
			return "", err
		}
		if refs == "" {
			return "its commit " + at.head[:12] + " is under no ref", nil
		}
	}
	tmp, done, err := s.tempDir()
	if err != nil {
		return "", err
	}
	defer done()
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
	if err != nil {
		return "", err
	}
	if !snap.whole() {
		return fmt.Sprintf("%d untracked files with %d bytes are saved nowhere else", len(snap.Left), snap.LeftBytes), nil
	}
	clean, err := ws.isClean(ctx, rec, at.head, at.tree, snap)
	if err != nil {
		return "", err
	}
	if !clean {
		if clean, err = ws.isRescued(ctx, rec.Job, snap.Tree); err != nil {
			return "", err
		}
	}
	if !clean {
		return "it has changes that are neither committed nor rescued", nil
	}
	return s.whyKeepInner(ctx, rec, snap)
}

// isRescued says that some rescue ref of the job holds exactly this tree.
func (w workspace) isRescued(ctx context.Context, job fleet.JobID, tree string) (bool, error) {
	out, err := w.git.line(ctx, w.top, "for-each-ref", "--format=%(tree)", "refs/tugline/rescue/"+string(job))
	for l := range strings.Lines(out) {
		if strings.TrimSpace(l) == tree {
			return true, err
		}
	}
	return false, err
}

// whyKeepInner looks at repositories inside the worktree: submodules, and what an agent made.
func (s *Store) whyKeepInner(ctx context.Context, rec *record, snap *snapshot) (string, error) {
	for _, at := range snap.Nested {
		if head, err := s.git.commit(ctx, filepath.Join(rec.Path, at), "HEAD"); err != nil || head != "" {
			return fmt.Sprintf("it holds a git repository of its own at %q, whose history is saved nowhere else", at), nil
		}
	}
	ws := s.workspace(rec)
	entries, err := ws.git.list(ctx, ws.top, "ls-files", "-z", "--stage")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		meta, path, _ := strings.Cut(e, "\t")
		inner := filepath.Join(rec.Path, path)
		if !strings.HasPrefix(meta, "160000 ") || !exists(filepath.Join(inner, ".git")) {
			continue
		}
		// Only a git directory that git itself put beside ours is opened: another could have git run a program.
		admin, err := innerAdmin(inner)
		if err != nil || !inside(filepath.Join(rec.Admin, "modules"), admin) {
			return fmt.Sprintf("submodule %q is a repository of its own", path), nil
		}
		g := s.git.with("GIT_DIR="+admin, "GIT_WORK_TREE="+inner)
		dirty, err := g.line(ctx, inner, "status", "--porcelain", "--ignore-submodules=none")
		if err != nil || dirty != "" {
			return fmt.Sprintf("submodule %q has changes", path), nil
		}
		own, err := g.count(ctx, inner, "rev-list", "--count", "HEAD", "--branches", "--not", "--remotes", "--tags")
		if err != nil || own > 0 {
			return fmt.Sprintf("submodule %q has commits that no remote has", path), nil
		}
	}
	return "", nil
}

// innerAdmin reads the git directory of a submodule, whose link is relative.
func innerAdmin(inner string) (string, error) {
	data, err := os.ReadFile(filepath.Join(inner, ".git"))
	if err != nil {
		return "", err
	}
	admin := strings.TrimSuffix(strings.TrimPrefix(string(data), "gitdir: "), "\n")
	if !filepath.IsAbs(admin) {
		admin = filepath.Join(inner, admin)
	}
	return filepath.EvalSymlinks(admin)
}

func (s *Store) clearLocked(ctx context.Context, rec *record) error {
	h, err := s.lock(ctx, rec.Cache)
	if err != nil {
		return err
	}
	defer h.release()
	return s.clear(ctx, rec)
}

// clear makes room for a job's new tree where an earlier one is: what it holds is saved, and it is deleted only then. The
// caller holds the lock.
func (s *Store) clear(ctx context.Context, rec *record) error {
	if !exists(rec.Path) || rec.State != stateReady {
		return s.discard(rec)
	}
	t := s.tree(rec)
	res, err := t.Harvest(ctx, HarvestRequest{Fence: rec.Fence, Commit: CommitNever})
	if err != nil {
		return fmt.Errorf("save the earlier worktree: %w", err)
	}
	out, err := s.remove(ctx, rec)
	if err != nil {
		return err
	}
	if !out.Removed {
		return fault(fleet.Conflict, nil, "the earlier worktree of job %s at %s is kept: %s; save what is needed from it and delete it, then retry", rec.Job, rec.Path, out.Why)
	}
	s.log.Info("earlier worktree saved and removed", "job", rec.Job, "fence", rec.Fence.String(), "ref", res.RescueRef)
	return nil
}

// discard deletes a tree without a question: one in which no agent ran, or that was proved to be saved. It is moved away
// first, so that a half-deleted tree never stands at the job's path.
func (s *Store) discard(rec *record) error {
	if !exists(rec.Path) {
		return nil
	}
	if !inside(filepath.Join(s.dir, "work"), rec.Path) {
		return fmt.Errorf("delete worktree: %s is outside of the store", rec.Path)
	}
	trash, err := os.MkdirTemp(filepath.Join(s.dir, "trash"), string(rec.Job)+"-")
	if err != nil {
		return fmt.Errorf("delete worktree: %w", err)
	}
	if err := os.Rename(rec.Path, filepath.Join(trash, "tree")); err != nil {
		_ = os.Remove(trash)
		return fmt.Errorf("delete worktree: %w", err)
	}
	if err := removeAll(trash); err != nil {
		s.log.Warn("deleted worktree could not be removed from the trash", "job", rec.Job, "path", trash, "err", err)
	}
	_ = os.Remove(filepath.Dir(rec.Path))
	return nil
}

// removeAll deletes also directories that were made read-only.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(p, 0o700)
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(path))
}
