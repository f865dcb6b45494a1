package consensus

import (
	"errors"
	"syscall"
)

// whileFull tries a write, and once more where the disk was full and room was made on
// it. A write that failed has left nothing behind that the second could meet.
func (s *logStore) whileFull(write func() error) error {
	err := write()
	if full(err) && s.makeRoom != nil && s.makeRoom() {
		err = write()
	}
	return err
}

// full says whether a write failed for want of room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
