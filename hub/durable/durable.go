// Package durable holds what the stores of a hub node need so that a file, its
// length and its name survive a power cut, and the code for a full disk. It keeps
// no state and decides nothing.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"tugline.dev/tugline/shared/fleet"
)

// File is what a store asks of a file that it writes.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error // what was written survives a power cut
	Close() error
}

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

// Open opens a file with mode 0600, which counts where it is made.
func Open(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// WriteFile puts a small file in place whole or not at all; when it returns nil,
// the file survives a power cut. On the way it is called path with .tmp behind it.
func WriteFile(path string, data []byte) error {
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
	return SyncDir(filepath.Dir(path))
}

// Broken says whether an error of a write means that the disk itself fails, so that
// trying again is of no use.
func Broken(err error) bool {
	for _, e := range []syscall.Errno{syscall.EIO, syscall.EROFS, syscall.ENXIO, syscall.ENODEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Coded adds the code for a full disk, which callers tell apart: it passes when
// space is made, and nothing that was acknowledged is at risk.
func Coded(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", fleet.DiskFull, err)
	}
	return err
}
