// Package durable holds what the stores of a hub node need so that a file, its
// length and its name survive a power cut, and what they tell of a disk that is full
// or fails. It keeps no state and decides nothing.
package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Fill writes the size bytes of r into f, checks their digest and makes them durable.
// Other bytes, fewer or more are refused with the code wrong; other errors are the
// context's, the disk's, and what r fails with.
func Fill(ctx context.Context, f File, d fleet.Digest, size int64, r io.Reader, wrong fleet.Code) error {
	sum := sha256.New()
	buf := make([]byte, min(max(size, 1), 256<<10))
	for n := int64(0); n < size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m, err := io.ReadFull(r, buf[:min(int64(len(buf)), size-n)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%d bytes came, not %d: %w", n+int64(m), size, wrong)
		}
		if err != nil {
			return err
		}
		sum.Write(buf[:m])
		if _, err := f.WriteAt(buf[:m], n); err != nil {
			return err
		}
		n += int64(m)
	}
	if m, _ := io.ReadFull(r, buf[:1]); m > 0 {
		return fmt.Errorf("more than %d bytes came: %w", size, wrong)
	}
	if got := fleet.Digest(hex.EncodeToString(sum.Sum(nil))); got != d {
		return fmt.Errorf("the bytes have digest %s, not %s: %w", got, d, wrong)
	}
	return f.Sync()
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

// Report is Coded for a store's owner: broken is told of a disk that fails.
func Report(err error, broken func(error)) error {
	if Broken(err) {
		broken(err)
	}
	return Coded(err)
}

// Coded adds the code for a full disk, which callers tell apart: it passes when
// space is made, and nothing that was acknowledged is at risk.
func Coded(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", fleet.DiskFull, err)
	}
	return err
}
