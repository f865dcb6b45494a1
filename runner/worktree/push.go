package worktree

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// A PushRequest names one ref of one remote and the commit that it is to get.
type PushRequest struct {
	Remote string // URL
	Branch string // without refs/heads/
	SHA    string // in full
	// Env is added to git's environment, for a credential helper.
	Env      []string
	Progress func(detail string)
}

// Push moves a remote branch to a commit, never by force. It succeeds if the branch is already there, so it may be
// repeated after an unknown end.
//
// Codes: conflict (the remote branch has commits that the result lacks, or the server's own rules refuse it), repo_auth,
// repo_unreachable, repo_missing, outcome_unknown (cut off, and the remote could not be asked afterwards), bad_request.
func (t *Tree) Push(ctx context.Context, req PushRequest) error { return t.store.push(ctx, t.rec, req) }

// Push is Tree.Push for a job whose worktree may be gone already.
func (s *Store) Push(ctx context.Context, job fleet.JobID, req PushRequest) error {
	if err := checkJob(job); err != nil {
		return err
	}
	rec, err := s.load(job)
	if err != nil {
		return err
	}
	if rec == nil {
		return fault(fleet.NotFound, nil, "job %s was never prepared on this runner, so there is nothing to push", job)
	}
	return s.push(ctx, rec, req)
}

func (s *Store) push(ctx context.Context, rec *record, req PushRequest) error {
	if err := s.pushCommit(ctx, rec, req); err != nil {
		return fmt.Errorf("push %s: %w", req.Branch, err)
	}
	if err := s.amend(rec.Job, func(rec *record) { rec.Published = remember(rec.Published, req.SHA) }); err != nil {
		s.log.Warn("what was pushed is not noted as published", "job", rec.Job, "err", err)
	}
	return nil
}

func (s *Store) pushCommit(ctx context.Context, rec *record, req PushRequest) error {
	if err := s.checkURL(req.Remote); err != nil {
		return err
	}
	if err := checkCommit("commit", req.SHA); err != nil {
		return err
	}
	if strings.HasPrefix(req.Branch, "refs/") {
		return fault(fleet.BadRequest, nil, "branch %q must be given without refs/", req.Branch)
	}
	if err := s.git.checkRef(ctx, s.dir, "branch", req.Branch); err != nil {
		return err
	}
	c := s.cacheAt(rec.Cache, rec.Generation, rec.URL)
	c.git = c.git.with(req.Env...)
	if has, err := c.git.commit(ctx, c.path, req.SHA); err != nil || has != req.SHA {
		return fault(fleet.NotFound, err, "commit %s is not in the cache of job %s; harvest it first", req.SHA, rec.Job)
	}
	if err := s.scrub(ctx, c); err != nil {
		return err
	}
	ref := "refs/heads/" + req.Branch
	there, err := s.remoteTip(ctx, c, req.Remote, ref)
	if err != nil {
		return err
	}
	if there == req.SHA {
		return nil
	}
	if err := s.pushLFS(ctx, c, req); err != nil {
		return err
	}
	args := []string{"push", "--porcelain", "--progress", "--no-verify", "--no-follow-tags", "--no-force", "--no-force-with-lease",
		"--no-signed", "--recurse-submodules=no", "--", req.Remote, req.SHA + ":" + ref}
	out, err := c.git.run(ctx, call{dir: c.path, args: args, stall: s.git.stall, progress: req.Progress, remote: req.Remote})
	if err == nil {
		return nil
	}
	for l := range strings.Lines(out) {
		if reason, ok := strings.CutPrefix(l, "!\t"); ok {
			return refused(req, reason, err)
		}
	}
	var failed *gitError
	cutOff := ctx.Err() != nil || errors.Is(err, process.ErrStalled) || !errors.As(err, &failed) || failed.exit < 0 || errors.Is(err, fleet.RepoUnreachable)
	if !cutOff {
		return err
	}
	// It may have arrived all the same.
	there, askErr := s.remoteTip(ctx, c, req.Remote, ref)
	switch {
	case askErr != nil:
		return fault(fleet.OutcomeUnknown, err, "the push of %s to %s was cut off and %s does not answer; whether it arrived is unknown, push again later", req.Branch, Redact(req.Remote), Redact(req.Remote))
	case there == req.SHA:
		return nil
	}
	return err
}

// refused words the answer of the remote: "FROM:TO TAB [rejected] (reason)".
func refused(req PushRequest, reason string, err error) error {
	_, reason, _ = strings.Cut(strings.TrimSpace(reason), "\t")
	switch {
	case strings.Contains(reason, "non-fast-forward") || strings.Contains(reason, "fetch first") || strings.Contains(reason, "stale info"):
		return fault(fleet.Conflict, err, "%s already has commits on %s that this result does not build on; nothing was overwritten: push to another branch, or start a job from that branch", Redact(req.Remote), req.Branch)
	case strings.Contains(reason, "no match") || strings.Contains(reason, "shallow update"):
		return fault(fleet.Conflict, err, "%s cannot take %s %s; prepare the job with its whole history", Redact(req.Remote), req.Branch, reason)
	}
	return fault(fleet.Conflict, err, "%s refused %s by its own rules: %s; push to another branch, or change the rule there", Redact(req.Remote), req.Branch, reason)
}

// remoteTip asks for one ref; "" if the remote does not have it.
func (s *Store) remoteTip(ctx context.Context, c *cache, remote, ref string) (string, error) {
	out, err := c.git.run(ctx, call{dir: c.path, stall: s.git.stall, remote: remote, args: []string{"ls-remote", "--", remote, ref}})
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(out) {
		if sha, name, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t"); name == ref {
			return sha, nil
		}
	}
	return "", nil
}

// pushLFS sends LFS contents ahead, which git would leave to a hook.
func (s *Store) pushLFS(ctx context.Context, c *cache, req PushRequest) error {
	if !s.git.lfs || !exists(c.path+"/lfs/objects") {
		return nil
	}
	_, err := c.git.with("GIT_LFS_FORCE_PROGRESS=1").run(ctx, call{dir: c.path, stall: s.git.stall, progress: req.Progress, remote: req.Remote,
		args: []string{"lfs", "push", "--", req.Remote, req.SHA}})
	if err != nil {
		return fmt.Errorf("push LFS contents: %w", err)
	}
	if err := c.lfsNote(ctx, c.git, c.path, req.SHA, nil); err != nil {
		s.log.Warn("what was pushed of lfs contents is not noted, they will be kept", "err", err)
	}
	return nil
}
