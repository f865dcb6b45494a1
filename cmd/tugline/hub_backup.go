package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/shared/api"
)

const (
	backupMark   = "tugline-"
	backupSuffix = ".backup.tar"
	leastEvery   = time.Minute
)

func (a *app) hubBackupCommand() *cobra.Command {
	var b struct {
		file, passphrase string
		output, force    bool
		every            time.Duration
		keep             int
		to               string
	}
	c := &cobra.Command{
		Use: "backup FILE", Short: "Back the cluster up, while it runs", Args: cobra.MaximumNArgs(1),
		Long: `Write the cluster's state into FILE, - for standard output: jobs, runners, tokens (as hashes),
settings, hub nodes. With --with-output recorded output and files too. With --passphrase-file it
holds the cluster's keys, encrypted; without, every runner must enrol anew after a recovery from
it. The archive is a tar with a SHA256SUMS. FILE appears when it is whole, checked and on disk, readable
by you alone; one that is there already is kept, unless --force. With --every it goes on making backups
in a directory.`,
		Example: `  tugline hub backup monday.backup.tar --passphrase-file pass
  tugline hub backup --every 6h --keep 28 --to /srv/backups --passphrase-file pass
  tugline hub backup verify monday.backup.tar`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pass, err := passphrase(b.passphrase)
			if err != nil {
				return err
			}
			req := api.BackupRequest{Passphrase: pass, Output: b.output}
			switch periodic := cmd.Flags().Changed("every"); {
			case periodic && (b.to == "" || len(args) > 0):
				return usage("--every needs --to DIR, and no FILE")
			case periodic && b.every < leastEvery:
				return usage("--every %s is less than %s", b.every, leastEvery)
			case periodic && b.keep < 1:
				return usage("--keep %d keeps nothing", b.keep)
			case periodic && b.force:
				return usage("--force goes with a FILE; with --every each backup is a file of its own")
			case periodic:
				return a.backups(cmd.Context(), req, b.every, b.keep, b.to)
			case b.to != "":
				return usage("--to goes with --every; name the FILE")
			case len(args) == 0:
				return usage("`tugline hub backup` needs the FILE to write, - for standard output")
			case args[0] == "-":
				_, err := a.backupTo(cmd.Context(), req, a.out)
				return err
			}
			man, err := a.backupFile(cmd.Context(), req, args[0], b.force)
			if err != nil {
				return err
			}
			a.say("%s", describeBackup(args[0], man))
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&b.output, "with-output", false, "recorded output and files too")
	f.BoolVar(&b.force, "force", false, "replace FILE where it is there already")
	f.StringVar(&b.passphrase, "passphrase-file", "", "`FILE` with the passphrase, of at least 12 characters, that encrypts the cluster's keys")
	f.DurationVar(&b.every, "every", 0, "go on making one each `DURATION`, into --to")
	f.IntVar(&b.keep, "keep", 28, "with --every: the newest `N` that are kept")
	f.StringVar(&b.to, "to", "", "with --every: the `DIR`")
	c.AddCommand(a.hubBackupVerifyCommand())
	return c
}

// passphrase reads one from a file.
func passphrase(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fail(exitUsage, "cannot read the passphrase: %v", err)
	}
	p := strings.TrimRight(string(b), "\r\n")
	if p == "" {
		return "", usage("%s holds no passphrase", file)
	}
	return p, nil
}

// backupTo has the hub make an archive and writes it.
func (a *app) backupTo(ctx context.Context, req api.BackupRequest, w io.Writer) (int64, error) {
	c, err := a.dial()
	if err != nil {
		return 0, err
	}
	defer c.close()
	body, err := json.Marshal(req)
	if err != nil {
		return 0, err
	}
	res, err := c.send(ctx, request{method: http.MethodPost, path: "/v1/backup", body: req}, body, "application/x-tar")
	if err != nil {
		return 0, c.explain(ctx, err)
	}
	defer res.Body.Close()
	n, err := io.Copy(w, res.Body)
	if err != nil {
		return n, fail(exitUnreachable, "the backup broke off after %s: %v; nothing of it is of use", size(n), err)
	}
	return n, nil
}

