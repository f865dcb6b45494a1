package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// StorageAfter is after how long a job may come back that was declined for want of disk.
const StorageAfter = fleet.HostFaultPause

const (
	retryAfter = time.Minute      // of a decline that may pass by itself
	awayAfter  = 30 * time.Second // the repository's server does not answer
	mendAfter  = 2 * time.Minute  // until somebody has mended an account or an address
	longest    = 10 * time.Minute // that the two before grow to
)

// readiness is what a launch needs and what preparing found out.
type readiness struct {
	permissions fleet.Permissions
	tree        *worktree.Tree // nil without a repository
	dir         string         // the working directory
	launch      harness.Launch
	env         environ
	harness     *harness.Harness
	notes       []string
	account     string // mark of the account that the CLI asks with
	has         int64  // bytes that the directory has taken
}

// fromStart makes an attempt ready, asks for the permit and launches.
func (a *Attempt) fromStart(ctx context.Context) error {
	if a.isStopped() {
		return a.end(ctx, KindGone, nil)
	}
	ready, err := a.makeReady(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case a.isStopped():
		return a.end(ctx, KindGone, nil)
	case err != nil:
		return a.decline(ctx, err)
	}
	if !a.permitted() {
		base := ""
		if ready.tree != nil {
			base = ready.tree.Base
		}
		// Lazy: it is made again as long as no permit is known.
		acc := Accepted{Permissions: ready.permissions, BaseCommit: base, Notes: ready.notes}
		err := a.put(ctx, journal.Lazy, KindAccepted, acc, func(p *journal.Progress) {
			p.Permissions, p.Base, p.Reserve = ready.permissions, base, a.expected(ready.has)
		})
		if err != nil {
			return err
		}
		a.enter(Preparing, "ready", "")
	}
	select {
	case <-a.permit:
	case <-a.stop:
		return a.end(ctx, KindGone, nil)
	case <-ctx.Done():
		return nil
	}
	return a.launch(ctx, ready)
}

func (a *Attempt) permitted() bool {
	select {
	case <-a.permit:
		return true
	default:
		return false
	}
}

// decline gives the assignment back. An attempt that already holds the permit can't
// be given back: its end is a start that failed.
func (a *Attempt) decline(ctx context.Context, err error) error {
	d := asDecline(err)
	switch d.code {
	case fleet.RepoUnreachable, fleet.RepoAuth, fleet.RepoMissing:
		d.after = grown(d.after, a.asg.Attempt)
	}
	a.log.Info("assignment declined", "code", string(d.code), "err", err)
	if a.permitted() {
		return a.failedStart(ctx, readiness{}, d.detail)
	}
	return a.end(ctx, KindDeclined, Declined{Code: d.code, Detail: fleet.CutText(d.detail, fleet.MaxDetail), Block: d.block, RetryAfter: d.after})
}

// grown gives the pause after a turn's nth attempt. It doubles, for a turn has only so
// many attempts, and a server that is down for a night must not use them up.
func grown(after time.Duration, n int) time.Duration {
	for ; n > 1 && after > 0 && after < longest; n-- {
		after *= 2
	}
	return min(after, longest)
}

func asDecline(err error) *decline {
	var d *decline
	if errors.As(err, &d) {
		return d
	}
	if NoRoom(err) {
		return &decline{code: fleet.Storage, detail: err.Error(), after: retryAfter}
	}
	var c fleet.Code
	if !errors.As(err, &c) {
		return &decline{code: fleet.Internal, detail: err.Error(), after: retryAfter}
	}
	d = &decline{code: c, detail: err.Error()}
	switch c {
	case fleet.RepoUnreachable:
		d.after = awayAfter
	case fleet.RepoAuth, fleet.RepoMissing:
		// None of these shows in the runner's facts, so nothing but time can bring the job back.
		d.after = mendAfter
	case fleet.Storage, fleet.Conflict, fleet.Internal, fleet.Unavailable:
		d.after = retryAfter
	case fleet.SessionGone, fleet.BadRequest, fleet.InputMissing, fleet.RefMissing:
		d.block = true
	}
	return d
}

