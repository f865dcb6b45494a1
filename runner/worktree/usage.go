package worktree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is the disk space of a Store by class, in bytes of file contents.
type Usage struct {
	Worktrees   []Use
	Caches      []Use
	Quarantined []Use // damaged caches that were set aside
	Output      int64 // patches and bundles
	Trash       int64 // deleted trees that are not gone yet, and temporary files
}

// A Use is one directory.
type Use struct {
	Name  string // job, or address of the repository
	Path  string
	Bytes int64
	Why   string // of a quarantined cache
}

// Total gives the sum of everything.
func (u Usage) Total() int64 {
	sum := u.Output + u.Trash
	for _, uses := range [][]Use{u.Worktrees, u.Caches, u.Quarantined} {
		for _, use := range uses {
			sum += use.Bytes
		}
	}
	return sum
}

// Usage walks the whole Store; with many large trees that takes seconds.
func (s *Store) Usage() (Usage, error) {
	u := Usage{
		Output: SizeOf(filepath.Join(s.dir, "out")),
		Trash:  SizeOf(filepath.Join(s.dir, "trash")) + SizeOf(filepath.Join(s.dir, "tmp")),
	}
	jobs, err := os.ReadDir(filepath.Join(s.dir, "work"))
	if err != nil {
		return u, err
	}
	for _, e := range jobs {
		path := filepath.Join(s.dir, "work", e.Name())
		u.Worktrees = append(u.Worktrees, Use{Name: e.Name(), Path: path, Bytes: SizeOf(path)})
	}
	repos, err := os.ReadDir(filepath.Join(s.dir, "repos"))
	if err != nil {
		return u, err
	}
	for _, e := range repos {
		all, err := s.generations(e.Name())
		if err != nil {
			return u, err
		}
		home := filepath.Join(s.dir, "repos", e.Name())
		name, _ := os.ReadFile(filepath.Join(home, "address"))
		for _, n := range all {
			stem := filepath.Join(home, "g"+strconv.Itoa(n))
			use := Use{Name: strings.TrimSpace(string(name)), Path: stem + ".git", Bytes: SizeOf(stem + ".git")}
			if !s.isAside(e.Name(), n) {
				u.Caches = append(u.Caches, use)
				continue
			}
			why, _ := os.ReadFile(stem + ".reason")
			use.Why = strings.TrimSpace(string(why))
			u.Quarantined = append(u.Quarantined, use)
		}
	}
	return u, nil
}

// SizeOf sums the files below a path; what vanishes meanwhile counts nothing.
func SizeOf(path string) int64 {
	var sum int64
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
