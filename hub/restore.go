package hub

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// maxLostNamed bounds the jobs that an answer names.
const maxLostNamed = 100

// Restore sets the cluster back to an archive, while it runs, in the name of a token
// that stays good. The archive is read whole and checked before anything is changed.
// The epoch is raised twice: before, so that every node knows that a state of less is
// one that was set back, and afterwards, so that nothing speaks with the authority of
// what is undone.
func (h *Hub) Restore(ctx context.Context, r io.Reader, caller fleet.TokenID) (api.Restored, error) {
	if !h.leading.Load() {
		return api.Restored{}, fmt.Errorf("this node does not lead: %w", fleet.Unavailable)
	}
	if !h.restoring.TryLock() {
		return api.Restored{}, fmt.Errorf("the cluster is being set back already: %w", fleet.Conflict)
	}
	defer h.restoring.Unlock()
	f, err := os.CreateTemp(h.cfg.Dir, ".restore-")
	if err != nil {
		return api.Restored{}, fmt.Errorf("make room for the backup: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return api.Restored{}, fmt.Errorf("take in the backup: %w", err)
	}
	then := state.New()
	man, err := readState(f, then.Restore)
	if err != nil {
		return api.Restored{}, err
	}
	now := h.entries.View()
	if man.Cluster != h.id.Cluster {
		return api.Restored{}, fmt.Errorf("the backup is of cluster %s, this is cluster %s; `tugline hub recover --from-backup` makes a node of it in an empty directory: %w", man.Cluster, h.id.Cluster, fleet.Conflict)
	}
	out := api.Restored{Backup: man, Index: now.Meta().Index}
	compare(&out, now, then.View())
	nodes := h.livingNodes()
	epoch := max(now.Meta().Epoch, h.seenEpoch())
	if err := h.raiseEpoch(ctx, epoch+1, "before a restore", nil); err != nil {
		return out, err
	}
	if err := h.setBack(ctx, f); err != nil {
		return out, err
	}
	if err := h.raiseEpoch(ctx, epoch+2, "restore", nodes); err != nil {
		return out, fmt.Errorf("the backup is in place; its epoch is raised by whoever leads next: %w", err)
	}
	out.Epoch = epoch + 2
	for _, e := range h.entries.View().Meta().Epochs {
		if e.Epoch == out.Epoch {
			out.Renew, out.Returned = e.Open, e.Returned
		}
	}
	if out.Again, err = h.revokeAgain(ctx, now, then.View(), caller); err != nil {
		return out, fmt.Errorf("the backup is in place, but a revocation that is younger could not be repeated; repeat it by hand: %w", err)
	}
	if man.Output {
		out.Streams, out.Blobs, err = h.restoreOutput(ctx, f)
	}
	h.poke()
	return out, err
}

// readState reads an archive from its beginning, and gives its state to load.
func readState(f io.ReadSeeker, load func(io.Reader) error) (api.Backup, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return api.Backup{}, err
	}
	return ReadBackup(f, func(head *tar.Header, r io.Reader) error {
		if head.Name != nameState {
			return nil
		}
		if _, err := consensus.ReadBackup(r, load); err != nil {
			return notTaken(err)
		}
		return nil
	})
}

// notTaken says that a backup's state is damaged, or of a newer version.
func notTaken(err error) error {
	return fmt.Errorf("the state in the backup cannot be taken: %w: %w", err, fleet.BadRequest)
}

// VerifyBackup reads an archive from its beginning, and says what it is if it is whole
// and this version can take its state.
func VerifyBackup(f io.ReadSeeker) (api.Backup, error) { return readState(f, state.New().Restore) }

// setBack gives the state of an archive to the log.
func (h *Hub) setBack(ctx context.Context, f io.ReadSeeker) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	done := errors.New("done")
	_, err := ReadBackup(f, func(head *tar.Header, r io.Reader) error {
		if head.Name != nameState {
			return nil
		}
		if err := h.node.Restore(ctx, r); err != nil {
			return fmt.Errorf("set the state back: %w: %w", fleet.OutcomeUnknown, err)
		}
		return done
	})
	if errors.Is(err, done) {
		return nil
	}
	return err
}

