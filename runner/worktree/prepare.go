package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// A Request says from what a job's worktree is made.
type Request struct {
	Job   fleet.JobID
	Fence fleet.Fence
	// URL is what git can fetch: https, ssh, and where the owner allows it a file URL or an absolute path.
	// It may be empty for a repository that came as a bundle only; then Key names its cache.
	URL string
	Key string
	// Ref is a branch, a tag, a full ref or a commit; "" is the remote's HEAD.
	Ref string
	// BaseCommit is the exact starting commit where it is known; it wins over Ref.
	BaseCommit string
	// Bundle is the path of a git bundle from the submitter. What it builds on must be in the cache or at URL.
	Bundle string
	// Input is, for Rebuild, the submitter's bundle on which the result bundle may build.
	Input string
	// ExtraRefs are further refs to fetch. Full ones outside heads and tags land under refs/tugline/extra/JOB.
	ExtraRefs []string
	// Depth cuts history at so many commits, 0 is all; Filter makes a partial clone ("blob:none",
	// "blob:limit=1m", "tree:0"). A cache that is already complete stays complete.
	Depth  int
	Filter string
	// Branch is the job's branch; tugline/JOB if "".
	Branch string
	// Env is added to git's environment, for a credential helper.
	Env []string
	// Progress gets one line about what is going on, at most four a second; it must not block.
	Progress func(detail string)
}

func defaultBranch(job fleet.JobID) string { return "tugline/" + string(job) }

func (r *Request) tell(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// Prepare makes the worktree of a job at DIR/work/JOB/NAME, on the job's branch, at its base. Called again for the same
// fence it gives the same tree. For a newer fence of the same job it first saves what the earlier attempt left and begins
// anew at the base; where that cannot be saved, it fails with fleet.Conflict and leaves everything as it is.
// A repository without any commit gives a tree with an empty Base and an unborn branch.
//
// Codes: repo_auth, repo_unreachable, repo_missing, ref_missing, input_missing (the bundle builds on commits that are not
// here), owner_policy, storage, bad_request, conflict.
func (s *Store) Prepare(ctx context.Context, req Request) (*Tree, error) {
	return s.establish(ctx, req, false)
}

// establish is Prepare, or with resume Rebuild's second way: the branch starts at the bundle's head instead of the base.
func (s *Store) establish(ctx context.Context, req Request, resume bool) (*Tree, error) {
	arrived := time.Now()
	if req.Branch == "" {
		req.Branch = defaultBranch(req.Job)
	}
	name := (&fleet.Repo{URL: req.URL, CacheKey: req.Key}).CacheOf() // of the address as it was given
	identity, err := s.checkRequest(ctx, &req)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, "work", string(req.Job), baseName(req.URL))
	rec, err := s.load(req.Job)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		path = rec.Path
		if !resume && rec.State == stateReady && rec.Fence == req.Fence && isDir(rec.Path) {
			return s.tree(rec), nil
		}
		if err := s.clearLocked(ctx, rec); err != nil {
			return nil, fmt.Errorf("prepare worktree of job %s: %w", req.Job, err)
		}
	} else if exists(path) {
		return nil, fault(fleet.Conflict, nil, "%s exists and was not made by this runner; move it away, then retry the job", path)
	}
	was := &record{}
	if rec != nil {
		if was, err = s.load(req.Job); err != nil { // what was saved of the earlier tree is noted in it
			return nil, err
		}
	}
	rec = &record{
		Published: was.Published, Delivered: was.Delivered, Given: was.Given, Results: was.Results, Bases: was.Bases, Job: req.Job, Fence: req.Fence, State: statePreparing, URL: req.URL, Key: req.Key, Cache: cacheID(identity),
		Path: path, Branch: req.Branch, Ref: req.Ref,
	}
	for try := 1; ; try++ {
		c, err := s.build(ctx, req, rec, identity, arrived, resume)
		if err == nil {
			s.use(rec.Cache, name)
			return s.tree(rec), nil
		}
		if try == 2 || c == nil || !s.replaceDamaged(ctx, c, identity, err) {
			return nil, fmt.Errorf("prepare worktree of job %s: %w", req.Job, err)
		}
		req.tell("the cache of this repository was damaged; fetching it again")
		if err := s.discard(rec); err != nil {
			return nil, err
		}
		arrived = time.Now()
	}
}

