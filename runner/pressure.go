package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
)

// Bounds of finding out what fills a disk, and of giving back what Docker no longer needs.
const (
	usageEntries = 500_000
	usageTime    = 20 * time.Second
	pruneEvery   = time.Hour
	pruneOlder   = 7 * 24 * time.Hour
	reliefTold   = 24 * time.Hour
	spareInodes  = 100 // one of so many inodes must be free
)

// DockerRules are what a runner may do with the Docker of its machine by itself.
type DockerRules struct {
	Prune bool `yaml:"prune"` // remove old build cache and images of jobs when the disk is full
}

// pressure is what is known of a full disk.
type pressure struct {
	look chan fleet.Health // a sample that shows a full disk: it is to be found out by what

	mu     sync.Mutex
	on     bool
	begun  time.Time       // of the last look
	report *fleet.Pressure // is to go with the next heartbeat
	pruned time.Time
}

func newPressure() *pressure { return &pressure{look: make(chan fleet.Health, 1)} }

// ride gives what is to be told with a heartbeat, once.
func (p *pressure) ride() *fleet.Pressure {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := p.report
	p.report = nil
	return report
}

// missed takes back a report that did not leave, for the next session.
func (p *pressure) missed(report *fleet.Pressure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && p.report == nil {
		p.report = report
	}
}

// pressureFloor gives the bytes that should be free here: for automations where the
// hub has any for this runner, else what the owner wants left.
func (r *Runner) pressureFloor() int64 {
	r.mu.Lock()
	least, origins := int64(r.owner.MinFree), r.owner.Origins
	r.mu.Unlock()
	told, ever := r.limits()
	if ever && told.Automation > 0 && (len(origins) == 0 || slices.Contains(origins, fleet.Automation)) {
		return max(least, r.floors().Select)
	}
	return least
}

// isLow says whether a volume is below a floor, or has hardly an inode left.
func isLow(v fleet.Volume, floor int64) bool {
	return v.Known && (v.Free < floor || v.Inodes >= 0 && v.Nodes > 0 && v.Inodes < v.Nodes/spareInodes)
}

// presses looks whether a sample shows a full disk. At most once in a few minutes it
// asks what fills it; a disk that has room again ends that.
func (r *Runner) presses(h fleet.Health, now time.Time) {
	p := r.pressure
	floor := r.pressureFloor()
	low := isLow(h.Workspace, floor) || isLow(h.Cache, floor)
	known := h.Workspace.Known && h.Cache.Known
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case low && !p.on:
		r.log.Warn("a disk is short of space", "workspace_free", h.Workspace.Free, "cache_free", h.Cache.Free, "floor", floor)
		p.on = true
	case !low && known && p.on:
		r.log.Info("the disks have room again", "workspace_free", h.Workspace.Free, "cache_free", h.Cache.Free, "floor", floor)
		p.on, p.report = false, nil
	}
	if low && (p.begun.IsZero() || now.Sub(p.begun) >= fleet.PressureEvery) {
		p.begun = now
		select {
		case p.look <- h:
		default:
		}
	}
}

// watchPressure finds out what fills a disk, beside everything else.
func (r *Runner) watchPressure(ctx context.Context) {
	for {
		select {
		case h := <-r.pressure.look:
			r.findOut(ctx, h)
		case <-ctx.Done():
			return
		}
	}
}

