package blob

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"tugline.dev/tugline/shared/fleet"
)

// file is what the store asks of a file that it writes.
type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error // what was written survives a power cut
	Close() error
}

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return datasync(f.File) }

func openOS(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// coded adds the code for a full disk, which callers tell apart: it passes when
// space is made.
func coded(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", fleet.DiskFull, err)
	}
	return err
}
