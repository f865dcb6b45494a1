package worktree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

var shortSHA = lazily(`^[0-9a-f]{7,64}$`)

// obtained is what a job is to begin with.
type obtained struct {
	base  string
	head  string   // of the bundle, ""
	given []string // commits that the remote or the submitter's input have given now
}

// obtain makes sure that the base is in the cache and gives it, with the head of the bundle if there was one. The remote
// is asked only when something is missing or a name has to be looked up. The caller holds the lock.
func (s *Store) obtain(ctx context.Context, c *cache, req Request, arrived time.Time) (got obtained, err error) {
	more := extraSpecs(req)
	fetched := false
	fetch := func() error {
		if fetched {
			return nil
		}
		if req.URL == "" {
			return fault(fleet.InputMissing, nil, "the base commit is not on this runner, and there is no repository address to fetch it from; submit the job again with a complete bundle")
		}
		req.tell("fetching %s", Redact(req.URL))
		fetched = true
		return s.fetch(ctx, c, req, arrived, more)
	}
	if len(more) > 0 {
		if err := fetch(); err != nil {
			return got, err
		}
		if got.given, err = c.extras(ctx, req); err != nil {
			return got, err
		}
	}
	take := func(bundle string) (string, error) {
		r := req
		r.Bundle = bundle
		head, err := s.takeBundle(ctx, c, r)
		if errors.Is(err, fleet.InputMissing) && req.URL != "" {
			if err := fetch(); err != nil {
				return "", err
			}
			head, err = s.takeBundle(ctx, c, r)
		}
		return head, err
	}
	if req.Input != "" {
		if has, err := c.git.commit(ctx, c.path, req.BaseCommit); err != nil {
			return got, err
		} else if has == "" {
			input, err := take(req.Input)
			if err != nil {
				return got, err
			}
			got.given = append(got.given, input)
		}
	}
	if req.Bundle != "" {
		if got.head, err = take(req.Bundle); err != nil {
			return got, err
		}
	}
	want := req.BaseCommit
	switch {
	case want == "" && got.head != "":
		got.base = got.head
		return got, nil
	case want == "" && isSHA(req.Ref):
		want = req.Ref
	}
	if want != "" {
		if got.base, err = c.git.commit(ctx, c.path, want); err != nil || got.base != "" {
			return got, err
		}
	}
	if err := fetch(); err != nil {
		return got, err
	}
	if want == "" {
		got.base, err = s.resolve(ctx, c, req)
	} else {
		got.base, err = c.git.commit(ctx, c.path, want)
	}
	if err == nil && got.base != "" {
		has, err := s.isRemotes(ctx, c, req, got.base)
		if has {
			got.given = append(got.given, got.base)
		}
		return got, err
	}
	if err != nil || want == "" {
		return got, err
	}
	// No branch or tag leads to it any more, or it lies below the depth: many servers give it by name.
	spec := "+" + want + ":refs/tugline/base/" + string(req.Job)
	if err := s.fetch(ctx, c, req, time.Now(), []string{spec}); err != nil {
		if errors.Is(err, fleet.RefMissing) {
			return got, fault(fleet.RefMissing, err, "%s does not have commit %s; push it, or submit the job from the repository that has it", Redact(req.URL), want)
		}
		return got, err
	}
	got.base, err = c.git.commit(ctx, c.path, want)
	if err == nil && got.base == "" {
		err = fault(fleet.RefMissing, nil, "%s does not have commit %s; push it, or submit the job from the repository that has it", Redact(req.URL), want)
	}
	got.given = append(got.given, got.base)
	return got, err
}

// isRemotes says that a commit is the remote's, right after a fetch: a short name may be found on a branch of another job,
// and a tag may be an agent's.
func (s *Store) isRemotes(ctx context.Context, c *cache, req Request, sha string) (bool, error) {
	k := known{git: c.git, dir: c.path, refs: []string{remoteRefs}}
	if has, err := k.has(ctx, sha); err != nil || has || strings.HasPrefix(req.Ref, "refs/heads/") || req.Ref == "" {
		return has, err
	}
	tag := "refs/tags/" + strings.TrimPrefix(req.Ref, "refs/tags/")
	found, err := c.git.lookUp(ctx, c.path, tag, tag+"^{commit}")
	if err != nil || found[1] != sha {
		return false, err
	}
	there, err := s.remoteTip(ctx, c, c.url, tag)
	return there == found[0], err
}

// extras gives the commits of further refs as they were just fetched.
func (c *cache) extras(ctx context.Context, req Request) (shas []string, err error) {
	for _, ref := range slices.Concat(req.ExtraRefs, []string{req.Ref}) {
		if ref == "" || isBranchOrTag(ref) {
			continue
		}
		sha, err := c.git.commit(ctx, c.path, extraRef(req.Job, ref))
		if err != nil {
			return nil, err
		}
		if sha != "" {
			shas = append(shas, sha)
		}
	}
	return shas, nil
}