// compare says what a state has that the one of a backup has not.
func compare(out *api.Restored, now, then state.View) {
	out.Lost, out.Enrol, out.Again = []fleet.JobID{}, []fleet.RunnerID{}, []string{}
	now.JobsOldest(func(j *fleet.Job) bool {
		if _, ok := then.Job(j.ID); !ok {
			if out.LostJobs++; len(out.Lost) < maxLostNamed {
				out.Lost = append(out.Lost, j.ID)
			}
		}
		return true
	})
	for _, r := range now.Runners() {
		if _, ok := then.Runner(r.ID); !ok && !r.Removed {
			out.Enrol = append(out.Enrol, r.ID)
		}
	}
}

// revokeAgain repeats what was revoked or removed since a backup was made, and keeps
// the token that asked.
func (h *Hub) revokeAgain(ctx context.Context, now, then state.View, caller fleet.TokenID) ([]string, error) {
	again := []string{}
	do := func(what string, cmd state.Command) error {
		if err := h.entries.Record(ctx, cmd); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if what != "" {
			again = append(again, what)
		}
		return nil
	}
	var failed []error
	if t, ok := now.Token(caller); ok && !t.Revoked {
		if _, had := then.Token(caller); !had { // first: another may be revoked only while an admin is left
			failed = append(failed, do("", &state.CreateToken{Token: *t}))
		}
	}
	for _, t := range now.Tokens() {
		if was, ok := then.Token(t.ID); ok && t.Revoked && !was.Revoked {
			failed = append(failed, do("token "+string(t.ID), &state.RevokeToken{ID: t.ID}))
		}
	}
	for _, r := range now.Runners() {
		was, ok := then.Runner(r.ID)
		switch {
		case !ok:
		case r.Removed && !was.Removed:
			failed = append(failed, do("runner "+r.Name+" removed", &state.RemoveRunner{ID: r.ID}))
		case r.Floor > was.Floor && was.Generation < r.Floor:
			failed = append(failed, do("key of runner "+r.Name, &state.RevokeRunner{ID: r.ID}))
		}
	}
	return again, errors.Join(failed...)
}

// restoreOutput puts back output and files that are not here any more.
func (h *Hub) restoreOutput(ctx context.Context, f io.ReadSeeker) (streams, blobs int, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, 0, err
	}
	_, err = ReadBackup(f, func(head *tar.Header, r io.Reader) error {
		kind, rest, _ := strings.Cut(head.Name, "/")
		switch kind {
		case "blobs":
			d := fleet.Digest(path.Base(rest))
			if !d.Valid() {
				return fmt.Errorf("the backup holds %s, which is no file of a job: %w", head.Name, fleet.BadRequest)
			}
			if _, err := h.blobs.Stat(d); err == nil {
				return nil
			}
			if err := h.copies.Blobs().Put(ctx, d, head.Size, r); err != nil {
				return fmt.Errorf("put %s back: %w", head.Name, err)
			}
			blobs++
		case "spool":
			k, ok := spool.ParseKey(rest)
			if !ok {
				return fmt.Errorf("the backup holds %s, which is no output of a job: %w", head.Name, fleet.BadRequest)
			}
			n, err := h.restoreStream(ctx, k, head, r)
			if err != nil {
				return fmt.Errorf("put %s back: %w", head.Name, err)
			}
			streams += n
		}
		return nil
	})
	return streams, blobs, err
}

// restoreStream puts one stream back, unless there is something of it here.
func (h *Hub) restoreStream(ctx context.Context, k spool.Key, head *tar.Header, r io.Reader) (int, error) {
	if size, sealed := h.copies.Size(k); size > 0 || sealed {
		return 0, nil
	}
	buf := make([]byte, 256<<10)
	offset := int64(0)
	for offset < head.Size {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), head.Size-offset)])
		if err != nil {
			return 0, err
		}
		if _, err := h.copies.Append(ctx, k, offset, buf[:n]); err != nil {
			return 0, err
		}
		offset += int64(n)
	}
	if head.PAXRecords[sealedRecord] == "" {
		return 1, nil
	}
	if head.Size == 0 {
		return 1, h.copies.SealEmpty(ctx, k)
	}
	d, err := h.spool.Sum(ctx, k, 0, head.Size)
	if err == nil {
		err = h.copies.Seal(ctx, k, head.Size, d)
	}
	return 1, err
}
