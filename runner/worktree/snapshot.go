package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A snapshot is the content of a workspace as a tree object: tracked files as they are and untracked ones that are not
// ignored. It is made with an index of its own; workspace, index and refs are not touched.
type snapshot struct {
	Tree       string
	Index      string   // the index file that it was made with
	Conflicted []string // paths with unresolved conflicts; the tree holds them with their markers
	Nested     []string // directories that are repositories of their own; their files are in the tree as plain files
	Left       []string // untracked files that are not in the tree: beyond the size limit, unreadable, or of a name that git refuses
	LeftBytes  int64
	Notes      []string
}

// whole says that nothing is missing in the tree.
func (s *snapshot) whole() bool { return len(s.Left) == 0 }

const nestedDepth = 4

// snapshot writes the tree. tmp is an empty directory; limit bounds the bytes of untracked files.
func (w workspace) snapshot(ctx context.Context, tmp string, limit int64) (*snapshot, error) {
	snap := &snapshot{Index: filepath.Join(tmp, "index")}
	g := w.git.with("GIT_INDEX_FILE=" + snap.Index)
	if err := w.startIndex(ctx, g, snap); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	if _, err := g.run(ctx, call{dir: w.top, args: []string{"add", "--update", "--ignore-errors"}}); err != nil {
		var failed *gitError
		if !errors.As(err, &failed) || failed.exit != 1 {
			return nil, fmt.Errorf("save changed files: %w", err)
		}
		snap.Left = append(snap.Left, "(changed files that could not be read)")
		snap.Notes = append(snap.Notes, "some changed files could not be read and are not saved: "+lastLine(failed.stderr))
	}
	room := limit
	if err := w.addUntracked(ctx, g, snap, "", &room, nestedDepth); err != nil {
		return nil, fmt.Errorf("save untracked files: %w", err)
	}
	tree, err := g.line(ctx, w.top, "write-tree")
	if err != nil {
		return nil, fmt.Errorf("write tree: %w", err)
	}
	snap.Tree = tree
	if len(snap.Left) > 0 {
		shown := snap.Left[:min(len(snap.Left), 5)]
		snap.Notes = append(snap.Notes, fmt.Sprintf("%d untracked files with %d bytes are not copied (too large, unreadable, or of a name that git refuses) and stay in the worktree only: %.300q", len(snap.Left), snap.LeftBytes, shown))
	}
	if len(snap.Nested) > 0 {
		snap.Notes = append(snap.Notes, fmt.Sprintf("the worktree holds other git repositories; their files are saved, their history is not: %.300q", snap.Nested))
	}
	return snap, nil
}

