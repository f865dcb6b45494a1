package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// goingSuffix is added to the name of a workspace that is about to go, so that nobody works in it any more by its path
// while it is looked at for the last time.
const goingSuffix = ".going"

// comeBack puts a workspace back that a crash left on its way out. The caller holds s.leaving.
func comeBack(rec *record) error {
	if going := rec.Path + goingSuffix; isDir(going) && !exists(rec.Path) {
		return os.Rename(going, rec.Path)
	}
	return nil
}

// unsaved says what of a workspace is in no ref of the cache; "" if everything is.
func (e seen) unsaved() string {
	switch {
	case e.Unclear != "":
		return e.Unclear
	case e.Unsaved > 0:
		return fmt.Sprintf("%d untracked files with %d bytes are saved nowhere else", e.Unsaved, e.UnsavedOf)
	case e.Dirty && e.Rescue == "":
		return "it has changes that are neither committed nor rescued"
	}
	return e.Inner
}

// remove deletes a workspace of which an examination has shown that all is saved, and which stands at a path now. Before
// that it puts commits that only its own log knows under a ref, and afterwards the job can be built again from its
// branch. At the moment from which nobody finds it any more, may is asked; nil is yes. The caller holds the lock of the
// cache.
func (s *Store) remove(ctx context.Context, rec *record, at string, may func() bool) (gone bool, bytes int64, err error) {
	if rec.State == stateReady && isDir(rec.Admin) {
		if err := s.keepDropped(ctx, rec, !exists(at)); err != nil {
			return false, 0, err
		}
	}
	bytes = SizeOf(at)
	trash, err := func() (string, error) {
		s.leaving.Lock()
		defer s.leaving.Unlock()
		if gone = may == nil || may(); !gone {
			return "", nil
		}
		trash, err := s.toTrash(rec.Job, at)
		if err == nil {
			err = unregister(s.workspace(rec).common, rec.Path)
		}
		if err == nil {
			err = s.amend(rec.Job, func(r *record) { r.State = stateRemoved })
		}
		return trash, err
	}()
	if err != nil || !gone {
		return false, 0, err
	}
	rec.State = stateRemoved
	s.emptyTrash(rec.Job, trash)
	_ = os.Remove(filepath.Dir(rec.Path))
	sweepOld(filepath.Join(s.dir, "trash"), "")
	sweepOld(filepath.Join(s.dir, "tmp"), "w-")
	return true, bytes, nil
}

// keepDropped puts the commits at which HEAD of a workspace once stood, and that none of our own refs reaches, under refs of
// the job; what else reaches them, a branch, a tag, a stash, a ref of the remote, may move or go with the next job or fetch:
// HEAD itself by its own name, and what was left behind (amended, reset, rebased) together behind one commit. Where the
// files are gone, what was staged of them is left behind too.
func (s *Store) keepDropped(ctx context.Context, rec *record, gone bool) error {
	ws := s.workspace(rec)
	ws.top = ws.common // the tree may be gone
	ws.git = ws.git.with("GIT_WORK_TREE=" + ws.top)
	been, err := ws.visited()
	if err != nil {
		return err
	}
	refs, err := ws.git.line(ctx, ws.top, "for-each-ref", "--format=%(objectname)", "refs/worktree", "refs/bisect", "refs/rewritten")
	if err != nil {
		return err
	}
	for l := range strings.Lines(refs) {
		been[strings.TrimSpace(l)] = true
	}
	head, err := ws.git.commit(ctx, ws.top, "HEAD")
	if err != nil {
		return err
	}
	names := []string{"ORIG_HEAD^{commit}"}
	for sha := range been {
		if isSHA(sha) {
			names = append(names, sha+"^{commit}")
		}
	}
	found, err := ws.git.lookUp(ctx, ws.top, names...)
	if err != nil {
		return err
	}
	if gone {
		staged, err := s.staged(ctx, ws, rec, head)
		if err != nil {
			return err
		}
		found = append(found, staged)
	}
	k, _, err := elsewhere(ctx, ws.git, ws.top, []*record{rec}, "--glob=refs/heads/tugline", "--glob=refs/tugline/rescue", "--glob=refs/tugline/kept")
	if err != nil {
		return err
	}
	branch, err := ws.git.commit(ctx, ws.top, rec.branchRef())
	if err = errors.Join(err, k.add(ctx, branch)); err != nil {
		return err
	}
	tips, err := k.unreached(ctx, append(found, head))
	if err != nil || len(tips) == 0 {
		return err
	}
	kept := fmt.Sprintf("refs/tugline/kept/%s/%s/", rec.Job, rec.Fence)
	if slices.Contains(tips, head) {
		if _, err := ws.git.line(ctx, ws.top, "update-ref", kept+"head", head); err != nil {
			return err
		}
		if tips, err = k.unreached(ctx, tips); err != nil || len(tips) == 0 {
			return err
		}
	}
	old, err := ws.git.commit(ctx, ws.top, kept+droppedName)
	if err != nil {
		return err
	}
	empty, err := ws.git.emptyTree(ctx, ws.top)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("What job %s left behind of its commits\n\nTugline-Commit: dropped\nTugline-Job: %s\n", rec.Job, rec.Job)
	holder, err := ws.at(s.now()).commitTree(ctx, s.signer(ctx), empty, message, append(tips, old)...)
	if err != nil {
		return err
	}
	_, err = ws.git.line(ctx, ws.top, "update-ref", kept+droppedName, holder)
	return err
}

