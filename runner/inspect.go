package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// Kept is what a runner keeps of jobs and repositories, and why.
type Kept struct {
	Workspaces []worktree.Workspace
	Caches     []worktree.Cache
}

// InspectKept looks at a data directory, while a runner uses it or not, and changes nothing.
func InspectKept(ctx context.Context, dir string) (Kept, error) {
	var kept Kept
	owner, err := ownerOf(dir)
	if err != nil {
		return kept, err
	}
	trees := filepath.Join(dir, "trees")
	if _, err := os.Stat(trees); errors.Is(err, fs.ErrNotExist) {
		return kept, nil // no job has come with a repository yet
	}
	attempts, err := journal.Peek(dir)
	if err != nil {
		return kept, err
	}
	store, err := worktree.Open(worktree.Config{Dir: trees, RescueIgnored: owner.RescueIgnored})
	if err != nil {
		return kept, err
	}
	p := worktree.Policy{Keeps: owner.keeps(), Busy: func(job fleet.JobID) bool { return works(attempts, trees, job) }}
	if kept.Workspaces, err = store.Workspaces(ctx, p); err != nil {
		return kept, err
	}
	kept.Caches, err = store.AllCaches(ctx, p)
	return kept, err
}

// ownerOf gives the rules of a data directory that is there.
func ownerOf(dir string) (Owner, error) {
	if st, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return Owner{}, fmt.Errorf("there is no data directory of a runner at %s; --data-dir names another place", dir)
	} else if err != nil {
		return Owner{}, fmt.Errorf("look at a runner's data: %w", err)
	} else if !st.IsDir() {
		return Owner{}, fmt.Errorf("look at a runner's data: %s is no directory", dir)
	}
	return LoadOwner(OwnerFile(dir))
}

// Disk is what takes the disk of a runner, by class.
type Disk struct {
	Usage   []fleet.ClassUsage // the largest first
	Partial bool               // not everything was counted
	Own     int64              // bytes of the data directory alone
	Limit   int64              // the owner's, of these; 0: none
	Volume  fleet.Volume       // on which the data directory is
	Relief  *DockerRelief      // what was removed of Docker's last; nil: nothing
}

// InspectDisk counts what a data directory and the agent CLIs take, for a minute at most.
func InspectDisk(ctx context.Context, dir string) (Disk, error) {
	owner, err := ownerOf(dir)
	if err != nil {
		return Disk{}, err
	}
	cfg := Config{Dir: dir}
	s := newSampler(cfg)
	trees := ownTrees(cfg, owner.BuildOutput)
	d := Disk{Limit: int64(owner.DiskLimit), Volume: s.Volume(ctx, dir), Relief: lastRelief(dir)}
	own, partial := s.Usage(ctx, trees, inspectEntries, inspectTime)
	for _, u := range own {
		d.Own += u.Bytes
	}
	rest, more := s.Usage(ctx, harnessTrees(), inspectEntries, inspectTime)
	d.Usage, d.Partial = append(own, rest...), partial || more
	if bytes, err := s.DockerUsage(ctx); err == nil {
		d.Usage = append(d.Usage, fleet.ClassUsage{Class: "docker", Bytes: bytes})
	}
	sortUsage(d.Usage)
	return d, nil
}

// A person who asks waits for more to be counted than a runner that is at work.
const (
	inspectEntries = 5_000_000
	inspectTime    = 30 * time.Second
)
