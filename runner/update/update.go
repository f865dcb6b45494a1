// Package update puts another version of this program beside the one that runs and has
// the next start take it, and takes it back where that does not start.
//
//	PREFIX/versions/1.2.0/tugline
//	PREFIX/versions/1.3.0/tugline
//	PREFIX/current → versions/1.3.0     what the service runs
//	PREFIX/update.json                  what was tried last, and how that went
//
// It guarantees that `current` leads to a whole program at every moment, also after a
// kill or a power cut; that nothing is run before its bytes were signed by the given key
// for this version and platform; that a failure leaves everything as it was but for a
// word in the record; and that a version which fails to start three times gives way to
// the one before. Whether and when to update is its caller's to say.
package update

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
)

const (
	versionsDir = "versions"
	currentLink = "current"
	recordFile  = "update.json"
	program     = "tugline"
	newPrefix   = ".new-" // of a version that is not whole yet, in versions/
)

// ErrNotVersioned says that a program does not lie in a directory of versions, such as
// one from a package or a working copy. It can't be updated.
var ErrNotVersioned = errors.New("this program is not installed in a directory of versions")

// Store is a directory of versions as seen by one of them.
type Store struct {
	prefix  string
	running string // the version that asks
	log     *slog.Logger
	counted bool // the present start is among those that failed
}

// Open finds the store that a program lies in, by its path, links resolved. Error:
// ErrNotVersioned.
func Open(exe string, log *slog.Logger) (*Store, error) {
	real, err := filepath.EvalSymlinks(exe)
	if err != nil {
		return nil, fmt.Errorf("find the versions of this program: %w", err)
	}
	dir := filepath.Dir(real)
	versions := filepath.Dir(dir)
	if filepath.Base(real) != program || filepath.Base(versions) != versionsDir || !fleet.IsVersion(filepath.Base(dir)) {
		return nil, fmt.Errorf("%s: %w", real, ErrNotVersioned)
	}
	return &Store{prefix: filepath.Dir(versions), running: filepath.Base(dir), log: log}, nil
}

// Prefix is the directory that everything lies in.
func (s *Store) Prefix() string { return s.prefix }

// Running is the version of the program that the store was opened for.
func (s *Store) Running() string { return s.running }

// Program is what to run: the path of the present version, by way of the link.
func (s *Store) Program() string { return filepath.Join(s.prefix, currentLink, program) }

func (s *Store) versionDir(v string) string { return filepath.Join(s.prefix, versionsDir, v) }

// Current gives the version that the next start takes.
func (s *Store) Current() (string, error) {
	to, err := os.Readlink(filepath.Join(s.prefix, currentLink))
	if err != nil {
		return "", fmt.Errorf("read the present version: %w", err)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(s.prefix, to)
	}
	v, ok := strings.CutPrefix(filepath.Clean(to), filepath.Join(s.prefix, versionsDir)+string(filepath.Separator))
	if !ok || !fleet.IsVersion(v) {
		return "", fmt.Errorf("%s leads to %s, which is no version here", filepath.Join(s.prefix, currentLink), to)
	}
	return v, nil
}

// point has the next start take a version. A crash leaves the old link or the new one.
func (s *Store) point(v string) error {
	if st, err := os.Stat(filepath.Join(s.versionDir(v), program)); err != nil || st.Mode()&0o111 == 0 {
		return fmt.Errorf("version %s is not here as a program", v)
	}
	tmp := filepath.Join(s.prefix, "."+currentLink+".new")
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Symlink(filepath.Join(versionsDir, v), tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(s.prefix, currentLink)); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return durable.SyncDir(s.prefix)
}

// locked does what reads and changes the record, one process at a time.
func (s *Store) locked(do func() error) error {
	l := flock.New(filepath.Join(s.prefix, ".update.lock"))
	if err := l.Lock(); err != nil {
		return fmt.Errorf("lock the versions: %w", err)
	}
	defer l.Close()
	return do()
}

// Prune removes what is neither the present version, nor the one before it, nor the one
// that asks. Jobs name the program of the version that started them: the caller sees to
// it that there are none.
func (s *Store) Prune() error {
	return s.locked(func() error {
		rec, err := s.load()
		if err != nil {
			return err
		}
		cur, err := s.Current()
		if err != nil {
			return err
		}
		all, err := os.ReadDir(filepath.Join(s.prefix, versionsDir))
		if err != nil {
			return err
		}
		var failed error
		for _, e := range all {
			v := e.Name()
			ours := fleet.IsVersion(v) || strings.HasPrefix(v, newPrefix)
			if !ours || v == cur || v == s.running || v == rec.From || v == rec.To {
				continue
			}
			s.log.Info("an old version is removed", "version", v)
			failed = errors.Join(failed, os.RemoveAll(s.versionDir(v)))
		}
		return failed
	})
}

func syncFile(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