// startIndex copies the workspace's index, so that files which did not change need not be read again. One that git can't
// read is replaced by the commit's tree.
func (w workspace) startIndex(ctx context.Context, g git, snap *snapshot) error {
	err := copyIndex(filepath.Join(w.gitDir, "index"), snap.Index)
	if err == nil {
		var listed []string
		if listed, err = g.list(ctx, w.top, "ls-files", "-z", "-v", "--stage", "--debug"); err == nil {
			return w.unhide(ctx, g, indexed(listed), snap)
		}
		snap.Notes = append(snap.Notes, "the index was damaged and is built anew")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if ctx.Err() != nil {
		return err
	}
	if err := os.Remove(snap.Index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	head, err := g.commit(ctx, w.top, "HEAD")
	if err != nil {
		return err
	}
	if head == "" {
		_, err = g.line(ctx, w.top, "read-tree", "--empty")
	} else {
		_, err = g.line(ctx, w.top, "read-tree", head)
	}
	return err
}

// An entry of an index: "TAG MODE SHA STAGE" with the time at which git last knew its file's state to have changed.
type entry struct {
	meta, path string
	sec, nsec  int64
}

// indexed reads what `git ls-files -z -v --stage --debug` prints: entries, each with lines about it between its path and
// the next entry. What is not understood has no time, so that its file is read.
func indexed(listed []string) []entry {
	var entries []entry
	for _, part := range listed {
		about, next := "", part
		for range 5 {
			line, rest, ok := strings.Cut(next, "\n")
			if !ok || !strings.HasPrefix(line, "  ") {
				break
			}
			about, next = about+line+"\n", rest
		}
		if last := len(entries) - 1; last >= 0 {
			if _, err := fmt.Sscanf(about, "  ctime: %d:%d\n", &entries[last].sec, &entries[last].nsec); err != nil {
				entries[last].sec, entries[last].nsec = 0, 0
			}
		}
		if meta, path, ok := strings.Cut(next, "\t"); ok && len(meta) > 2 {
			entries = append(entries, entry{meta: meta, path: path})
		}
	}
	return entries
}

// unhide notes conflicts, and has git look at what it would pass over of the files that are there: entries marked to be
// passed over, and files that were changed within the second of their last known state. Git compares whole seconds.
func (w workspace) unhide(ctx context.Context, g git, entries []entry, snap *snapshot) error {
	var assumed, skipped, touched strings.Builder
	for _, e := range entries {
		if !strings.HasSuffix(e.meta, " 0") {
			if len(snap.Conflicted) == 0 || snap.Conflicted[len(snap.Conflicted)-1] != e.path {
				snap.Conflicted = append(snap.Conflicted, e.path)
			}
			continue
		}
		st, err := os.Lstat(filepath.Join(w.top, e.path))
		there := err == nil
		tag := e.meta[0]
		if tag >= 'a' && tag <= 'z' {
			assumed.WriteString(e.path + "\x00")
		}
		if (tag == 'S' || tag == 's') && there {
			skipped.WriteString(e.path + "\x00")
		}
		if there && !st.IsDir() && !time.Unix(e.sec, e.nsec).Equal(changed(st)) {
			touched.WriteString(e.meta[2:] + "\t" + e.path + "\x00")
		}
	}
	for _, of := range []struct{ flag, stdin string }{
		{"--no-assume-unchanged --stdin", assumed.String()}, {"--no-skip-worktree --stdin", skipped.String()}, {"--index-info", touched.String()},
	} {
		if of.stdin == "" {
			continue
		}
		args := append([]string{"update-index", "-z"}, strings.Fields(of.flag)...)
		if _, err := g.run(ctx, call{dir: w.top, args: args, stdin: strings.NewReader(of.stdin)}); err != nil {
			return err
		}
	}
	return nil
}

// An untracked file with its size.
type untracked struct {
	path string
	size int64
}

// addUntracked adds the untracked files below a directory of the workspace ("" is all of it) to the index of g. A
// directory that is a repository of its own is added by its files, so that the work in it is not lost behind a link to a
// commit that nobody else has.
func (w workspace) addUntracked(ctx context.Context, g git, snap *snapshot, under string, room *int64, depth int) error {
	dir := filepath.Join(w.top, under)
	listed, err := g.list(ctx, dir, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	var files []untracked
	var nested []string
	for _, name := range listed {
		if repo, ok := strings.CutSuffix(name, "/"); ok {
			nested = append(nested, repo)
			continue
		}
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		files = append(files, untracked{name, st.Size()})
	}
	files = snap.fit(files, under, room)
	if err := addFiles(ctx, g, dir, files); err != nil {
		readable := files[:0]
		for _, f := range files {
			if canRead(filepath.Join(dir, f.path)) {
				readable = append(readable, f)
			} else {
				snap.leave(filepath.Join(under, f.path), f.size)
			}
		}
		if err := addFiles(ctx, g, dir, readable); err != nil {
			return err
		}
	}
	if err := w.leaveRefused(ctx, g, snap, under); err != nil {
		return err
	}
	for i, repo := range nested {
		at := filepath.Join(under, repo)
		snap.Nested = append(snap.Nested, at)
		if depth == 0 {
			snap.leave(at, 0)
			continue
		}
		inner := g.with("GIT_WORK_TREE="+filepath.Join(w.top, at), fmt.Sprintf("GIT_INDEX_FILE=%s-%d-%d", snap.Index, depth, i))
		if err := w.addUntracked(ctx, inner, snap, at, room, depth-1); err != nil {
			return err
		}
		tree, err := inner.line(ctx, filepath.Join(w.top, at), "write-tree")
		if err != nil {
			return err
		}
		if _, err := g.line(ctx, dir, "read-tree", "--prefix="+repo+"/", tree); err != nil {
			return err
		}
	}
	return nil
}

// leaveRefused notes the untracked files that are not in the index although they were added: git refuses names such as
// ".GIT" without failing.
func (w workspace) leaveRefused(ctx context.Context, g git, snap *snapshot, under string) error {
	rest, err := g.list(ctx, filepath.Join(w.top, under), "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	left := make(map[string]bool, len(snap.Left))
	for _, path := range snap.Left {
		left[path] = true
	}
	for _, name := range rest {
		path := filepath.Join(under, name)
		st, err := os.Lstat(filepath.Join(w.top, path))
		if err == nil && (st.Mode().IsRegular() || st.Mode()&fs.ModeSymlink != 0) && !left[path] {
			snap.leave(path, st.Size())
		}
	}
	return nil
}

// fit leaves out the largest files until the rest has room.
func (s *snapshot) fit(files []untracked, under string, room *int64) []untracked {
	var total int64
	for _, f := range files {
		total += f.size
	}
	if total > *room {
		slices.SortFunc(files, func(a, b untracked) int {
			return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.path, b.path))
		})
		for total > *room && len(files) > 0 {
			last := files[len(files)-1]
			s.leave(filepath.Join(under, last.path), last.size)
			total -= last.size
			files = files[:len(files)-1]
		}
	}
	*room -= total
	return files
}

func (s *snapshot) leave(path string, size int64) {
	s.Left = append(s.Left, path)
	s.LeftBytes += size
}

func addFiles(ctx context.Context, g git, dir string, files []untracked) error {
	if len(files) == 0 {
		return nil
	}
	var in strings.Builder
	for _, f := range files {
		in.WriteString(f.path)
		in.WriteByte(0)
	}
	_, err := g.run(ctx, call{dir: dir, args: []string{"update-index", "--add", "--remove", "-z", "--stdin"}, stdin: strings.NewReader(in.String())})
	return err
}

func canRead(path string) bool {
	st, err := os.Lstat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if !st.Mode().IsRegular() {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// copyIndex keeps the time of the file, by which git knows which entries are too young to be trusted by their own times.
func copyIndex(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, st.ModTime(), st.ModTime()))
}