// backupFile makes a backup that is whole, checked and durable, or none. A file that is
// there already gives way only to a whole one, and only if it may be replaced.
func (a *app) backupFile(ctx context.Context, req api.BackupRequest, path string, replace bool) (api.Backup, error) {
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return api.Backup{}, fail(exitFailed, "cannot write %s: %v", path, err)
	case !st.Mode().IsRegular():
		return api.Backup{}, usage("%s is there and is no plain file; name another one, or - for standard output", path)
	case !replace:
		return api.Backup{}, isThere(path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return api.Backup{}, fail(exitFailed, "cannot write %s: %v", path, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := a.backupTo(ctx, req, f); err != nil {
		return api.Backup{}, err
	}
	man, err := verifyBackup(f)
	if err != nil {
		return man, fail(exitFailed, "the backup that came is damaged: %s", sentence(err))
	}
	err = f.Sync()
	if err == nil {
		err = nameFile(f.Name(), path, replace)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return man, isThere(path)
	case err != nil:
		return man, fail(exitFailed, "cannot write %s: %v", path, err)
	}
	return man, nil
}

func isThere(path string) error {
	return usage("%s is there already and is kept; name another file, or replace it with --force", path)
}

// nameFile gives a file that was written its name, for good. The error is fs.ErrExist where
// another one has it meanwhile and is not to be replaced.
func nameFile(tmp, path string, replace bool) error {
	err := error(nil)
	if !replace {
		if err = os.Link(tmp, path); errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if replace || err != nil { // a file system without links has no better way
		if err = os.Rename(tmp, path); err != nil {
			return err
		}
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// backups makes one after the other until ctx ends. One that fails is told and tried
// again in time; what is older goes only after a newer one is there.
func (a *app) backups(ctx context.Context, req api.BackupRequest, every time.Duration, keep int, dir string) error {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return usage("%s is no directory; make it first", dir)
	}
	ctx, stop := a.untilStopped(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		path := filepath.Join(dir, backupMark+time.Now().UTC().Format("20060102-150405")+backupSuffix)
		if man, err := a.backupFile(ctx, req, path, false); err != nil && ctx.Err() == nil {
			a.say("no backup was made: %s; the next try is in %s", sentence(err), every)
		} else if err == nil {
			a.say("%s", describeBackup(path, man))
			if err := prune(dir, keep); err != nil {
				a.say("older backups could not be removed: %v", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// prune removes all but the newest backups that were made by --every.
func prune(dir string, keep int) error {
	all, err := filepath.Glob(filepath.Join(dir, backupMark+"*"+backupSuffix))
	if err != nil {
		return err
	}
	slices.Sort(all) // their names are their times
	var failed []error
	for len(all) > keep {
		failed = append(failed, os.Remove(all[0]))
		all = all[1:]
	}
	return errors.Join(failed...)
}

// openBackup opens a backup that is whole and can be read.
func openBackup(path string) (*os.File, api.Backup, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, api.Backup{}, fail(exitUsage, "cannot open the backup: %v", err)
	}
	man, err := verifyBackup(f)
	if err != nil {
		f.Close()
		return nil, man, fail(exitFailed, "%s: %s", path, sentence(err))
	}
	return f, man, nil
}

func verifyBackup(f io.ReadSeeker) (api.Backup, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return api.Backup{}, err
	}
	return hub.VerifyBackup(f)
}

// madeAt is when a backup was made, for people.
func madeAt(m api.Backup) string { return m.MadeAt.UTC().Format("2006-01-02 15:04:05 UTC") }

func describeBackup(path string, m api.Backup) string {
	with := ", without output"
	if m.Output {
		with = ", with output"
	}
	keys := ", without the cluster's keys: after a recovery from it every runner must enrol anew (--passphrase-file keeps them)"
	if m.Secrets {
		keys = ", with the cluster's keys"
	}
	return fmt.Sprintf("%s: cluster %s, epoch %d, up to entry %d, made %s%s%s", path, m.Cluster, m.Epoch, m.Index, madeAt(m), with, keys)
}

func (a *app) hubBackupVerifyCommand() *cobra.Command {
	return a.jsonFlag(local(&cobra.Command{
		Use: "verify FILE", Short: "Check that a backup is whole and can be read", Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, man, err := openBackup(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if a.json {
				b, err := json.MarshalIndent(man, "", "  ")
				if err != nil {
					return err
				}
				return a.printRaw(b)
			}
			fmt.Fprintf(a.out, "%s\n", describeBackup(args[0], man))
			return nil
		},
	}))
}

func (a *app) hubRestoreCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Set the cluster back to a backup, while it runs", Args: exactly("FILE"),
		Long: `Set the cluster back to a backup of its own. Everything that was recorded since is undone: jobs
that were submitted since are gone from the record; what still runs goes on, and comes back as an
orphan (tugline job orphans) where the backup does not know it. Revocations that are younger than
the backup are repeated. Where no node runs any more, use tugline hub recover --from-backup.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, man, err := openBackup(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if !yes {
				return usage("this undoes everything that was recorded since %s; say --yes", madeAt(man))
			}
			return a.restore(cmd.Context(), f)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "yes, undo what was recorded since")
	return a.jsonFlag(c)
}

func (a *app) restore(ctx context.Context, f *os.File) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.hub()+"/v1/restore", f)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.spot.Token)
	req.Header.Set("Content-Type", "application/x-tar")
	res, err := c.http.Do(req)
	if err != nil {
		return fail(exitUnreachable, "the hub's answer did not come (%v): the cluster may have been set back; `tugline hub status` tells its epoch", err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fail(exitUnreachable, "the hub's answer broke off (%v): the cluster may have been set back; `tugline hub status` tells its epoch", err)
	}
	if res.StatusCode != http.StatusOK {
		return c.explain(ctx, refused(res, raw))
	}
	var done api.Restored
	if err := decode(raw, &done); err != nil {
		return err
	}
	if a.json {
		return a.printRaw(bytes.TrimSpace(raw))
	}
	fmt.Fprintf(a.out, "the cluster is set back to entry %d of %s; its epoch is %d\n", done.Backup.Index, madeAt(done.Backup), done.Epoch)
	told := func(n int, format string, args ...any) {
		if n > 0 {
			fmt.Fprintf(a.out, "  "+format+"\n", args...)
		}
	}
	told(done.LostJobs, "%s not on record any more: %s", plural(done.LostJobs, "job is", "jobs are"), listed(done.Lost, done.LostJobs))
	told(len(done.Enrol), "to enrol anew: %s", listed(done.Enrol, len(done.Enrol)))
	told(done.Renew, "%s on once renewed by the runner", plural(done.Renew, "attempt goes", "attempts go"))
	told(done.Returned, "%s not accepted yet, and back in the queue", plural(done.Returned, "attempt was", "attempts were"))
	told(len(done.Again), "revoked again: %s", strings.Join(done.Again, ", "))
	told(done.Streams+done.Blobs, "%s of output and %s put back", plural(done.Streams, "stream", "streams"), plural(done.Blobs, "file", "files"))
	return nil
}

// listed names the first of many.
func listed[T ~string](ids []T, n int) string {
	const some = 5
	var out []string
	for _, id := range ids[:min(len(ids), some)] {
		out = append(out, string(id))
	}
	if n > some {
		out = append(out, fmt.Sprintf("and %d more", n-some))
	}
	return strings.Join(out, ", ")
}
