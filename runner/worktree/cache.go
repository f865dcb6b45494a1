package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// A cache is one bare repository that all jobs of a repository share:
//
//	repos/ID/lock        whoever holds its flock may fetch and add worktrees
//	repos/ID/address     the URL or key, for people
//	repos/ID/g1.git      the cache; of several, the greatest number is in use
//	repos/ID/g1.reason   why g1 was set aside
//
// A damaged cache stays where it is with all its refs, because worktrees of other jobs stand on it; the next generation
// is made beside it. Inside, remote branches are at refs/remotes/origin, and only job branches and what agents make
// themselves are at refs/heads. What this package adds for a job:
//
//	refs/tugline/base/JOB            its starting commit
//	refs/tugline/input/JOB           the head of the bundle it came with
//	refs/tugline/extra/JOB/…         further refs it asked for
//	refs/tugline/rescue/JOB/FENCE    what an attempt left that is not on the branch
//	refs/tugline/kept/JOB/FENCE/…    branches and stashes of an attempt, and what a branch was before it was reused
type cache struct {
	id   string
	path string
	git  git // works on this cache
	url  string
	hold *hold
}

const generationForm = "g%d.git"

// generations lists the numbers of a repository's caches, ascending.
func (s *Store) generations(id string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "repos", id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".git")
		if n, err := strconv.Atoi(strings.TrimPrefix(digits, "g")); ok && err == nil && e.Name() == fmt.Sprintf(generationForm, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// isAside says that a generation was set aside.
func (s *Store) isAside(id string, n int) bool {
	return exists(filepath.Join(s.dir, "repos", id, "g"+strconv.Itoa(n)+".reason"))
}

// cacheAt gives a view of one generation without a lock, for work on a job's own refs and objects.
func (s *Store) cacheAt(id, generation, url string) *cache {
	path := filepath.Join(s.dir, "repos", id, generation)
	return &cache{id: id, path: path, git: s.remoteGit().in(path), url: url}
}

// current opens the cache in use, or makes the first one. The caller holds the lock.
func (s *Store) current(ctx context.Context, h *hold, id, url, address string) (*cache, error) {
	all, err := s.generations(id)
	if err != nil {
		return nil, fmt.Errorf("open repository cache: %w", err)
	}
	if len(all) == 0 {
		return s.create(ctx, h, id, 1, url, address)
	}
	n := all[len(all)-1]
	if s.isAside(id, n) { // the one after it was evicted, or never made
		return s.create(ctx, h, id, n+1, url, address)
	}
	c := s.cacheAt(id, fmt.Sprintf(generationForm, n), url)
	c.hold = h
	if err := c.git.isSound(ctx, c.path); err != nil {
		return s.quarantine(ctx, c, address, err)
	}
	if err := s.scrub(ctx, c); err != nil {
		return nil, fmt.Errorf("open repository cache: %w", err)
	}
	return c, nil
}

// isSound is the cheap check: the directory is a repository that git opens.
func (g git) isSound(ctx context.Context, path string) error {
	for _, part := range []string{"objects", "refs"} {
		if !isDir(filepath.Join(path, part)) {
			return fmt.Errorf("%s is missing in the cache", part)
		}
	}
	_, err := g.line(ctx, path, "rev-parse", "--git-dir")
	return err
}

// create makes an empty cache and moves it into place whole.
func (s *Store) create(ctx context.Context, h *hold, id string, n int, url, address string) (*cache, error) {
	tmp, done, err := s.tempDir()
	if err != nil {
		return nil, fmt.Errorf("make repository cache: %w", err)
	}
	defer done()
	bare := filepath.Join(tmp, "bare")
	if _, err := s.git.line(ctx, tmp, "init", "--quiet", "--bare", "--template=", "--", bare); err != nil {
		return nil, fmt.Errorf("make repository cache: %w", err)
	}
	for _, sub := range []string{"info", "worktrees"} {
		if err := os.MkdirAll(filepath.Join(bare, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make repository cache: %w", err)
		}
	}
	config := filepath.Join(bare, "config")
	if err := errors.Join(appendFile(config, cacheConfig(url)), os.Chmod(config, 0o600)); err != nil {
		return nil, fmt.Errorf("make repository cache: %w", err)
	}
	home := filepath.Join(s.dir, "repos", id)
	if err := os.WriteFile(filepath.Join(home, "address"), []byte(address+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("make repository cache: %w", err)
	}
	name := fmt.Sprintf(generationForm, n)
	if err := os.Rename(bare, filepath.Join(home, name)); err != nil {
		return nil, fmt.Errorf("make repository cache: %w", err)
	}
	c := s.cacheAt(id, name, url)
	c.hold = h
	return c, nil
}

// cacheConfig is what a cache's own configuration says beyond what git init wrote. It holds for agents too.
func cacheConfig(url string) string {
	text := "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n"
	if url != "" {
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(url)
		text += "[remote \"origin\"]\n\turl = \"" + quoted + "\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
	}
	return text
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// quarantine sets a damaged cache aside and begins the next generation. The caller holds the lock.
func (s *Store) quarantine(ctx context.Context, c *cache, address string, why error) (*cache, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c.path), "g"), ".git"))
	if err != nil {
		return nil, fmt.Errorf("set aside %s: %w", c.path, err)
	}
	note := fmt.Sprintf("%s set aside: %v\n", time.Now().UTC().Format(time.RFC3339), why)
	if err := os.WriteFile(strings.TrimSuffix(c.path, ".git")+".reason", []byte(note), 0o600); err != nil {
		return nil, fmt.Errorf("set aside %s: %w", c.path, err)
	}
	s.log.Warn("damaged repository cache set aside", "path", c.path, "err", why)
	c.hold.gate.what = ""
	return s.create(ctx, c.hold, c.id, n+1, c.url, address)
}

