package main

import (
	"errors"
	"io"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/format"
	"tugline.dev/tugline/runner/service"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) runnerRunCommand() *cobra.Command {
	var cfg runner.Config
	var labels []string
	var level string
	var viaMesh bool
	var sealed *bool
	c := &cobra.Command{
		Use: "run", Short: "Run a runner on this machine", Args: cobra.NoArgs,
		Long: `Run a runner on this machine. The first time it enrols with a ticket that a hub made;
later it needs none. Give the ticket in TUGLINE_TICKET or on standard input: others on the
machine may read a command line. What jobs may do here is up to runner.yaml in the data
directory: see ` + "`tugline runner config example`" + `. Where only UDP leads to the hubs, use --via-mesh with
a ticket from ` + "`tugline hub ticket --via-mesh`" + `. When it stops, its jobs go on and it finds
them again. The flags are kept in the data directory: a restart needs only --data-dir. A flag that is
given replaces the kept one, and what runner.yaml says counts more than a kept one.

Exit code 78 means that the hub sent it away and that it must not come back by itself, or that a newer
version wrote its data and must run it; 75 that another version of it is in place and that its service is
to start that.`,
		Example: "  TUGLINE_TICKET=tug1_… tugline runner run\n  tugline runner run --ticket - < ticket\n  tugline runner run --slots 4 --label disk=fast",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Dir == "" {
				cfg.Dir = a.runnerDir()
			}
			early, err := logger("info", a.err)
			if err != nil {
				return err
			}
			if cfg.Versions, err = beginVersion(early); err != nil {
				a.say("%v", err)
				return a.become(cfg.Versions, cfg.Dir)
			}
			defer func() {
				endVersion(cfg.Versions, err)
				if errors.Is(err, runner.ErrUpdated) {
					err = a.become(cfg.Versions, cfg.Dir)
				}
			}()
			launchd := a.env(service.Variable) == string(service.Launchd)
			if err := readable(cfg.Dir); err != nil { // before what is in it can be taken for a mistake
				return a.stoodDown(runnerFailed(err), cfg.Dir, launchd)
			}
			err = recallRunnerFlags(cmd.Flags(), cfg.Dir)
			if err != nil {
				return err
			}
			if err := keychainGiven(cmd.Flags(), *sealed, &cfg); err != nil {
				return err
			}
			if cfg.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			if cfg.Slots, err = slotsAsked(cmd.Flags(), cfg.Slots); err != nil {
				return err
			}
			if cfg.Ticket, err = a.ticketGiven(cfg.Ticket); err != nil {
				return err
			}
			file, err := openLog(filepath.Join(cfg.Dir, "logs", "runner.log"))
			if err != nil {
				return fail(exitFailed, "cannot write the runner's log: %v", err)
			}
			defer file.Close()
			log := io.MultiWriter(a.err, file)
			if launchd {
				log = file // launchd keeps what goes to standard error, and never makes it shorter
			}
			if cfg.Logger, err = logger(level, log); err != nil {
				return err
			}
			cfg.Version = thisBuild().Version
			p, err := packaged()
			if err != nil {
				cfg.Logger.Error("who updates this program is not known", "err", err)
			}
			cfg.ManagedBy, cfg.UpdatedBy = p.Manager, p.UpdatedBy()
			if viaMesh {
				end, err := throughMesh(&cfg)
				if err != nil {
					return a.stoodDown(err, cfg.Dir, launchd)
				}
				defer end()
			}
			manager := service.FromSystemd()
			cfg.Notify, cfg.Watchdog = manager.Tell, manager.Watchdog
			r, err := runner.New(cfg)
			if err != nil {
				return &failure{code: exitUsage, text: err.Error(), cause: err}
			}
			undo, err := keepRunnerFlags(cmd.Flags(), cfg.Dir)
			if err != nil {
				cfg.Logger.Warn(unkept, "err", err)
			}
			ctx, stop := a.untilStopped(cmd.Context())
			defer stop()
			if err := service.Starts(cfg.Dir); err != nil {
				cfg.Logger.Warn("an old note stays", "err", err)
			}
			err = r.Run(ctx)
			undo(err)
			return a.stoodDown(runnerFailed(err), cfg.Dir, launchd)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Dir, "data-dir", "", "data `DIR` (default ~/.local/share/tugline/runner)")
	f.StringVar(&cfg.Ticket, "ticket", "", "join `TICKET`, for the first time, - for standard input (TUGLINE_TICKET)")
	f.StringVar(&cfg.Name, "name", "", "its `NAME` in the mesh (default the machine's)")
	f.IntVar(&cfg.Slots, "slots", 0, "jobs `N` at a time that people ask for, 0 to 16 (default as runner.yaml says, else 1)")
	f.StringArrayVar(&labels, "label", nil, "label `K=V` that jobs may require (repeatable)")
	f.StringVar(&cfg.Transport, "transport", "", "`HOW` to reach the hub: ws, http or auto (default as runner.yaml says)")
	f.BoolVar(&viaMesh, "via-mesh", false, "reach the hubs through their tunnel, where only UDP passes")
	sealed = keychainFlag(f)
	f.StringVar(&level, "log-level", "info", "`LEVEL` of the log: debug, info, warn, error")
	return local(c)
}

// readable refuses a data directory that only a newer version can read.
func readable(dir string) error {
	if err := format.Steps.Check(dir); err != nil && !errors.Is(err, syscall.ENOTDIR) { // one that is a file is told of by whoever reads the flags
		return err
	}
	var newer *durable.Newer
	if _, err := service.Installed(dir); errors.As(err, &newer) {
		return newer
	}
	return nil // most runners are no service
}

// stoodDown leaves a note where the hub sent the runner away. launchd knows no exit code
// that means not to start a program again but 0.
func (a *app) stoodDown(err error, dir string, launchd bool) error {
	if exitCode(err) != exitStandDown {
		return err
	}
	if noted := service.StoodDown(dir, sentence(err)); noted != nil {
		a.say("%s", sentence(noted))
	}
	if !launchd {
		return err
	}
	a.say("%s", sentence(err))
	return nil
}

// slotsAsked gives the slots of a flag as a runner's configuration has them: one that
// was not given leaves them to the owner's rules.
func slotsAsked(f *pflag.FlagSet, n int) (int, error) {
	switch {
	case !f.Changed("slots"):
		return 0, nil
	case n < 0 || n > fleet.MaxSlots:
		return 0, usage("--slots %d is not from 0 to %d", n, fleet.MaxSlots)
	case n == 0:
		return runner.NoSlots, nil
	}
	return n, nil
}
