package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fill checks out the files, then the submodules and the LFS contents where that can be done. What can't be done for
// them becomes a note: the job may well not need it, and it is told before it starts.
func (s *Store) fill(ctx context.Context, rec *record, req Request) error {
	rec.Notes = nil
	ws := s.workspace(rec)
	if rec.Base == "" {
		rec.Notes = append(rec.Notes, "the repository has no commit yet")
		if head, err := ws.git.commit(ctx, ws.top, "HEAD"); err != nil || head == "" {
			return err
		}
	}
	req.tell("checking out %s", rec.Branch)
	programs, err := ws.git.programs(ctx, ws.top)
	if err != nil {
		return err
	}
	if ws.git = ws.git.without(programs); len(programs) > 0 {
		rec.Notes = append(rec.Notes, notRun(programs)+": files are as they are stored")
	}
	// A partial clone fetches file contents here without a sign of life, hence the long bound.
	_, err = ws.git.with(req.Env...).run(ctx, call{dir: ws.top, stall: 10 * s.git.stall, progress: req.Progress,
		args: []string{"checkout", "--force", "--progress", "--no-guess", rec.Branch, "--"}})
	if err != nil {
		var failed *gitError
		if errors.As(err, &failed) && strings.Contains(failed.stderr, "promisor remote") {
			err = classify(rec.URL, err)
		}
		return fmt.Errorf("check out %s: %w", rec.Branch, err)
	}
	if err := s.fillSubmodules(ctx, rec, req); err != nil {
		return err
	}
	if err := s.fillLFS(ctx, rec, req); err != nil {
		return err
	}
	return s.noteStart(ctx, rec, ws)
}

func (s *Store) fillSubmodules(ctx context.Context, rec *record, req Request) error {
	if !exists(filepath.Join(rec.Path, ".gitmodules")) {
		return nil
	}
	req.tell("fetching submodules")
	from := "a submodule of " + Redact(rec.URL)
	g := s.remoteGit().with("GIT_LITERAL_PATHSPECS=0").with(req.Env...)
	cache := filepath.Join(s.dir, "repos", rec.Cache, rec.Generation)
	err := s.patiently(ctx, nil, cache, func() error {
		// An address that a cache learnt from an older commit may have moved since.
		if _, err := g.run(ctx, call{dir: rec.Path, args: []string{"submodule", "--quiet", "sync", "--recursive"}}); err != nil {
			return err
		}
		_, err := g.run(ctx, call{dir: rec.Path, stall: s.git.stall, progress: req.Progress, remote: from,
			args: []string{"submodule", "update", "--init", "--recursive", "--force", "--progress"}})
		return err
	})
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		rec.Notes = append(rec.Notes, "submodules could not be fetched: "+oneLine(err))
		s.log.Warn("submodules could not be fetched", "job", rec.Job, "err", err)
	}
	return nil
}

func (s *Store) fillLFS(ctx context.Context, rec *record, req Request) error {
	uses, err := s.usesLFS(ctx, rec)
	if err != nil || !uses {
		return err
	}
	if !s.git.lfs {
		rec.Notes = append(rec.Notes, "this repository keeps files in Git LFS and git-lfs is not installed on this runner: those files are pointers, not contents")
		return nil
	}
	req.tell("fetching LFS contents")
	cache := filepath.Join(s.dir, "repos", rec.Cache, rec.Generation)
	err = s.patiently(ctx, nil, cache, func() error {
		if _, err := s.git.line(ctx, rec.Path, "config", "--get-regexp", `^filter\.lfs\.(clean|process)$`); err == nil {
			return nil
		}
		for _, kv := range [][2]string{
			{"filter.lfs.clean", "git-lfs clean -- %f"}, {"filter.lfs.smudge", "git-lfs smudge -- %f"},
			{"filter.lfs.process", "git-lfs filter-process"}, {"filter.lfs.required", "true"},
		} {
			if _, err := s.git.line(ctx, rec.Path, "config", kv[0], kv[1]); err != nil {
				return err
			}
		}
		return nil
	})
	c := s.cacheAt(rec.Cache, rec.Generation, rec.URL)
	was := map[string]bool{} // by a job, perhaps
	if err == nil {
		var oids []string
		oids, err = lfsContents(c.path)
		for _, oid := range oids {
			was[oid] = true
		}
	}
	if err == nil {
		_, err = s.remoteGit().with("GIT_LFS_SKIP_SMUDGE=0", "GIT_LFS_FORCE_PROGRESS=1").with(req.Env...).run(ctx,
			call{dir: rec.Path, stall: s.git.stall, progress: req.Progress, remote: "the LFS store of " + Redact(rec.URL), args: []string{"lfs", "pull"}})
	}
	if err == nil {
		if err := c.lfsNote(ctx, s.remoteGit(), rec.Path, "HEAD", was); err != nil {
			s.log.Warn("what came of lfs contents is not noted, they will be kept", "job", rec.Job, "err", err)
		}
	}
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		rec.Notes = append(rec.Notes, "LFS contents could not be fetched, those files are pointers: "+oneLine(err))
		s.log.Warn("lfs contents could not be fetched", "job", rec.Job, "err", err)
	}
	return nil
}

// usesLFS looks into every tracked .gitattributes of the tree.
func (s *Store) usesLFS(ctx context.Context, rec *record) (bool, error) {
	ws := s.workspace(rec)
	files, err := ws.git.with("GIT_LITERAL_PATHSPECS=0").list(ctx, ws.top, "ls-files", "-z", "--", ":(top,glob)**/.gitattributes")
	if err != nil {
		return false, err
	}
	for _, name := range files {
		path := filepath.Join(rec.Path, name)
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
			continue
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte("filter=lfs")) {
			return true, nil
		}
	}
	return false, nil
}

// noteStart remembers what git sees right after the checkout where that is not what was checked out: names that differ
// in case only on a file system that ignores it, or line endings that the attributes want otherwise. It must not pass for
// the agent's work later.
func (s *Store) noteStart(ctx context.Context, rec *record, ws workspace) error {
	rec.StartTree = ""
	out, err := ws.git.list(ctx, ws.top, "status", "--porcelain", "-z", "--untracked-files=no")
	if err != nil || len(out) == 0 {
		return err
	}
	tmp, done, err := s.tempDir()
	if err != nil {
		return err
	}
	defer done()
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
	if err != nil {
		return err
	}
	rec.StartTree = snap.Tree
	rec.Notes = append(rec.Notes, fmt.Sprintf("git shows %d changed files right after the checkout (line endings, or names that differ in case only)", len(out)))
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
