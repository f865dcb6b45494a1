package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"tugline.dev/tugline/shared/fleet"
)

// mounts holds the looks at file systems under way, and where paths that could be
// looked at really are. It belongs to the process: a hung mount costs it one goroutine.
var mounts struct {
	looks
	realMu sync.Mutex
	real   map[string]string
}

// maxReal bounds what is remembered of paths; beyond it, all is forgotten.
const maxReal = 1024

// Disk looks at the file system of a path or, where that does not exist, of what is
// nearest above it. When ctx ends first, the error wraps ErrUnknown; the look itself
// can't be ended and goes on by itself.
func Disk(ctx context.Context, path string) (fleet.Volume, error) { return diskBy(ctx, path, statfs) }

type seen struct {
	fleet.Volume
	real string
}

func diskBy(ctx context.Context, path string, stat func(string) (seen, error)) (fleet.Volume, error) {
	mounts.realMu.Lock()
	at, known := mounts.real[path]
	mounts.realMu.Unlock()
	key := path // where it really is could hang as well
	if known {
		key = mountOf(at)
	}
	v, err := ask(ctx, &mounts.looks, key, path, func(context.Context) (seen, error) { return stat(path) })
	if err != nil {
		if !errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return fleet.Volume{Path: path, Detail: detail(err)}, fmt.Errorf("free space of %s: %w", path, err)
	}
	mounts.realMu.Lock()
	if mounts.real == nil || len(mounts.real) >= maxReal {
		mounts.real = map[string]string{}
	}
	mounts.real[path] = v.real
	mounts.realMu.Unlock()
	v.Path, v.Known = path, true
	return v.Volume, nil
}

// statfs may hang for as long as a mount does.
func statfs(path string) (seen, error) {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return seen{}, err
		}
		v, err := usage(real)
		if err != nil {
			return seen{}, err
		}
		if v.Nodes == 0 {
			v.Inodes = -1
		}
		return seen{Volume: v, real: real}, nil
	}
}

// mountOf gives the mount point that a real path lies under, without touching any.
func mountOf(path string) string {
	best := ""
	for _, m := range mountPoints() {
		if len(m) > len(best) && (path == m || strings.HasPrefix(path, strings.TrimSuffix(m, "/")+"/")) {
			best = m
		}
	}
	if best == "" {
		return path
	}
	return "mount " + best
}

// detail is why something is not known, in a few words.
func detail(err error) string {
	text := strings.TrimSuffix(err.Error(), ": "+ErrUnknown.Error())
	return fleet.CutText(strings.TrimPrefix(text, ErrUnknown.Error()+": "), fleet.MaxDetail)
}

// MountedIn gives a mount inside of a directory, whose path is the real one; "" is that there is none.
func MountedIn(dir string) string {
	for _, at := range mountPoints() {
		if strings.HasPrefix(at, filepath.Clean(dir)+string(filepath.Separator)) {
			return at
		}
	}
	return ""
}
