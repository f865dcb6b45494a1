package worktree

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Beside a cache lies what repositories it was used for, each as an empty file that is named as fleet.Repo.CacheOf
// names it and that was written at its last use. Several spellings of one address have one cache.
const usedDir = "used"

// use notes that a repository's cache was used now. It is a hint for placing jobs, so a failure costs nothing.
func (s *Store) use(id, name string) {
	dir := filepath.Join(s.dir, "repos", id, usedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return
	}
	file, now := filepath.Join(dir, name), s.now()
	if os.Chtimes(file, now, now) != nil && os.WriteFile(file, nil, 0o600) == nil {
		_ = os.Chtimes(file, now, now)
	}
}

// Caches lists the repositories that have a cache in a Store's directory, as fleet.Repo.CacheOf names them: at most
// limit, the ones that were used last first. A directory that is not there has none.
func Caches(dir string, limit int) ([]string, error) {
	repos, err := os.ReadDir(filepath.Join(dir, "repos"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	type used struct {
		name string
		at   time.Time
	}
	var all []used
	for _, e := range repos {
		home := filepath.Join(dir, "repos", e.Name())
		known := &Store{dir: dir}
		if all, err := known.generations(e.Name()); err != nil || len(all) == 0 || known.isAside(e.Name(), slices.Max(all)) {
			continue
		}
		files, _ := os.ReadDir(filepath.Join(home, usedDir))
		for _, f := range files {
			if info, err := f.Info(); err == nil && len(f.Name()) == 16 {
				all = append(all, used{f.Name(), info.ModTime()})
			}
		}
		if len(files) > 0 {
			continue
		}
		// It is older than these files: its address tells the commonest spelling.
		b, err := os.ReadFile(filepath.Join(home, "address"))
		info, statErr := os.Stat(filepath.Join(home, "address"))
		if err != nil || statErr != nil {
			continue
		}
		r := fleet.Repo{URL: strings.TrimSpace(string(b))}
		if key, ok := strings.CutPrefix(r.URL, "key:"); ok {
			r = fleet.Repo{CacheKey: key}
		}
		all = append(all, used{r.CacheOf(), info.ModTime()})
	}
	slices.SortFunc(all, func(a, b used) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.name, b.name)) })
	var names []string
	for _, u := range all {
		if len(names) < limit && !slices.Contains(names, u.name) {
			names = append(names, u.name)
		}
	}
	return names, nil
}
