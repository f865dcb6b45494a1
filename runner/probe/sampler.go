package probe

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Config says what is sampled.
type Config struct {
	// Workspace and Cache are the directories whose volumes matter: where jobs work, and where repositories are cached.
	Workspace, Cache string
	// Env is the environment in which commands are run and Docker is looked for; the process's own if nil.
	Env []string
}

// A Sampler takes samples of one machine. Its methods are safe for concurrent use.
type Sampler struct {
	cfg   Config
	looks looks

	// Where the machine's own files are, and which system it has; tests build others.
	root string
	goos string

	mu       sync.Mutex
	cpu      spent // at the last sample
	disks    busy  // at the last sample
	compose  compose
	verified time.Time // when daemon and Compose both answered last
	server   string    // the daemon's version, as it last answered
}

// New makes a Sampler; it looks at nothing yet.
func New(cfg Config) *Sampler {
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	return &Sampler{cfg: cfg, root: "/", goos: runtime.GOOS}
}

// Sample takes one sample, all of its parts beside each other, in at most 6 s. What
// did not answer by then is not known. The sample's age is 0: it counts from the call.
func (s *Sampler) Sample(ctx context.Context) fleet.Health {
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	h := fleet.Health{UserIdle: -1}
	var work sync.WaitGroup
	work.Go(func() { h.Workspace = s.Volume(ctx, s.cfg.Workspace) })
	work.Go(func() { h.Cache = s.Volume(ctx, s.cfg.Cache) })
	work.Go(func() { h.Docker = s.Docker(ctx, composeEvery) })
	part(ctx, &work, s, "memory", &h.Memory, s.readMemory)
	part(ctx, &work, s, "processors", &h.CPU, s.readCPU)
	part(ctx, &work, s, "disks", &h.IO, s.readIO)
	part(ctx, &work, s, "power", &h.Power, s.readPower)
	part(ctx, &work, s, "uptime", &h.Uptime, s.readUptime)
	part(ctx, &work, s, "zone", &h.Zone, s.readZone)
	part(ctx, &work, s, "idle", &h.UserIdle, s.readIdle)
	work.Wait()
	return h
}

// part fills in one part of a sample, where it can be had in time.
func part[T any](ctx context.Context, work *sync.WaitGroup, s *Sampler, key string, into *T, read func(context.Context) (T, error)) {
	work.Go(func() {
		bound, cancel := context.WithTimeout(ctx, commandTime)
		defer cancel()
		if v, err := ask(bound, &s.looks, key, "", read); err == nil {
			*into = v
		}
	})
}

// Volume looks at the file system of a path, in at most 2 s.
func (s *Sampler) Volume(ctx context.Context, path string) fleet.Volume {
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	v, _ := Disk(bound, path) // what is wrong stands in its detail
	return v
}

// Memory looks at the machine's memory, in at most 3 s; nil where it is not known.
func (s *Sampler) Memory(ctx context.Context) *fleet.Memory {
	bound, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	m, _ := ask(bound, &s.looks, "memory", "", s.readMemory)
	return m
}

// file gives a path of the machine's own.
func (s *Sampler) file(path string) string { return filepath.Join(s.root, path) }

// env gives a variable of the configured environment.
func (s *Sampler) env(name string) string {
	value := ""
	for _, kv := range s.cfg.Env {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			value = kv[len(name)+1:]
		}
	}
	return value
}
