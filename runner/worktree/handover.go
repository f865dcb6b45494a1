package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// handoverRef is the one ref in a bundle of a person's repository.
const handoverRef = "refs/tugline/handover"

// A BundleRequest says what of a repository is handed over.
type BundleRequest struct {
	Ref          string // HEAD if ""
	IncludeDirty bool   // add the working tree as one more commit
	// Haves are commits that the target has; those unknown here are passed over.
	Haves []string
	Out   string // path of the bundle
}

// BundleInfo is a bundle that was written.
type BundleInfo struct {
	// Path is "" if the target already has everything: then Head is all it needs to be told.
	Path          string
	Head          string
	Prerequisites []string
	SHA256        string
	Size          int64
	Notes         []string // what of the working tree is not in it
}

// Bundle writes what a target lacks of a repository, at the top that Inspect gave. With IncludeDirty the changed and the
// untracked, not ignored files become a commit on top; index, refs, files and object database stay untouched.
// Codes: conflict (a shallow repository), ref_missing.
func Bundle(ctx context.Context, top string, req BundleRequest) (BundleInfo, error) {
	info, err := bundle(ctx, top, req)
	if err != nil {
		return info, fmt.Errorf("bundle %s: %w", top, err)
	}
	return info, nil
}

func bundle(ctx context.Context, top string, req BundleRequest) (BundleInfo, error) {
	var info BundleInfo
	g := localGit()
	if req.Ref == "" {
		req.Ref = "HEAD"
	}
	if strings.HasPrefix(req.Ref, "-") {
		return info, fault(fleet.BadRequest, nil, "ref %q is not valid", req.Ref)
	}
	shallow, err := g.line(ctx, top, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return info, notLocal(top, err)
	}
	if shallow == "true" {
		return info, fault(fleet.Conflict, nil, "%s is a shallow clone, and others could not build on what it lacks; run `git fetch --unshallow` in it, then retry", top)
	}
	head, err := g.commit(ctx, top, req.Ref)
	if err != nil {
		return info, err
	}
	if head == "" {
		return info, fault(fleet.RefMissing, nil, "%s has no commit %q; commit something first, or name another ref", top, req.Ref)
	}
	if req.IncludeDirty {
		tmp, err := os.MkdirTemp("", "tugline-handover-")
		if err != nil {
			return info, err
		}
		defer os.RemoveAll(tmp)
		if g, head, info.Notes, err = withDirty(ctx, g, top, tmp, head); err != nil {
			return info, err
		}
	}
	info.Head = head
	if info.Prerequisites, err = g.border(ctx, top, head, req.Haves); err != nil {
		return info, err
	}
	if slices.Equal(info.Prerequisites, []string{head}) {
		return info, nil
	}
	out, err := filepath.Abs(req.Out)
	if err != nil {
		return info, err
	}
	file, err := g.writeBundle(ctx, top, out, info.Prerequisites, head, handoverRef)
	if err != nil {
		return info, err
	}
	info.Path, info.SHA256, info.Size = file.path, file.sha256, file.size
	return info, nil
}

// border gives the commits that a bundle of head has to build on so that it holds nothing the target has: head alone if
// the target has it.
func (g git) border(ctx context.Context, top, head string, haves []string) ([]string, error) {
	var known strings.Builder
	for _, sha := range haves {
		if !isSHA(sha) {
			continue
		}
		has, err := g.yes(ctx, top, "cat-file", "-e", sha+"^{commit}")
		if err != nil && !isGone(err) {
			return nil, err
		}
		if sha == head {
			return []string{head}, nil
		}
		if has {
			known.WriteString("^" + sha + "\n")
		}
	}
	if known.Len() == 0 {
		return nil, nil
	}
	out, err := g.run(ctx, call{dir: top, args: []string{"rev-list", "--boundary", "--stdin"}, stdin: strings.NewReader(head + "\n" + known.String())})
	if err != nil {
		return nil, err
	}
	var border []string
	fresh := false
	for l := range strings.Lines(out) {
		if sha, ok := strings.CutPrefix(strings.TrimSpace(l), "-"); ok {
			border = append(border, sha)
		} else {
			fresh = true
		}
	}
	if !fresh {
		return []string{head}, nil
	}
	slices.Sort(border)
	return border, nil
}

// isGone says that git answered "no such object" in its way for names that it can't even look up.
func isGone(err error) bool {
	failed, ok := err.(*gitError)
	return ok && failed.exit == 128
}

