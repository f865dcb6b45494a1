package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	packEvery   = 7 * 24 * time.Hour  // at least, between two times that a cache is packed
	objectsKept = 14 * 24 * time.Hour // objects that nothing refers to
)

// CacheEvidence is what the records and git say of one cache.
type CacheEvidence struct {
	Busy        bool // a job here uses its repository
	Worktrees   int  // that stand on it
	LastUse     time.Time
	Quarantined string    // why it was set aside; "" if it is in use
	Unclear     string    // why nothing can be proved of it
	Only        []string  // refs with commits that may be nowhere else
	Contents    int       // of Git LFS that no remote is known to have
	Waits       time.Time // until when refs are kept that may go later; zero without any
}

// A Cache is one repository's cache, with what is known of it and what becomes of it.
type Cache struct {
	Repository string // address, without credentials, or key
	Path       string
	CacheEvidence
	Decision
	Commands []string // save, each for itself, what is here alone
}

// DecideCache says what is done with a cache. It is total. Nothing that may be here alone goes, and a cache that was set
// aside stays for a person.
func DecideCache(e CacheEvidence, k Keeps, now time.Time) Decision {
	expires := e.LastUse.Add(k.Cache)
	switch {
	case e.Quarantined != "":
		return Decision{Do: Look, Why: e.Quarantined}
	case e.Busy:
		return Decision{Do: Keep, Why: "a job uses it"}
	case e.Worktrees > 0:
		return Decision{Do: Keep, Why: fmt.Sprintf("%d worktrees stand on it", e.Worktrees)}
	case e.Unclear != "":
		return Decision{Do: Look, Why: e.Unclear}
	case len(e.Only) > 0:
		return Decision{Do: Keep, Why: fmt.Sprintf("%d refs of it have commits that are neither with the remote nor at the hub", len(e.Only))}
	case e.Contents > 0:
		return Decision{Do: Keep, Why: fmt.Sprintf("%d files of Git LFS are in it that no remote is known to have", e.Contents)}
	case !e.Waits.IsZero() && k.Rescue < 0:
		return Decision{Do: Keep, Why: "the owner keeps without limit what was saved"}
	case now.Before(e.Waits):
		return Decision{Do: Keep, Why: "it holds what was saved of a job", Until: e.Waits}
	case k.Cache < 0:
		return Decision{Do: Keep, Why: "the owner keeps caches without limit"}
	case now.Before(expires):
		return Decision{Do: Keep, Why: "its last use is not long ago", Until: expires}
	}
	return Decision{Do: Delete, Why: "no job has used it for long, and all of it is published"}
}

