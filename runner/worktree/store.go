// Package worktree does everything that git does for a job on a workstation: one bare cache per repository, one
// worktree per job at a path that never changes, what an agent left behind saved and described, a push under the
// authority of its caller, and removal on positive evidence only, in times that the caller sets. Its functions without a
// Store serve the submitting side: they describe a person's repository, bundle it, and bring a result back into it.
//
// It guarantees: nothing that an agent left is deleted before it is under a ref, or else the worktree is kept and the
// reason told; a fetch never writes a local branch; a push is never forced; no hook of a repository is run; no
// credential is written to a URL or a git config; a damaged cache is set aside, never deleted. Two processes may share
// a Store's directory. It leaves to others: when a job may start or push, which credentials there are, how results
// travel, and what else fills the disk. An agent that may write outside of its worktree can change the configuration and
// the local branches that all jobs of a repository share; it is held by its permissions, not by this package.
package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

const (
	defaultStall          = 60 * time.Second
	defaultUntrackedLimit = 1 << 30
)

// Identity is the author and committer of the runner's own commits.
type Identity struct {
	Name  string
	Email string
}

// Config says where a Store lives and what it may do.
type Config struct {
	// Dir is an absolute directory that belongs to the Store alone; it is created.
	Dir string
	// AllowFile permits file URLs and absolute local paths as repositories.
	AllowFile bool
	// StallTimeout ends a transfer that gave no byte for so long; 60 s if 0.
	StallTimeout time.Duration
	// UntrackedLimit bounds the bytes of untracked files that are copied into a commit; 1 GiB if 0.
	UntrackedLimit int64
	// RescueIgnored are patterns of the names, or of the whole paths, of files that git ignores and that are saved all
	// the same before a workspace goes.
	RescueIgnored []string
	// Env is the environment that git starts from; the process's own if nil. Proxy variables and SSL_CERT_FILE
	// hold; variables that would point git at another repository are dropped.
	Env []string
	// Identity signs the runner's commits. If it is zero, git's own user.name and user.email do, and without those
	// "Tugline Runner".
	Identity Identity
	Logger   *slog.Logger
	// Now is the time by which things are kept; time.Now if nil.
	Now func() time.Time
	// Scrubbed is told the names of settings that carried credentials and were taken out of a repository's cache; it may
	// be nil.
	Scrubbed func(repository string, names []string)
}

// A Store owns the caches and worktrees under one directory. Its methods are safe for concurrent use.
type Store struct {
	dir            string
	git            git
	protocols      []string
	untrackedLimit int64
	log            *slog.Logger
	now            func() time.Time
	scrubbed       func(string, []string)
	rescueIgnored  []string

	records sync.Mutex // held over a change of a record that several may change
	leaving sync.Mutex // held while a workspace goes, and while one is found

	identityOnce sync.Once
	identity     Identity

	mu    sync.Mutex
	gates map[string]*gate
}

// Open validates the configuration and makes the directories.
func Open(cfg Config) (*Store, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, fmt.Errorf("open worktree store: directory %q is not absolute", cfg.Dir)
	}
	dir := filepath.Clean(cfg.Dir)
	if cfg.StallTimeout < 0 || cfg.UntrackedLimit < 0 {
		return nil, errors.New("open worktree store: stall timeout and untracked limit may not be negative")
	}
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = defaultStall
	}
	if cfg.UntrackedLimit == 0 {
		cfg.UntrackedLimit = defaultUntrackedLimit
	}
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Scrubbed == nil {
		cfg.Scrubbed = func(string, []string) {}
	}
	s := &Store{
		now: cfg.Now, scrubbed: cfg.Scrubbed, rescueIgnored: cfg.RescueIgnored,
		dir: dir, protocols: []string{"https", "ssh"}, untrackedLimit: cfg.UntrackedLimit,
		log: cfg.Logger, identity: cfg.Identity, gates: make(map[string]*gate),
	}
	if cfg.AllowFile {
		s.protocols = append(s.protocols, "file")
	}
	s.git = newGit(cfg.Env, cfg.StallTimeout)
	if _, err := process.LookPath("git", s.git.env); err != nil {
		return nil, fmt.Errorf("open worktree store: install git 2.36 or newer: %w", err)
	}
	for _, sub := range []string{"repos", "work", "jobs", "out", "tmp", "trash"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open worktree store: %w", err)
		}
	}
	// git gives real paths, and what it says about a worktree is compared with what is asked.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("open worktree store: %w", err)
	}
	s.dir = real
	return s, nil
}

// allows says whether git may use a transport.
func (s *Store) allows(protocol string) bool { return slices.Contains(s.protocols, protocol) }

// remoteGit is git with the transports that the owner allows.
func (s *Store) remoteGit() git {
	return s.git.with("GIT_ALLOW_PROTOCOL=" + strings.Join(s.protocols, ":"))
}

// signer gives the identity of the runner's commits, asking git once where none was configured.
func (s *Store) signer(ctx context.Context) Identity {
	s.identityOnce.Do(func() {
		if s.identity == (Identity{}) {
			s.identity = s.git.userIdentity(ctx, s.dir)
		}
	})
	return s.identity
}

// tempDir makes a directory on the same file system as everything else of the Store.
func (s *Store) tempDir() (string, func(), error) {
	dir, err := os.MkdirTemp(filepath.Join(s.dir, "tmp"), "w-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// cacheID names a repository's directory under repos/.
func cacheID(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:16])
}

// checkJob refuses an id that could leave its directory or would be no valid part of a ref.
func checkJob(job fleet.JobID) error {
	ok := len(job) > 0 && len(job) <= 128 && !strings.HasSuffix(string(job), ".lock") && !strings.Contains(string(job), "..")
	for i, c := range []byte(job) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && i < len(job)-1 && (c == '-' || c == '_' || c == '.'))
	}
	if !ok {
		return fault(fleet.BadRequest, nil, "job id %q is not usable in a path; it may hold letters, digits, '-', '_' and '.' inside", job)
	}
	return nil
}
