package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var oidForm = lazily(`^[0-9a-f]{64}$`)

// lfsAt is where Git LFS keeps a file's content in a git directory.
func lfsAt(gitDir, oid string) string {
	return filepath.Join(gitDir, "lfs", "objects", oid[:2], oid[2:4], oid)
}

// lfsContents lists what Git LFS keeps in a git directory. Commits, and so bundles, have pointers alone.
func lfsContents(gitDir string) (oids []string, err error) {
	err = filepath.WalkDir(filepath.Join(gitDir, "lfs", "objects"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() && oidForm().MatchString(d.Name()) {
			oids = append(oids, d.Name())
		}
		return err
	})
	return oids, err
}

// A cache's contents of Git LFS that its remote, or one to which they were pushed, is known to have are listed beside it.
func (c *cache) lfsNotes() string { return strings.TrimSuffix(c.path, ".git") + ".lfs" }

// lfsKnown gives those.
func (c *cache) lfsKnown() (map[string]bool, error) {
	text, err := os.ReadFile(c.lfsNotes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := map[string]bool{}
	for oid := range strings.Lines(string(text)) {
		known[strings.TrimSuffix(oid, "\n")] = true
	}
	return known, nil
}

// lfsOwn counts the contents that may be here alone.
func (c *cache) lfsOwn() (n int, err error) {
	all, err := lfsContents(c.path)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	known, err := c.lfsKnown()
	for _, oid := range all {
		if !known[oid] {
			n++
		}
	}
	return n, err
}

// lfsNote notes contents as known elsewhere: those to which pointers of a commit lead, without some.
func (c *cache) lfsNote(ctx context.Context, g git, dir, commit string, but map[string]bool) error {
	listed, err := g.line(ctx, dir, "lfs", "ls-files", "--long", commit)
	if err != nil {
		return err
	}
	known, err := c.lfsKnown()
	if err != nil {
		return err
	}
	var add strings.Builder
	for l := range strings.Lines(listed) {
		if oid, _, _ := strings.Cut(l, " "); oidForm().MatchString(oid) && !known[oid] && !but[oid] && exists(lfsAt(c.path, oid)) {
			known[oid] = true
			add.WriteString(oid + "\n")
		}
	}
	if add.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(c.lfsNotes(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(add.String())
	return errors.Join(err, f.Close())
}
