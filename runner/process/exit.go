package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// exitRoom is reserved for the exit record in bytes, and exitPatience bounds the tries to write it.
	exitRoom     = 4 << 10
	exitPatience = time.Minute
)

// writeExit writes the exit record and makes it durable.
func (s *supervisor) writeExit(e Exit) int {
	e.Detail = strings.Join(s.notes, "; ")
	err := commitExit(s.dir, e)
	for deadline := time.Now().Add(exitPatience); err != nil && time.Now().Before(deadline); {
		time.Sleep(tick)
		err = commitExit(s.dir, e)
	}
	s.tellReady()
	if err != nil {
		return 1
	}
	return 0
}

// reserve takes the room of the exit record while there is some: what can't be recorded is not started.
func (s *supervisor) reserve() error {
	room := bytes.Repeat([]byte{' '}, exitRoom)
	if err := os.WriteFile(filepath.Join(s.dir, exitReserve), room, 0o600); err != nil {
		return fmt.Errorf("reserve room for the exit record: %w", err)
	}
	return nil
}

// commitExit makes the exit record durable. It overwrites the reserved room in place, which needs no new space.
func commitExit(dir string, e Exit) error {
	tmp := filepath.Join(dir, exitReserve)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := rewrite(f, e); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, exitFile)); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	// The directory was made for this job; without its name the record would be lost.
	return syncDir(filepath.Dir(dir))
}

// rewrite replaces the content of an open file by the JSON of v.
func rewrite(f *os.File, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}