// makeReady does everything that needs no permit.
func (a *Attempt) makeReady(ctx context.Context) (ready readiness, err error) {
	ctx, release := a.stoppable(ctx)
	defer release()
	spec := a.asg.Spec
	policy := a.host.Policy()
	if _, d := policy.permit(spec, a.model()); d != nil {
		return ready, d
	}
	// The attempt's directory and its scratch directory are above it.
	if err := os.MkdirAll(a.artifactsDir(), 0o700); err != nil {
		return ready, fmt.Errorf("make attempt directory: %w", err)
	}
	prompt, argv, err := a.inputs(ctx)
	if err != nil {
		return ready, err
	}
	if err := a.alone(ctx); err != nil {
		return ready, err
	}
	if ready.has, err = a.firstProbe(ctx, policy); err != nil {
		return ready, err
	}
	var note string
	switch {
	case spec.Session != nil:
		ready.dir, note, err = a.sessionDir(ctx)
	case spec.Repo == nil:
		ready.dir, note, err = a.emptyDir()
	default:
		ready.tree, note, err = a.workTree(ctx)
	}
	if err != nil {
		return ready, err
	}
	if ready.tree != nil {
		ready.dir, ready.notes = ready.tree.Path, slices.Clone(ready.tree.Notes)
	}
	if a.asg.Turn > 1 && a.asg.Fresh {
		ready.notes = append(ready.notes, "a fresh session: the agent knows nothing of what was said in earlier turns")
	}
	if note != "" {
		ready.notes = append(ready.notes, note)
	}
	if ready.permissions, err = a.secondProbe(ctx, &ready); err != nil {
		return ready, err
	}
	policy = a.host.Policy()
	found, ok := a.host.Harness(spec.Harness)
	switch {
	case !ok || found.Name != "exec" && found.Path == "":
		return ready, refuse(fleet.HarnessMissing, "%s is not installed on this runner", spec.Harness)
	case found.SignedIn == harness.SignedInNo:
		return ready, refuse(fleet.HarnessSignedOut, "%s is not signed in on this runner: %s", spec.Harness, found.Detail)
	}
	secrets, err := a.secrets(spec.Secrets)
	if err != nil {
		return ready, err
	}
	marks := a.marks()
	if policy.Push == "agent" && ready.tree != nil {
		for k, v := range a.credentialEnv() {
			marks[k] = v
		}
		// The job may ask before the goroutine that answers has begun.
		if err := os.MkdirAll(a.credentialDir(), 0o700); err != nil {
			return ready, fmt.Errorf("make attempt directory: %w", err)
		}
	}
	ready.env = buildEnv(slices.Concat(a.host.Environ(), policy.Given[spec.Harness]), policy, spec, secrets, marks).with(policy.sessionEnv(spec))
	if policy.Push == "agent" && ready.tree != nil {
		ready.env.hidden = append(ready.env.hidden, a.hiddenCredentials()...)
	}
	ready.harness, _ = harness.Lookup(spec.Harness)
	req := harness.Request{
		Path: found.Path, Dir: ready.dir, Prompt: prompt, Model: a.model(), Permissions: ready.permissions, ScratchDir: a.scratchDir(),
		Argv: argv, Env: ready.env.vars, KeepEnv: slices.Concat(spec.Secrets, credentialNames), Self: a.host.Self,
		AsRoot: os.Geteuid() == 0, ExtraWritable: []string{a.scratchDir()},
	}
	if req.ResumeID, err = a.session(ready); err != nil {
		return ready, err
	}
	if a.asg.Again {
		where := "in a new session"
		if req.ResumeID != "" {
			req.Prompt, where = goOn(prompt), "in its session"
		}
		ready.notes = append(ready.notes, "goes on in the directory of an earlier attempt at the turn, "+where)
	}
	ready.account = ready.harness.AccountOf(ready.env.vars, a.model())
	if ready.launch, err = ready.harness.Launch(req); err != nil {
		return ready, err
	}
	ready.env = ready.env.with(ready.launch.Env)
	ready.notes = append(ready.notes, ready.launch.Notes...)
	if want := spec.Permissions; want != "" && want != ready.permissions {
		ready.notes = append(ready.notes, fmt.Sprintf("asked for the permissions %s; the owner of this runner allows %s", want, ready.permissions))
	}
	return ready, nil
}

