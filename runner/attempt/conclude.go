package attempt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxClosure      = 4 << 10 // bytes of a closure note
	maxCommitsTold  = 50
	maxNotes        = 50
	harvestPatience = 30 * time.Minute
)

// delivery names the files that the evidence speaks of; it outlives a restart.
type delivery struct {
	Blobs  []deliveredBlob `json:"blobs,omitempty"`
	Bundle fleet.Digest    `json:"bundle,omitempty"` // that of them with the job's commits
}

type deliveredBlob struct {
	Digest fleet.Digest `json:"digest"`
	Path   string       `json:"path"`
}

func (a *Attempt) deliveryFile() string { return filepath.Join(a.dir, "delivery.json") }

// saveDelivery notes what is to be delivered; nothing needs no file.
func (a *Attempt) saveDelivery(d delivery) error {
	if len(d.Blobs) == 0 {
		if err := os.Remove(a.deliveryFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("note what is to be delivered: %w", err)
		}
		return nil
	}
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("note what is to be delivered: %w", err)
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fmt.Errorf("note what is to be delivered: %w", err)
	}
	if err := os.WriteFile(a.deliveryFile(), b, 0o600); err != nil {
		return fmt.Errorf("note what is to be delivered: %w", err)
	}
	return nil
}

func (a *Attempt) loadDelivery() (delivery, error) {
	var d delivery
	b, err := os.ReadFile(a.deliveryFile())
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		return d, fmt.Errorf("read what is to be delivered: %w", err)
	}
	return d, nil
}

// conclude makes the result of a process that has ended and puts it into the outbox.
// An end that was not recorded is no result: the outcome is lost. Where nothing was
// written and nothing is to be uploaded the seal goes with the result; sealed says so.
func (a *Attempt) conclude(ctx context.Context, f *feed, o fleet.Outcome) (sealed bool, err error) {
	if f.exit == nil {
		detail := "the process and its supervisor are gone, and how it ended was not recorded"
		if o.Terminal {
			detail += "; its own stream had told an end: " + string(o.Class)
		}
		a.fact("note", detail)
		return false, a.lost(ctx, detail)
	}
	var ev *fleet.Evidence
	var d delivery
	var push *journal.Push
	err = a.insist(ctx, func() (err error) {
		if ev, d, push, err = a.evidence(ctx, f, o.Class); err != nil || ctx.Err() != nil {
			return err
		}
		return a.saveDelivery(d)
	})
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	if o.Model == "" {
		o.Model = a.sessionModel(o.SessionID)
	}
	output, events, _, _ := f.at()
	e := f.exit
	took := a.footprint(ctx)
	if ctx.Err() != nil {
		return false, nil
	}
	rec, _ := a.host.Journal.Attempt(a.asg.Fence)
	fin := Finished{
		Exit: fleet.Exit{
			Code: e.Code, Signal: strings.TrimPrefix(e.Signal, "SIG"), Reason: e.Reason,
			Detail: f.mask.text(fleet.CutText(e.Detail, fleet.MaxDetail)),
		},
		Class: o.Class, Detail: o.Detail, ResetAt: o.ResetAt, SessionID: o.SessionID, Model: o.Model,
		StartedAt: e.StartedAt.UTC(), FinishedAt: e.FinishedAt.UTC(),
		Output: output, Text: e.Bytes, Events: events, Dropped: e.DroppedBytes, Evidence: ev,
		RetryAfter: time.Duration(o.RetryAfterMS) * time.Millisecond, StatedEnd: f.mask.text(o.StatedEnd), Acted: o.Acted,
		Account: rec.Progress.Account, Footprint: took,
	}
	if !o.Usage.IsZero() {
		fin.Usage = &o.Usage
	}
	it, err := a.item(KindFinished, fin)
	if err != nil {
		return false, err
	}
	items := []journal.Item{it}
	if sealed = output == 0 && events == 0 && len(d.Blobs) == 0 && f.lacking() == nil; sealed {
		if it, err = a.item(KindSealed, Sealed{}); err != nil {
			return false, err
		}
		items = append(items, it)
	}
	a.ended()
	if o.Class == fleet.ClassDocker && a.host.Dockerless != nil {
		a.host.Dockerless()
	}
	return sealed, a.record(ctx, journal.Durable, func(p *journal.Progress) {
		p.Finished, p.SessionID, p.Model, p.Usage, p.Push, p.Phase = true, o.SessionID, o.Model, fin.Usage, push, "finished"
		p.Sealed = p.Sealed || sealed
	}, items...)
}

