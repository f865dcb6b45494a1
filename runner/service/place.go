package service

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"tugline.dev/tugline/runner/durable"
)

// work is one run of an installation: each change is told, and then made unless it is
// only to be shown.
type work struct {
	Request
	vars    []variable
	changed int
	restart bool // what the running service is made of has changed
	uid     int  // of the service's user, with gid; -1: whoever installs
	gid     int
}

// do makes one change.
func (w *work) do(what string, make func() error) error {
	w.changed++
	w.Say(what)
	if w.Print {
		return nil
	}
	return make()
}

func (w *work) dir(path string, mode fs.FileMode) error {
	if err := w.noLink(path); err != nil {
		return err
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return w.do(fmt.Sprintf("directory %s (%04o)", path, mode), func() error {
			if err := os.MkdirAll(path, mode); err != nil {
				return err
			}
			return w.own(path)
		})
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is there and no directory", path)
	case mode.Perm() == 0o700 && st.Mode().Perm()&0o077 != 0:
		return w.do(fmt.Sprintf("directory %s (%04o, was %04o)", path, mode, st.Mode().Perm()), func() error { return os.Chmod(path, mode) })
	}
	return nil
}

// noLink refuses a link where root makes or changes something and the service's user may write: it could lead root to
// any place of the machine. The prefix itself lies where that user may not.
func (w *work) noLink(path string) error {
	if w.uid < 0 || path == w.Layout.Prefix {
		return nil
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a link, which the user %s may have made; put a directory or a mount in its place", path, w.Layout.User)
	}
	return nil
}

// file writes a small file where it does not say the same.
func (w *work) file(path string, text []byte, mode fs.FileMode) (changed bool, err error) {
	is, err := os.ReadFile(path)
	if err == nil && bytes.Equal(is, text) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	what := fmt.Sprintf("file %s (%04o)", path, mode)
	if w.Print {
		what += ":\n" + indented(string(text))
	}
	return true, w.do(what, func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return durable.Replace(path, text, mode)
	})
}

// program copies the program to the directory of its version, and has the switch lead there.
// That of a package stays where it is.
func (w *work) program() error {
	if w.Layout.Binary != "" {
		return w.packaged()
	}
	from, to := w.Request.Program, w.Layout.OfVersion(w.Version)
	for _, dir := range []string{filepath.Dir(filepath.Dir(to)), filepath.Dir(to)} {
		if err := w.noLink(dir); err != nil {
			return err
		}
	}
	sum, err := digest(from)
	if err != nil {
		return err
	}
	if is, err := digest(to); err != nil || is != sum {
		w.restart = true
		err := w.do(fmt.Sprintf("program %s (0755), a copy of %s, SHA-256 %x", to, from, sum), func() error { return copyProgram(from, to, w.own) })
		if err != nil {
			return err
		}
	}
	at, target := filepath.Join(w.Layout.Prefix, "current"), filepath.Join("versions", w.Version)
	if is, err := os.Readlink(at); err == nil && is == target {
		return nil
	}
	w.restart = true
	return w.do(fmt.Sprintf("link %s, to %s", at, target), func() error { return w.link(at, target) })
}

// forPeople gives people a name for the program, where none of theirs is.
func (w *work) forPeople() error {
	at, target := w.Layout.Link, w.Layout.Program()
	if at == "" {
		return nil
	}
	is, err := os.Readlink(at)
	switch {
	case err == nil && is == target:
		return nil
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		w.Note(fmt.Sprintf("%s is there and not of this installation; it stays. The installed program is %s", at, target))
		return nil
	}
	return w.do(fmt.Sprintf("link %s, to %s", at, target), func() error {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.Symlink(target, at)
	})
}

// link has a link lead elsewhere in one step.
func (w *work) link(at, target string) error {
	fresh := at + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	if err := w.own(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, at); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(at))
}

// own gives a file to the service's user.
func (w *work) own(path string) error {
	if w.uid < 0 {
		return nil
	}
	return os.Lchown(path, w.uid, w.gid)
}

// hand gives to the service's user what root has made for it in the data directory. It looks no deeper than where that
// lies, at nothing that has a second name, and at nothing outside of the prefix, whatever links that user makes meanwhile.
func (w *work) hand() error {
	if w.uid < 0 || w.Print {
		return nil
	}
	prefix, err := os.OpenRoot(w.Layout.Prefix)
	if err != nil {
		return err
	}
	defer prefix.Close()
	data, err := filepath.Rel(w.Layout.Prefix, w.Layout.Data)
	if err != nil {
		return err
	}
	for _, dir := range []string{data, filepath.Join(data, "logs")} {
		if err := w.handIn(prefix, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (w *work) handIn(prefix *os.Root, name string) error {
	dir, err := prefix.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		st, err := dir.Lstat(e.Name())
		if err != nil {
			return err
		}
		if uid, links := ownerOf(st); uid == w.uid || uid != 0 || !st.IsDir() && (!st.Mode().IsRegular() || links != 1) {
			continue
		}
		if err := dir.Lchown(e.Name(), w.uid, w.gid); err != nil {
			return err
		}
	}
	return nil
}

// knowUser finds the service's user.
func (w *work) knowUser() error {
	w.uid, w.gid = -1, -1
	if w.Layout.User == "" {
		return nil
	}
	u, err := user.Lookup(w.Layout.User)
	if err != nil {
		return err
	}
	if w.uid, err = strconv.Atoi(u.Uid); err != nil {
		return err
	}
	w.gid, err = strconv.Atoi(u.Gid)
	return err
}

// copyProgram copies and syncs a program, and puts it in place in one step.
func copyProgram(from, to string, own func(string) error) error {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(dir, ".tugline-")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
	for _, path := range []string{filepath.Dir(dir), dir, out.Name()} {
		if err == nil {
			err = own(path)
		}
	}
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		os.Remove(out.Name())
		return err
	}
	return durable.SyncDir(dir)
}

func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ")
}
