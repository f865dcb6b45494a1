package runner

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

const (
	retainEvery = 10 * time.Minute // at most, between two passes over workspaces and caches
	retainSoon  = time.Second      // at least
	scrubTold   = 24 * time.Hour   // for so long people are told what was taken out of a configuration
)

// retention is what the passes over workspaces and caches have to remember.
type retention struct {
	again chan struct{} // a value: something has changed that a pass goes by

	mu        sync.Mutex
	scrubbed  map[string]scrubbed // by repository
	overLimit string              // why no new work is taken: the owner's limit of disk space
}

type scrubbed struct {
	names []string
	at    time.Time
}

func newRetention() *retention {
	return &retention{again: make(chan struct{}, 1), scrubbed: map[string]scrubbed{}}
}

func (k *retention) poke() {
	select {
	case k.again <- struct{}{}:
	default:
	}
}

// over gives why the owner's limit of disk space lets nothing new be taken; "" is that it does.
func (k *retention) over() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overLimit
}

// keeps gives the owner's times.
func (o Owner) keeps() worktree.Keeps {
	return worktree.Keeps{Workspace: time.Duration(o.KeepWorkspaces), Rescue: time.Duration(o.KeepRescue), Cache: time.Duration(o.KeepCaches)}
}

// retains passes over workspaces and caches from time to time: also while jobs run, whose own it leaves alone.
func (r *Runner) retains(ctx context.Context) {
	r.reapUnfinished(ctx)
	for {
		wait := r.retain(ctx)
		if ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.retention.again:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// reapUnfinished deletes the workspaces that were being made when the runner ended, of jobs that the journal knows and
// that nothing more is done for here. One that is prepared again is made anew by its attempt.
func (r *Runner) reapUnfinished(ctx context.Context) {
	store, err := r.trees()
	if err != nil {
		return // whoever needs it tells
	}
	open := map[fleet.JobID]bool{}
	ended := map[fleet.JobID]bool{}
	for _, a := range r.journal.Attempts() {
		if a.Progress.Ended && !a.Progress.Intent {
			ended[a.Job] = true
		} else {
			open[a.Job] = true
		}
	}
	for _, job := range slices.Sorted(maps.Keys(ended)) {
		if open[job] {
			continue
		}
		if was, err := store.Unfinished(ctx, job); err != nil {
			r.log.Warn("an unfinished workspace could not be removed", "job", job, "err", err)
		} else if was {
			r.log.Info("an unfinished workspace was removed", "job", job)
		}
	}
}

// retain is one pass. It gives when the next one is due.
func (r *Runner) retain(ctx context.Context) time.Duration {
	r.mu.Lock()
	owner := r.owner
	r.mu.Unlock()
	store, err := r.trees()
	if err != nil {
		r.alert("retention", "workspaces and caches can't be looked at: "+err.Error())
		return retainEvery
	}
	out, err := store.Retain(ctx, worktree.Policy{Keeps: owner.keeps(), Busy: r.working()})
	if ctx.Err() != nil {
		return retainEvery
	}
	r.tellRetained(out)
	if err != nil {
		r.log.Warn("not everything could be looked at that may have to go", "err", err)
	}
	r.alert("retention", retentionText(out, err))
	r.alert("credentials", r.retention.scrubText(r.now()))
	r.tellRelief()
	r.holdToLimit(ctx, owner)
	if r.health.counts(r.now()) || len(out.Deleted)+len(out.Evicted) > 0 {
		usage, _ := r.sampler.Usage(ctx, r.usageTrees(), usageEntries, usageTime)
		r.health.takes(usage)
	}
	r.changed()
	return nextPass(out, r.now())
}

// working gives a function that says whether a job has an attempt here of which something is still owed: no workspace of
// it is touched. It reads the journal each time, because an attempt may begin at any moment.
func (r *Runner) working() func(fleet.JobID) bool {
	return func(job fleet.JobID) bool { return works(r.journal.Attempts(), filepath.Join(r.cfg.Dir, "trees"), job) }
}

// works says whether one of some attempts has a job's workspace: as its own, or because it goes on there with the session
// of another.
func works(attempts []journal.Attempt, trees string, job fleet.JobID) bool {
	work := filepath.Join(trees, "work", string(job))
	real, err := filepath.EvalSymlinks(work)
	if err != nil {
		real = work
	}
	in := func(dir string) bool {
		return slices.ContainsFunc([]string{work, real}, func(top string) bool { return dir == top || strings.HasPrefix(dir, top+string(filepath.Separator)) })
	}
	return slices.ContainsFunc(attempts, func(a journal.Attempt) bool {
		return a.Job == job || in(a.Progress.Dir) || in(a.Progress.RealDir)
	})
}

func (r *Runner) tellRetained(out worktree.Retained) {
	for _, w := range out.Deleted {
		r.log.Info("workspace removed", "job", w.Job, "path", w.Path, "why", w.Why)
	}
	for _, w := range out.Saved {
		r.log.Info("files that were not committed are saved", "job", w.Job, "path", w.Path, "ref", w.Rescue)
	}
	for _, c := range out.Evicted {
		r.log.Info("cache removed", "repository", c.Repository, "path", c.Path, "why", c.Why)
	}
}

// nextPass gives the time until something that is kept may go, within the bounds of passes.
func nextPass(out worktree.Retained, now time.Time) time.Duration {
	wait := retainEvery
	sooner := func(until time.Time) {
		if !until.IsZero() {
			wait = min(wait, until.Sub(now))
		}
	}
	for _, w := range out.Kept {
		sooner(w.Until)
	}
	for _, c := range out.Caches {
		sooner(c.Until)
	}
	return max(wait, retainSoon)
}

// retentionText says what people have to see to; "" if there is nothing.
func retentionText(out worktree.Retained, failed error) string {
	own, unclear, aside, holds := 0, 0, 0, 0
	for _, w := range out.Kept {
		switch {
		case w.Do == worktree.Look:
			unclear++
		case w.Do == worktree.Keep && w.Until.IsZero() && (w.Own > 0 || w.Inner != "" || w.Unsaved > 0):
			own++
		}
	}
	for _, c := range out.Caches {
		if c.Do == worktree.Look {
			aside++
		} else if c.Do == worktree.Keep && c.Until.IsZero() && len(c.Only)+c.Contents > 0 {
			holds++
		}
	}
	var parts []string
	say := func(n int, one, more string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, more))
		}
	}
	say(own, "workspace holds what is nowhere else", "workspaces hold what is nowhere else")
	say(unclear, "workspace can't be verified", "workspaces can't be verified")
	say(holds, "cache holds what is nowhere else", "caches hold what is nowhere else")
	say(aside, "damaged cache was set aside", "damaged caches were set aside")
	if failed != nil {
		parts = append(parts, "not everything could be looked at")
	}
	if len(parts) == 0 {
		return ""
	}
	return "kept until somebody sees to it: " + strings.Join(parts, ", ") + "; see `tugline runner workspaces` on the machine"
}