func (a *Attempt) model() string {
	if a.asg.Model != "" {
		return a.asg.Model
	}
	return a.asg.Spec.Model
}

// marks are the variables by which a job knows where it is.
func (a *Attempt) marks() map[string]string {
	m := map[string]string{
		"TUGLINE_JOB_ID": string(a.asg.Job), "TUGLINE_ATTEMPT": fmt.Sprint(a.asg.Attempt), "TUGLINE_FENCE": a.asg.Fence.String(),
		"TUGLINE_SCRATCH": a.scratchDir(), "TUGLINE_CLOSURE_FILE": a.closureFile(), "TUGLINE_ARTIFACTS": a.artifactsDir(),
	}
	if a.asg.Spec.Repo != nil {
		m["TUGLINE_BRANCH"] = a.branch()
	}
	return m
}

func (a *Attempt) branch() string {
	if a.asg.Branch != "" {
		return a.asg.Branch
	}
	if r := a.asg.Spec.Repo; r != nil && r.Branch != "" {
		return r.Branch
	}
	return "tugline/" + string(a.asg.Job)
}

// inputs gives the prompt and the argv, fetched where they do not ride along.
func (a *Attempt) inputs(ctx context.Context) (prompt string, argv []string, err error) {
	prompt, argv = a.asg.PromptText, a.asg.Spec.Argv
	if prompt == "" && a.asg.Prompt != "" {
		a.tell("fetching the prompt")
		b, err := a.blob(ctx, a.asg.Prompt, fleet.MaxPrompt)
		if err != nil {
			return "", nil, fmt.Errorf("fetch the prompt: %w", err)
		}
		prompt = string(b)
	}
	if d := a.asg.Spec.ArgvBlob; d != "" {
		b, err := a.blob(ctx, d, 2*fleet.MaxArgv)
		if err != nil {
			return "", nil, fmt.Errorf("fetch the command: %w", err)
		}
		if err := json.Unmarshal(b, &argv); err != nil {
			return "", nil, fmt.Errorf("read the command: %w: %w", fleet.BadRequest, err)
		}
	}
	return prompt, argv, nil
}

// limited takes at most so many bytes.
type limited struct {
	strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("the blob is longer than it may be: %w", fleet.TooLarge)
	}
	return l.Builder.Write(p)
}

func (a *Attempt) blob(ctx context.Context, d fleet.Digest, limit int) ([]byte, error) {
	to := &limited{left: limit}
	if err := a.host.Hub.Fetch(ctx, d, to); err != nil {
		return nil, missing(err)
	}
	return []byte(to.String()), nil
}

// missing words a blob that the hub does not have as a missing input.
func missing(err error) error {
	if errors.Is(err, fleet.BlobMissing) || errors.Is(err, fleet.NotFound) {
		return fmt.Errorf("%w: %w", fleet.InputMissing, err)
	}
	return err
}

// blobFile fetches a blob into a file of the attempt; one that is there is kept.
func (a *Attempt) blobFile(ctx context.Context, d fleet.Digest, what string) (string, error) {
	if !d.Valid() {
		return "", fmt.Errorf("fetch %s: digest %q: %w", what, d, fleet.BadRequest)
	}
	path := filepath.Join(a.dir, "in-"+string(d))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	a.tell("fetching " + what)
	f, err := os.CreateTemp(a.dir, "in-")
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, err)
	}
	defer os.Remove(f.Name())
	err = a.host.Hub.Fetch(ctx, d, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, missing(err))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, err)
	}
	return path, nil
}

func (a *Attempt) secrets(names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	have, err := a.host.Secrets()
	if err != nil {
		return nil, &decline{code: fleet.SecretMissing, detail: err.Error()}
	}
	for _, n := range names {
		if _, ok := have[n]; !ok {
			return nil, refuse(fleet.SecretMissing, "the owner's store on this runner has no secret %s", n)
		}
	}
	return have, nil
}
