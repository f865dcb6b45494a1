package attempt

import (
	"context"
	"errors"
	"fmt"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// goesOn says whether the attempt works on in the directory of an earlier one: that of
// the turn before, or one that began the same turn on this runner.
func (a *Attempt) goesOn() bool { return a.asg.Turn > 1 || a.asg.Again }

// resumes says whether the CLI's session is to be taken up: then what it knows of must
// be there.
func (a *Attempt) resumes() bool {
	return !a.asg.Fresh && a.asg.Resume != nil && a.asg.Resume.SessionID != ""
}

// mayBegin says whether the attempt may do without what earlier ones left: it was asked
// to, or it is a new try of a first turn whose agent knows nothing of them.
func (a *Attempt) mayBegin() bool {
	return a.asg.Fresh || a.asg.Turn <= 1 && !a.resumes()
}

// goOn words the prompt of a turn that is taken up again in its own session, which has
// heard it already.
func goOn(prompt string) string {
	const begin = "You were interrupted before you had finished. Go on from where you stopped, and do not do again what is done."
	if all := begin + " What was asked for:\n\n" + prompt; len(all) <= fleet.MaxPrompt {
		return all
	}
	return begin + " What was asked for is the last request above."
}

// gone refuses a later turn that can't go on from the one before, and names the mend.
func (a *Attempt) gone(format string, args ...any) *decline {
	return &decline{code: fleet.SessionGone, block: true,
		detail: fmt.Sprintf(format, args...) + fmt.Sprintf("; to go on with a new session: tugline job follow-up %s --fresh \"…\"", a.asg.Job)}
}

// session gives the CLI's session to take up, "" for a new one. A later turn whose
// session is not on this machine any more is refused: it would silently begin without
// all that was said before.
func (a *Attempt) session(ready readiness) (string, error) {
	if own := a.asg.Spec.Session; own != nil && !a.asg.Fresh && !a.resumes() {
		return own.ID, nil // it was just found
	}
	if !a.goesOn() || a.asg.Fresh || !ready.harness.Can(harness.CapResume) {
		return "", nil
	}
	if !a.resumes() {
		if a.asg.Again {
			return "", nil // another CLI of the job's list, or the one before began none
		}
		return "", a.gone("no earlier turn of the job left a session of %s on this runner", ready.harness.Name)
	}
	id := a.asg.Resume.SessionID
	if ready.harness.HasSession(ready.env.vars, ready.dir, id) == harness.SessionGone {
		return "", a.gone("the session %s of %s is gone from this runner", id, ready.harness.Name)
	}
	return id, nil
}

// workTree makes the worktree ready, or finds it again for a later turn. The note says
// what of the earlier turns is not in it.
func (a *Attempt) workTree(ctx context.Context) (tree *worktree.Tree, note string, err error) {
	store, err := a.host.Trees()
	if err != nil {
		return nil, "", err
	}
	a.tell("preparing the worktree")
	if a.goesOn() {
		if tree, err = store.Reopen(ctx, a.asg.Job); err == nil || !errors.Is(err, fleet.NotFound) {
			return tree, "", err
		}
		return a.rebuild(ctx, store)
	}
	req := a.treeRequest()
	if req.Bundle, err = a.input(ctx); err != nil {
		return nil, "", err
	}
	if r := a.asg.Resume; r != nil && req.BaseCommit == "" {
		req.BaseCommit = r.BaseCommit // a new try begins where the first one did
	}
	tree, err = store.Prepare(ctx, req)
	return tree, "", err
}

// rebuild makes a later turn's worktree where there is none: at its old path from the
// job's branch if that is still here, else from the commits that the hub has.
func (a *Attempt) rebuild(ctx context.Context, store *worktree.Store) (*worktree.Tree, string, error) {
	req := a.treeRequest()
	a.tell("building the job's worktree again")
	tree, err := store.Rebuild(ctx, req)
	if err == nil || !errors.Is(err, fleet.NotFound) {
		return tree, "", err
	}
	r := a.asg.Resume
	if r == nil {
		r = &Resume{}
	}
	input, err := a.input(ctx)
	if err != nil {
		return nil, "", err
	}
	if r.BaseCommit != "" {
		req.BaseCommit = r.BaseCommit
	}
	if r.Bundle != "" {
		if req.Bundle, err = a.blobFile(ctx, r.Bundle, "the job's commits"); err != nil {
			return nil, "", err
		}
		req.Input = input
		tree, err = store.Rebuild(ctx, req)
		return tree, "", err
	}
	req.Bundle = input
	switch {
	case r.Tip != "" && r.Tip == r.BaseCommit: // no earlier turn has made a commit
		tree, err = store.Prepare(ctx, req)
		return tree, "", err
	case a.asg.Turn <= 1 && a.mayBegin():
		tree, err = store.Prepare(ctx, req)
		return tree, "", err
	case a.mayBegin():
		tree, err = store.Prepare(ctx, req)
		return tree, "begins at the job's base: what earlier turns may have done is neither on this runner nor at the hub", err
	}
	return nil, "", a.gone("the job's worktree and branch are gone from this runner, and the hub has no commits to build them from")
}

func (a *Attempt) treeRequest() worktree.Request {
	r := a.asg.Spec.Repo
	req := worktree.Request{
		Job: a.asg.Job, Fence: a.asg.Fence, URL: r.URL, Key: r.CacheKey, Ref: r.Ref, BaseCommit: r.BaseCommit, ExtraRefs: r.ExtraRefs,
		Depth: r.Depth, Branch: a.branch(), Env: a.remoteEnv(), Progress: a.tell,
	}
	if fetch := a.host.Policy().Fetch; fetch != nil && r.URL != "" {
		depth, filter := fetch(r.URL)
		if req.Depth == 0 {
			req.Depth = depth
		}
		req.Filter = filter
	}
	return req
}

// input gives the bundle that the job came with, "" if there is none.
func (a *Attempt) input(ctx context.Context) (string, error) {
	if a.asg.Spec.Repo.Bundle == "" {
		return "", nil
	}
	return a.blobFile(ctx, a.asg.Spec.Repo.Bundle, "the repository's bundle")
}
