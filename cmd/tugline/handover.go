package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

var remoteLike = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://|[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:)`)

// repoOf says which repository a job gets. A directory here is sent as a bundle, so
// that it needs no server that both sides can reach.
func (a *app) repoOf(ctx context.Context, c *client, f *jobFlags) (*fleet.Repo, error) {
	if f.repo == "" {
		return nil, nil
	}
	if st, err := os.Stat(f.repo); err == nil && st.IsDir() {
		return a.handOver(ctx, c, f)
	}
	if !remoteLike.MatchString(f.repo) {
		return nil, usage("--repo %q is neither a directory here nor the URL of a repository", f.repo)
	}
	if f.dirty {
		return nil, usage("--include-dirty belongs to a directory here; %s is a URL", f.repo)
	}
	return &fleet.Repo{URL: f.repo, Ref: f.ref, Branch: f.branch, Depth: f.depth}, nil
}

func (a *app) handOver(ctx context.Context, c *client, f *jobFlags) (*fleet.Repo, error) {
	if f.depth > 0 {
		return nil, usage("--depth is for a URL; of a directory only what the runner lacks is sent anyway")
	}
	l, err := worktree.Inspect(ctx, f.repo)
	if err != nil {
		return nil, err
	}
	if l.HeadSHA == "" {
		return nil, usage("the repository %s has no commit yet; make one, then try again", l.Top)
	}
	if l.Dirty && !f.dirty {
		a.say("note: the uncommitted changes in %s stay here; --include-dirty sends them too", l.Top)
	}
	repo := &fleet.Repo{CacheKey: l.RootCommit, Branch: f.branch, Upstream: l.Branch}
	if f.ref != "" && f.ref != "HEAD" {
		repo.Upstream = ""
	}
	if f.push != "" {
		if repo.URL = l.OriginURL; repo.URL == "" {
			return nil, usage("--push needs somewhere to push to, and %s has no remote named origin; leave --push out and fetch the work with `tugline job pull`", l.Top)
		}
	}
	var haves []string
	if f.on != "" {
		var tips api.Tips
		if _, err := c.read(ctx, "/v1/repos/tips", url.Values{"key": {l.RootCommit}, "runner": {f.on}}, &tips); err != nil {
			return nil, err
		}
		haves = tips.Tips
	}
	dir, err := os.MkdirTemp("", "tugline-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	req := worktree.BundleRequest{Ref: f.ref, IncludeDirty: f.dirty, Haves: haves, Out: filepath.Join(dir, "handover.bundle")}
	b, err := worktree.Bundle(ctx, l.Top, req)
	if err != nil {
		return nil, err
	}
	for _, n := range b.Notes {
		a.say("note: %s", n)
	}
	repo.BaseCommit = b.Head
	if b.Path == "" {
		a.say("the runner has this commit already")
		return repo, nil
	}
	repo.Bundle = fleet.Digest(b.SHA256)
	return repo, a.upload(ctx, c, b.Path, repo.Bundle, b.Size, "the repository")
}

// upload puts a file into the hub's store, in parts, from where the hub has it.
func (a *app) upload(ctx context.Context, c *client, path string, d fleet.Digest, total int64, what string) error {
	if total > maxUpload {
		return usage("%s is %s, and the hub takes at most %s; push it to a server that the runner can reach and give its URL", what, size(total), size(maxUpload))
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	where := "/v1/blobs/" + string(d)
	query := url.Values{"size": {itoa(total)}}
	_, head, err := c.call(ctx, request{method: http.MethodHead, path: where, query: query, patience: a.patient()})
	if err != nil {
		return err
	}
	off, err := offsetOf(head, total)
	if err != nil || off == total {
		return err
	}
	a.say("sending %s: %s", what, size(total-off))
	buf := make([]byte, partSize)
	for off < total {
		n, err := f.ReadAt(buf[:min(partSize, total-off)], off)
		if n == 0 {
			return err
		}
		query.Set("offset", itoa(off))
		_, head, err := c.call(ctx, request{method: http.MethodPut, path: where, query: query, raw: buf[:n], patience: a.patient(), timeout: partTime})
		if isGap(err) {
			_, head, err = c.call(ctx, request{method: http.MethodHead, path: where, query: url.Values{"size": {itoa(total)}}, patience: a.patient()})
		}
		if err != nil {
			return err
		}
		next, err := offsetOf(head, total)
		if err != nil {
			return err
		}
		if next == off {
			return fail(exitFailed, "the hub takes no more of %s at byte %d; look at its log", what, off)
		}
		off = next
		if a.ttyErr && off < total {
			a.say("sent %s of %s", size(off), size(total))
		}
	}
	return nil
}