// extraRef is where a full ref outside of heads and tags is kept for a job.
func extraRef(job fleet.JobID, ref string) string {
	return "refs/tugline/extra/" + string(job) + "/" + strings.TrimPrefix(ref, "refs/")
}

func isBranchOrTag(ref string) bool {
	return !strings.HasPrefix(ref, "refs/") || strings.HasPrefix(ref, "refs/heads/") || strings.HasPrefix(ref, "refs/tags/")
}

// extraSpecs gives the refspecs that the fetch of all branches and tags does not cover.
func extraSpecs(req Request) []string {
	var specs []string
	for _, ref := range slices.Concat(req.ExtraRefs, []string{req.Ref}) {
		if ref != "" && !isBranchOrTag(ref) {
			specs = append(specs, "+"+ref+":"+extraRef(req.Job, ref))
		}
	}
	slices.Sort(specs)
	return slices.Compact(specs)
}

// resolve turns a ref's name into a commit; "" if the repository has none at all.
func (s *Store) resolve(ctx context.Context, c *cache, req Request) (string, error) {
	ref := req.Ref
	var names []string
	switch {
	case ref == "" || ref == "HEAD":
		return s.resolveHead(ctx, c, req)
	case strings.HasPrefix(ref, "refs/heads/"):
		names = []string{"refs/remotes/origin/" + strings.TrimPrefix(ref, "refs/heads/")}
	case strings.HasPrefix(ref, "refs/tags/"):
		names = []string{ref}
	case strings.HasPrefix(ref, "refs/"):
		names = []string{extraRef(req.Job, ref)}
	default:
		names = []string{"refs/remotes/origin/" + ref, "refs/tags/" + ref}
		if shortSHA().MatchString(ref) {
			names = append(names, ref)
		}
	}
	for _, name := range names {
		if sha, err := c.git.commit(ctx, c.path, name); err != nil || sha != "" {
			return sha, err
		}
	}
	return "", fault(fleet.RefMissing, nil, "%s has no branch, tag or commit %q; check the spelling, and that it was pushed", Redact(req.URL), ref)
}

// resolveHead asks the remote what its HEAD is, because a fetch does not say.
func (s *Store) resolveHead(ctx context.Context, c *cache, req Request) (string, error) {
	out, err := c.git.run(ctx, call{dir: c.path, stall: s.git.stall, remote: c.url, args: []string{"ls-remote", "--symref", "--", c.url, "HEAD"}})
	if err != nil {
		return "", err
	}
	sha := ""
	for l := range strings.Lines(out) {
		value, name, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		if name != "HEAD" {
			continue
		}
		if branch, ok := strings.CutPrefix(value, "ref: refs/heads/"); ok {
			if has, err := c.git.commit(ctx, c.path, "refs/remotes/origin/"+branch); err != nil || has != "" {
				return has, err
			}
			continue
		}
		sha = value
	}
	if isSHA(sha) {
		if has, err := c.git.commit(ctx, c.path, sha); err != nil || has != "" {
			return has, err
		}
	}
	branches, err := c.git.line(ctx, c.path, "for-each-ref", "--count=5", "--format=%(refname:lstrip=3)", "refs/remotes/origin")
	if err != nil || branches == "" && sha == "" {
		return "", err
	}
	return "", fault(fleet.RefMissing, nil, "%s has no default branch; name one with a ref, for example %s", Redact(req.URL), strings.ReplaceAll(branches, "\n", ", "))
}

// takeBundle brings the head of the submitter's bundle into the cache.
func (s *Store) takeBundle(ctx context.Context, c *cache, req Request) (string, error) {
	req.tell("unpacking the submitted bundle")
	b, err := openBundle(req.Bundle)
	if err != nil {
		return "", err
	}
	defer b.close()
	head, err := b.pick(req.BaseCommit)
	if err != nil {
		return "", err
	}
	if err := b.checkPrerequisites(ctx, c.git, c.path); err != nil {
		return "", err
	}
	into := "refs/tugline/input/" + string(req.Job)
	err = s.patiently(ctx, c.hold, c.path, func() error {
		// The transport is our own file, not something that the owner has to allow.
		_, err := c.git.with("GIT_ALLOW_PROTOCOL=file").run(ctx, call{dir: c.path, progress: req.Progress, args: []string{
			"fetch", "--no-write-fetch-head", "--no-auto-gc", "--no-tags", "--progress", "--", req.Bundle, "+" + head.ref + ":" + into}})
		return err
	})
	var failed *gitError
	if errors.As(err, &failed) && failed.exit > 0 && !diskText().MatchString(failed.stderr) && c.git.isSound(ctx, c.path) == nil && !c.damaged(ctx, err) {
		return "", fault(fleet.BadRequest, err, "the submitted bundle is damaged (%s); submit the job again", lastLine(failed.stderr))
	}
	if err != nil {
		return "", fmt.Errorf("unpack bundle: %w", err)
	}
	has, err := c.git.commit(ctx, c.path, into)
	if err == nil && has != head.sha {
		err = fault(fleet.BadRequest, nil, "the submitted bundle does not hold the commit that it names (%s); submit the job again", head.sha)
	}
	return has, err
}
