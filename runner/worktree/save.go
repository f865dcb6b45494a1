package worktree

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
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

// files gives all that has to be saved of a workspace: its snapshot, and with it the ignored files that the owner names,
// and those that neither the repository nor the owner ignores, but settings that all jobs of a cache share; each with its
// own bytes.
func (s *Store) files(ctx context.Context, ws workspace, tmp string) (*snapshot, error) {
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
	if err == nil {
		err = s.addHidden(ctx, ws, snap)
	}
	if err == nil {
		err = ws.keepBytes(ctx, tmp, snap)
	}
	return snap, err
}

func (s *Store) addHidden(ctx context.Context, ws workspace, snap *snapshot) error {
	names, err := ws.hidden(ctx, snap)
	if err != nil {
		return err
	}
	if len(s.rescueIgnored) > 0 {
		ignored, err := ws.git.list(ctx, ws.top, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
		if err != nil {
			return err
		}
		listed := make(map[string]bool, len(names))
		for _, name := range names {
			listed[name] = true
		}
		for _, name := range ignored {
			if !listed[name] && slices.ContainsFunc(s.rescueIgnored, func(p string) bool {
				base, _ := path.Match(p, path.Base(name))
				whole, _ := path.Match(p, name)
				return base || whole
			}) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	var named []untracked
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(ws.top, name))
		if err != nil || !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
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
		return err
	}
	snap.Tree, err = g.line(ctx, ws.top, "write-tree")
	return err
}

// hidden lists files that are not in a snapshot although neither the repository's own .gitignore nor the owner's file of
// patterns ignores them: info/exclude and local settings of a cache are every job's to change, and hold for all of its jobs.
func (w workspace) hidden(ctx context.Context, snap *snapshot) ([]string, error) {
	args := []string{"ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"}
	if file := w.git.ownersPatterns(ctx, w.top); file != "" {
		args = append(args, "--exclude-from="+file)
	}
	all, err := w.git.with("GIT_INDEX_FILE="+snap.Index).list(ctx, w.top, args...)
	if err != nil {
		return nil, err
	}
	left := make(map[string]bool, len(snap.Left))
	for _, name := range snap.Left {
		left[name] = true
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return left[name] || strings.HasSuffix(name, "/") // a repository, which is looked into by itself
	}), nil
}

// ownersPatterns gives the file of patterns that the owner of this machine has git ignore everywhere; "" where there is none.
func (g git) ownersPatterns(ctx context.Context, dir string) string {
	file, err := g.line(ctx, dir, "config", "--global", "--type=path", "--get", "core.excludesFile")
	if err != nil || file == "" {
		env := func(name string) string {
			for _, kv := range slices.Backward(g.env) {
				if value, ok := strings.CutPrefix(kv, name+"="); ok {
					return value
				}
			}
			return ""
		}
		file = filepath.Join(cmp.Or(env("XDG_CONFIG_HOME"), filepath.Join(env("HOME"), ".config")), "git", "ignore")
	}
	if !filepath.IsAbs(file) || !exists(file) {
		return ""
	}
	return file
}
