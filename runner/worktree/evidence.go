package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
)

// maxWalked bounds the entries of a workspace in which repositories are looked for.
const maxWalked = 2_000_000

// seen is a workspace as it was examined.
type seen struct {
	Evidence
	tree   string // of its files; "" where they were not looked at
	staged string // tree of its index where that is neither its commit's nor its files'
	head   string
	branch string
	own    []tip // where its own commits are
}

// A tip is a commit with the name that it is to have elsewhere.
type tip struct{ sha, name string }

// same says that two looks saw the same.
func (a seen) same(b seen) bool {
	return a.tree == b.tree && a.staged == b.staged && a.head == b.head && a.branch == b.branch && a.Rescue == b.Rescue &&
		a.Unclear == b.Unclear && a.Inner == b.Inner && a.Unsaved == b.Unsaved && slices.Equal(a.own, b.own)
}

// examine finds out what a workspace holds. It changes nothing: what has to be written to know it goes to a directory
// that is deleted. An error is one of this call; what git can't tell is in the evidence.
func (s *Store) examine(ctx context.Context, rec *record) (seen, error) {
	e := seen{Evidence: Evidence{LastUse: s.lastUse(rec), Half: rec.State == statePreparing, Gone: !exists(rec.Path)}}
	if e.Gone || e.Half {
		return e, nil
	}
	if e.Unclear = s.unlinked(rec); e.Unclear != "" {
		return e, nil
	}
	err := s.examineGit(ctx, rec, &e)
	var failed *gitError
	if err != nil && ctx.Err() == nil && (errors.As(err, &failed) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
		e.Unclear, err = "git can't tell: "+fleet.CutText(oneLine(err), 300), nil
	}
	return e, err
}

// lastUse gives when a workspace was used last: by an attempt, or by git for whoever works there by hand.
func (s *Store) lastUse(rec *record) time.Time {
	last := rec.At
	for _, path := range []string{rec.Path, filepath.Join(rec.Admin, "index"), filepath.Join(rec.Admin, "HEAD"), filepath.Join(rec.Admin, "logs", "HEAD")} {
		if st, err := os.Lstat(path); err == nil && filepath.IsAbs(path) && st.ModTime().After(last) {
			last = st.ModTime()
		}
	}
	return last
}

// unlinked says why a directory is not, or not any more, the workspace that was made.
func (s *Store) unlinked(rec *record) string {
	if !isDir(rec.Path) || !strings.HasPrefix(rec.Path, filepath.Join(s.dir, "work")+"/") {
		return "its directory was replaced by something else"
	}
	if admin, err := adminDir(rec.Path); err != nil || admin != rec.Admin {
		return "its link to git was replaced, perhaps by a repository of its own"
	}
	if !isDir(rec.Admin) || !isDir(s.workspace(rec).common) {
		return "git does not know it any more"
	}
	if at := probe.MountedIn(rec.Path); at != "" {
		// What is behind it is somebody else's, and would go along.
		return "another file system is mounted in it at " + at
	}
	if exists(filepath.Join(rec.Admin, "index.lock")) {
		return "a git command is at work in it, or was cut off"
	}
	return ""
}

func (s *Store) examineGit(ctx context.Context, rec *record, e *seen) error {
	tmp, done, err := s.tempDir()
	if err != nil {
		return err
	}
	defer done()
	ws := s.workspace(rec)
	if programs, err := ws.git.programs(ctx, ws.top); err != nil || len(programs) > 0 {
		e.Unclear = notRun(programs)
		return err
	}
	if ws.git, err = ws.git.aside(ctx, ws.top, tmp); err != nil {
		return err
	}
	at, err := ws.stand(ctx, rec)
	if err != nil {
		return err
	}
	if e.head, e.branch = at.head, at.branch; at.operation != "" {
		e.Unclear = "a " + at.operation + " is under way"
		return nil
	}
	staged, err := ws.stagedTree(ctx, tmp)
	if err != nil {
		return err
	}
	snap, err := s.files(ctx, ws, tmp)
	if err != nil {
		return err
	}
	if len(snap.Conflicted) > 0 {
		// The sides of a conflict are in the index alone.
		e.Unclear = "it has conflicts that are not resolved"
		return nil
	}
	clean, err := ws.isClean(ctx, rec, at.head, at.tree, snap)
	if err != nil {
		return err
	}
	e.tree, e.Unsaved, e.UnsavedOf = snap.Tree, len(snap.Left), snap.LeftBytes
	if staged != at.tree && staged != snap.Tree && !(at.head == "" && at.tree == "") && staged != "" {
		e.staged = staged
	}
	if e.Dirty = !clean || e.staged != ""; e.Dirty {
		if e.Rescue, e.RescuedAt, err = ws.rescuedAs(ctx, rec.Job, snap.Tree, e.staged); err != nil {
			return err
		}
	}
	if e.Inner, err = s.inner(ctx, rec, tmp, snap); err != nil {
		return err
	}
	k, err := s.published(ctx, ws, rec)
	if err != nil {
		return err
	}
	if e.own, err = ws.ownTips(ctx, rec, at, k); err == nil && len(e.own) > 0 {
		e.Own, err = k.count(ctx, e.own...)
	}
	return err
}

