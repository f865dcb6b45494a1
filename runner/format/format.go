// Package format knows in which form the files of a runner's data directory are, and
// brings them to a newer one.
//
//	DIR/format.json   {"format": 1}
//	DIR/format-1/     the files of format 1 as they were when the directory left it
//
// All files of a directory have one format. It guarantees that a version of the program
// which is not known to be good changes no format, so that the version before it can have
// the directory back at any time; that a change which fails or is cut off leaves the files
// as they were; and that a directory of a newer format is refused untouched. The files of a
// job's supervisor are no part of it: their form never changes (see runner/process).
package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"tugline.dev/tugline/runner/durable"
)

// A Step brings a data directory from the format before it to its own.
type Step struct {
	Files []string               // that it changes, makes or removes: patterns of paths below the directory
	Do    func(dir string) error // it may be cut off anywhere, and is then done again on what was there before
}

// Table has the step to format 2 first.
type Table []Step

// Steps are those of this program. Its code reads the formats behind the last two and
// their results, and writes the one that a directory is of.
var Steps Table

// reads is how many formats before the newest one a program reads.
const reads = 2

// Current is the newest format of a table.
func (t Table) Current() int { return len(t) + 1 }

type record struct {
	Format    int    `json:"format"`
	Confirmed string `json:"confirmed,omitempty"` // the version of the program that may bring it to a newer one
}

func recordFile(dir string) string { return filepath.Join(dir, "format.json") }
func copyDir(dir string, format int) string {
	return filepath.Join(dir, fmt.Sprintf("format-%d", format))
}

// load gives the record of a directory. One that is older than these records is of the
// first format, and one that is new gets the present one.
func (t Table) load(dir string) (record, error) {
	b, err := os.ReadFile(recordFile(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, old := range []string{"journal.log", "identity.json"} {
			if _, err := os.Lstat(filepath.Join(dir, old)); !errors.Is(err, fs.ErrNotExist) {
				return record{Format: 1}, err
			}
		}
		return record{Format: t.Current()}, nil
	case err != nil:
		return record{}, fmt.Errorf("read of which format the data directory is: %w", err)
	}
	var r record
	if err = json.Unmarshal(b, &r); err == nil && r.Format < 1 {
		err = errors.New("it says none")
	}
	if err != nil {
		err = fmt.Errorf("read of which format the data directory is: %s is damaged (%w); have it say {\"format\": N}, as runner.log told last", recordFile(dir), err)
	}
	return r, err
}

func (r record) save(dir string) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = durable.Replace(recordFile(dir), append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep of which format the data directory is: %w", err)
	}
	return nil
}

// Check refuses a directory that this program can't read; it writes nothing. The error is
// a *durable.Newer where a newer program can.
func (t Table) Check(dir string) error {
	_, err := t.check(dir)
	return err
}

func (t Table) check(dir string) (record, error) {
	r, err := t.load(dir)
	switch {
	case err != nil:
		return r, err
	case r.Format > t.Current():
		more := ""
		if kept := copyDir(dir, t.Current()); isDir(kept) {
			more = fmt.Sprintf("; the files as they were before are in %s, without what happened since", kept)
		}
		return r, &durable.Newer{What: "the runner's data directory", Path: dir, Format: r.Format, Known: t.Current(), More: more}
	case r.Format < t.Current()-reads:
		return r, fmt.Errorf("the runner's data directory %s is of format %d, and this program reads formats from %d on; start a version in between first",
			dir, r.Format, t.Current()-reads)
	}
	return r, nil
}

// Begin is called by whoever has the directory, before anything else reads it. It brings
// the directory to the newest format where this version of the program was confirmed;
// what fails of that leaves it as it is, and is tried again at the next start.
func (t Table) Begin(dir, version string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	r, err := t.check(dir)
	if err != nil {
		return err
	}
	if err := putBack(dir, r.Format, t.touched(r.Format)); err != nil {
		return err
	}
	if _, err := os.Lstat(recordFile(dir)); errors.Is(err, fs.ErrNotExist) {
		if err := r.save(dir); err != nil {
			log.Warn("the format of the data directory is not recorded", "err", err) // a full disk is no reason not to start
			return nil
		}
	}
	log.Info("format of the data directory", "format", r.Format, "newest", t.Current())
	for r.Format < t.Current() && r.Confirmed == version {
		if err := t.step(dir, &r); err != nil {
			log.Error("the data directory stays in its format; the next start tries again", "format", r.Format, "wanted", t.Current(), "err", err)
			return nil
		}
		log.Info("the data directory has a newer format; its files as they were before are kept", "format", r.Format, "kept", copyDir(dir, r.Format-1))
	}
	return nil
}

// Confirm says that this version of the program is good: its next start may bring the
// directory to the newest format.
func (t Table) Confirm(dir, version string) error {
	r, err := t.check(dir)
	if err != nil || r.Format == t.Current() || r.Confirmed == version {
		return err
	}
	r.Confirmed = version
	return r.save(dir)
}

// touched gives what the step from a format on changes.
func (t Table) touched(format int) []string {
	if format >= t.Current() {
		return nil
	}
	return t[format-1].Files
}

// step goes from one format to the next. The copy is whole before anything is changed, and
// the record is the last thing that is written: with the copy, and the record of the format
// that it is of, the change was cut off.
func (t Table) step(dir string, r *record) error {
	files := t.touched(r.Format)
	if err := setAside(dir, r.Format, files); err != nil {
		return fmt.Errorf("keep the files of format %d: %w", r.Format, err)
	}
	next := record{Format: r.Format + 1, Confirmed: r.Confirmed}
	err := t[r.Format-1].Do(dir)
	if err == nil {
		err = next.save(dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("go from format %d to %d: %w", r.Format, next.Format, err), putBack(dir, r.Format, files))
	}
	*r = next
	_ = os.RemoveAll(copyDir(dir, next.Format-2)) // at worst it is kept for longer
	return nil
}

// matching gives the regular files that patterns name, as paths below the directory.
func matching(dir string, patterns []string) (out []string, err error) {
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if st, err := os.Lstat(f); err != nil {
				return nil, err
			} else if !st.Mode().IsRegular() {
				continue
			}
			rel, err := filepath.Rel(dir, f)
			if err != nil {
				return nil, err
			}
			out = append(out, rel)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// setAside copies the files of a format, all or nothing.
func setAside(dir string, format int, patterns []string) error {
	to := copyDir(dir, format)
	tmp := to + ".new"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	names, err := matching(dir, append([]string{"format.json"}, patterns...))
	for _, name := range names {
		if err == nil {
			err = copyFile(filepath.Join(dir, name), filepath.Join(tmp, name))
		}
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(to), os.Rename(tmp, to), durable.SyncDir(dir))
	}
	if err != nil {
		_ = os.RemoveAll(tmp)
	}
	return err
}

// putBack undoes a change that was cut off: of the files that it names those are there that
// were, as they were. Without the copy there was no change.
func putBack(dir string, format int, patterns []string) error {
	from := copyDir(dir, format)
	if !isDir(from) {
		return nil
	}
	now, err := matching(dir, patterns)
	if err != nil {
		return fmt.Errorf("put the files of format %d back: %w", format, err)
	}
	for _, name := range now {
		if _, err := os.Lstat(filepath.Join(from, name)); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("put the files of format %d back: %w", format, err)
			}
		}
	}
	err = filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return durable.Replace(filepath.Join(dir, rel), b, 0o600)
	})
	if err == nil {
		err = os.RemoveAll(from)
	}
	if err != nil {
		return fmt.Errorf("put the files of format %d back: %w", format, err)
	}
	return nil
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

func isDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}