// findOut counts by class what is on the disk and has it told, then gives back what
// the owner allows.
func (r *Runner) findOut(ctx context.Context, h fleet.Health) {
	found := fleet.Pressure{Floor: r.pressureFloor()}
	for _, v := range []fleet.Volume{h.Workspace, h.Cache} {
		if isLow(v, found.Floor) {
			found.Volumes = append(found.Volumes, v)
		}
	}
	found.Usage, found.Partial = r.sampler.Usage(ctx, r.usageTrees(), usageEntries, usageTime)
	if h.Docker.State == fleet.DockerReady {
		bytes, err := r.sampler.DockerUsage(ctx)
		if err != nil {
			found.Partial = true
			r.log.Info("what docker takes of the disk is not known", "err", err)
		} else {
			found.Usage = append(found.Usage, fleet.ClassUsage{Class: "docker", Bytes: bytes})
			sortUsage(found.Usage)
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.pressure.mu.Lock()
	on := r.pressure.on
	if on {
		r.pressure.report = &found
	}
	r.pressure.mu.Unlock()
	if on {
		r.changed()
		r.reclaim(ctx, func() bool { return ctx.Err() != nil || r.hasRoom(ctx, found.Volumes, found.Floor) })
		r.health.again()
		r.pruneDocker(ctx, h)
	}
}

// sortUsage puts the largest class first.
func sortUsage(all []fleet.ClassUsage) {
	slices.SortStableFunc(all, func(a, b fleet.ClassUsage) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// hasRoom looks anew whether volumes that were short of space have room again. One that
// does not answer has: nothing is deleted for what is not known.
func (r *Runner) hasRoom(ctx context.Context, short []fleet.Volume, floor int64) bool {
	return !slices.ContainsFunc(short, func(v fleet.Volume) bool { return isLow(r.fresh(ctx, v.Path), floor) })
}

// buildOutput names directories of what builds leave and make again, unless the owner
// says otherwise.
var buildOutput = []string{
	"node_modules", "target", "dist", "build", ".next", ".nuxt", ".turbo", ".gradle", ".venv", "venv", "__pycache__", ".tox", "DerivedData",
}

// ownTrees gives the directories that are a runner's alone, by class.
func (r *Runner) ownTrees() []probe.Tree {
	r.mu.Lock()
	names := r.owner.BuildOutput
	r.mu.Unlock()
	return ownTrees(r.cfg, names)
}

func ownTrees(cfg Config, buildOutput []string) []probe.Tree {
	build := map[string]string{}
	for _, name := range buildOutput {
		build[name] = "build"
	}
	d := cfg.Dir
	return []probe.Tree{
		{Path: cfg.workspace(), Class: "worktrees", Within: build},
		{Path: filepath.Join(d, "scratch"), Class: "worktrees", Within: build},
		{Path: cfg.cache(), Class: "caches"},
		{Path: filepath.Join(d, "attempts"), Class: "logs"},
		{Path: d, Class: "other"},
	}
}

// usageTrees gives the directories that a runner fills, by class: its own, and those of
// the agent CLIs.
func (r *Runner) usageTrees() []probe.Tree { return append(r.ownTrees(), harnessTrees()...) }

func harnessTrees() (trees []probe.Tree) {
	home, _ := os.UserHomeDir()
	for _, at := range []string{
		cmp.Or(os.Getenv("CODEX_HOME"), filepath.Join(home, ".codex")), cmp.Or(os.Getenv("CLAUDE_CONFIG_DIR"), filepath.Join(home, ".claude")),
		filepath.Join(cmp.Or(os.Getenv("XDG_DATA_HOME"), filepath.Join(home, ".local", "share")), "opencode"),
	} {
		if filepath.IsAbs(at) { // no home, and none named: nothing is there
			trees = append(trees, probe.Tree{Path: at, Class: "harness"})
		}
	}
	return trees
}

// pruneDocker removes old build cache, and old images that jobs have left, where the
// owner allows it and nothing runs.
func (r *Runner) pruneDocker(ctx context.Context, h fleet.Health) {
	r.mu.Lock()
	allowed := r.owner.Docker.Prune
	r.mu.Unlock()
	p, now := r.pressure, time.Now()
	p.mu.Lock()
	soon := !p.pruned.IsZero() && now.Sub(p.pruned) < pruneEvery
	p.mu.Unlock()
	idle := func() bool {
		people, automations := r.busy()
		return people+automations == 0 && ctx.Err() == nil
	}
	if !allowed || soon || h.Docker.State != fleet.DockerReady || !idle() {
		return
	}
	p.mu.Lock()
	p.pruned = now
	p.mu.Unlock()
	out, err := r.sampler.DockerPrune(ctx, pruneOlder, idle)
	if err != nil {
		r.log.Warn("docker could not be relieved of what it no longer needs", "err", err)
	}
	if out == (probe.Pruned{}) {
		return
	}
	r.log.Info("old build cache and images of docker were removed", "bytes", out.Bytes, "cache", out.Cache, "images", out.Images)
	relief := DockerRelief{At: r.now().UTC(), Pruned: out}
	if b, err := json.Marshal(relief); err == nil {
		if err := durable.Replace(reliefFile(r.cfg.Dir), b, 0o600); err != nil {
			r.log.Warn("what was removed of docker's is not noted", "err", err)
		}
	}
	r.tellRelief()
	r.health.again()
}

// A DockerRelief is what was removed of Docker's last.
type DockerRelief struct {
	At time.Time `json:"at"`
	probe.Pruned
}

func (d DockerRelief) String() string {
	return fmt.Sprintf("removed from Docker to make room: %s of build cache and %d images, %s together", attempt.Size(d.Cache), d.Images, attempt.Size(d.Bytes))
}

func reliefFile(dir string) string { return filepath.Join(dir, "docker-relief.json") }

// lastRelief gives what was removed of Docker's last; nil is that nothing was.
func lastRelief(dir string) *DockerRelief {
	b, err := os.ReadFile(reliefFile(dir))
	d := &DockerRelief{}
	if err != nil || json.Unmarshal(b, d) != nil {
		return nil
	}
	return d
}

// tellRelief has people told for a day of what was removed.
func (r *Runner) tellRelief() {
	text := ""
	if d := lastRelief(r.cfg.Dir); d != nil && r.now().Sub(d.At) < reliefTold {
		text = d.String()
	}
	r.alert("docker", text)
	r.changed()
}
