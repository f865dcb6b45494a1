package spool

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// Whoever owns the store is told of a disk that fails, and not of one that is full.
func TestBrokenDiskIsTold(t *testing.T) {
	d := &disk{space: -1}
	var told []error
	s, err := Open(Config{Dir: t.TempDir(), Open: d.open, Broken: func(err error) { told = append(told, err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k := Key{Job: fleet.JobID("01k0000000000000000000000a"), Fence: fleet.Fence{Epoch: 1, Index: 7}, Name: Output}
	d.set(2, nil, nil)
	if _, err := s.Append(t.Context(), k, 0, []byte("abcd")); !errors.Is(err, fleet.DiskFull) {
		t.Errorf("append on a full disk: %v", err)
	}
	if len(told) > 0 {
		t.Errorf("told of a full disk: %v", told)
	}
	d.set(-1, &os.PathError{Op: "sync", Path: "stream", Err: syscall.EIO}, nil)
	if _, err := s.Append(t.Context(), k, 0, []byte("abcd")); !errors.Is(err, syscall.EIO) {
		t.Errorf("append on a broken disk: %v", err)
	}
	if len(told) == 0 || !errors.Is(told[0], syscall.EIO) {
		t.Errorf("told %v of a broken disk", told)
	}
	d.set(-1, nil, nil)
	mustAppend(t, s, k, 0, "abcd")
	told = nil
	d.set(-1, nil, syscall.EIO)
	if err := s.Cut(k, 2); !errors.Is(err, syscall.EIO) || len(told) == 0 {
		t.Errorf("cut on a broken disk: %v, told %v", err, told)
	}
}
