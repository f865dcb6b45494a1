package probe

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tugline.dev/tugline/shared/fleet"
)

// Tree is a directory whose files are of one class, but for those in directories of
// the given names, wherever these are in it: they are of the class of the name. A tree
// within another one is counted by itself alone.
type Tree struct {
	Path   string
	Class  string
	Within map[string]string
}

// hardlinks bounds how many files with several names are remembered, so that each is
// counted once.
const hardlinks = 1 << 17

// Usage counts what trees take on their disks, by class and the largest first. It
// looks at so many entries and takes so long at most; partial says that something was
// left out for that or because it hangs. Other file systems within a tree and what
// symbolic links name are no part of it. What can't be read counts nothing.
func (s *Sampler) Usage(ctx context.Context, trees []Tree, entries int, within time.Duration) (usage []fleet.ClassUsage, partial bool) {
	deadline := time.Now().Add(within)
	c := &count{roots: map[string]bool{}, seen: map[file]bool{}, by: map[string]*fleet.ClassUsage{}}
	for i, t := range trees {
		trees[i].Path = filepath.Clean(t.Path)
		c.roots[trees[i].Path] = true
	}
	for i, t := range trees {
		// Each has its share of what is left, so that a huge one does not hide the others.
		left := len(trees) - i
		bound, cancel := context.WithTimeout(ctx, max(time.Until(deadline), 0)/time.Duration(left))
		share := (entries - c.looked()) / left
		if v := s.Volume(bound, t.Path); !v.Known { // it would hang, and this is known for one goroutine a mount
			partial = true
		} else if whole, err := ask(bound, &s.looks, "usage of "+t.Path, "", func(ctx context.Context) (bool, error) {
			return c.tree(ctx, t, share), nil
		}); err != nil || !whole {
			partial = true
		}
		cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.by {
		usage = append(usage, *u)
	}
	slices.SortFunc(usage, func(a, b fleet.ClassUsage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Class, b.Class))
	})
	return usage, partial
}

// count is one counting. A tree that was given up may still add to it.
type count struct {
	roots map[string]bool

	mu      sync.Mutex
	entries int
	seen    map[file]bool
	by      map[string]*fleet.ClassUsage
}

type file struct{ device, inode uint64 }

func (c *count) looked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries
}

// tree counts one tree; false is that not all of it was looked at.
func (c *count) tree(ctx context.Context, t Tree, most int) bool {
	root := t.Path
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	var st unix.Stat_t
	if unix.Lstat(root, &st) != nil {
		return true // there is none
	}
	device, _, _, _ := fileOf(&st)
	type dir struct{ path, class string }
	for todo := []dir{{root, t.Class}}; len(todo) > 0; {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		f, err := os.Open(d.path)
		if err != nil {
			continue
		}
		for err == nil {
			if ctx.Err() != nil || most <= 0 {
				_ = f.Close()
				return false
			}
			var names []string
			names, err = f.Readdirnames(256)
			most -= len(names)
			for _, name := range names {
				path := filepath.Join(d.path, name)
				if unix.Lstat(path, &st) != nil || c.roots[path] {
					continue
				}
				isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
				if dev, _, _, _ := fileOf(&st); isDir && dev != device {
					continue
				}
				class := d.class
				if in, ok := t.Within[name]; ok && isDir {
					class = in
				}
				c.add(class, &st, isDir)
				if isDir {
					todo = append(todo, dir{path, class})
				}
			}
		}
		_ = f.Close()
	}
	return true
}

func (c *count) add(class string, st *unix.Stat_t, isDir bool) {
	device, inode, links, bytes := fileOf(st)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries++
	if !isDir && links > 1 {
		id := file{device, inode}
		if c.seen[id] {
			return
		}
		if len(c.seen) < hardlinks {
			c.seen[id] = true
		}
	}
	u := c.by[class]
	if u == nil {
		u = &fleet.ClassUsage{Class: class}
		c.by[class] = u
	}
	u.Bytes += bytes
	if !isDir {
		u.Files++
	}
}
