package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

const (
	ownerPoll   = 2 * time.Second
	detectEvery = 10 * time.Minute
	detectAgain = 30 * time.Second // where an agent CLI did not answer in time
	diskEvery   = 20 * time.Second
	diskTime    = 5 * time.Second
)

// facts gives what this runner says of itself.
func (r *Runner) facts() fleet.RunnerFacts {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owner
	f := fleet.RunnerFacts{
		Version: r.cfg.Version, OS: runtime.GOOS, Arch: runtime.GOARCH, Slots: r.slots(o), Permissions: o.Permissions,
		Secrets: r.secretNames, Repos: o.Repositories.Allow, Origins: o.Origins, AllowFile: o.AllowFile, Paused: o.Paused,
	}
	for _, h := range r.harnesses {
		allowed, ok := o.Harnesses[h.Name]
		if ok || len(o.Harnesses) == 0 {
			h.Models = allowed.Models
			f.Harnesses = append(f.Harnesses, h)
		} else {
			f.Barred = append(f.Barred, h.Name)
		}
	}
	f.Update = r.updateFacts()
	for _, k := range slices.Sorted(maps.Keys(r.alerts)) {
		f.Alerts = append(f.Alerts, r.alerts[k])
	}
	return f
}

// alert sets or, with an empty text, takes back what people should know.
func (r *Runner) alert(key, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.alerts, key)
		return
	}
	r.alerts[key] = fleet.CutText(text, fleet.MaxDetail)
}

// harness gives one CLI as it was found here.
func (r *Runner) harness(name string) (fleet.HarnessInfo, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.harnesses, func(h fleet.HarnessInfo) bool { return h.Name == name })
	if i < 0 {
		return fleet.HarnessInfo{}, false
	}
	return r.harnesses[i], true
}

// policy gives the owner's rules as an attempt needs them.
func (r *Runner) policy() attempt.Policy {
	floors := r.floors()
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owner
	models := map[string][]string{}
	for name, h := range o.Harnesses {
		models[name] = h.Models
	}
	return attempt.Policy{
		Permissions: o.Permissions, Repos: o.Repositories.Allow, Harnesses: slices.Sorted(maps.Keys(o.Harnesses)), Origins: o.Origins,
		EnvNames: o.EnvNames, Push: o.Push, AllowFile: o.AllowFile, MinFree: int64(o.MinFree),
		Floors: floors, Models: models, MemoryKept: int64(o.Memory.Keep), MemoryShare: int64(o.Memory.PerSlot),
		Given: r.given(o), Sessions: o.Sessions, SessionDirs: o.SessionDirs, SessionEnv: o.sessionEnv(),
		Fetch: func(url string) (int, string) {
			for _, opt := range o.Repositories.Options {
				if fleet.MatchURL(opt.Match, url) {
					return opt.Depth, opt.Filter
				}
			}
			return 0, ""
		},
	}
}

// trees gives the store of worktrees as the owner's rules want it now.
func (r *Runner) trees() (*worktree.Store, error) {
	r.mu.Lock()
	o := r.owner
	r.mu.Unlock()
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	key := fmt.Sprint(o.AllowFile, o.Git, o.RescueIgnored)
	if r.store != nil && r.storeKey == key {
		return r.store, nil
	}
	s, err := worktree.Open(worktree.Config{
		Dir: filepath.Join(r.cfg.Dir, "trees"), AllowFile: o.AllowFile, Logger: r.log,
		Now: func() time.Time { return r.now() }, Scrubbed: r.onScrubbed, RescueIgnored: o.RescueIgnored,
		Identity: worktree.Identity{Name: o.Git.Name, Email: o.Git.Email},
	})
	if err != nil {
		return nil, err
	}
	r.store, r.storeKey = s, key
	return s, nil
}

// transportMode is how to reach the hub: ws, http or auto.
func (r *Runner) transportMode() string {
	if r.cfg.Transport != "" {
		return r.cfg.Transport
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owner.Transport
}

func (r *Runner) secretsFile() string { return filepath.Join(r.cfg.Dir, "secrets.yaml") }

// secrets reads the owner's store, D/secrets.yaml: name → value.
func (r *Runner) secrets() (map[string]string, error) {
	b, err := readPrivate(r.secretsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the owner's secrets: %w", err)
	}
	var all map[string]string
	if err := yaml.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read %s: it must map names to values", r.secretsFile()) // the cause could quote a value
	}
	return all, nil
}

