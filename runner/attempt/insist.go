package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxTries    = 3 // of an attempt that fails for another reason than the disk
	minRoomWait = 250 * time.Millisecond
	maxRoomWait = 5 * time.Second
)

// NoRoom says whether an error, also one told by git, means that a disk is full.
func NoRoom(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}

// insist repeats something for as long as the disk is full. Any other error is the
// answer, as is the end of ctx.
func (a *Attempt) insist(ctx context.Context, do func() error) error {
	return a.insistWhile(ctx, NoRoom, do)
}

// record repeats a change of the journal until it is made. Whatever its disk says may
// pass; that the journal does not hold the attempt, or is closed, does not.
func (a *Attempt) record(ctx context.Context, d journal.Durability, change func(*journal.Progress), items ...journal.Item) error {
	return a.insistWhile(ctx, mayPass, func() error { return a.host.Journal.Update(a.asg.Fence, d, change, items...) })
}

func (a *Attempt) drop(ctx context.Context) error {
	return a.insistWhile(ctx, mayPass, func() error { return a.host.Journal.Forget(a.asg.Fence) })
}

func mayPass(err error) bool {
	return !errors.Is(err, fleet.NotFound) && !errors.Is(err, fleet.TooLarge) && !errors.Is(err, os.ErrClosed)
}

func (a *Attempt) insistWhile(ctx context.Context, again func(error) bool, do func() error) error {
	err := do()
	if err == nil || !again(err) {
		return err
	}
	a.log.Warn("attempt waits for the disk", "err", err)
	a.mu.Lock()
	before := a.detail
	a.mu.Unlock()
	for wait := minRoomWait; ; wait = min(2*wait, maxRoomWait) {
		a.host.trouble(err)
		a.tell("waits for the disk: " + err.Error())
		if !pause(ctx, wait) {
			return err
		}
		if err = do(); err == nil || !again(err) {
			a.tell(before)
			return err
		}
	}
}

// trouble tells the runner that its disk does not take what is to be written.
func (h *Host) trouble(err error) {
	if h.Trouble != nil {
		h.Trouble(err)
	}
}

// pause waits; false is the end of ctx.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// giveUp ends an attempt that can't be gone on with: its processes are found and
// ended, and the hub is told as much as is certain. It does not return before that
// is done, or ctx ends.
func (a *Attempt) giveUp(ctx context.Context, cause error) {
	a.log.Error("attempt can't be gone on with", "err", cause)
	for {
		err := a.writeOff(ctx, cause)
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			return
		}
		a.log.Warn("attempt can't be given up yet", "err", err)
		if !pause(ctx, sweepAgain) {
			return
		}
	}
}

func (a *Attempt) writeOff(ctx context.Context, cause error) error {
	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	switch p := rec.Progress; {
	case !ok:
		return nil
	case p.Ended:
		return a.settleEnd(ctx)
	case p.Finished: // the result is told; of the streams there is no more
		if err := a.record(ctx, journal.Lazy, func(p *journal.Progress) { p.Sealed = true }); err != nil {
			return err
		}
		return a.untilForgotten(ctx)
	case !p.Intent && p.Stop == "":
		return a.decline(ctx, cause)
	}
	if !a.sweep(ctx) {
		return nil
	}
	if err := a.lost(ctx, fmt.Sprintf("this runner can't go on with it: %v; its processes were ended", cause)); err != nil {
		return err
	}
	return a.settleEnd(ctx)
}
