package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	flockPoll = 25 * time.Millisecond
	// lockTries and lockWait bound how long a lock file of git is given to go away by itself.
	lockTries = 5
	lockWait  = 80 * time.Millisecond
)

// A gate is the turn of one repository within this process.
type gate struct {
	turn chan struct{}
	// begun is when the last complete fetch began, and of what: a request that came before it needs no other.
	begun time.Time
	what  string
}

func (s *Store) gate(id string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gates[id]
	if g == nil {
		g = &gate{turn: make(chan struct{}, 1)}
		s.gates[id] = g
	}
	return g
}

// A hold is the exclusive lock of one repository, against other goroutines and other processes.
type hold struct {
	gate    *gate
	at      time.Time
	release func()
}

// lock waits until the repository is ours. The kernel drops the lock of a process that died.
func (s *Store) lock(ctx context.Context, id string) (*hold, error) {
	g := s.gate(id)
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("lock repository cache: %w", context.Cause(ctx))
	}
	dir := filepath.Join(s.dir, "repos", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		<-g.turn
		return nil, fmt.Errorf("lock repository cache: %w", err)
	}
	f := flock.New(filepath.Join(dir, "lock"))
	if ok, err := f.TryLockContext(ctx, flockPoll); err != nil || !ok {
		<-g.turn
		return nil, fmt.Errorf("lock repository cache: %w", err)
	}
	return &hold{gate: g, at: time.Now(), release: func() {
		_ = f.Close()
		<-g.turn
	}}, nil
}

var lockText = lazily(`(?s)(?:Unable to create|could not lock [^:]*:? ?|unable to lock)[^']*'([^']+\.lock)'`)

// patiently repeats fn while a lock file of git in the cache is in its way. A process that was killed leaves such files;
// one that was there before this hold, and that has not changed while we waited, belongs to nobody and is removed.
// Without the hold nothing is removed: it could be the lock of a transfer of ours in another process.
func (s *Store) patiently(ctx context.Context, h *hold, cachePath string, fn func() error) error {
	var last os.FileInfo
	for try := 1; ; try++ {
		err := fn()
		var failed *gitError
		if err == nil || !errors.As(err, &failed) {
			return err
		}
		path := lockedBy(failed.stderr)
		if path == "" || !inside(cachePath, path) {
			return err
		}
		st, statErr := os.Lstat(path)
		if statErr != nil && !errors.Is(statErr, fs.ErrNotExist) {
			return err
		}
		if try >= lockTries {
			if h == nil || st == nil || last == nil || !sameFile(st, last) || !st.ModTime().Before(h.at) {
				return err
			}
			s.log.Warn("stale git lock file removed", "path", path, "age", time.Since(st.ModTime()).Round(time.Second))
			if rmErr := os.Remove(path); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
				return err
			}
			try, last = lockTries/2, nil
			continue
		}
		if last == nil || st == nil || !sameFile(st, last) {
			last = st
		}
		select {
		case <-time.After(lockWait):
		case <-ctx.Done():
			return err
		}
	}
}

func lockedBy(stderr string) string {
	m := lockText().FindStringSubmatch(stderr)
	if m == nil {
		return ""
	}
	return m[1]
}

func sameFile(a, b os.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && filepath.IsAbs(path)
}