// damaged decides whether a failure comes from the cache itself. Only a failure that says so is looked into, because the
// check reads every object's header.
func (c *cache) damaged(ctx context.Context, err error) bool {
	var failed *gitError
	if !errors.As(err, &failed) || failed.exit < 0 || !damageText(failed.stderr) {
		return false
	}
	if c.git.isSound(ctx, c.path) != nil {
		return true
	}
	_, check := c.git.run(ctx, call{dir: c.path, args: []string{"fsck", "--connectivity-only", "--no-dangling", "--no-progress"}})
	if check == nil {
		// Connectivity looks at names, not at contents: what it passed may still be unreadable.
		_, check = c.git.run(ctx, call{dir: c.path, args: []string{"fsck", "--no-dangling", "--no-progress"}})
	}
	return errors.As(check, &failed) && failed.exit > 0
}

// fetch brings the remote's branches and tags up to date.
func (s *Store) fetch(ctx context.Context, c *cache, req Request, arrived time.Time, more []string) error {
	c.sweep()
	if err := c.dropSymbolic(ctx); err != nil {
		return err
	}
	args := []string{"fetch", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--progress", "--update-shallow", "--upload-pack=git-upload-pack"}
	empty, err := c.isEmpty(ctx)
	if err != nil {
		return err
	}
	shallow := exists(filepath.Join(c.path, "shallow"))
	switch {
	case req.Depth > 0 && (empty || shallow):
		args = append(args, "--depth="+strconv.Itoa(req.Depth))
	case req.Depth == 0 && shallow && !s.sourceIsShallow(ctx, c.url):
		args = append(args, "--unshallow")
	}
	if req.Filter != "" && empty {
		args = append(args, "--filter="+req.Filter)
	}
	what := strings.Join(append(slices.Clone(args), more...), " ")
	if c.hold.gate.what == what && len(more) == 0 && c.hold.gate.begun.After(arrived) {
		return nil
	}
	begun := time.Now()
	all := append(slices.Clone(args), "--force", "--prune", "--tags", "--", "origin", "+refs/heads/*:refs/remotes/origin/*")
	if err := s.transfer(ctx, c, req, all); err != nil {
		return err
	}
	for _, spec := range more {
		if err := s.transfer(ctx, c, req, append(slices.Clone(args), "--no-tags", "--", "origin", spec)); err != nil {
			return err
		}
	}
	c.hold.gate.begun, c.hold.gate.what = begun, what
	return nil
}

// transfer runs one fetch from the remote, whose address is written anew because an agent may have changed it; the
// file that it is in is its owner's alone again.
func (s *Store) transfer(ctx context.Context, c *cache, req Request, args []string) error {
	return s.patiently(ctx, c.hold, c.path, func() error {
		if was, _ := c.git.list(ctx, c.path, "config", "-z", "--local", "--get-all", "remote.origin.url"); len(was) != 1 || was[0] != c.url {
			if _, err := c.git.line(ctx, c.path, "config", "--replace-all", "remote.origin.url", c.url); err != nil {
				return err
			}
		}
		if err := os.Chmod(filepath.Join(c.path, "config"), 0o600); err != nil {
			return err
		}
		_, err := c.git.run(ctx, call{dir: c.path, args: args, stall: s.git.stall, progress: req.Progress, remote: c.url})
		return err
	})
}

// sweep deletes what transfers left that were cut off long ago.
func (c *cache) sweep() {
	sweepOld(filepath.Join(c.path, "objects", "pack"), "tmp_")
}

// dropSymbolic removes refs of the remote that stand for other refs: a fetch would leave them, and what they stand for may
// be an agent's.
func (c *cache) dropSymbolic(ctx context.Context) error {
	refs, err := c.git.line(ctx, c.path, "for-each-ref", "--format=%(refname) %(symref)", "refs/remotes")
	for l := range strings.Lines(refs) {
		if ref, to, _ := strings.Cut(strings.TrimSpace(l), " "); err == nil && to != "" {
			_, err = c.git.line(ctx, c.path, "symbolic-ref", "--delete", ref)
		}
	}
	return err
}

const leftoverAge = 24 * time.Hour

// sweepOld deletes entries of a directory that begin with prefix and were not changed for a day: nobody works on them.
func sweepOld(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > leftoverAge {
			_ = removeAll(filepath.Join(dir, e.Name()))
		}
	}
}