// AllCaches looks at every cache, also those set aside, and changes nothing.
func (s *Store) AllCaches(ctx context.Context, p Policy) ([]Cache, error) {
	repos, err := os.ReadDir(filepath.Join(s.dir, "repos"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	recs, strange, err := s.allRecords()
	if err != nil {
		return nil, err
	}
	var all []Cache
	for _, e := range repos {
		gens, err := s.generations(e.Name())
		if err != nil {
			return nil, err
		}
		for _, n := range gens {
			c, err := s.cacheNow(ctx, e.Name(), n, recs, strange, p)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// allRecords gives the records, also of jobs whose workspace is gone. One that can't be read may be of any cache: strange
// says so.
func (s *Store) allRecords() (recs []*record, strange string, err error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "jobs", "*.json"))
	if err != nil {
		return nil, "", err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		rec, err := parseRecord(data)
		if err != nil {
			strange = "the record " + f + " can't be read: " + oneLine(err)
			continue
		}
		recs = append(recs, rec)
	}
	return recs, strange, nil
}

func (s *Store) cacheNow(ctx context.Context, id string, n int, recs []*record, strange string, p Policy) (Cache, error) {
	name := fmt.Sprintf(generationForm, n)
	c := s.cacheAt(id, name, "")
	address, _ := os.ReadFile(filepath.Join(s.dir, "repos", id, "address"))
	out := Cache{Repository: Redact(strings.TrimSpace(string(address))), Path: c.path, CacheEvidence: CacheEvidence{Unclear: strange}}
	aside := s.isAside(id, n)
	if aside {
		why, _ := os.ReadFile(strings.TrimSuffix(c.path, ".git") + ".reason")
		out.Quarantined = "it was set aside: " + strings.TrimSpace(string(why))
	}
	var own []*record
	for _, rec := range recs {
		if rec.Cache == id && rec.Generation == name {
			own = append(own, rec)
			out.Busy = out.Busy || p.Busy(rec.Job)
			if rec.State != stateRemoved {
				out.Worktrees++
			}
			if rec.At.After(out.LastUse) {
				out.LastUse = rec.At
			}
		}
	}
	marks, _ := filepath.Glob(filepath.Join(s.dir, "repos", id, usedDir, "*"))
	for _, f := range append(marks, filepath.Join(s.dir, "repos", id, "address")) {
		if st, err := os.Stat(f); err == nil && st.ModTime().After(out.LastUse) {
			out.LastUse = st.ModTime()
		}
	}
	registered, err := os.ReadDir(filepath.Join(c.path, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	out.Worktrees = max(out.Worktrees, len(registered))
	if !out.Busy && out.Worktrees == 0 && out.Unclear == "" && !aside {
		if out.Contents, err = c.lfsOwn(); err == nil {
			err = s.onlyHere(ctx, c, own, p.Rescue, []string{"--remotes"}, &out.CacheEvidence)
		}
		var failed *gitError
		if err != nil && ctx.Err() == nil && errors.As(err, &failed) {
			out.Unclear, err = "git can't tell: "+oneLine(err), nil
		}
		if err != nil {
			return out, err
		}
	}
	out.Decision = DecideCache(out.CacheEvidence, p.Keeps, s.now())
	if len(out.Only)+out.Contents > 0 || out.Do == Look {
		out.Commands = []string{copyCommand(out.Path, id+"-"+name)}
	}
	return out, nil
}

// onlyHere finds the refs of a cache whose commits are not known to be elsewhere. What was saved of files, and what was
// left behind of commits, may go when it was kept for long enough; anything else never by itself. remotes are the arguments
// of git for the refs of remotes that count.
func (s *Store) onlyHere(ctx context.Context, c *cache, recs []*record, keep time.Duration, remotes []string, e *CacheEvidence) error {
	if err := c.git.isSound(ctx, c.path); err != nil {
		e.Unclear = oneLine(err)
		return nil
	}
	k, _, err := elsewhere(ctx, c.git, c.path, recs, remotes...)
	if err != nil {
		return err
	}
	refs, err := c.git.line(ctx, c.path, "for-each-ref", "--format=%(objecttype) %(objectname) %(committerdate:unix) %(refname)")
	if err != nil {
		return err
	}
	for l := range strings.Lines(refs) {
		f := strings.Fields(l)
		if len(f) == 3 { // no commit has a date
			f = []string{f[0], f[1], "0", f[2]}
		}
		if len(f) != 4 || hasAnyPrefix(f[3], "refs/remotes/", "refs/tags/") {
			continue
		}
		if f[0] != "commit" {
			e.Only = append(e.Only, f[3])
			continue
		}
		rescue, dropped := strings.HasPrefix(f[3], "refs/tugline/rescue/"), strings.HasPrefix(f[3], "refs/tugline/kept/") && strings.HasSuffix(f[3], "/"+droppedName)
		out, err := k.beyond(ctx, f[1:2], "--format=%H %(trailers:key=Tugline-Commit,valueonly,separator=%x2C)", "--no-commit-header")
		if err != nil {
			return err
		}
		if out == "" {
			continue
		}
		for line := range strings.Lines(out) {
			_, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
			rescue = rescue && kind == "rescue"
		}
		if !rescue && !dropped {
			e.Only = append(e.Only, f[3])
			continue
		}
		made, _ := strconv.ParseInt(f[2], 10, 64)
		if until := time.Unix(made, 0).Add(max(keep, 0)); until.After(e.Waits) {
			e.Waits = until
		}
	}
	return s.onlyStashed(ctx, c, k, e)
}

// onlyTagged finds the tags whose commits are not known to be elsewhere.
func (c *cache) onlyTagged(ctx context.Context, recs []*record, remotes []string) (tags []string, err error) {
	k, _, err := elsewhere(ctx, c.git, c.path, recs, remotes...)
	if err != nil {
		return nil, err
	}
	refs, err := c.git.line(ctx, c.path, "for-each-ref", "--format=%(refname) %(objectname) %(objecttype) %(*objectname) %(*objecttype)", "refs/tags")
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(refs) {
		f := strings.Fields(l)
		if len(f) < 3 {
			continue
		}
		own := "?" // what is no commit has no history
		if at := len(f) - 2; f[at+1] == "commit" {
			if own, err = k.beyond(ctx, f[at:at+1], "--count"); err != nil {
				return nil, err
			}
		}
		if strings.TrimSpace(own) != "0" {
			tags = append(tags, f[0]+" "+f[1])
		}
	}
	return tags, nil
}

// onlyStashed looks at the stashes behind the newest, which no ref names.
func (s *Store) onlyStashed(ctx context.Context, c *cache, k known, e *CacheEvidence) error {
	if has, err := c.git.commit(ctx, c.path, "refs/stash"); err != nil || has == "" {
		return err
	}
	out, err := c.git.line(ctx, c.path, "log", "-g", "--format=%H", "refs/stash", "--")
	for sha := range strings.Lines(out) {
		if err != nil {
			break
		}
		var own string
		if own, err = k.beyond(ctx, []string{strings.TrimSpace(sha)}, "--count"); err == nil && strings.TrimSpace(own) != "0" {
			e.Only = append(e.Only, "a stash")
		}
	}
	return err
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// retainCaches evicts and packs what may be.
func (s *Store) retainCaches(ctx context.Context, p Policy, out *Retained) error {
	all, err := s.AllCaches(ctx, p)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b Cache) int { return a.LastUse.Compare(b.LastUse) })
	var failed []error
	for _, c := range all {
		gone, enough := false, p.Enough != nil && p.Enough()
		if !enough && c.Quarantined == "" && !c.Busy && c.Worktrees == 0 {
			if c, gone, err = s.retainCache(ctx, c, p, out); err != nil {
				failed = append(failed, fmt.Errorf("retain the cache of %s: %w", c.Repository, err))
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if gone {
			out.Evicted = append(out.Evicted, c)
		} else {
			out.Caches = append(out.Caches, c)
		}
	}
	return errors.Join(failed...)
}

// retainCache deals with one cache on which no worktree stands, under its lock.
func (s *Store) retainCache(ctx context.Context, c Cache, p Policy, out *Retained) (Cache, bool, error) {
	home := filepath.Dir(c.Path)
	id := filepath.Base(home)
	hold, err := s.briefly(ctx, id)
	if err != nil || hold == nil {
		return c, false, err
	}
	defer hold.release()
	gens, err := s.generations(id)
	if err != nil || len(gens) == 0 || fmt.Sprintf(generationForm, slices.Max(gens)) != filepath.Base(c.Path) {
		return c, false, err
	}
	recs, strange, err := s.allRecords()
	if err != nil {
		return c, false, err
	}
	if c, err = s.cacheNow(ctx, id, slices.Max(gens), recs, strange, p); err != nil || c.Busy || c.Worktrees > 0 {
		return c, false, err
	}
	if c.Do == Delete {
		if c, err = s.askRemote(ctx, hold, c, recs, p); err != nil {
			return c, false, err
		}
	}
	if c.Do == Delete {
		bytes := SizeOf(c.Path)
		if err := s.evict(hold, c, recs); err != nil {
			return c, false, err
		}
		out.Bytes += bytes
		return c, true, nil
	}
	mark := filepath.Join(home, "packed")
	if st, err := os.Stat(mark); err == nil && (s.now().Sub(st.ModTime()) < packEvery || !c.LastUse.After(st.ModTime())) || c.Unclear != "" {
		return c, false, nil
	}
	packed := s.cacheAt(id, filepath.Base(c.Path), c.Repository)
	packed.hold = hold
	if err := errors.Join(s.scrub(ctx, packed), s.pack(ctx, packed)); err != nil {
		return c, false, err
	}
	out.Packed++
	now := s.now()
	return c, false, errors.Join(os.WriteFile(mark, nil, 0o600), os.Chtimes(mark, now, now))
}

// askRemote fetches before a cache goes in which commits are proved by nothing but refs of the remote as they once were
// or as an agent has made them: the remote itself says what it has. A remote that can't be asked keeps the cache.
func (s *Store) askRemote(ctx context.Context, h *hold, c Cache, recs []*record, p Policy) (Cache, error) {
	id, name := filepath.Base(filepath.Dir(c.Path)), filepath.Base(c.Path)
	url := ""
	var own []*record
	for _, rec := range recs {
		if rec.Cache == id && rec.Generation == name {
			own = append(own, rec)
			url = cmp.Or(url, rec.URL)
		}
	}
	bare := s.cacheAt(id, name, url)
	bare.hold = h
	found := func(remotes ...string) (only, tags []string, err error) {
		var e CacheEvidence
		if err = s.onlyHere(ctx, bare, own, p.Rescue, remotes, &e); err == nil {
			tags, err = bare.onlyTagged(ctx, own, remotes)
		}
		return e.Only, tags, err
	}
	only, tags, err := found()
	if err != nil || len(only)+len(tags) == 0 {
		return c, err
	}
	if url != "" {
		has, err := s.remoteHas(ctx, bare, len(tags) > 0)
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		if err != nil {
			c.Decision = Decision{Do: Keep, Why: fmt.Sprintf("%d refs of it have commits of jobs, and the remote can't be asked whether it has them: %s", len(only)+len(tags), oneLine(err))}
			return c, nil
		}
		if only, tags, err = found(remoteRefs); err != nil {
			return c, err
		}
		tags = slices.DeleteFunc(tags, func(tag string) bool { return has[tag] })
	}
	if c.Only = append(only, tags...); len(c.Only) > 0 {
		c.Decision = DecideCache(c.CacheEvidence, p.Keeps, s.now())
	}
	return c, nil
}

// remoteHas brings the branches of a remote up to date, and gives its tags, as "NAME OBJECT".
func (s *Store) remoteHas(ctx context.Context, c *cache, tags bool) (map[string]bool, error) {
	if err := errors.Join(s.scrub(ctx, c), c.dropSymbolic(ctx)); err != nil {
		return nil, err
	}
	err := s.transfer(ctx, c, Request{}, []string{"fetch", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--no-tags",
		"--force", "--prune", "--upload-pack=git-upload-pack", "--", "origin", "+refs/heads/*:refs/remotes/origin/*"})
	if err != nil || !tags {
		return nil, err
	}
	out, err := c.git.run(ctx, call{dir: c.path, stall: s.git.stall, remote: c.url, args: []string{"ls-remote", "--tags", "--", c.url}})
	has := map[string]bool{}
	for l := range strings.Lines(out) {
		if sha, name, ok := strings.Cut(strings.TrimSpace(l), "\t"); ok {
			has[name+" "+sha] = true
		}
	}
	return has, err
}

// evict deletes a cache, with the records of jobs that could be built again from it. The lock stays.
func (s *Store) evict(h *hold, c Cache, recs []*record) error {
	home := filepath.Dir(c.Path)
	trash, err := os.MkdirTemp(filepath.Join(s.dir, "trash"), "cache-")
	if err != nil {
		return err
	}
	if err := os.Rename(c.Path, filepath.Join(trash, "bare")); err != nil {
		return err
	}
	h.gate.what = "" // what was fetched is not here any more
	for _, rec := range recs {
		if rec.Cache == filepath.Base(home) && rec.Generation == filepath.Base(c.Path) && rec.State == stateRemoved {
			if err := os.Remove(s.recordPath(rec.Job)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	_ = os.Remove(strings.TrimSuffix(c.Path, ".git") + ".lfs")
	return errors.Join(removeAll(trash), removeAll(filepath.Join(home, usedDir)), os.RemoveAll(filepath.Join(home, "packed")))
}

// pack is git's own housekeeping, with nothing live on the cache: refs and objects in packs, and what nothing refers to,
// neither a ref nor a log of one, goes two weeks after it was made.
func (s *Store) pack(ctx context.Context, c *cache) error {
	since := fmt.Sprintf("%d", s.now().Add(-objectsKept).Unix())
	for _, args := range [][]string{
		{"pack-refs", "--all", "--prune"},
		{"repack", "-A", "-d", "-l", "-q", "--unpack-unreachable=" + since},
		{"prune", "--expire=" + since},
	} {
		if _, err := c.git.line(ctx, c.path, args...); err != nil {
			return err
		}
	}
	return nil
}
