package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// A Local describes a person's repository.
type Local struct {
	Top        string // the directory with its files; of a bare repository the repository itself
	HeadSHA    string // "" without a commit
	Branch     string // "" if HEAD is detached
	RootCommit string // names the repository across copies; of several the smallest, "" without a commit
	OriginURL  string // without credentials; "" if there is no origin
	Shallow    bool
	Bare       bool
	Dirty      bool // changed, or untracked and not ignored files
}

// localGit is git on a person's own repository, with their configuration but without hooks and questions.
func localGit() git { return newGit(os.Environ(), 0) }

// Inspect describes the repository around a path. The code is repo_missing if there is none.
func Inspect(ctx context.Context, path string) (Local, error) {
	var l Local
	g := localGit()
	abs, err := filepath.Abs(path)
	if err != nil {
		return l, err
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return l, fault(fleet.RepoMissing, err, "%s is no directory; give a directory inside a git repository", path)
	}
	bare, err := g.line(ctx, abs, "rev-parse", "--is-bare-repository")
	if err != nil {
		return l, notLocal(path, err)
	}
	l.Bare = bare == "true"
	if l.Bare {
		l.Top, err = g.line(ctx, abs, "rev-parse", "--absolute-git-dir")
	} else {
		l.Top, err = g.line(ctx, abs, "rev-parse", "--show-toplevel")
	}
	if err != nil {
		return l, notLocal(path, err)
	}
	if l.HeadSHA, err = g.commit(ctx, l.Top, "HEAD"); err != nil {
		return l, err
	}
	if ref, err := g.line(ctx, l.Top, "symbolic-ref", "--quiet", "HEAD"); err == nil {
		l.Branch = strings.TrimPrefix(ref, "refs/heads/")
	}
	shallow, err := g.line(ctx, l.Top, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return l, err
	}
	l.Shallow = shallow == "true"
	if l.HeadSHA != "" {
		roots, err := g.line(ctx, l.Top, "rev-list", "--max-parents=0", l.HeadSHA)
		if err != nil {
			return l, err
		}
		l.RootCommit = slices.Min(strings.Fields(roots))
	}
	if origin, err := g.line(ctx, l.Top, "config", "--get", "remote.origin.url"); err == nil {
		l.OriginURL = Redact(origin)
	}
	if !l.Bare {
		changes, err := g.line(ctx, l.Top, "status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")
		if err != nil {
			return l, err
		}
		l.Dirty = changes != ""
	}
	return l, nil
}

func notLocal(path string, err error) error {
	var failed *gitError
	if !errors.As(err, &failed) || failed.exit < 0 {
		return err
	}
	if strings.Contains(failed.stderr, "dubious ownership") {
		return fault(fleet.RepoAuth, err, "%s belongs to another user; add it to git's safe.directory, then retry", path)
	}
	return fault(fleet.RepoMissing, err, "%s is not inside a git repository; run this in one, or give a repository's URL", path)
}