// stagedTree gives the tree of the index as it is; "" where there is none, or one with conflicts.
func (w workspace) stagedTree(ctx context.Context, tmp string) (string, error) {
	index := filepath.Join(tmp, "staged")
	if err := copyIndex(filepath.Join(w.gitDir, "index"), index); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", err
	}
	tree, err := w.git.with("GIT_INDEX_FILE="+index).line(ctx, w.top, "write-tree", "--missing-ok")
	var failed *gitError
	if errors.As(err, &failed) && failed.exit > 0 {
		return "", nil // the snapshot tells of what is damaged
	}
	return tree, err
}

// rescuedAs finds the rescue ref of a job that holds exactly a tree, and beside it what was staged.
func (w workspace) rescuedAs(ctx context.Context, job fleet.JobID, tree, staged string) (ref string, at time.Time, err error) {
	out, err := w.git.line(ctx, w.top, "for-each-ref", "--format=%(tree) %(committerdate:unix) %(refname)", "refs/tugline/rescue/"+string(job))
	for l := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimSpace(l), " ", 3)
		if len(f) != 3 || f[0] != tree {
			continue
		}
		if staged != "" {
			found, err := w.git.lookUp(ctx, w.top, f[2]+"^1^{tree}", f[2]+"^2^{tree}", f[2]+"^3^{tree}")
			if err != nil {
				return "", time.Time{}, err
			}
			if !slices.Contains(found, staged) {
				continue
			}
		}
		unix, _ := strconv.ParseInt(f[1], 10, 64)
		return f[2], time.Unix(unix, 0), err
	}
	return "", time.Time{}, err
}

// ownTips names the commits that an attempt, or somebody after it, has made here and that are not published: those of
// HEAD, of the job's branch, of other branches and tags that HEAD has visited, and stashes.
func (w workspace) ownTips(ctx context.Context, rec *record, at stand, k known) ([]tip, error) {
	been, err := w.visited()
	if err != nil {
		return nil, err
	}
	var all []tip
	add := func(sha, name string) {
		if sha != "" && !slices.ContainsFunc(all, func(t tip) bool { return t.sha == sha }) {
			all = append(all, tip{sha, name})
		}
	}
	add(at.branch, rec.Branch)
	add(at.head, rec.Branch+"-head")
	refs, err := w.git.line(ctx, w.top, "for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/heads", "refs/tags")
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(refs) {
		f := strings.Split(strings.TrimSuffix(l, "\n"), " ")
		if len(f) != 3 {
			continue
		}
		sha := f[0]
		if f[1] != "" {
			sha = f[1]
		}
		if name, ok := strings.CutPrefix(f[2], "refs/heads/"); ok && been[sha] && !strings.HasPrefix(name, "tugline/") {
			add(sha, rec.Branch+"-"+name)
		} else if name, ok := strings.CutPrefix(f[2], "refs/tags/"); ok && been[sha] {
			add(sha, rec.Branch+"-"+name)
		}
	}
	stashes, err := w.stashes(ctx, rec.Branch, been)
	if err != nil {
		return nil, err
	}
	for i, sha := range stashes {
		add(sha, fmt.Sprintf("%s-stash-%d", rec.Branch, i+1))
	}
	var own []tip
	for _, t := range all {
		n, err := k.count(ctx, t)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			own = append(own, t)
		}
	}
	return own, nil
}

// stashes gives the stashes that were made here. A stash remembers on which branch it was made, or else on which commit.
func (w workspace) stashes(ctx context.Context, branch string, been map[string]bool) ([]string, error) {
	if has, err := w.git.commit(ctx, w.top, "refs/stash"); err != nil || has == "" {
		return nil, err
	}
	entries, err := w.git.list(ctx, w.top, "stash", "list", "-z", "--format=%H %P %gs")
	if err != nil {
		return nil, err
	}
	var own []string
	for _, entry := range entries {
		f := strings.SplitN(entry, " ", 3)
		if len(f) != 3 || !isSHA(f[0]) {
			continue
		}
		if strings.Contains(f[2], "n "+branch+": ") || strings.Contains(f[2], "n (no branch): ") && been[f[1]] {
			own = append(own, f[0])
		}
	}
	return own, nil
}