// staged makes a commit of what is staged beside a commit; "" where that is the same.
func (s *Store) staged(ctx context.Context, ws workspace, rec *record, head string) (string, error) {
	tmp, done, err := s.tempDir()
	if err != nil {
		return "", err
	}
	defer done()
	tree, err := ws.stagedTree(ctx, tmp)
	if err != nil || tree == "" {
		return "", err
	}
	found, err := ws.git.lookUp(ctx, ws.top, "HEAD^{tree}", rec.branchRef()+"^{tree}")
	if err != nil || slices.Contains(found, tree) {
		return "", err
	}
	return ws.at(s.now()).commitTree(ctx, s.signer(ctx), tree, "What was staged\n\nTugline-Commit: rescue\n", head)
}

// droppedName is the last part of the ref of what was left behind.
const droppedName = "dropped"

// at gives a workspace whose commits bear a time.
func (w workspace) at(now time.Time) workspace {
	stamp := fmt.Sprintf("%d +0000", now.Unix())
	w.git = w.git.with("GIT_COMMITTER_DATE="+stamp, "GIT_AUTHOR_DATE="+stamp)
	return w
}

// unreached gives the newest of some commits, and of what they build on, that are not known.
func (k known) unreached(ctx context.Context, commits []string) ([]string, error) {
	commits = slices.DeleteFunc(slices.Clone(commits), func(sha string) bool { return sha == "" })
	if len(commits) == 0 {
		return nil, nil
	}
	out, err := k.beyond(ctx, commits, "--parents")
	if err != nil {
		return nil, err
	}
	below := map[string]bool{}
	var all []string
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		all = append(all, f[0])
		for _, parent := range f[1:] {
			below[parent] = true
		}
	}
	return slices.DeleteFunc(all, func(sha string) bool { return below[sha] }), nil
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
	e, err := s.examine(ctx, rec)
	if err != nil {
		return err
	}
	if e.Dirty && e.Rescue == "" && e.Unclear == "" && e.Unsaved == 0 { // staged otherwise than it is
		if err := s.saveFiles(ctx, rec); err != nil {
			return err
		}
		if e, err = s.examine(ctx, rec); err != nil {
			return err
		}
	}
	if why := e.unsaved(); why != "" {
		return fault(fleet.Conflict, nil, "the earlier worktree of job %s at %s is kept: %s; save what is needed from it and delete it, then retry", rec.Job, rec.Path, why)
	}
	if _, _, err := s.remove(ctx, rec, rec.Path, nil); err != nil {
		return err
	}
	s.log.Info("earlier worktree saved and removed", "job", rec.Job, "fence", rec.Fence.String(), "ref", res.RescueRef)
	return nil
}

// discard deletes a tree without a question: one in which no agent ran.
func (s *Store) discard(rec *record) error {
	trash, err := s.toTrash(rec.Job, rec.Path)
	if err != nil {
		return err
	}
	s.emptyTrash(rec.Job, trash)
	_ = os.Remove(filepath.Dir(rec.Path))
	return nil
}

// toTrash moves a tree away, so that a half-deleted one never stands where it was; "" where there is none.
func (s *Store) toTrash(job fleet.JobID, path string) (string, error) {
	if !exists(path) {
		return "", nil
	}
	if !inside(filepath.Join(s.dir, "work"), path) {
		return "", fmt.Errorf("delete worktree: %s is outside of the store", path)
	}
	trash, err := os.MkdirTemp(filepath.Join(s.dir, "trash"), string(job)+"-")
	if err != nil {
		return "", fmt.Errorf("delete worktree: %w", err)
	}
	if err := os.Rename(path, filepath.Join(trash, "tree")); err != nil {
		_ = os.Remove(trash)
		return "", fmt.Errorf("delete worktree: %w", err)
	}
	return trash, nil
}

func (s *Store) emptyTrash(job fleet.JobID, trash string) {
	if trash == "" {
		return
	}
	if err := removeAll(trash); err != nil {
		s.log.Warn("deleted worktree could not be removed from the trash", "job", job, "path", trash, "err", err)
	}
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
