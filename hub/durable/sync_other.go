//go:build !linux

package durable

import "os"

// datasync makes the file's bytes and its length durable. On a Mac, Sync asks the
// drive to empty its cache too, which a plain fsync there does not.
func datasync(f *os.File) error { return f.Sync() }
