package attempt

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// Space is what a runner knows of its disks and promises of them. Its methods are safe
// for concurrent use and bounded in time.
type Space interface {
	// Look measures the volume of a path now; one that does not answer is not known.
	Look(ctx context.Context, path string) fleet.Volume
	// Reserve promises bytes to an attempt, in the place of what it was promised before, if
	// floor stays free then; others is what is promised to others.
	Reserve(ctx context.Context, f fleet.Fence, bytes, floor int64) (v fleet.Volume, others int64, ok bool)
	// Promise does so whatever is free; 0 takes the promise back.
	Promise(f fleet.Fence, bytes int64)
	// Footprint gives what a job in a repository may come to take, 0 where none is known.
	Footprint(cache string) int64
	// Learn notes what one came to take.
	Learn(cache string, bytes int64)
	// Cold says whether the repository is known not to be cached here yet.
	Cold(cache string) bool
}

const (
	dockerAfter = time.Minute // until somebody has started Docker
	tightAfter  = time.Minute // until others have given back what was promised to them
	fewInodes   = 100         // less than one part in so many free is as bad as a full disk
)

// expected gives the bytes that the attempt may come to take on the disk beyond what
// its directory has already: what is known of the repository, by the hub or here, with
// some room beside it.
func (a *Attempt) expected(has int64) int64 {
	want := a.known()
	if a.asg.Spec.Repo != nil {
		want += fleet.FootprintRoom
	}
	return max(want-has, 0)
}

// known gives what is known of that. Where the repository is not cached here yet, its
// history comes on top, for which as much again is a fair guess.
func (a *Attempt) known() int64 {
	r := a.asg.Spec.Repo
	if r == nil {
		return a.asg.Reserve
	}
	n := max(a.host.Space.Footprint(r.CacheOf()), a.asg.Reserve-fleet.FootprintRoom, 0)
	if a.cold {
		n *= 2
	}
	return n
}

// asked gives what of that must be there for it to begin: all of it for automations.
// Whoever asks for a job sees to the disk himself, so the room beside is not held
// against his, only what is known; later ones are measured against all of it.
func (a *Attempt) asked(has int64) int64 {
	if !a.asg.Spec.Automated() {
		return max(a.known()-has, 0)
	}
	return a.expected(has)
}

// floor gives what must stay free, and who wants that.
func (a *Attempt) floor(p Policy) (bytes int64, whose string) {
	bytes, whose = p.MinFree, "the owner of this runner wants that left (min_free_bytes)"
	if least := max(p.Floors.Start, p.Floors.Select); a.asg.Spec.Automated() && least > bytes {
		return least, "the floor for automations"
	}
	return bytes, whose
}

// admit looks whether there is disk for the attempt, at this moment, and promises it
// what it may come to take. has is what of that its directory has already. An owner who
// sets no bound has people's jobs taken whatever is free.
func (a *Attempt) admit(ctx context.Context, p Policy, has int64, dirs ...string) error {
	want, asked := a.expected(has), a.asked(has)
	floor, whose := a.floor(p)
	automated := a.asg.Spec.Automated()
	if floor <= 0 && !automated || a.permitted() {
		a.host.Space.Promise(a.asg.Fence, want)
		return a.enoughSpace(ctx, p.MinFree, dirs...)
	}
	v, others, ok := a.host.Space.Reserve(ctx, a.asg.Fence, want, floor-(want-asked))
	switch {
	case !v.Known:
		return a.noSpace("the free space of %s is not known: %s", v.Path, v.Detail)
	case !ok:
		detail := fmt.Sprintf("%s are free at %s", Size(v.Free), v.Path)
		if others > 0 {
			detail += fmt.Sprintf(", %s of it promised to other jobs", Size(others))
		}
		if asked > 0 {
			detail += fmt.Sprintf(", this job may take %s", Size(asked))
		}
		d := a.noSpace("%s, and %s are to stay free: %s", detail, Size(floor), whose)
		if v.Free >= floor {
			d.code, d.after = fleet.StorageTight, tightAfter
		}
		return d
	}
	if n := a.needs().Disk; n > 0 && v.Free < n && has == 0 {
		d := a.noSpace("%s are free at %s, the job needs %s", Size(v.Free), v.Path, Size(n))
		d.code, d.after = fleet.StorageTight, tightAfter
		return d
	}
	if automated {
		for _, dir := range append(dirs, v.Path, a.host.cacheDir()) {
			if err := a.roomFor(ctx, dir, floor, whose); err != nil {
				return err
			}
		}
	}
	return a.enoughSpace(ctx, p.MinFree, append(dirs, a.host.cacheDir())...)
}

// roomFor holds one volume to the floor of automations.
func (a *Attempt) roomFor(ctx context.Context, dir string, floor int64, whose string) error {
	v := a.host.Space.Look(ctx, dir)
	switch {
	case !v.Known:
		return a.noSpace("the free space of %s is not known: %s", dir, v.Detail)
	case v.Free < floor:
		return a.noSpace("%s are free at %s, and %s are to stay free: %s", Size(v.Free), dir, Size(floor), whose)
	case v.Nodes > 0 && v.Inodes >= 0 && v.Inodes < v.Nodes/fewInodes:
		return a.noSpace("%d of %d inodes are free at %s, less than one in %d", v.Inodes, v.Nodes, dir, fewInodes)
	}
	return nil
}

