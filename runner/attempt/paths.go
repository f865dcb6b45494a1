package attempt

import (
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// roots are the directory in which an attempt's process works, under each name that
// it has. They are fixed at the launch.
type roots []string

// event gives an event whose changed files are named from the directory, where they
// lie within it.
func (r roots) event(e fleet.Event) fleet.Event {
	if len(e.Changes) == 0 || len(r) == 0 {
		return e
	}
	e.Changes = slices.Clone(e.Changes)
	for i, c := range e.Changes {
		e.Changes[i].Path = r.relative(c.Path)
	}
	return e
}

func (r roots) relative(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	clean := filepath.Clean(path)
	for _, root := range r {
		if rel, ok := strings.CutPrefix(clean, root+string(filepath.Separator)); ok {
			return filepath.ToSlash(rel)
		}
	}
	return path
}