// withDirty makes a commit of the working tree on top of head, with index and new objects in tmp. The git that it gives
// sees those objects too.
func withDirty(ctx context.Context, g git, top, tmp, head string) (git, string, []string, error) {
	if bare, err := g.line(ctx, top, "rev-parse", "--is-bare-repository"); err != nil || bare == "true" {
		return g, head, nil, err
	}
	gitDir, err1 := g.line(ctx, top, "rev-parse", "--absolute-git-dir")
	at, err2 := g.commit(ctx, top, "HEAD")
	if err := errors.Join(err1, err2); err != nil {
		return g, "", nil, err
	}
	if at != head {
		return g, "", nil, fault(fleet.BadRequest, nil, "the working tree of %s belongs to HEAD; leave out the ref, or leave out the uncommitted changes", top)
	}
	g, err := g.aside(ctx, top, tmp)
	if err != nil {
		return g, "", nil, err
	}
	g = g.with("GIT_DIR="+gitDir, "GIT_WORK_TREE="+top)
	ws := workspace{git: g, top: top, gitDir: gitDir}
	snap, err := ws.snapshot(ctx, tmp, defaultUntrackedLimit)
	if err != nil {
		return g, "", nil, err
	}
	tree, err := g.tree(ctx, top, head)
	if err != nil || tree == snap.Tree {
		return g, head, snap.Notes, err
	}
	made, err := ws.commitTree(ctx, g.userIdentity(ctx, top), snap.Tree, "Uncommitted changes handed over\n", head)
	return g, made, snap.Notes, err
}

// A Fetched is what FetchBundle did.
type Fetched struct {
	SHA     string
	Branch  string
	Created bool
	Updated bool // false with Created false: it was there already
}

// FetchBundle brings one ref of a bundle into a person's repository as a branch, without checking it out. A branch that
// has other commits, or that is checked out, is not touched.
// Codes: conflict, input_missing (the repository lacks what the bundle builds on), ref_missing, bad_request.
func FetchBundle(ctx context.Context, top, bundlePath, ref, branch string) (Fetched, error) {
	out, err := fetchBundle(ctx, top, bundlePath, ref, branch)
	if err != nil {
		return out, fmt.Errorf("fetch %s from bundle: %w", branch, err)
	}
	return out, nil
}

func fetchBundle(ctx context.Context, top, bundlePath, ref, branch string) (Fetched, error) {
	out := Fetched{Branch: branch}
	g := localGit().with("GIT_ALLOW_PROTOCOL=file")
	if err := g.checkRef(ctx, top, "branch", branch); err != nil {
		return out, err
	}
	path, err := filepath.Abs(bundlePath)
	if err != nil {
		return out, err
	}
	b, err := openBundle(path)
	if err != nil {
		return out, err
	}
	defer b.close()
	head, err := b.find(ref)
	if err != nil {
		return out, err
	}
	out.SHA = head.sha
	if err := b.checkPrerequisites(ctx, g, top); err != nil {
		return out, err
	}
	into := "refs/heads/" + branch
	was, err := g.commit(ctx, top, into)
	if err != nil {
		return out, err
	}
	if was == out.SHA {
		return out, nil
	}
	used, err := g.checkedOut(ctx, top, into)
	if err != nil {
		return out, err
	}
	if used {
		return out, fault(fleet.Conflict, nil, "branch %s is checked out in %s and is not moved under its files; check out another branch, or fetch into another name", branch, top)
	}
	_, err = g.run(ctx, call{dir: top, args: []string{"fetch", "--no-write-fetch-head", "--no-auto-gc", "--no-tags", "--no-recurse-submodules", "--", path, head.ref + ":" + into}})
	if err != nil {
		if failed, ok := err.(*gitError); ok && strings.Contains(failed.stderr, "non-fast-forward") {
			return out, fault(fleet.Conflict, err, "branch %s already has commits that the result lacks; nothing was changed: fetch into another name, or rename that branch", branch)
		}
		return out, err
	}
	out.Created, out.Updated = was == "", was != ""
	return out, nil
}

// checkedOut says whether some worktree has a branch checked out.
func (g git) checkedOut(ctx context.Context, top, ref string) (bool, error) {
	out, err := g.list(ctx, top, "worktree", "list", "--porcelain", "-z")
	return slices.Contains(out, "branch "+ref), err
}