// enoughSpace refuses below the owner's bound. That free space is not known is a
// refusal too: a mount that hangs would take the job along.
func (a *Attempt) enoughSpace(ctx context.Context, least int64, dirs ...string) error {
	if least <= 0 {
		return nil
	}
	for _, dir := range append(dirs, a.dir) {
		v := a.host.Space.Look(ctx, dir)
		if !v.Known {
			return a.noSpace("the free space of %s is not known: %s", dir, v.Detail)
		}
		if v.Free < least {
			return a.noSpace("%d MiB are free at %s, the owner of this runner wants %d MiB left (min_free_bytes)", v.Free>>20, dir, least>>20)
		}
	}
	return nil
}

// noSpace takes the attempt's promise back and refuses for the machine's sake: nothing
// else should be begun there either.
func (a *Attempt) noSpace(format string, args ...any) *decline {
	a.host.Space.Promise(a.asg.Fence, 0)
	return &decline{code: fleet.Storage, after: StorageAfter, detail: fmt.Sprintf(format, args...)}
}

func (a *Attempt) needs() fleet.Needs {
	if n := a.asg.Spec.Needs; n != nil {
		return *n
	}
	return fleet.Needs{}
}

// docker looks whether Docker and Compose answer now, where the job needs them.
func (a *Attempt) docker(ctx context.Context) error {
	if !a.asg.Docker && !a.needs().Docker {
		return nil
	}
	a.tell("asking Docker")
	d := a.host.Docker(ctx)
	if d.State == fleet.DockerReady && d.Compose != "" {
		return nil
	}
	detail := fmt.Sprintf("the job needs Docker, and the daemon of this runner is %s", d.State)
	if d.State == fleet.DockerReady {
		detail = "the job needs Docker with Compose, and Compose does not answer on this runner"
	}
	if d.Detail != "" {
		detail += ": " + d.Detail
	}
	return &decline{code: fleet.DockerMissing, after: dockerAfter, detail: detail}
}

// firstProbe looks, before anything is checked out, whether there is room for the
// attempt and what else it needs. It gives what the job's directory has already.
func (a *Attempt) firstProbe(ctx context.Context, p Policy) (has int64, err error) {
	if err := a.memory(ctx, p); err != nil {
		return 0, err
	}
	if err := a.docker(ctx); err != nil {
		return 0, err
	}
	if a.goesOn() && a.asg.Spec.Repo != nil {
		a.tell("measuring the worktree")
		has = measure(ctx, filepath.Join(a.host.workDir(), string(a.asg.Job)))
	}
	a.cold = a.asg.Spec.Repo != nil && has == 0 && a.host.Space.Cold(a.asg.Spec.Repo.CacheOf())
	if err := a.admit(ctx, p, has); err != nil {
		return has, err
	}
	return has, a.record(ctx, journal.Lazy, func(p *journal.Progress) { p.Reserve = a.expected(has) })
}

// secondProbe looks at what may have changed since the hub chose this runner, and while
// the directory was made ready.
func (a *Attempt) secondProbe(ctx context.Context, ready *readiness) (fleet.Permissions, error) {
	policy := a.host.Policy()
	permissions, d := policy.permit(a.asg.Spec, a.model())
	if d != nil {
		return "", d
	}
	if ready.tree != nil && ready.has == 0 {
		a.tell("measuring the worktree")
		ready.has = measure(ctx, ready.dir)
	}
	a.cold = false
	if err := a.admit(ctx, policy, ready.has, ready.dir); err != nil {
		return "", err
	}
	if err := a.memory(ctx, policy); err != nil {
		return "", err
	}
	return permissions, a.docker(ctx)
}

func (h *Host) workDir() string  { return filepath.Join(h.Dir, "trees", "work") }
func (h *Host) cacheDir() string { return filepath.Join(h.Dir, "trees", "repos") }

// Bounds of measuring a directory.
const (
	measuredFiles = 500_000
	measuringTime = 10 * time.Second
)

// measure gives the bytes that a directory takes on the disk. A count that met its
// bound is the least of it.
func measure(ctx context.Context, dir string) int64 {
	ctx, cancel := context.WithTimeout(ctx, measuringTime)
	defer cancel()
	var sum int64
	files := 0
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it vanished, or is not ours to read
		}
		if files++; files > measuredFiles || files%512 == 0 && ctx.Err() != nil {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			sum += onDisk(info)
		}
		return nil
	})
	return sum
}

// footprint measures what the attempt's directory came to take, and notes it for the
// next job in the repository.
func (a *Attempt) footprint(ctx context.Context) int64 {
	rec, _ := a.host.Journal.Attempt(a.asg.Fence)
	if rec.Progress.Dir == "" {
		return 0
	}
	if _, err := os.Lstat(rec.Progress.Dir); err != nil {
		return 0
	}
	a.tell("measuring what it took")
	n := measure(ctx, rec.Progress.Dir)
	if r := a.asg.Spec.Repo; r != nil && ctx.Err() == nil {
		a.host.Space.Learn(r.CacheOf(), n)
	}
	return n
}

// Size words a number of bytes for people.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/(1<<30)), ".0") + " GiB"
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
