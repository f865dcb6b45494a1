package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/service"
)

func (a *app) runnerInstallCommand() *cobra.Command {
	var cfg runner.Config
	var labels []string
	var mode string
	var viaMesh, show bool
	var sealed *bool
	c := &cobra.Command{
		Use: "install", Short: "Install a runner on this machine as a service", Args: cobra.NoArgs,
		Long: `Install a runner on this machine as a service: enrol it, place the program, write the unit,
start it. Run again it changes nothing, or what has changed; a newer program replaces the one
from before, and jobs go on meanwhile. There are two modes.

` + service.Agent.TradeOff() + `

` + service.Daemon.TradeOff() + `

The PATH of whoever installs it is kept for the service, so that agent CLIs are found. What jobs
may do is up to runner.yaml in the data directory. A program that a package brought (.deb, .rpm,
Homebrew) is used where it lies, and its package manager alone replaces it.`,
		Example: "  tugline runner install --ticket - < ticket\n  tugline runner install --print\n  sudo tugline runner install --mode daemon --ticket - --slots 4 < ticket",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.serviceLayout(mode)
			if err != nil {
				return err
			}
			if l.Mode == service.Daemon && os.Geteuid() != 0 && !show {
				return usage("a daemon is installed by root: run it again with sudo, or with --mode agent as your own user")
			}
			cfg.Dir = l.Data
			if err := keychainGiven(cmd.Flags(), *sealed, &cfg); err != nil {
				return err
			}
			if *sealed && l.Mode == service.Daemon {
				return usage("--keychain is for --mode agent: a daemon has nobody's login, and so no Keychain")
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
			return a.install(cmd.Context(), l, cfg, cmd.Flags(), viaMesh, show)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&mode, "mode", "", "`MODE`, agent or daemon (default agent, for root daemon)")
	f.StringVar(&cfg.Ticket, "ticket", "", "join `TICKET`, - for standard input (TUGLINE_TICKET)")
	f.StringVar(&cfg.Name, "name", "", "its `NAME` in the mesh (default the machine's)")
	f.IntVar(&cfg.Slots, "slots", 0, "jobs `N` at a time that people ask for, 0 to 16 (default as runner.yaml says, else 1)")
	f.StringArrayVar(&labels, "label", nil, "label `K=V` that jobs may require (repeatable)")
	f.StringVar(&cfg.Transport, "transport", "", "`HOW` to reach the hub: ws, http or auto (default as runner.yaml says)")
	f.BoolVar(&viaMesh, "via-mesh", false, "reach the hubs through their tunnel, where only UDP passes")
	sealed = keychainFlag(f)
	f.BoolVar(&show, "print", false, "show what would be done, with every file, and write nothing")
	return local(c)
}

// serviceInit is the service manager of this kind of machine.
func serviceInit() service.Init {
	if runtime.GOOS == "darwin" {
		return service.Launchd
	}
	return service.Systemd
}

// serviceLayout gives where a service of a mode has everything here.
func (a *app) serviceLayout(mode string) (service.Layout, error) {
	if mode == "" {
		mode = string(service.Agent)
		if os.Geteuid() == 0 {
			mode = string(service.Daemon)
		}
	}
	if mode != string(service.Agent) && mode != string(service.Daemon) {
		return service.Layout{}, usage("--mode %q is neither agent nor daemon", mode)
	}
	data := a.home("XDG_DATA_HOME", ".local/share")
	config := filepath.Dir(a.home("XDG_CONFIG_HOME", ".config"))
	home := a.env("HOME")
	if mode == string(service.Agent) && (!filepath.IsAbs(data) || !filepath.IsAbs(home)) {
		return service.Layout{}, usage("HOME is not set, so that there is no place for the runner")
	}
	l := service.Lay(serviceInit(), service.Mode(mode), service.Folders{Home: home, Data: data, Config: config})
	p, err := packaged()
	if err != nil {
		return l, fail(exitFailed, "%s", sentence(err))
	}
	return l.By(p), nil
}

// thisProgram is the path of this program, links resolved.
func thisProgram() (string, error) {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	return program, err
}

// packaged says which package manager looks after this program.
func packaged() (service.Package, error) {
	program, err := thisProgram()
	if err != nil {
		return service.Package{}, err
	}
	return service.PackageOf(program)
}

// ticketGiven reads the ticket from where it was given.
func (a *app) ticketGiven(flag string) (string, error) {
	switch flag {
	case "":
		return a.env("TUGLINE_TICKET"), nil
	case "-":
		return a.readSecret("join ticket")
	}
	return flag, nil
}

func (a *app) install(ctx context.Context, l service.Layout, cfg runner.Config, flags *pflag.FlagSet, viaMesh, show bool) error {
	program, err := thisProgram()
	if err != nil {
		return fail(exitFailed, "cannot find this program: %v", err)
	}
	who, err := user.Current()
	if err != nil {
		return fail(exitFailed, "cannot tell who installs it: %v", err)
	}
	name, enrolled, err := runner.Enrolled(cfg.Dir)
	if errors.Is(err, fs.ErrPermission) && show {
		err = nil
	}
	if err != nil {
		return &failure{code: exitFailed, text: err.Error(), cause: err}
	}
	if !enrolled && cfg.Ticket == "" && !show {
		return usage("this machine has no runner yet: make a ticket with `tugline hub ticket` on the hub, and give it with --ticket - or in TUGLINE_TICKET")
	}
	fmt.Fprintln(a.out, l.Mode.TradeOff())
	if cfg.Ticket != "" && !show {
		how, err := runner.CheckProgram(ctx, cfg.Ticket, thisBuild().Version, program)
		if err != nil {
			return &failure{code: exitCode(runnerFailed(err)), text: withoutCodes(err.Error(), err), cause: err}
		}
		fmt.Fprintf(a.out, "the program was checked: %s\n", how)
	}
	verb := ""
	if show {
		verb = "would make: "
	}
	r := service.Request{
		Layout: l, Program: program, Version: thisBuild().Version, Env: a.environ, Who: who.Username, UID: os.Getuid(),
		Control: service.Tools{UID: os.Getuid()}, Print: show,
		Say:  func(change string) { fmt.Fprintf(a.out, "%s%s\n", verb, change) },
		Note: func(note string) { a.say("%s", note) },
	}
	if !enrolled {
		r.Enrol = func(ctx context.Context) (err error) {
			name, err = enrolNow(ctx, cfg, viaMesh)
			return err
		}
	}
	// How it is run is kept where `runner run` looks for it.
	if !show && (!enrolled || anyGiven(flags, "name", "slots", "label", "transport", "via-mesh", "keychain")) {
		r.Keep = func() error { return keepGiven(flags, cfg.Dir) }
	}
	changed, err := service.Install(ctx, r)
	switch {
	case err != nil:
		return installFailed(err)
	case show:
		return nil
	case changed == 0:
		fmt.Fprintf(a.out, "nothing changed: runner %s is installed, %s\n", name, thisBuild().Version)
		return nil
	}
	fmt.Fprintf(a.out, "runner %s is installed and runs; its data are in %s\n", name, l.Data)
	return nil
}

// enrolNow makes the data directory a runner's, and gives its name.
func enrolNow(ctx context.Context, cfg runner.Config, viaMesh bool) (string, error) {
	cfg.Version, cfg.Logger = thisBuild().Version, slog.New(slog.DiscardHandler)
	if viaMesh {
		end, err := throughMesh(&cfg)
		if err != nil {
			return "", err
		}
		defer end()
	}
	r, err := runner.New(cfg)
	if err != nil {
		return "", err
	}
	if err := r.Enrol(ctx); err != nil {
		return "", err
	}
	name, _, err := runner.Enrolled(cfg.Dir)
	return name, err
}

func installFailed(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	failed := runnerFailed(err)
	if errors.As(failed, &f) {
		f.text = withoutCodes(err.Error(), err) + "; what was told before is in place, and another run goes on from there"
	}
	return failed
}

func anyGiven(f *pflag.FlagSet, names ...string) bool {
	for _, n := range names {
		if f.Changed(n) {
			return true
		}
	}
	return false
}

// keepGiven adds the flags of an installation to those with which the runner is run.
func keepGiven(given *pflag.FlagSet, dir string) error {
	if err := recallFlags(given, dir); err != nil {
		return err
	}
	return keepFlags(given, dir)
}

func (a *app) runnerUninstallCommand() *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use: "uninstall", Short: "Take the service away; what jobs left stays", Args: cobra.NoArgs,
		Long: `Stop the runner and take its service, its programs and its link away. The data directory stays, with
the identity, worktrees, caches and logs: nothing that a job left is lost. A later install goes on with it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.serviceLayout(mode)
			if err != nil {
				return err
			}
			rec, err := service.Installed(l.Data)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(a.out, "nothing changed: no runner is installed here as %s (%s has no service.json)\n", l.Mode, l.Data)
				return nil
			}
			if err == nil {
				err = rec.Expect(l)
			}
			if err != nil {
				return &failure{code: exitFailed, text: sentence(err), cause: err}
			}
			left, err := service.Uninstall(cmd.Context(), rec, service.Tools{UID: os.Getuid()}, os.Getuid(),
				func() (bool, error) { return runner.Busy(l.Data) }, func(change string) { fmt.Fprintln(a.out, change) })
			if err != nil {
				return fail(exitFailed, "%s", sentence(err))
			}
			describeLeft(a.out, left)
			return nil
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "`MODE` in which it was installed, agent or daemon (default agent, for root daemon)")
	return local(c)
}

func describeLeft(w io.Writer, left service.Uninstalled) {
	fmt.Fprintf(w, "The service is gone. Left is %s:\n", left.Data)
	for _, d := range []struct{ dir, what string }{{"trees/work", "worktrees of jobs"}, {"trees/repos", "repositories they come from, with rescued work"}, {"attempts", "records and output that a hub has not had yet"}} {
		if entries, err := os.ReadDir(filepath.Join(left.Data, d.dir)); err == nil && len(entries) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", filepath.Join(left.Data, d.dir), d.what)
		}
	}
	if left.Programs != "" {
		fmt.Fprintf(w, "Jobs still run here under their supervisors, and need %s; an install goes on with them.\n", left.Programs)
	}
	for _, k := range left.Kept {
		fmt.Fprintf(w, "Left is also %s.\n", k)
	}
	fmt.Fprintf(w, "The hub still knows this runner: `tugline runner remove NAME` ends that. To lose what is left: rm -r %s\n", left.Data)
}
