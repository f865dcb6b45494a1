package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"tugline.dev/tugline/shared/fleet"
)

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// writeDurably puts a small file in place whole or not at all; when it returns
// nil, the file survives a power cut.
func writeDurably(path string, data []byte) error {
	tmp := path + ".tmp"
	err := func() error {
		f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err == nil {
			err = datasync(f)
		}
		return errors.Join(err, f.Close())
	}()
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp) // the first error is the one to tell
		return err
	}
	return syncDir(filepath.Dir(path))
}

// coded adds the code for a full disk, which callers tell apart: it passes when
// space is made, and nothing that was acknowledged is at risk.
func coded(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", fleet.DiskFull, err)
	}
	return err
}
