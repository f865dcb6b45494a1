package update

import (
	"errors"
	"fmt"
	"time"
)

const (
	// MaxStarts is after how many failed starts the version before comes back.
	MaxStarts = 3
	// StartTime is for how long a process must run for its start not to have failed.
	StartTime = 60 * time.Second
	// ConfirmTime is how long a version must go on after the hub answered its first
	// heartbeat to be good.
	ConfirmTime = 10 * time.Minute
)

// Good says whether a version that has run since one moment, and whose first heartbeat
// was acknowledged at another (zero: none was), is confirmed now.
func Good(acked, now time.Time) bool { return !acked.IsZero() && now.Sub(acked) >= ConfirmTime }

// action is what a start does about an update.
type action int

const (
	goOn    action = iota
	count          // this start, of a version that is not confirmed
	restore        // the version before
	settle         // write down how the update ended: the version before is the present one
)

// atStart decides what a start does, from the record, the version that starts and the
// present one. why is how an update ended that is settled.
func atStart(r Record, running, current string) (do action, end State, why string) {
	switch {
	case r.State == Testing && running != r.To:
		return settle, Failed, "the runner ended while the new program was run for the first time"
	case r.State != Trying:
		return goOn, "", ""
	case running == r.To && current == r.To && r.Starts >= MaxStarts:
		return restore, "", ""
	case running == r.To && current == r.To:
		return count, "", ""
	case running == r.From && current == r.From && r.Starts == 0:
		return settle, Failed, "the runner ended before the version was the present one"
	case running == r.From && current == r.From:
		return settle, RolledBack, startsFailed(r.Starts)
	}
	return goOn, "", "" // started by hand from another version's directory
}

func startsFailed(n int) string {
	if n == 1 {
		return "one start failed"
	}
	return fmt.Sprintf("%d starts in all failed", n)
}

// ErrRestored says that the version before is the present one again: this process is to
// end, or to become that one.
var ErrRestored = errors.New("this version failed to start too often; the one before is back")

// Begin is the first thing that a process does which is to go on. Error: ErrRestored;
// any other leaves everything as it is, and is no reason not to start.
func (s *Store) Begin() error {
	return s.locked(func() error {
		r, err := s.load()
		if err != nil {
			return err
		}
		cur, err := s.Current()
		if err != nil {
			return err
		}
		switch do, end, why := atStart(r, s.running, cur); do {
		case count:
			r.Starts++
			err := s.save(r)
			s.counted = err == nil
			return err
		case restore:
			if err := s.point(r.From); err != nil {
				return fmt.Errorf("%s failed to start %d times, and %s can't be had back: %w", r.To, r.Starts, r.From, err)
			}
			r.end(RolledBack, startsFailed(r.Starts), time.Now())
			if err := s.save(r); err != nil { // the version before finds it out by itself
				s.log.Error("that the version before is back can't be recorded", "err", err)
			}
			return ErrRestored
		case settle:
			r.end(end, why, time.Now())
			return s.save(r)
		}
		return nil
	})
}

// Survived takes the present start from those that failed: it went on for StartTime, or
// ended because somebody wished so. Saying it again does nothing.
func (s *Store) Survived() error {
	return s.change(func(r *Record) bool {
		if !s.counted || r.State != Trying || r.To != s.running || r.Starts == 0 {
			return false
		}
		s.counted = false
		r.Starts--
		return true
	})
}

// Confirm says that the version that runs is good.
func (s *Store) Confirm() error {
	return s.change(func(r *Record) bool {
		if r.State != Trying || r.To != s.running {
			return false
		}
		r.State, r.Confirmed, r.Starts, r.At = Confirmed, true, 0, time.Now().UTC()
		return true
	})
}