func (s *Store) checkRequest(ctx context.Context, req *Request) (identity string, err error) {
	if err := checkJob(req.Job); err != nil {
		return "", err
	}
	identity, err = s.cacheIdentity(req.URL, req.Key)
	if err != nil {
		return "", err
	}
	if req.URL != "" {
		req.URL = canonical(req.URL)
	}
	if req.BaseCommit != "" {
		if err := checkCommit("base commit", req.BaseCommit); err != nil {
			return "", err
		}
	}
	if req.Depth < 0 || req.Filter != "" && !filterForm().MatchString(req.Filter) {
		return "", fault(fleet.BadRequest, nil, "depth %d or filter %q is not usable; a depth is at least 0, a filter is blob:none, blob:limit=N or tree:N", req.Depth, req.Filter)
	}
	for _, bundle := range []string{req.Bundle, req.Input} {
		if bundle != "" && !filepath.IsAbs(bundle) {
			return "", fault(fleet.BadRequest, nil, "bundle path %q is not absolute", bundle)
		}
	}
	names := slices.Clone(req.ExtraRefs)
	if req.Branch != defaultBranch(req.Job) {
		names = append(names, req.Branch)
	}
	if req.Ref != "" && !isSHA(req.Ref) {
		names = append(names, req.Ref)
	}
	for _, ref := range names {
		if err := s.git.checkRef(ctx, s.dir, "ref", ref); err != nil {
			return "", err
		}
	}
	if strings.HasPrefix(req.Branch, "refs/") {
		return "", fault(fleet.BadRequest, nil, "branch %q must be given without refs/", req.Branch)
	}
	return identity, nil
}

// build is one try. The cache is returned also with an error, once there is one.
func (s *Store) build(ctx context.Context, req Request, rec *record, identity string, arrived time.Time, resume bool) (*cache, error) {
	req.tell("waiting for the repository's cache")
	h, err := s.lock(ctx, rec.Cache)
	if err != nil {
		return nil, err
	}
	c, err := func() (*cache, error) {
		defer h.release()
		c, err := s.current(ctx, h, rec.Cache, req.URL, identity)
		if err != nil {
			return nil, err
		}
		c.git = c.git.with(req.Env...)
		got, err := s.obtain(ctx, c, req, arrived)
		if err != nil {
			return c, err
		}
		start := got.base
		switch {
		case resume && got.head != "":
			start = got.head
			rec.Delivered = remember(rec.Delivered, span{got.base, got.head}) // it came from the hub
		case got.head != "":
			got.given = append(got.given, got.head)
		}
		rec.Given = remember(rec.Given, got.given...)
		rec.Base, rec.Generation = got.base, filepath.Base(c.path)
		return c, s.addWorktree(ctx, c, rec, start)
	}()
	if err != nil {
		return c, err
	}
	if err := s.fill(ctx, rec, req); err != nil {
		return c, err
	}
	rec.State = stateReady
	return c, s.save(rec)
}

// replaceDamaged sets c aside if err comes from its damage, unless somebody else already did.
func (s *Store) replaceDamaged(ctx context.Context, c *cache, identity string, err error) bool {
	if !c.damaged(ctx, err) {
		return false
	}
	h, lockErr := s.lock(ctx, c.id)
	if lockErr != nil {
		return false
	}
	defer h.release()
	if all, genErr := s.generations(c.id); genErr != nil || fmt.Sprintf(generationForm, all[len(all)-1]) != filepath.Base(c.path) {
		return genErr == nil
	}
	c.hold = h
	if _, err := s.quarantine(ctx, c, identity, err); err != nil {
		s.log.Error("damaged repository cache could not be set aside", "path", c.path, "err", err)
		return false
	}
	return true
}

func isDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