// sessionModel reads the model from the CLI's own record of the session: not every
// stream names it.
func (a *Attempt) sessionModel(session string) string {
	h, ok := harness.Lookup(a.asg.Spec.Harness)
	if !ok || session == "" {
		return ""
	}
	policy := a.host.Policy()
	return h.SessionModel(buildEnv(a.host.Environ(), policy, a.asg.Spec, nil, nil).with(policy.sessionEnv(a.asg.Spec)).vars, session)
}

// evidence takes in what the process left.
func (a *Attempt) evidence(ctx context.Context, f *feed, class fleet.FailureClass) (ev *fleet.Evidence, d delivery, push *journal.Push, err error) {
	ev = &fleet.Evidence{Swept: f.exit.Swept, Closure: f.mask.text(a.closure())}
	files := a.artifacts(ctx, f.mask)
	ev.Artifacts = files.files
	for _, n := range files.notes[:min(len(files.notes), maxNotes)] {
		ev.Notes = append(ev.Notes, f.mask.text(fleet.CutText(n, fleet.MaxDetail)))
	}
	spec := a.asg.Spec
	if spec.Repo == nil {
		ev.NoRepo, d.Blobs = true, files.blobs
		return ev, d, nil, nil
	}
	defer func() { d.Blobs = append(d.Blobs, files.blobs...) }() // last: the verdict waits for the others
	ctx, cancel := context.WithTimeout(ctx, harvestPatience)
	defer cancel()
	a.tell("taking in the result")
	res, err := a.harvest(ctx)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ev, d, nil, nil
		}
		if NoRoom(err) && !a.isStopped() {
			return ev, d, nil, err // the result is worth waiting for room
		}
		a.log.Error("result could not be taken in", "err", err)
		rec, _ := a.host.Journal.Attempt(a.asg.Fence)
		ev.Base, ev.Branch = rec.Progress.Base, a.branch()
		ev.Notes = append(ev.Notes, fleet.CutText("the result could not be taken in: "+err.Error(), fleet.MaxDetail))
		return ev, d, nil, nil
	}
	ev.Base, ev.Tip, ev.Tree, ev.Branch, ev.Descends = res.Base, res.Tip, res.Tree, res.Branch, res.Descends
	ev.CommitCount, ev.RunnerCommit, ev.RescueRef = res.CommitCount, res.RunnerCommit, res.RescueRef
	ev.Stat = fleet.DiffStat{Files: res.Stat.Files, Insertions: res.Stat.Insertions, Deletions: res.Stat.Deletions}
	for _, c := range res.Commits[max(0, len(res.Commits)-maxCommitsTold):] {
		ev.Commits = append(ev.Commits, fleet.CommitInfo{
			SHA: c.SHA, Subject: f.mask.text(fleet.CutText(c.Subject, 200)), Author: fleet.CutText(c.Author, 200)})
	}
	for _, n := range res.Notes[:min(len(res.Notes), maxNotes)] {
		ev.Notes = append(ev.Notes, f.mask.text(fleet.CutText(n, fleet.MaxDetail)))
	}
	if res.BundlePath != "" {
		ev.Bundle, ev.BundleSize = fleet.Digest(res.BundleSHA256), res.BundleSize
		d.Bundle = ev.Bundle
		d.Blobs = append(d.Blobs, deliveredBlob{ev.Bundle, res.BundlePath})
	}
	if res.PatchPath != "" {
		path, sum, err := a.maskedPatch(f.mask, res.PatchPath, res.PatchSHA256)
		if err != nil {
			return ev, d, nil, err
		}
		ev.Patch, ev.PatchSize = fleet.Digest(sum), res.PatchSize
		d.Blobs = append(d.Blobs, deliveredBlob{ev.Patch, path})
		if sum != res.PatchSHA256 {
			ev.Notes = append(ev.Notes, "the changes contain the value of a secret: it is masked in the patch, but not in the commits")
		}
	}
	notes, err := a.rescued(f.mask, res, files)
	if err != nil {
		return ev, d, nil, err
	}
	ev.Artifacts, ev.Notes = files.files, append(ev.Notes, notes...)
	if spec.Push != "" && res.CommitCount > 0 && class == fleet.ClassOK {
		if spec.Repo.URL == "" {
			ev.Notes = append(ev.Notes, "nothing can be pushed: the repository came without a remote")
		} else {
			push = &journal.Push{Remote: spec.Repo.URL, Ref: spec.Push, SHA: res.Tip}
		}
	}
	return ev, d, push, nil
}

