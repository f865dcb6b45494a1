package hub

import (
	"context"
	"time"

	"tugline.dev/tugline/hub/rollout"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	releasesEvery  = 2 * time.Second
	progressAtOnce = 200 // runners in one entry
)

// updateOf gives the release that a runner is to have, or nil.
func updateOf(v state.View, r *fleet.Runner) *wire.Update {
	o := rollout.For(v.Releases(), r)
	if o == nil {
		return nil
	}
	return &wire.Update{
		Version: o.Version, OS: o.File.OS, Arch: o.File.Arch, SHA256: o.File.SHA256, Size: o.File.Size,
		Signature: o.File.Signature, Asked: o.Asked, Downgrade: o.Downgrade,
	}
}

// heartWith counts the heartbeats of one session with one version.
type heartWith struct {
	session, version string
	last             time.Time
	n                int
}

// rollOut has releases go from ring to ring, or halts them, by what is heard of the
// runners. A new leader counts heartbeats anew.
func (l *term) rollOut(ctx context.Context) {
	tick := time.NewTicker(releasesEvery)
	defer tick.Stop()
	hearts := map[fleet.RunnerID]heartWith{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v := l.hub.entries.View()
		releases := v.Releases()
		if len(releases) == 0 || l.hub.entries.timely() != nil {
			continue
		}
		runners := v.Runners()
		l.listen(hearts, runners)
		seen := rollout.Seen{Beats: func(r fleet.RunnerID) int { return hearts[r].n }, Worked: worked(v)}
		for _, rel := range releases {
			l.follow(ctx, rel, rollout.Look(rel, runners, seen, v.Meta().Time))
		}
	}
}

// listen counts heartbeats.
func (l *term) listen(hearts map[fleet.RunnerID]heartWith, runners []*fleet.Runner) {
	for _, r := range runners {
		p, _ := l.hub.sessions.PresenceOf(r.ID)
		was := hearts[r.ID]
		switch {
		case !p.Connected:
			delete(hearts, r.ID)
		case was.session != p.Session || was.version != r.Facts.Version:
			hearts[r.ID] = heartWith{session: p.Session, version: r.Facts.Version, last: p.LastBeat}
		case p.LastBeat.After(was.last):
			was.last, was.n = p.LastBeat, was.n+1
			hearts[r.ID] = was
		}
	}
}

// follow does what a look at a release leads to.
func (l *term) follow(ctx context.Context, rel *fleet.Release, s rollout.Step) {
	for len(s.Progress) > 0 {
		some := &state.RecordProgress{Version: rel.Version, Runners: map[fleet.RunnerID]fleet.Progress{}}
		for id, p := range s.Progress {
			if len(some.Runners) < progressAtOnce {
				some.Runners[id] = p
				delete(s.Progress, id)
			}
		}
		if _, ok := l.propose(ctx, some); !ok {
			return
		}
	}
	switch {
	case s.Halt != "":
		if _, ok := l.propose(ctx, &state.MoveRelease{Version: rel.Version, From: rel.Ring, Halt: s.Halt}); ok {
			l.hub.log.Warn("release is halted", "version", rel.Version, "ring", rel.Ring, "err", s.Halt)
		}
	case s.Ring != "":
		if _, ok := l.propose(ctx, &state.MoveRelease{Version: rel.Version, From: rel.Ring, Ring: s.Ring}); ok {
			l.hub.log.Info("release goes on", "version", rel.Version, "ring", s.Ring)
		}
	}
}

// worked finds jobs that succeeded on a runner. All jobs are looked through once, when
// first asked.
func worked(v state.View) func(fleet.RunnerID, time.Time) fleet.JobID {
	type done struct {
		job fleet.JobID
		at  time.Time // the attempt was accepted
	}
	var last map[fleet.RunnerID]done
	return func(r fleet.RunnerID, since time.Time) fleet.JobID {
		if last == nil {
			last = map[fleet.RunnerID]done{}
			v.JobsOldest(func(j *fleet.Job) bool {
				a := j.Current()
				if j.State == fleet.Succeeded && a != nil && a.AcceptedAt != nil && a.AcceptedAt.After(last[a.Runner].at) {
					last[a.Runner] = done{j.ID, *a.AcceptedAt}
				}
				return true
			})
		}
		if d := last[r]; d.at.After(since) {
			return d.job
		}
		return ""
	}
}