func (c *cache) isEmpty(ctx context.Context) (bool, error) {
	out, err := c.git.line(ctx, c.path, "for-each-ref", "--count=1", "--format=x")
	return out == "", err
}

// sourceIsShallow says that a repository on this disk is itself shallow, so that there is nothing to deepen from.
func (s *Store) sourceIsShallow(ctx context.Context, url string) bool {
	path := strings.TrimPrefix(url, "file://")
	if !filepath.IsAbs(path) {
		return false
	}
	out, err := s.git.line(ctx, path, "rev-parse", "--is-shallow-repository")
	return err == nil && out == "true"
}

// Tips lists commits that the cache of a repository has, so that a submitter sends only what is beyond them; at most
// limit, newest first. A repository that was never seen has none.
func (s *Store) Tips(ctx context.Context, url, key string, limit int) ([]string, error) {
	identity, err := s.cacheIdentity(url, key)
	if err != nil {
		return nil, err
	}
	id := cacheID(identity)
	all, err := s.generations(id)
	if err != nil || len(all) == 0 || s.isAside(id, all[len(all)-1]) {
		return nil, err
	}
	c := s.cacheAt(id, fmt.Sprintf(generationForm, all[len(all)-1]), url)
	out, err := c.git.line(ctx, c.path, "for-each-ref", "--count="+strconv.Itoa(max(limit, 1)*4), "--sort=-creatordate",
		"--format=%(objecttype) %(objectname)", "refs/remotes", "refs/tugline/input", "refs/tugline/base", "refs/heads")
	if err != nil {
		return nil, fmt.Errorf("list tips of %s: %w", Redact(identity), err)
	}
	var tips []string
	for l := range strings.Lines(out) {
		sha, ok := strings.CutPrefix(strings.TrimSpace(l), "commit ")
		if ok && !slices.Contains(tips, sha) && len(tips) < limit {
			tips = append(tips, sha)
		}
	}
	return tips, nil
}

// cacheIdentity is what two requests must have in common to share a cache.
func (s *Store) cacheIdentity(url, key string) (string, error) {
	if url != "" {
		if err := s.checkURL(url); err != nil {
			return "", err
		}
		return canonical(url), nil
	}
	if key == "" || len(key) > 256 || strings.ContainsAny(key, "\x00\n/") {
		return "", fault(fleet.BadRequest, nil, "a job without a repository address needs a cache key, such as the root commit of the repository that was handed over")
	}
	return "key:" + key, nil
}