func (a *Attempt) harvest(ctx context.Context) (worktree.Result, error) {
	store, err := a.host.Trees()
	if err != nil {
		return worktree.Result{}, err
	}
	t, err := store.Reopen(ctx, a.asg.Job)
	if err != nil {
		return worktree.Result{}, err
	}
	return t.Harvest(ctx, worktree.HarvestRequest{Fence: a.asg.Fence, Commit: a.asg.Spec.Commit, Out: filepath.Join(a.dir, "out")})
}

// closure reads the note by which an agent says that there is nothing to change.
func (a *Attempt) closure() string {
	st, err := os.Lstat(a.closureFile())
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(a.closureFile())
	if err != nil {
		return ""
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxClosure))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// rescued adds what was saved beside the result to the artifacts; the agent's own files
// of these names keep them.
func (a *Attempt) rescued(m mask, res worktree.Result, files *artifactSet) (notes []string, err error) {
	over := files.over
	if res.RescuePatchPath != "" {
		path, _, err := a.maskedPatch(m, res.RescuePatchPath, "")
		if err != nil {
			return nil, err
		}
		files.take(path, "rescue.patch")
	}
	if res.RescueBundlePath != "" {
		files.take(res.RescueBundlePath, "rescue.bundle")
	}
	if files.over > over {
		notes = append(notes, "what is saved under "+res.RescueRef+" did not fit among the artifacts; it is on the runner alone")
	}
	return notes, nil
}

// maskedPatch gives a masked copy of a patch with its digest, or the patch itself
// where there is nothing to mask.
func (a *Attempt) maskedPatch(m mask, patch, digest string) (path, sum string, err error) {
	if m.empty() {
		return patch, digest, nil
	}
	in, err := os.Open(patch)
	if err != nil {
		return "", "", fmt.Errorf("mask the patch: %w", err)
	}
	defer in.Close()
	path = filepath.Join(a.dir, "out", "masked-"+filepath.Base(patch))
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", "", fmt.Errorf("mask the patch: %w", err)
	}
	hash := sha256.New()
	err = m.copy(io.MultiWriter(out, hash), in)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", "", fmt.Errorf("mask the patch: %w", err)
	}
	return path, hex.EncodeToString(hash.Sum(nil)), nil
}

// copy masks everything that it copies, as frames of one kind.
func (m mask) copy(to io.Writer, from io.Reader) error {
	f := frameMask{mask: m}
	buf := make([]byte, fleet.MaxFramePayload)
	var masked []byte // frames, the last not whole yet
	emit := func(p []byte) error {
		masked = append(masked, p...)
		for {
			fr, n, err := fleet.DecodeFrame(masked)
			if errors.Is(err, fleet.ErrShort) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := to.Write(fr.Payload); err != nil {
				return err
			}
			masked = masked[n:]
		}
	}
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := f.write(fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, Payload: buf[:n]})); err != nil {
				return err
			}
			if err := emit(f.take(false)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return emit(f.take(true))
		}
		if err != nil {
			return err
		}
	}
}

// seal says that the hub holds both streams whole.
func (a *Attempt) seal(ctx context.Context, f *feed) error {
	output, events, _, _ := f.at()
	if why := f.lacking(); why != nil {
		// There is nothing that could be sent again: the hub has refused it for good.
		return a.record(ctx, journal.Lazy, func(p *journal.Progress) { p.Sealed = true })
	}
	return a.put(ctx, journal.Lazy, KindSealed, Sealed{Output: output, Events: events}, func(p *journal.Progress) { p.Sealed = true })
}
