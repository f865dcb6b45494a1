package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/runner/durable"
)

const (
	footprintsVersion = 1
	maxFootprints     = 1000 // repositories; those that were not worked in for longest go first
	footprintsKept    = 8    // sizes of a repository, of its last jobs
)

// footprints is what jobs in a repository came to take on this disk, by the name of its
// cache. It is worth keeping and nothing depends on it: where it can't be read, it is
// learned anew.
type footprints struct {
	path string

	mu    sync.Mutex
	repos map[string]footprint
}

type footprint struct {
	Recent []int64   `json:"recent"` // bytes, oldest first
	At     time.Time `json:"at"`     // of the last
}

type footprintsFile struct {
	Version int                  `json:"version"`
	Repos   map[string]footprint `json:"repos"`
}

func openFootprints(dir string) (*footprints, error) {
	f := &footprints{path: filepath.Join(dir, "footprints.json"), repos: map[string]footprint{}}
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	var file footprintsFile
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	switch {
	case err != nil:
		return f, fmt.Errorf("read what repositories take: %w", err)
	case file.Version != footprintsVersion:
		return f, fmt.Errorf("read what repositories take: version %d, this program knows %d", file.Version, footprintsVersion)
	}
	for name, p := range file.Repos {
		if p.Recent = slices.DeleteFunc(p.Recent, func(n int64) bool { return n <= 0 }); len(p.Recent) > 0 {
			p.Recent = p.Recent[max(0, len(p.Recent)-footprintsKept):]
			f.repos[name] = p
		}
	}
	f.bound()
	return f, nil
}

// of gives what the next job in a repository may come to take: the most of its last
// ones; 0 where none is known.
func (f *footprints) of(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.repos[name]; len(p.Recent) > 0 {
		return slices.Max(p.Recent)
	}
	return 0
}

// learn notes what a job in a repository came to take.
func (f *footprints) learn(name string, bytes int64, now time.Time) error {
	if name == "" || bytes <= 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.repos[name]
	p.Recent = append(slices.Clone(p.Recent), bytes)
	p.Recent = p.Recent[max(0, len(p.Recent)-footprintsKept):]
	p.At = now.UTC().Truncate(time.Second)
	f.repos[name] = p
	f.bound()
	b, err := json.Marshal(footprintsFile{Version: footprintsVersion, Repos: f.repos})
	if err == nil {
		err = durable.Replace(f.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep what repositories take: %w", err)
	}
	return nil
}

func (f *footprints) bound() {
	for len(f.repos) > maxFootprints {
		oldest := ""
		for name, p := range f.repos {
			if q := f.repos[oldest]; oldest == "" || p.At.Before(q.At) || p.At.Equal(q.At) && name < oldest {
				oldest = name
			}
		}
		delete(f.repos, oldest)
	}
}
