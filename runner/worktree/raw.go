package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const hashedAtOnce = 200 // files that one command of git stores

// keepBytes puts files into a snapshot as they are where a checkout of it would not give their bytes.
func (w workspace) keepBytes(ctx context.Context, tmp string, snap *snapshot) error {
	w.git = w.git.with("GIT_INDEX_FILE=" + snap.Index)
	g := w.git
	differ, err := w.differing(ctx, tmp)
	if err != nil || len(differ) == 0 {
		return err
	}
	var info strings.Builder
	for at := 0; at < len(differ); at += hashedAtOnce {
		some := differ[at:min(at+hashedAtOnce, len(differ))]
		args := []string{"hash-object", "-w", "--no-filters", "--"}
		for _, f := range some {
			args = append(args, f.path)
		}
		shas, err := g.line(ctx, w.top, args...)
		if err != nil {
			return err
		}
		stored := strings.Fields(shas)
		if len(stored) != len(some) {
			return fmt.Errorf("store %d files: git stored %d", len(some), len(stored))
		}
		for i, f := range some {
			fmt.Fprintf(&info, "%s %s 0\t%s\x00", f.mode, stored[i], f.path)
		}
	}
	if _, err := g.run(ctx, call{dir: w.top, stdin: strings.NewReader(info.String()), args: []string{"update-index", "-z", "--index-info"}}); err != nil {
		return err
	}
	snap.Tree, err = g.line(ctx, w.top, "write-tree")
	return err
}

// differing lists the files that a checkout of the index would not give as they are: settings and attributes have git store
// them in another form, without their carriage returns, for example.
func (w workspace) differing(ctx context.Context, tmp string) ([]storedFile, error) {
	changed, err := w.converted(ctx)
	if err != nil || len(changed) == 0 {
		return nil, err
	}
	out, err := os.MkdirTemp(tmp, "checkout-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	var names strings.Builder
	for _, f := range changed {
		names.WriteString(f.path + "\x00")
	}
	_, err = w.git.run(ctx, call{dir: w.top, stdin: strings.NewReader(names.String()), args: []string{"checkout-index", "-q", "-z", "--stdin", "--prefix=" + out + "/"}})
	var failed *gitError
	if err != nil && !(errors.As(err, &failed) && failed.exit > 0) { // what it could not write is not the same
		return nil, err
	}
	differ := changed[:0]
	for _, f := range changed {
		same, err := sameBytes(filepath.Join(w.top, f.path), filepath.Join(out, f.path))
		if err != nil {
			return nil, err
		}
		if !same {
			differ = append(differ, f)
		}
	}
	return differ, nil
}

// A storedFile is a regular file of an index.
type storedFile struct{ mode, sha, path string }

// converted lists the files of which git may have stored something else than their bytes: their size is another, or their
// encoding is. What Git LFS has is stored.
func (w workspace) converted(ctx context.Context) ([]storedFile, error) {
	g := w.git
	entries, err := g.list(ctx, w.top, "ls-files", "-z", "--stage")
	if err != nil {
		return nil, err
	}
	var files []storedFile
	var shas, names strings.Builder
	for _, e := range entries {
		meta, path, _ := strings.Cut(e, "\t")
		if f := strings.Fields(meta); len(f) == 3 && f[2] == "0" && strings.HasPrefix(f[0], "100") && exists(filepath.Join(w.top, path)) {
			files = append(files, storedFile{f[0], f[1], path})
			shas.WriteString(f[1] + "\n")
			names.WriteString(path + "\x00")
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	out, err := g.run(ctx, call{dir: w.top, stdin: strings.NewReader(shas.String()), args: []string{"cat-file", "--batch-check=%(objectsize)"}})
	if err != nil {
		return nil, err
	}
	sizes := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	out, err = g.run(ctx, call{dir: w.top, stdin: strings.NewReader(names.String()), args: []string{"check-attr", "-z", "--stdin", "filter", "working-tree-encoding"}})
	if err != nil {
		return nil, err
	}
	attributes := fields(out) // path, name and value of each
	if len(sizes) != len(files) || len(attributes) != 6*len(files) {
		return nil, fmt.Errorf("look at %d files: git answered for %d and %d", len(files), len(sizes), len(attributes)/6)
	}
	var changed, pointers []storedFile
	for i, f := range files {
		st, err := os.Lstat(filepath.Join(w.top, f.path))
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		filter, encoding := attributes[6*i+2], attributes[6*i+5]
		plain := encoding == "unspecified" || encoding == "unset" || encoding == "set"
		switch {
		case plain && strconv.FormatInt(st.Size(), 10) == sizes[i]:
		case filter == "lfs" && len(sizes[i]) < 4:
			pointers = append(pointers, f)
		default:
			changed = append(changed, f)
		}
	}
	lost, err := w.withoutContents(ctx, pointers)
	return append(changed, lost...), err
}

// withoutContents lists the files of which only a pointer is stored, whose content Git LFS does not have, or not any more.
func (w workspace) withoutContents(ctx context.Context, pointers []storedFile) (lost []storedFile, err error) {
	if len(pointers) == 0 {
		return nil, nil
	}
	var shas strings.Builder
	for _, f := range pointers {
		shas.WriteString(f.sha + "\n")
	}
	out, err := w.git.run(ctx, call{dir: w.top, stdin: strings.NewReader(shas.String()), args: []string{"cat-file", "--batch"}})
	if err != nil {
		return nil, err
	}
	for _, f := range pointers {
		header, rest, _ := strings.Cut(out, "\n")
		size, err := strconv.Atoi(header[strings.LastIndex(header, " ")+1:])
		if err != nil || size >= len(rest) {
			return nil, fmt.Errorf("read what is stored of %s: git answered %.100q", f.path, header)
		}
		out = rest[size+1:]
		_, oid, _ := strings.Cut(rest[:size], "\noid sha256:")
		oid, _, _ = strings.Cut(oid, "\n")
		st, err := os.Lstat(filepath.Join(w.top, f.path))
		if err != nil {
			return nil, err
		}
		if oidForm().MatchString(oid) {
			if has, err := os.Stat(lfsAt(cmp.Or(w.common, w.gitDir), oid)); err == nil && has.Size() == st.Size() {
				continue
			}
		}
		lost = append(lost, f)
	}
	return lost, nil
}

// sameBytes compares two files; one that is not there is not the same.
func sameBytes(a, b string) (bool, error) {
	one, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer one.Close()
	two, err := os.Open(b)
	if err != nil {
		return false, nil
	}
	defer two.Close()
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err1 := io.ReadFull(one, x)
		m, err2 := io.ReadFull(two, y)
		for _, err := range []error{err1, err2} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if n < len(x) {
			return true, nil
		}
	}
}