// onScrubbed remembers what was taken out of a repository's configuration, to tell of it.
func (r *Runner) onScrubbed(repository string, names []string) {
	k := r.retention
	k.mu.Lock()
	all := append(slices.Clone(names), k.scrubbed[repository].names...)
	slices.Sort(all)
	k.scrubbed[repository] = scrubbed{slices.Compact(all), r.now()}
	k.mu.Unlock()
	r.alert("credentials", k.scrubText(r.now()))
	r.changed()
}

// scrubText names the settings that were taken out lately.
func (k *retention) scrubText(now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var parts []string
	for _, repository := range slices.Sorted(maps.Keys(k.scrubbed)) {
		s := k.scrubbed[repository]
		if now.Sub(s.at) >= scrubTold {
			delete(k.scrubbed, repository)
			continue
		}
		parts = append(parts, repository+" ("+strings.Join(s.names, ", ")+")")
	}
	if len(parts) == 0 {
		return ""
	}
	return "credentials were in git's configuration of a cache and are taken out: " + strings.Join(parts, "; ")
}

// holdToLimit measures what the runner's data takes where the owner has set a limit; above it, what may go goes, and
// nothing new is taken until it is below.
func (r *Runner) holdToLimit(ctx context.Context, owner Owner) {
	why := ""
	if limit := int64(owner.DiskLimit); limit > 0 {
		takes := r.dataTakes(ctx)
		if takes > limit {
			r.reclaim(ctx, func() bool { return ctx.Err() != nil || r.dataTakes(ctx) <= limit })
			takes = r.dataTakes(ctx)
		}
		if takes > limit {
			why = fmt.Sprintf("storage: the runner's data takes %s, above the owner's limit of %s (disk_limit)", attempt.Size(takes), attempt.Size(limit))
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.retention.mu.Lock()
	was := r.retention.overLimit
	r.retention.overLimit = why
	r.retention.mu.Unlock()
	if was == "" && why != "" {
		r.log.Warn("nothing new is taken", "why", why)
	}
}

// dataTakes gives what the runner's own directories take on the disk, as far as that can be counted.
func (r *Runner) dataTakes(ctx context.Context) (bytes int64) {
	usage, _ := r.sampler.Usage(ctx, r.ownTrees(), usageEntries, usageTime)
	for _, u := range usage {
		bytes += u.Bytes
	}
	return bytes
}

// reclaim gives space back until there is enough.
func (r *Runner) reclaim(ctx context.Context, enough func() bool) {
	r.mu.Lock()
	owner := r.owner
	r.mu.Unlock()
	store, err := r.trees()
	if err != nil {
		return
	}
	directories, bytes, err := r.host.ReclaimScratch(ctx, owner.BuildOutput, enough)
	if err != nil {
		r.log.Warn("not everything could be given back of scratch directories", "err", err)
	}
	out, err := store.Reclaim(ctx, worktree.Policy{Keeps: owner.keeps(), Busy: r.working(), Enough: enough}, owner.BuildOutput)
	out.Directories, out.Bytes = out.Directories+directories, out.Bytes+bytes
	r.tellRetained(out.Retained)
	if out.Bytes > 0 {
		r.log.Info("space was given back", "bytes", out.Bytes, "build_directories", out.Directories, "caches", len(out.Retained.Evicted), "workspaces", len(out.Retained.Deleted))
	}
	if err != nil {
		r.log.Warn("not everything could be given back", "err", err)
	}
}
