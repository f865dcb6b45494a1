package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is what the commands have of the world around them.
type app struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	// ttyOut and ttyErr say that a person at a terminal reads it; plain, that colour is
	// not wanted even so.
	ttyOut, ttyErr, plain bool
	// interrupts gives the signals that ask the program to stop, until the returned
	// function is called.
	interrupts func() (<-chan os.Signal, func())

	hub, token, caFile string
	json               bool
}

func newApp() *app {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), interrupts: func() (<-chan os.Signal, func()) {
		c := make(chan os.Signal, 4)
		signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		return c, func() { signal.Stop(c) }
	}}
	a.plain = a.env("NO_COLOR") != "" || a.env("TERM") == "dumb"
	a.ttyOut, a.ttyErr = term.IsTerminal(int(os.Stdout.Fd())), term.IsTerminal(int(os.Stderr.Fd()))
	return a
}

func (a *app) colourOut() bool { return a.ttyOut && !a.plain }
func (a *app) colourErr() bool { return a.ttyErr && !a.plain }

// env gives the value of an environment variable.
func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if k, v, _ := strings.Cut(a.environ[i], "="); k == name {
			return v
		}
	}
	return ""
}

// home gives a directory of the user: that of an XDG variable, or one below HOME.
func (a *app) home(xdg, below string) string {
	if d := a.env(xdg); filepath.IsAbs(d) {
		return filepath.Join(d, "tugline")
	}
	h := a.env("HOME")
	if h == "" {
		h, _ = os.UserHomeDir()
	}
	return filepath.Join(h, below, "tugline")
}

// say writes a line beside the result.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, "tugline: "+format+"\n", args...)
}

// run executes a command line and gives its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if text := sentence(err); text != "" {
		a.say("%s", text)
		var f *failure
		if errors.As(err, &f) && f.help {
			fmt.Fprintf(a.err, "See `%s --help`.\n", cmd.CommandPath())
		}
	}
	return exitCode(err)
}

const (
	groupWork = "work"
	groupLook = "look"
	groupMesh = "mesh"
	groupElse = "else"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tugline",
		Short: "Run coding agents and commands on your own machines",
		Long: `Tugline runs coding agents and commands on your own machines. A small hub holds
the queue and the records; runners pull work from it, do it in git worktrees and
report back with evidence.

Try it on this machine alone, the first in one terminal, the others in a second:
  tugline dev
  tugline exec --repo . -- make test
  tugline run --repo . --harness codex "fix the failing test"`,
		Version:       thisBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Give work:"},
		&cobra.Group{ID: groupLook, Title: "Look and decide:"},
		&cobra.Group{ID: groupMesh, Title: "Run the mesh:"},
		&cobra.Group{ID: groupElse, Title: "Else:"},
	)
	root.SetCompletionCommandGroupID(groupElse)
	root.SetVersionTemplate("tugline {{.Version}}\n")
	root.SetUsageFunc(func(c *cobra.Command) error {
		usageText(c.OutOrStdout(), c)
		return nil
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &failure{code: exitUsage, text: err.Error(), help: true}
	})
	f := root.PersistentFlags()
	f.StringVar(&a.hub, "hub", "", "`URL` of the hub (TUGLINE_HUB; else the current context)")
	f.StringVar(&a.token, "token", "", "operator `TOKEN` (better in TUGLINE_TOKEN: others may see it here)")
	f.StringVar(&a.caFile, "ca-file", "", "`FILE` with the CA certificate of a hub that has its own (TUGLINE_CA_FILE)")
	root.AddCommand(
		a.runCommand(), a.execCommand(),
		a.jobCommand(), a.runnerCommand(), a.sessionCommand(), a.harnessCommand(), a.circuitCommand(), a.budgetCommand(), a.alertsCommand(),
		a.devCommand(), a.hubCommand(), a.tokenCommand(), a.contextCommand(), a.versionCommand(),
	)
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Explain a command", GroupID: groupElse,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command %q; `tugline --help` lists them", strings.Join(args, " "))
			}
			return c.Help()
		},
	})
	each(root, func(c *cobra.Command) {
		c.DisableFlagsInUseLine = true
		if c.Args != nil {
			check := c.Args
			c.Args = func(cmd *cobra.Command, args []string) error {
				err := check(cmd, args)
				if err == nil {
					return nil
				}
				var f *failure
				if errors.As(err, &f) {
					return err
				}
				return &failure{code: exitUsage, text: err.Error(), help: true}
			}
		}
	})
	return root
}

// each walks a command and those below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		each(sub, f)
	}
}

// noCommand refuses words that are no subcommand.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	near := nearest(cmd, args[0])
	if as, ok := calledElse[args[0]]; ok && near != "" {
		near = as
	}
	if near != "" {
		hint = fmt.Sprintf("; did you mean `%s %s`?", cmd.CommandPath(), near)
	}
	return usage("there is no command `%s %s`%s `%s --help` lists them", cmd.CommandPath(), args[0], orDot(hint), cmd.CommandPath())
}

// calledElse are words for what a flag of another command does.
var calledElse = map[string]string{"undrain": "drain --back NODE", "uncordon": "resume"}

// nearest gives the subcommand that a mistyped word is close to: two slips away at
// most and less than half of the word, or that it begins. "" where none is.
func nearest(cmd *cobra.Command, word string) string {
	best, least := "", min(2, (len(word)-1)/2)+1
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		d := slips(word, c.Name())
		if len(word) > 1 && strings.HasPrefix(c.Name(), word) {
			d = 0
		}
		if d < least {
			best, least = c.Name(), d
		}
	}
	return best
}

// slips counts the letters to add, leave out, change or swap with the next one to
// make b of a.
func slips(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func orDot(hint string) string {
	if hint == "" {
		return ";"
	}
	return hint
}

// group makes a command that only holds others.
func group(use, short, in string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, GroupID: in, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

// jsonFlag adds --json.
func (a *app) jsonFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return c
}

// exactly asks for n words and names them when they are missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(args) < len(names) {
			return usage("`%s` needs %s; see `%s --help`", cmd.CommandPath(), strings.Join(names[len(args):], " and "), cmd.CommandPath())
		}
		return usage("`%s` does not take %q; see `%s --help`", cmd.CommandPath(), args[len(names)], cmd.CommandPath())
	}
}

// from asks for the first of the words and takes the others too.
func from(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > len(names) {
			return exactly(names[:min(max(len(args), 1), len(names))]...)(cmd, args)
		}
		return nil
	}
}