// loadOwner reads runner.yaml and the names of the secrets; where there is a mistake
// in one, what was last good of it stays. Where a start finds no good rules, those of
// unreadOwner hold: what the owner forbade must not be allowed by a slip.
func (r *Runner) loadOwner() {
	defer r.changed()
	if secrets, err := r.secrets(); err != nil {
		r.log.Error("owner's secrets are not taken", "err", err)
		r.alert("secrets", err.Error())
	} else {
		r.alert("secrets", "")
		r.mu.Lock()
		r.secretNames = slices.Sorted(maps.Keys(secrets))
		r.mu.Unlock()
	}
	o, err := LoadOwner(OwnerFile(r.cfg.Dir))
	if err != nil {
		r.log.Error("owner's rules are not taken", "err", err)
		r.mu.Lock()
		if !r.ownerRead {
			r.owner, r.ownerUnread = unreadOwner(), true
		}
		holds := "; the last good rules are in force"
		if !r.ownerRead {
			holds = "; until it is mended the runner takes nothing new and installs nothing"
		}
		r.mu.Unlock()
		r.alert("runner.yaml", err.Error()+holds)
		return
	}
	if r.cfg.DevMode {
		o.AllowFile = true
	}
	r.alert("runner.yaml", "")
	wrong := strings.Join(o.Wrong(), "; ")
	if wrong != "" {
		r.log.Error("part of the owner's rules is not taken", "err", wrong)
		wrong = "runner.yaml: " + wrong
	}
	r.alert("floors", wrong)
	r.mu.Lock()
	r.owner, r.ownerRead, r.ownerUnread = o, true, false
	r.mu.Unlock()
}

// watchOwner reads the owner's files again whenever one changes.
func (r *Runner) watchOwner(ctx context.Context) {
	look := func() string {
		stand := ""
		for _, file := range []string{OwnerFile(r.cfg.Dir), r.secretsFile()} {
			if st, err := os.Stat(file); err == nil {
				stand += fmt.Sprint(st.ModTime().UnixNano(), st.Size(), st.Mode())
			}
			stand += ";"
		}
		return stand
	}
	last := look()
	tick := time.NewTicker(ownerPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := look(); now != last {
			last = now
			r.log.Info("owner's files changed")
			r.loadOwner()
			r.redetect()
			r.retention.poke()
		}
	}
}

// detects looks for the agent CLIs at the start, from time to time, and when asked.
func (r *Runner) detects(ctx context.Context) {
	tick := time.NewTicker(detectEvery)
	defer tick.Stop()
	for {
		r.mu.Lock()
		paths := map[string]string{}
		for name, h := range r.owner.Harnesses {
			if h.Path != "" {
				paths[name] = h.Path
			}
		}
		for _, what := range fleet.Provisionable() {
			if p := r.provisions.program(what); what != fleet.ProvisionBrowser && p != "" && paths[what] == "" {
				paths[what] = p
			}
		}
		known, given := r.harnesses, r.given(r.owner)
		r.mu.Unlock()
		var slow atomic.Bool
		found := harness.Detect(ctx, harness.DetectRequest{Env: os.Environ(), Paths: paths, Given: given, Known: known, Slow: func(name string) {
			slow.Store(true)
			r.log.Warn("an agent does not tell its version in time; it is asked again", "harness", name)
		}})
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.harnesses = found
		r.mu.Unlock()
		r.changed()
		var again <-chan time.Time
		if slow.Load() {
			again = time.After(detectAgain)
		}
		select {
		case <-tick.C:
		case <-again:
		case <-r.detectNow:
		case <-ctx.Done():
			return
		}
	}
}

// redetect looks for the agent CLIs anew.
func (r *Runner) redetect() {
	select {
	case r.detectNow <- struct{}{}:
	default:
	}
}

// watchDisk stops offering slots while too little space is free.
func (r *Runner) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.lookAtDisk(ctx)
	}
}

// lookAtDisk looks once; the first time is before a hub hears what is offered.
func (r *Runner) lookAtDisk(ctx context.Context) {
	least := r.policy().MinFree
	low := ""
	if least > 0 {
		v := r.fresh(ctx, r.cfg.Dir)
		switch {
		case ctx.Err() != nil:
			return
		case !v.Known:
			low = "storage: the free space of the data directory is not known"
		case v.Free < least:
			low = fmt.Sprintf("storage: too little free space: %d MiB of the %d MiB that the owner wants left", v.Free>>20, least>>20)
		}
	}
	r.mu.Lock()
	changed := (low == "") != (r.lowDisk == "")
	r.lowDisk = low
	r.mu.Unlock()
	if changed {
		r.changed()
	}
}
