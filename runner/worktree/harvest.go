package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// The ways to treat what an agent left uncommitted.
const (
	CommitAuto  = "auto"  // the runner commits it on the job's branch
	CommitNever = "never" // it is saved under the rescue ref only
)

// A HarvestRequest says how to bring in what an attempt left.
type HarvestRequest struct {
	Fence   fleet.Fence
	Commit  string // CommitAuto ("" too) or CommitNever
	Message string // subject and body of the runner's commit; a default if ""
	Out     string // directory of patch and bundle; DIR/out/JOB/FENCE if ""
}

// A Commit is one commit of a result.
type Commit struct {
	SHA     string
	Subject string
	Author  string // NAME <EMAIL>
	At      time.Time
}

// A Stat counts what changed from base to tip.
type Stat struct {
	Files, Insertions, Deletions int
}

// A Result is what an attempt left, as far as git can prove it.
type Result struct {
	Base     string // "" in a repository that had no commit
	Tip      string // the branch; equal to Base if there is nothing new, "" if there is still no commit
	Tree     string // of Tip
	Branch   string
	Descends bool // Base is an ancestor of Tip; true if Base is ""
	// Commits are those of Tip that Base does not have, oldest first, the newest 200 at most; CommitCount is all.
	Commits     []Commit
	CommitCount int
	Stat        Stat
	// The patch and the bundle, "" without new commits. The bundle has one ref, the branch at Tip, and one
	// prerequisite, Base (none if Base is "").
	PatchPath    string
	PatchSHA256  string
	PatchSize    int64
	BundlePath   string
	BundleSHA256 string
	BundleSize   int64
	RunnerCommit string // the commit that the runner made of what was left, ""
	RescueRef    string // where leftovers that are not on the branch are saved, ""
	// What of the rescue ref is not at Tip, "" without one: the changes of its files as a patch, "" too if there are
	// none, and a bundle with that ref alone, which builds on Base (on nothing if Base is "").
	RescuePatchPath, RescueBundlePath string
	// LeftUncommitted says that there are leftovers which are not on the branch.
	LeftUncommitted bool
	Notes           []string
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// A stand is where an attempt left a worktree.
type stand struct {
	head      string // commit; "" if HEAD is unborn
	ref       string // full ref of HEAD; "" if detached
	branch    string // commit of the job's branch; "" if there is none
	tree      string // of head, or of branch if HEAD is unborn; "" without either
	operation string // rebase, merge, cherry-pick, revert or bisect under way
}

// Harvest takes in what an attempt left: commits, also those made on another branch or none; uncommitted and untracked
// files; half-done merges and rebases. The processes of the attempt must have ended. It changes the job's branch, refs
// and the index, never a file of the worktree, and may be repeated.
func (t *Tree) Harvest(ctx context.Context, req HarvestRequest) (Result, error) {
	res, err := t.harvest(ctx, req)
	if err != nil {
		err = fmt.Errorf("harvest worktree of job %s: %w", t.Job, err)
	}
	return res, err
}

func (t *Tree) harvest(ctx context.Context, req HarvestRequest) (Result, error) {
	s, rec := t.store, t.rec
	req.Commit = cmp.Or(req.Commit, CommitAuto)
	if req.Commit != CommitAuto && req.Commit != CommitNever {
		return Result{}, fault(fleet.BadRequest, nil, "commit mode %q is neither auto nor never", req.Commit)
	}
	if req.Out == "" {
		req.Out = filepath.Join(s.dir, "out", string(t.Job), req.Fence.String())
	}
	res := Result{Base: rec.Base, Branch: rec.Branch}
	if !isDir(rec.Path) {
		return res, fault(fleet.NotFound, nil, "the worktree of job %s is gone; its branch can be built again", t.Job)
	}
	ws := s.workspace(rec)
	if err := errors.Join(ws.repair(), ws.repairHead(rec.branchRef())); err != nil {
		return res, err
	}
	ws.clearLocks(rec.branchRef(), &res)
	at, err := ws.stand(ctx, rec)
	if err != nil {
		return res, err
	}
	if at, err = ws.settle(ctx, rec, at, &res); err != nil {
		return res, err
	}
	if err := t.takeLeftovers(ctx, ws, req, at, &res); err != nil {
		return res, err
	}
	if err := t.keepAside(ctx, ws, req.Fence, cmp.Or(res.RunnerCommit, at.branch), &res); err != nil {
		return res, err
	}
	if err := s.describe(ctx, rec, req, &res); err != nil {
		return res, err
	}
	if err := s.packRescue(ctx, rec, req, &res); err != nil {
		return res, err
	}
	return res, s.amend(t.Job, func(rec *record) {
		if res.BundlePath == "" {
			return
		}
		if rec.Results == nil || len(rec.Results) >= maxPublished {
			rec.Results, rec.Bases = map[string]string{}, nil
		}
		if rec.Bases == nil {
			rec.Bases = map[string]string{}
		}
		rec.Results[req.Fence.String()], rec.Bases[req.Fence.String()] = res.Tip, res.Base
	})
}

// clearLocks removes lock files that belong to this worktree alone; whoever made them has ended.
func (w workspace) clearLocks(branchRef string, res *Result) {
	for _, path := range []string{
		filepath.Join(w.gitDir, "index.lock"), filepath.Join(w.gitDir, "HEAD.lock"),
		filepath.Join(w.common, branchRef+".lock"),
	} {
		if err := os.Remove(path); err == nil {
			res.note("a git command was cut off and had left %s", filepath.Base(path))
		}
	}
}

// stand reads where the worktree is, and makes the job's branch again if it is gone.
func (w workspace) stand(ctx context.Context, rec *record) (stand, error) {
	var at stand
	var err error
	if at.ref, err = w.git.line(ctx, w.top, "symbolic-ref", "--quiet", "HEAD"); err != nil {
		var failed *gitError
		if !errors.As(err, &failed) || failed.exit != 1 {
			return at, err
		}
	}
	found, err := w.git.lookUp(ctx, w.top, "HEAD^{commit}", "HEAD^{tree}", rec.branchRef()+"^{commit}", rec.branchRef()+"^{tree}")
	if err != nil {
		return at, err
	}
	at.head, at.branch, at.tree = found[0], found[2], cmp.Or(found[1], found[3])
	for _, op := range [][2]string{
		{"rebase-merge", "rebase"}, {"rebase-apply", "rebase"}, {"MERGE_HEAD", "merge"},
		{"CHERRY_PICK_HEAD", "cherry-pick"}, {"REVERT_HEAD", "revert"}, {"BISECT_LOG", "bisect"},
	} {
		if at.operation == "" && exists(filepath.Join(w.gitDir, op[0])) {
			at.operation = op[1]
		}
	}
	return at, nil
}

// settle moves the job's branch to where the agent's commits are, if they are elsewhere and the branch has none of its
// own beside them.
func (w workspace) settle(ctx context.Context, rec *record, at stand, res *Result) (stand, error) {
	if at.operation != "" {
		res.note("a %s was under way when the run ended", at.operation)
	}
	if at.branch == "" {
		at.branch = rec.Base
		if rec.Base != "" {
			res.note("the branch %s was deleted by the run and is made again", rec.Branch)
			if err := w.moveBranch(ctx, rec, rec.Base, ""); err != nil {
				return at, err
			}
			if at.head == "" {
				var err error
				if at.tree, err = w.git.tree(ctx, w.top, rec.Base); err != nil {
					return at, err
				}
			}
		}
	}
	if at.head == "" || at.head == at.branch {
		return at, nil
	}
	where := "a detached HEAD"
	if at.ref != "" {
		where = fmt.Sprintf("branch %q", strings.TrimPrefix(at.ref, "refs/heads/"))
	}
	own, err := w.ownCommits(ctx, at.head, at.branch)
	if err != nil {
		return at, err
	}
	if own == 0 {
		res.note("the run ended on %s without commits of its own there", where)
		return at, nil
	}
	follows := at.branch == ""
	if !follows {
		if follows, err = w.git.isAncestor(ctx, w.top, at.branch, at.head); err != nil {
			return at, err
		}
	}
	// A branch that never left the base has nothing to lose; where its result does not descend from the base, the
	// result says so.
	if (follows || at.branch == rec.Base) && at.operation != "rebase" && at.operation != "bisect" {
		if err := w.moveBranch(ctx, rec, at.head, at.branch); err != nil {
			return at, err
		}
		res.note("the run committed on %s; %s follows it", where, rec.Branch)
		at.branch = at.head
		return at, nil
	}
	res.note("%d commits on %s are not part of %s", own, where, rec.Branch)
	return at, nil
}

// moveBranch sets the job's branch; was is what it must be now, "" if it must not exist.
func (w workspace) moveBranch(ctx context.Context, rec *record, to, was string) error {
	if was == "" {
		was = strings.Repeat("0", len(to))
	}
	_, err := w.git.line(ctx, w.top, "update-ref", "-m", "tugline: harvest", rec.branchRef(), to, was)
	return err
}

// ownCommits counts what commit has beyond the branch and everything that came from the remote.
func (w workspace) ownCommits(ctx context.Context, commit, branch string) (int, error) {
	args := []string{"rev-list", "--count", commit, "--not", "--glob=refs/remotes/origin", "--tags"}
	if branch != "" {
		args = append(args, branch)
	}
	return w.git.count(ctx, w.top, args...)
}

func (g git) count(ctx context.Context, dir string, args ...string) (int, error) {
	out, err := g.line(ctx, dir, args...)
	if err != nil {
		return 0, err
	}
	var n int
	if _, err := fmt.Sscanf(out, "%d", &n); err != nil {
		return 0, fmt.Errorf("count commits: %q is no number", out)
	}
	return n, nil
}

// takeLeftovers commits or rescues what is not committed, and rescues commits that the branch does not have.
func (t *Tree) takeLeftovers(ctx context.Context, ws workspace, req HarvestRequest, at stand, res *Result) error {
	s, rec := t.store, t.rec
	tmp, done, err := s.tempDir()
	if err != nil {
		return err
	}
	defer done()
	programs, err := ws.git.programs(ctx, ws.top)
	if err != nil {
		return err
	}
	ws.git = ws.git.without(programs)
	snap, err := ws.snapshot(ctx, tmp, s.untrackedLimit)
	if err != nil {
		return err
	}
	res.Notes = append(res.Notes, snap.Notes...)
	if !snap.whole() {
		res.LeftUncommitted = true
	}
	parent := cmp.Or(at.head, at.branch)
	clean, err := ws.isClean(ctx, rec, parent, at.tree, snap)
	if err != nil {
		return err
	}
	offBranch := at.head != "" && at.head != at.branch
	if clean {
		if !offBranch {
			return nil
		}
		if own, err := ws.ownCommits(ctx, at.head, at.branch); err != nil || own == 0 {
			return err
		}
		res.LeftUncommitted = true
		return t.rescue(ctx, ws, req.Fence, at.head, res)
	}
	if len(programs) > 0 { // what they were to take out of files must not get onto a branch
		res.note("%s; what was not committed is saved as it is, and not committed", notRun(programs))
	}
	auto := req.Commit == CommitAuto && len(programs) == 0 && !offBranch && len(snap.Conflicted) == 0 && at.operation != "rebase" && at.operation != "bisect"
	if auto {
		return t.commitLeftovers(ctx, ws, req, at, snap, parent, res)
	}
	if len(snap.Conflicted) > 0 {
		res.note("%d files with unresolved conflicts are not committed: %.300q", len(snap.Conflicted), snap.Conflicted[:min(len(snap.Conflicted), 5)])
	}
	res.LeftUncommitted = true
	saved, err := ws.commitTree(ctx, s.signer(ctx), snap.Tree, rescueMessage(rec, req.Fence), parent)
	if err != nil {
		return err
	}
	return t.rescue(ctx, ws, req.Fence, saved, res)
}

// isClean says that the workspace has nothing beyond a commit and its tree; without a commit, that it is empty.
func (w workspace) isClean(ctx context.Context, rec *record, commit, tree string, snap *snapshot) (bool, error) {
	if commit == "" {
		var err error
		if tree, err = w.git.emptyTree(ctx, w.top); err != nil {
			return false, err
		}
	}
	return snap.Tree == tree || commit == rec.Base && rec.StartTree == snap.Tree, nil
}

// commitLeftovers makes the runner's own commit on the job's branch, with the second parent of a merge that was only
// short of its commit.
func (t *Tree) commitLeftovers(ctx context.Context, ws workspace, req HarvestRequest, at stand, snap *snapshot, parent string, res *Result) error {
	rec := t.rec
	parents := []string{parent}
	if at.operation == "merge" {
		data, err := os.ReadFile(filepath.Join(ws.gitDir, "MERGE_HEAD"))
		if err != nil {
			return err
		}
		for _, sha := range strings.Fields(string(data)) {
			if has, err := ws.git.commit(ctx, ws.top, sha); err == nil && isSHA(sha) && has == sha && sha != parent {
				parents = append(parents, sha)
			}
		}
	}
	made, err := ws.commitTree(ctx, t.store.signer(ctx), snap.Tree, commitMessage(rec, req), parents...)
	if err != nil {
		return err
	}
	if err := ws.moveBranch(ctx, rec, made, at.branch); err != nil {
		return err
	}
	if at.ref != rec.branchRef() {
		// HEAD stands at the same commit by another way; it goes along, or git would show the commit undone.
		if _, err := ws.git.line(ctx, ws.top, "update-ref", "-m", "tugline: harvest", "HEAD", made); err != nil {
			return err
		}
	}
	// The index has to agree with the new commit, or git would show the commit undone.
	if err := os.Rename(snap.Index, filepath.Join(ws.gitDir, "index")); err != nil {
		return fmt.Errorf("replace index: %w", err)
	}
	for _, name := range []string{"MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "AUTO_MERGE"} {
		_ = os.Remove(filepath.Join(ws.gitDir, name))
	}
	res.RunnerCommit = made
	return nil
}

func (w workspace) commitTree(ctx context.Context, id Identity, tree, message string, parents ...string) (string, error) {
	args := []string{"commit-tree", "--no-gpg-sign", "-F", "-"}
	for _, p := range parents {
		if p != "" {
			args = append(args, "-p", p)
		}
	}
	out, err := w.git.as(id).run(ctx, call{dir: w.top, args: append(args, tree), stdin: strings.NewReader(message)})
	return strings.TrimSpace(out), err
}

func commitMessage(rec *record, req HarvestRequest) string {
	text := strings.TrimSpace(strings.ToValidUTF8(req.Message, "\uFFFD"))
	if text == "" {
		text = "Changes that the run left uncommitted"
	}
	return fmt.Sprintf("%s\n\nTugline-Commit: runner\nTugline-Job: %s\nTugline-Fence: %s\n", text, rec.Job, req.Fence)
}
