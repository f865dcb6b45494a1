package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/hub"
)

func (a *app) hubRecoverCommand() *cobra.Command {
	var dir, backup, pass string
	var drop, fresh bool
	c := &cobra.Command{
		Use: "recover", Short: "Go on with one node, when most are gone for good", Args: cobra.NoArgs,
		Long: `Make the stopped node in --data-dir the only one of its cluster, when most of the other nodes are
gone for good. Its log is kept. The other nodes must not come back: empty their directories, then
join them anew. With --from-backup make a node of a backup in an empty directory instead.

The next start raises the cluster's epoch: nothing is done any more with the authority of what was
before. Running work goes on; its runners renew it.`,
		Example: `  tugline hub recover --data-dir /var/lib/tugline
  tugline hub recover --data-dir /var/lib/tugline --from-backup monday.backup.tar --passphrase-file pass`,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usage("`tugline hub recover` needs --data-dir")
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			var r hub.Recovered
			if backup == "" {
				if fresh || pass != "" {
					return usage("--passphrase-file and --new-keys go with --from-backup")
				}
				if _, err := os.Stat(filepath.Join(dir, "node.json")); errors.Is(err, fs.ErrNotExist) {
					return usage("no hub node lives in %s; --from-backup makes one of a backup", dir)
				}
				r, err = hub.Recover(dir, drop)
			} else {
				var secret string
				if secret, err = passphrase(pass); err != nil {
					return err
				}
				r, err = hub.RecoverFrom(dir, backup, secret, fresh)
			}
			if err != nil {
				return fail(exitFailed, "%s", sentence(err))
			}
			a.describeRecovery(dir, &r)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "data-dir", "", "data `DIR` of the stopped node (required)")
	f.StringVar(&backup, "from-backup", "", "make a node of this `FILE` in an empty directory")
	f.StringVar(&pass, "passphrase-file", "", "`FILE` with the passphrase of the keys in the backup")
	f.BoolVar(&fresh, "new-keys", false, "make the cluster's keys anew: every runner must enrol again")
	f.BoolVar(&drop, "drop-unreadable", false, "take entries off the end of the log that this version cannot read and that may not be committed")
	return local(c)
}

func (a *app) describeRecovery(dir string, r *hub.Recovered) {
	w := a.out
	fmt.Fprintf(w, "node %s is now the only one of cluster %s\n", r.Node, r.Cluster)
	if r.Backup != nil {
		fmt.Fprintf(w, "  everything after entry %d, of %s, is lost\n", r.Backup.Index, madeAt(*r.Backup))
	} else {
		l := r.Log
		fmt.Fprintf(w, "  its log goes to entry %d\n", l.Before.Last)
		if len(l.MaybeLost) > 0 {
			fmt.Fprintf(w, "  may be lost: what %s acknowledged without it after that entry\n", strings.Join(l.MaybeLost, " and "))
		}
		if l.KeptFrom > 0 {
			fmt.Fprintf(w, "  %s not known to be committed, and now is\n", entries(l.KeptFrom, l.KeptTo))
		}
		if l.DroppedFrom > 0 {
			fmt.Fprintf(w, "  %s not readable, and is dropped\n", entries(l.DroppedFrom, l.DroppedTo))
		}
	}
	fmt.Fprintf(w, "  %s on record; %s\n", plural(r.Jobs, "job", "jobs"), openWords(r.Open))
	for _, o := range r.Open {
		fmt.Fprintf(w, "    %s on %s (attempt %s)\n", o.Job, o.Runner, o.Fence)
	}
	a.describeEnrolments(r)
	fmt.Fprintf(w, "\nThe other nodes must not come back: empty their data directories, and join them anew with\n`tugline hub ticket --role hub`. Start this one with:\n  tugline hub run --data-dir %s", quoted(dir))
	if r.Backup != nil {
		fmt.Fprint(w, " --listen HOST:PORT --mesh-listen :7441")
	}
	fmt.Fprintln(w)
}

// describeEnrolments tells which runners the recovered node will not take as they are.
func (a *app) describeEnrolments(r *hub.Recovered) {
	switch {
	case r.NewKeys && len(r.Runners) > 0:
		fmt.Fprintf(a.out, "  the cluster's keys are new: every runner must enrol again, under its id; of those on record: %s\n", strings.Join(r.Runners, ", "))
	case r.NewKeys:
		fmt.Fprintln(a.out, "  the cluster's keys are new; no runner is on record")
	case r.Backup != nil:
		fmt.Fprintf(a.out, "  its keys are those of %s; to enrol again: runners that have seen newer ones, made by `tugline hub rotate`, `remove` or `restore` since\n", madeAt(*r.Backup))
		if len(r.Runners) > 0 {
			fmt.Fprintf(a.out, "    (on record: %s; `tugline runner list` then shows which do not come back)\n", strings.Join(r.Runners, ", "))
		}
	default:
		return // its own keys are the newest that it has seen
	}
	fmt.Fprintln(a.out, "    once it runs, for each: `tugline hub ticket --for RUNNER`, and on its machine `TUGLINE_TICKET=… tugline runner run`, with its data directory as it is")
	if r.Backup != nil {
		fmt.Fprintln(a.out, "    a runner that enrolled after the backup is not on record: `tugline hub ticket`, and there an empty data directory")
	}
}

// entries names entries of the log.
func entries(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("entry %d was", from)
	}
	return fmt.Sprintf("everything from entry %d to %d was", from, to)
}

func openWords(open []hub.OpenAttempt) string {
	if len(open) == 0 {
		return "no attempt was under way"
	}
	return plural(len(open), "attempt", "attempts") + " under way, to go on once renewed by the runner:"
}

func (a *app) hubDumpCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "dump", Short: "Print the log and state of a stopped node, to be read", Args: cobra.NoArgs,
		Long: `Print the log of the stopped node in --data-dir, one JSON document a line, the oldest entry first,
and last what its state holds. It changes nothing. Hashes of tokens are in it, and whatever people
put into jobs; no keys.`,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usage("`tugline hub dump` needs --data-dir")
			}
			if err := hub.Dump(dir, a.out); err != nil {
				return fail(exitFailed, "%s", sentence(err))
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "data `DIR` of the stopped node (required)")
	return local(c)
}
