package sched

import (
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// candidate is a runner as one look sees it.
type candidate struct {
	r *fleet.Runner

	connected bool
	shown     bool // what it runs, since it connected
	beat      time.Time
	declining string
	limited   string // why it offers fewer slots than configured
	caches    string

	health *fleet.Health
	age    time.Duration // of the sample
	recent bool          // it is fresh enough to admit work by, and tells of the disk
	avail  int64         // bytes of the workspace that nobody is expected to take

	base, auto        int // slots that are offered
	manual, automated int // slots that are taken, by kind of work
}

// inodesLeast is the share of inodes, in percent, below which a file system counts as full.
const inodesLeast = 1

// set takes in what the leader sees of the runner.
func (c *candidate) set(r *fleet.Runner, p fleet.Presence, now time.Time) {
	*c = candidate{r: r, connected: p.Connected, shown: p.Full, beat: p.LastBeat, declining: p.Declining, limited: p.LimitedBy, caches: p.Caches, health: p.Health}
	if p.Connected && p.Full {
		c.base = max(p.Slots, 0)
		c.auto = r.AutomationSlots()
		if p.Automation != nil {
			c.auto = max(min(c.auto, *p.Automation), 0)
		}
	}
	if h := p.Health; h != nil {
		c.age = max(now.Sub(p.HealthAt), 0) + h.Age
		c.recent = c.age <= fleet.HealthFresh && h.Workspace.Known && h.Cache.Known
		c.avail = h.Workspace.Free - h.Reserved
	}
}

// sampled is when its sample was taken, by the hub's clock.
func (c *candidate) sampled(now time.Time) time.Time { return now.Add(-c.age) }

// free counts the slots that work of a kind may still take there.
func (c *candidate) free(auto bool) int {
	left := c.base + c.auto - c.manual - c.automated
	if auto {
		return min(left, c.auto-c.automated)
	}
	return min(left, c.base-c.manual)
}

// take gives a slot, and room on the disk, to a job.
func (c *candidate) take(auto bool, reserve int64) {
	if auto {
		c.automated++
	} else {
		c.manual++
	}
	c.avail -= reserve
}

// docker says whether Docker and Compose are there, as far as that is known.
func (c *candidate) docker(now time.Time) bool {
	h := c.health
	return h != nil && h.Docker.State == fleet.DockerReady && h.Docker.Verified && c.verified() <= fleet.DockerFresh
}

// verified is how long ago Docker and Compose both answered.
func (c *candidate) verified() time.Duration { return c.age + c.health.Docker.VerifiedAge }

// lowDisk says what of the disks is too little: for an automation either file system must
// have its floor free, and the workspace what is needed.
func (c *candidate) lowDisk(auto bool, floor, need int64) bar {
	h := c.health
	switch {
	case c.avail < need, auto && c.avail < floor:
		return diskLow
	case !auto:
		return open
	case h.Cache.Free < floor:
		return cacheLow
	case fewInodes(h.Workspace), fewInodes(h.Cache):
		return inodesLow
	}
	return open
}

// fewInodes says whether a file system that counts its inodes has hardly any left.
func fewInodes(v fleet.Volume) bool {
	return v.Inodes >= 0 && v.Nodes > 0 && v.Inodes*100 < v.Nodes*inodesLeast
}
