package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// A Tree is the worktree of one job. The fields are its state when it was made and are not changed later.
type Tree struct {
	Job    fleet.JobID
	Fence  fleet.Fence // of the attempt that it was made for
	Path   string      // the agent's working directory
	Base   string      // the starting commit; "" in a repository without one
	Branch string
	Ref    string // as asked for
	// Notes are to be told before the harness starts: what of the repository is not there.
	Notes []string

	store *Store
	rec   *record
}

func (s *Store) tree(rec *record) *Tree {
	return &Tree{Job: rec.Job, Fence: rec.Fence, Path: rec.Path, Base: rec.Base, Branch: rec.Branch, Ref: rec.Ref,
		Notes: slices.Clone(rec.Notes), store: s, rec: rec}
}

// Reopen finds the worktree that Prepare or Rebuild made for a job. The error is fleet.NotFound if there is none or it is
// not there any more; then Rebuild can make it again.
func (s *Store) Reopen(ctx context.Context, job fleet.JobID) (*Tree, error) {
	if err := checkJob(job); err != nil {
		return nil, err
	}
	s.leaving.Lock()
	rec, err := s.load(job)
	if err == nil && rec != nil {
		err = comeBack(rec)
	}
	s.leaving.Unlock()
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != stateReady || !isDir(rec.Path) {
		return nil, fault(fleet.NotFound, nil, "job %s has no worktree on this runner; it can be built again from its branch or bundle", job)
	}
	if err := s.workspace(rec).repair(); err != nil {
		return nil, fmt.Errorf("reopen worktree of job %s: %w", job, err)
	}
	return s.tree(rec), nil
}

// Rebuild makes a deleted worktree again, at the same path where this runner had it before. It starts from the job's
// branch if that is still in the cache, else from the head of req.Bundle, a result bundle of the job, whose base is
// req.BaseCommit; req.Input is the bundle that the job came with, if any. A tree that is still there is given as it is. Codes are those of Prepare; fleet.NotFound says that
// neither branch nor bundle is there.
func (s *Store) Rebuild(ctx context.Context, req Request) (*Tree, error) {
	if t, err := s.Reopen(ctx, req.Job); err == nil || !errors.Is(err, fleet.NotFound) {
		return t, err
	}
	rec, err := s.load(req.Job)
	if err != nil {
		return nil, err
	}
	if rec != nil && rec.State != statePreparing {
		if t, err := s.rebuildFromBranch(ctx, req, rec); t != nil || err != nil {
			return t, err
		}
	}
	if req.Bundle == "" || req.BaseCommit == "" {
		return nil, fault(fleet.NotFound, nil, "the branch of job %s is not on this runner any more, and there is no bundle to build it from; start it afresh", req.Job)
	}
	if rec != nil && req.Branch == "" {
		req.Branch = rec.Branch
	}
	return s.establish(ctx, req, true)
}

// rebuildFromBranch gives nil, nil if the branch is not there or not sound.
func (s *Store) rebuildFromBranch(ctx context.Context, req Request, rec *record) (*Tree, error) {
	h, err := s.lock(ctx, rec.Cache)
	if err != nil {
		return nil, err
	}
	c := s.cacheAt(rec.Cache, rec.Generation, rec.URL)
	c.hold = h
	made, err := func() (bool, error) {
		defer h.release()
		if c.git.isSound(ctx, c.path) != nil {
			return false, nil
		}
		tip, err := c.git.commit(ctx, c.path, rec.branchRef())
		if err != nil || tip == "" {
			return false, nil
		}
		if err := s.scrub(ctx, c); err != nil {
			return false, err
		}
		if err := s.clear(ctx, rec); err != nil {
			return false, err
		}
		rec.State, rec.Fence = statePreparing, req.Fence
		return true, s.addWorktree(ctx, c, rec, tip)
	}()
	if err == nil && made {
		err = s.fill(ctx, rec, req)
	}
	if err == nil && made {
		err = s.noteRescued(ctx, c, rec)
	}
	if err != nil && c.damaged(ctx, err) {
		s.log.Warn("the cache of a job's branch is damaged", "job", rec.Job, "path", c.path, "err", err)
		return nil, s.discard(rec)
	}
	if err != nil {
		return nil, fmt.Errorf("rebuild worktree of job %s: %w", rec.Job, err)
	}
	if !made {
		return nil, nil
	}
	rec.State = stateReady
	if err := s.save(rec); err != nil {
		return nil, err
	}
	return s.tree(rec), nil
}

// noteRescued says where files are that were never committed, and that a tree built from the branch does not have.
func (s *Store) noteRescued(ctx context.Context, c *cache, rec *record) error {
	out, err := c.git.line(ctx, c.path, "for-each-ref", "--format=%(refname)", "refs/tugline/rescue/"+string(rec.Job))
	if err == nil && out != "" {
		rec.Notes = append(rec.Notes, "files that were not committed earlier are not in the worktree; they are saved as "+strings.Join(strings.Fields(out), ", "))
	}
	return err
}

// A workspace is a directory of files together with the git directory that git must use for it. Whatever an agent put
// in the place of .git is not looked at, so that it can't have git run a program of its choice.
type workspace struct {
	git    git
	top    string
	gitDir string
	common string // the cache
}

func (s *Store) workspace(rec *record) workspace {
	return workspace{
		git: s.remoteGit().with("GIT_DIR="+rec.Admin, "GIT_WORK_TREE="+rec.Path),
		top: rec.Path, gitDir: rec.Admin, common: filepath.Join(s.dir, "repos", rec.Cache, rec.Generation),
	}
}

// repair writes the files again by which git knows a worktree, where an agent deleted or changed them.
func (w workspace) repair() error {
	if !isDir(w.common) {
		return fmt.Errorf("the repository cache %s is gone", w.common)
	}
	if err := os.MkdirAll(w.gitDir, 0o700); err != nil {
		return err
	}
	if lock := filepath.Join(w.gitDir, "locked"); !exists(lock) {
		if err := os.WriteFile(lock, nil, 0o600); err != nil {
			return err
		}
	}
	for name, want := range map[string]string{
		filepath.Join(w.gitDir, "commondir"): "../..\n",
		filepath.Join(w.gitDir, "gitdir"):    filepath.Join(w.top, ".git") + "\n",
		filepath.Join(w.top, ".git"):         "gitdir: " + w.gitDir + "\n",
	} {
		if st, err := os.Lstat(name); err == nil && st.IsDir() {
			// An agent made a repository of its own here; what is in it stays its business.
			continue
		}
		if has, err := os.ReadFile(name); err == nil && string(has) == want {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// repairHead puts a worktree whose HEAD is gone on its branch.
func (w workspace) repairHead(branchRef string) error {
	head := filepath.Join(w.gitDir, "HEAD")
	if data, err := os.ReadFile(head); err == nil && len(data) > 0 {
		return nil
	}
	return os.WriteFile(head, []byte("ref: "+branchRef+"\n"), 0o600)
}
