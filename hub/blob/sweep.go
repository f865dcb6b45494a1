package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// StaleAfter is how long an unfinished upload is kept after its last part.
const StaleAfter = 24 * time.Hour

// Sweep removes the unfinished uploads that got nothing for StaleAfter, and
// returns how many and of how many bytes. One that is in use just now stays.
func (s *Store) Sweep(now time.Time) (removed int, bytes int64, err error) {
	entries, err := os.ReadDir(s.partial)
	if err != nil {
		return 0, 0, fmt.Errorf("sweep uploads: %w", err)
	}
	for _, e := range entries {
		size, gone, err := s.discard(e.Name(), now.Add(-StaleAfter))
		if err != nil {
			return removed, bytes, fmt.Errorf("sweep upload %s: %w", e.Name(), err)
		}
		if gone {
			removed++
			bytes += size
		}
	}
	return removed, bytes, nil
}

// discard removes one file of partial that was not written since then, unless it
// is an upload in use.
func (s *Store) discard(name string, since time.Time) (size int64, gone bool, err error) {
	// Held until the file is removed, so that nobody begins to use it.
	s.mu.Lock()
	defer s.mu.Unlock()
	k, upload := parseUpload(name)
	if p := s.uploads[k]; p != nil && p.users > 0 {
		return 0, false, nil
	}
	path := filepath.Join(s.partial, name)
	stat, err := os.Lstat(path)
	if err == nil && stat.ModTime().After(since) {
		return 0, false, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // finished meanwhile
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case upload:
		delete(s.uploads, k)
	}
	return stat.Size(), true, nil
}

// parseUpload reads the form that uploadKey.path writes.
func parseUpload(name string) (uploadKey, bool) {
	digest, size, ok := strings.Cut(name, "-")
	n, err := strconv.ParseInt(size, 10, 64)
	k := uploadKey{fleet.Digest(digest), n}
	return k, ok && err == nil && k.digest.Valid() && n >= 0
}
