package hub

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// Recovered says what a recovery did, and what may be lost by it.
type Recovered struct {
	Cluster, Node string
	Log           consensus.Recovery // of the log that was there; zero with a backup
	Backup        *api.Backup        // nil without one
	NewKeys       bool               // the cluster's keys are new: every runner must enrol anew
	Jobs          int                // on record
	Runners       []string           // on record, by name
	Open          []OpenAttempt      // that go on once their runners have renewed them
}

// OpenAttempt is an accepted attempt that had no end on record.
type OpenAttempt struct {
	Job    fleet.JobID
	Fence  fleet.Fence
	Runner string
}

const (
	recoverTime = time.Minute
	// epochsSince is how many times the epoch may have been raised since a backup was
	// made; runners follow no cluster whose epoch is less than they have seen.
	epochsSince = 1000
)

// Recover makes the node in dir, which does not run, the only one of its cluster, for
// when most of the others are gone for good. The next start raises the cluster's epoch
// before anything else. drop allows it to take entries off the end of the log that are
// not known to be committed and that this version cannot read.
func Recover(dir string, drop bool) (Recovered, error) {
	lock, err := lockDir(dir)
	if err != nil {
		return Recovered{}, err
	}
	defer lock.Unlock()
	id, err := loadIdentity(dir, false, false)
	if err != nil {
		return Recovered{}, err
	}
	m := newMachine()
	defer m.feed.Close()
	out := Recovered{Cluster: id.Cluster, Node: id.Node}
	// The mark comes first: a log that was recovered and is started without it would
	// speak with the authority of the nodes that are gone.
	if err := (recovery{Version: 1, Cause: "recover"}).save(dir); err != nil {
		return out, err
	}
	if out.Log, err = consensus.Recover(filepath.Join(dir, "raft"), id.Node, m, drop); err != nil {
		return out, errors.Join(explainOffline(dir, err), os.Remove(filepath.Join(dir, recoveryName)))
	}
	out.look(m.state.View())
	return out, nil
}

func (r *Recovered) look(v state.View) {
	v.JobsOldest(func(*fleet.Job) bool { r.Jobs++; return true })
	for _, k := range v.Runners() {
		if k.Generation >= k.Floor { // else it is revoked
			r.Runners = append(r.Runners, k.Name)
		}
	}
	slices.Sort(r.Runners)
	for _, o := range collect(v) {
		if o.Attempt.AcceptedAt != nil {
			r.Open = append(r.Open, OpenAttempt{o.Job.ID, o.Attempt.Fence, o.Attempt.RunnerName})
		}
	}
}

// RecoverFrom makes a node of its own in an empty directory from a backup. Where the
// backup has no keys, or with newKeys, the cluster's keys are made anew.
func RecoverFrom(dir, file, passphrase string, newKeys bool) (Recovered, error) {
	f, err := os.Open(file)
	if err != nil {
		return Recovered{}, fmt.Errorf("open the backup: %w", err)
	}
	defer f.Close()
	lock, err := lockDir(dir)
	if err != nil {
		return Recovered{}, err
	}
	defer lock.Unlock()
	if es, err := os.ReadDir(dir); err != nil {
		return Recovered{}, err
	} else if len(es) > 1 { // the lock is there
		return Recovered{}, fmt.Errorf("%s is not empty: a backup is recovered into an empty directory", dir)
	}
	m := newMachine()
	defer m.feed.Close()
	var keys []byte
	man, err := ReadBackup(f, func(head *tar.Header, r io.Reader) error {
		switch head.Name {
		case nameState:
			if _, err := consensus.ReadBackup(r, m.state.Restore); err != nil {
				return notTaken(err)
			}
		case nameSecrets:
			if newKeys {
				return nil
			}
			if passphrase == "" {
				return errors.New("the backup has the cluster's keys: give their passphrase with --passphrase-file, or --new-keys to have every runner enrol anew")
			}
			var enc backupSecrets
			if err := json.NewDecoder(r).Decode(&enc); err != nil {
				return fmt.Errorf("read the keys in the backup: %w", err)
			}
			keys, err = enc.decrypt(passphrase)
			return err
		}
		return nil
	})
	if err != nil {
		return Recovered{}, err
	}
	out := Recovered{Cluster: man.Cluster, Backup: &man, NewKeys: keys == nil}
	out.look(m.state.View())
	id := identity{Version: 1, Cluster: man.Cluster, Node: newID("n-"), Founded: true, Epoch: man.Epoch}
	out.Node = id.Node
	var keysAnew *secrets
	if keys != nil {
		if err = importSecrets(dir, keys); err == nil {
			_, err = loadSecrets(dir, man.Cluster, false)
		}
	} else {
		keysAnew, err = replaceSecrets(dir, man.Cluster, m.state.View())
	}
	if err != nil {
		return out, err
	}
	if err := (recovery{Version: 1, Cause: "recover", Above: man.Epoch + epochsSince}).save(dir); err != nil {
		return out, err
	}
	if err := restoreLog(dir, id.Node, f, keysAnew); err != nil {
		return out, err
	}
	if man.Output {
		if err := unpackOutput(dir, f); err != nil {
			return out, err
		}
	}
	return out, id.save(filepath.Join(dir, nodeName)) // last: without it there is no node here
}

// restoreLog makes a log of a backup's state. Keys that were made anew are active in it.
func restoreLog(dir, node string, f io.ReadSeeker, anew *secrets) error {
	ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
	defer cancel()
	m := newMachine()
	defer m.feed.Close()
	n, err := consensus.Open(consensus.Config{Dir: filepath.Join(dir, "raft"), NodeID: node, Bootstrap: true, FSM: m})
	if err != nil {
		return err
	}
	h := &Hub{node: n}
	done := errors.New("done")
	err = n.WhileLeader(ctx, func(ctx context.Context) error {
		if err := h.setBack(ctx, f); err != nil {
			return err
		}
		if err := activateAll(ctx, n, m, anew); err != nil {
			return err
		}
		return done
	})
	if errors.Is(err, done) {
		err = nil
	}
	return errors.Join(err, n.Close())
}

// activateAll makes keys the active ones at once; those before them end.
func activateAll(ctx context.Context, n *consensus.Node, m machine, s *secrets) error {
	if s == nil {
		return nil
	}
	for _, k := range s.keys {
		cmds := []state.Command{k.activation(0)}
		if k.Kind == fleet.KeyCA {
			cmds = append(cmds, &state.ActivateKeys{Kind: k.Kind, Generation: k.Generation, Serve: true})
		}
		for _, cmd := range cmds {
			entry, err := state.Encode(state.Head{At: m.state.Time(), Actor: "hub"}, cmd)
			if err != nil {
				return err
			}
			res, _, err := n.Propose(ctx, entry)
			if err == nil {
				err = res.(state.Result).Err()
			}
			if err != nil {
				return fmt.Errorf("record the new keys: %w", err)
			}
		}
	}
	return nil
}

// unpackOutput puts a backup's output and files in place.
func unpackOutput(dir string, f io.ReadSeeker) error {
	s, err := spool.Open(spool.Config{Dir: filepath.Join(dir, "spool")})
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := blob.Open(blob.Config{Dir: filepath.Join(dir, "blobs")})
	if err != nil {
		return err
	}
	h := &Hub{cfg: Config{Dir: dir}, spool: s, blobs: b}
	h.disk = &reserve{dir: dir, stat: statFree}
	h.id.Node = "recovering"
	if err := h.openCopies(); err != nil {
		return err
	}
	defer h.copies.Close()
	_, _, err = h.restoreOutput(context.Background(), f)
	return err
}
