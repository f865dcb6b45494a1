package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/shared/fleet"
)

const (
	roomEvery = 2 * time.Second  // between two looks whether there is room again
	roomQuiet = 10 * time.Second // without a refusal, after which there is
	reapEvery = time.Minute      // between two tries to end what runs without a record

	scratchEvery = 10 * time.Minute // between two looks for scratch directories to remove
)

// trouble notes that the disk does not take what is to be written. Until it does the
// runner takes nothing new; what can't be written waits.
func (r *Runner) trouble(err error) {
	text := "storage: the data directory can't be written to: " + err.Error()
	if attempt.NoRoom(err) {
		text = "storage: the disk of the data directory is full"
	}
	r.mu.Lock()
	first := r.noRoom == ""
	r.noRoom, r.noRoomAt = fleet.CutText(text, fleet.MaxDetail), time.Now()
	r.mu.Unlock()
	if first {
		r.log.Error("the disk does not take what is to be written; nothing new is taken on until it does", "err", err)
		r.changed()
	}
}

// watchRoom writes what waits for room on the disk, and takes new work again once
// nothing does.
func (r *Runner) watchRoom(ctx context.Context) {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := r.journal.Flush(); err != nil {
			r.trouble(err)
			continue
		}
		r.mu.Lock()
		over := r.noRoom != "" && time.Since(r.noRoomAt) >= roomQuiet
		if over {
			r.noRoom = ""
		}
		r.mu.Unlock()
		if over {
			r.log.Info("the disk takes what is to be written again")
			r.changed()
		}
	}
}

// mark begins the marker of every process that is launched from this data directory.
// A copy of the directory elsewhere has another one, and leaves these alone.
func (r *Runner) mark() string {
	dir := r.cfg.Dir
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(string(r.id.Runner) + "\x00" + dir))
	return "tugline-" + hex.EncodeToString(sum[:6]) + "-"
}

// reap ends what an earlier life launched and the journal knows nothing of; true says
// that none of it is left.
func (r *Runner) reap() bool {
	n, err := r.host.Reap()
	if n > 0 {
		r.log.Warn("processes of attempts that the journal does not hold were ended", "count", n)
	}
	if err != nil {
		r.log.Error("processes of attempts that the journal does not hold could not be ended", "err", err)
		r.alert("reap", "processes of earlier jobs could not be ended: "+err.Error())
		return false
	}
	r.alert("reap", "")
	return true
}

// reaps tries again where the start could not end everything.
func (r *Runner) reaps(ctx context.Context) {
	for done := r.reaped; !done; done = r.reap() {
		select {
		case <-time.After(reapEvery):
		case <-ctx.Done():
			return
		}
	}
}

// sweepsScratch removes what jobs without repository left, once the owner no longer
// wants it kept.
func (r *Runner) sweepsScratch(ctx context.Context) {
	tick := time.NewTicker(scratchEvery)
	defer tick.Stop()
	for {
		r.sweepScratch(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Runner) sweepScratch(now time.Time) {
	r.mu.Lock()
	keep := time.Duration(r.owner.KeepScratch)
	r.mu.Unlock()
	if keep < 0 {
		return
	}
	n, err := r.host.SweepScratch(now, keep)
	if n > 0 {
		r.log.Info("scratch directories of finished jobs were removed", "count", n)
	}
	if err != nil {
		r.log.Warn("scratch directories could not be removed", "err", err)
	}
}