// inner looks at repositories inside the worktree: submodules, and what an agent made, also where git ignores it.
func (s *Store) inner(ctx context.Context, rec *record, tmp string, snap *snapshot) (string, error) {
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
	links := map[string]bool{} // where submodules are
	for _, e := range entries {
		meta, path, _ := strings.Cut(e, "\t")
		if f := strings.Fields(meta); len(f) == 3 && f[0] == "160000" {
			links[path] = true
		}
	}
	modules := filepath.Join(rec.Admin, "modules")
	for path := range links {
		inner := filepath.Join(rec.Path, path)
		if !exists(filepath.Join(inner, ".git")) {
			continue
		}
		// Only a git directory that git itself put beside ours is opened: another could have git run a program.
		admin, err := innerAdmin(inner)
		if err != nil || !inside(modules, admin) {
			return fmt.Sprintf("submodule %q is a repository of its own", path), nil
		}
		g := s.git.with("GIT_DIR="+admin, "GIT_WORK_TREE="+inner)
		if programs, err := g.programs(ctx, inner); err != nil || len(programs) > 0 {
			return fmt.Sprintf("submodule %q can't be looked at: %s", path, notRun(programs)), err
		}
		dirty, err := g.line(ctx, inner, "status", "--porcelain", "--ignore-submodules=none")
		if err != nil || dirty != "" {
			return fmt.Sprintf("submodule %q has changes", path), nil
		}
		differ, err := workspace{git: g, top: inner, gitDir: admin}.differing(ctx, tmp)
		if err != nil || len(differ) > 0 {
			return fmt.Sprintf("submodule %q has files that git would not store as they are", path), err
		}
	}
	foreign, err := ws.baseLinks(ctx, rec)
	if err != nil {
		return "", err
	}
	if why, err := s.innerHistory(ctx, modules, foreign); why != "" || err != nil {
		return why, err
	}
	return hidden(rec.Path, snap.Nested, links)
}

// baseLinks gives the commits of submodules that the job's base names: they came from elsewhere.
func (w workspace) baseLinks(ctx context.Context, rec *record) ([]string, error) {
	if rec.Base == "" || !exists(filepath.Join(rec.Admin, "modules")) {
		return nil, nil
	}
	entries, err := w.git.list(ctx, w.top, "ls-tree", "-r", "-z", rec.Base)
	var shas []string
	for _, e := range entries {
		if f := strings.Fields(e); len(f) > 2 && f[0] == "160000" {
			shas = append(shas, f[2])
		}
	}
	return shas, err
}

// innerHistory looks for commits of submodules that no remote has: also of those that are not checked out any more.
func (s *Store) innerHistory(ctx context.Context, modules string, foreign []string) (string, error) {
	var dirs []string
	err := filepath.WalkDir(modules, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == modules && errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll
			}
			return err
		}
		if d.IsDir() && exists(filepath.Join(path, "HEAD")) && isDir(filepath.Join(path, "objects")) {
			dirs = append(dirs, path)
		}
		if d.IsDir() && (d.Name() == "objects" || d.Name() == "refs" || d.Name() == "logs") {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		name := strings.TrimPrefix(dir, modules+"/")
		g := s.git.with("GIT_DIR="+dir, "GIT_WORK_TREE="+dir) // it may be checked out nowhere
		args := []string{"rev-list", "--count", "--reflog", "--branches", "--glob=refs/stash"}
		if head, err := g.commit(ctx, dir, "HEAD"); err != nil {
			return fmt.Sprintf("submodule %q can't be read", name), nil
		} else if head != "" {
			args = append(args, head)
		}
		args = append(args, "--not", "--remotes")
		for _, sha := range foreign {
			if has, err := g.commit(ctx, dir, sha); err == nil && has != "" {
				args = append(args, sha)
			}
		}
		if contents, err := lfsContents(dir); err != nil || len(contents) > 0 {
			return fmt.Sprintf("submodule %q has files of Git LFS that no remote is known to have", name), err
		}
		if own, err := g.count(ctx, dir, args...); err != nil || own > 0 {
			return fmt.Sprintf("submodule %q has commits that no remote has", name), nil
		}
	}
	return "", nil
}

// hidden looks for repositories that git passes over, such as in ignored directories.
func hidden(top string, known []string, links map[string]bool) (string, error) {
	n, found := 0, ""
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if n++; n > maxWalked {
			found = fmt.Sprintf("it has more than %d files, too many to look for repositories among them", maxWalked)
			return fs.SkipAll
		}
		at, _ := filepath.Rel(top, filepath.Dir(path))
		bare := d.IsDir() && d.Name() != ".git" && exists(filepath.Join(path, "HEAD")) && isDir(filepath.Join(path, "objects")) && isDir(filepath.Join(path, "refs"))
		if bare {
			at, _ = filepath.Rel(top, path)
		}
		if d.Name() != ".git" && !bare || at == "." {
			return nil
		}
		if links[at] || slices.Contains(known, at) {
			return nil
		}
		found = fmt.Sprintf("it holds a git repository of its own at %q", at)
		return fs.SkipAll
	})
	return found, err
}
