package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// Control runs the machine's own tools, such as systemctl and launchctl.
type Control interface {
	// Run gives what a tool said and its exit code. An error says that it did not run, or
	// that ctx ended.
	Run(ctx context.Context, argv ...string) (out string, code int, err error)
}

// Request asks for an installation.
type Request struct {
	Layout  Layout
	Program string   // file of the program to install
	Version string   // of it
	Env     []string // of whoever installs
	Who     string   // their name
	UID     int      // likewise
	Control Control
	Enrol   func(context.Context) error // makes the data directory a runner's; nil where it is one
	Keep    func() error                // keeps how it is to be run; nil where nothing was said
	Say     func(change string)         // told before each change
	Note    func(note string)           // told beside them
	Print   bool                        // only show what would be changed, with every file
}

// Install puts a runner in place as a service and starts it. It gives how many things it
// changed, or would change: none where all of it is in place. After an error what was
// told is in place, and another run goes on from there.
func Install(ctx context.Context, r Request) (changed int, err error) {
	if err := r.Layout.check(r.Version); err != nil {
		return 0, fmt.Errorf("install the runner: %w", err)
	}
	w := &work{Request: r, uid: -1, gid: -1}
	err = w.install(ctx)
	if err != nil {
		err = fmt.Errorf("install the runner: %w", err)
	}
	return w.changed, err
}

func (w *work) install(ctx context.Context) error {
	var notes []string
	w.vars, notes = environment(w.Layout, w.Env)
	for _, n := range notes {
		w.Note(n)
	}
	if err := w.makeUser(ctx); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if w.Layout.Mode == Agent {
		mode = 0o700
	}
	if err := w.dir(w.Layout.Prefix, mode); err != nil {
		return err
	}
	for _, d := range []string{w.Layout.Data, filepath.Join(w.Layout.Data, "logs")} {
		if err := w.dir(d, 0o700); err != nil {
			return err
		}
	}
	if w.Enrol != nil {
		if err := w.do("enrolment with the hub; its keys go to "+filepath.Join(w.Layout.Data, "identity.json")+" (0600)", func() error { return w.Enrol(ctx) }); err != nil {
			return err
		}
	}
	if w.Keep != nil {
		if err := w.keep(); err != nil {
			return err
		}
	}
	if err := w.program(); err != nil {
		return err
	}
	if err := w.supersede(ctx); err != nil {
		return err
	}
	render := render
	if w.Layout.DropIn != "" {
		render = renderDropIn
	}
	unit, err := render(w.Layout, w.vars)
	if err != nil {
		return err
	}
	changed, err := w.file(w.Layout.unit(), unit, 0o644)
	if err != nil {
		return err
	}
	w.restart = w.restart || changed
	record, err := w.Layout.record(w.Version, w.vars)
	if err != nil {
		return err
	}
	if _, err := w.file(recordFile(w.Layout.Data), record, 0o600); err != nil {
		return err
	}
	if err := w.hand(); err != nil {
		return err
	}
	if err := w.forPeople(); err != nil {
		return err
	}
	if w.Layout.Init == Launchd {
		return w.launchd(ctx)
	}
	return w.systemd(ctx, changed)
}

// keep keeps how the runner is to be run; it is told where that was another way before.
func (w *work) keep() error {
	at := filepath.Join(w.Layout.Data, "flags.json")
	was, err := os.ReadFile(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.Keep(); err != nil {
		return err
	}
	if now, err := os.ReadFile(at); err == nil && !bytes.Equal(was, now) {
		w.restart = true
		return w.do("file "+at+" (0600), how it is run", func() error { return nil })
	}
	return nil
}

// makeUser makes the user that a daemon runs as.
func (w *work) makeUser(ctx context.Context) error {
	l := w.Layout
	if l.User == "" {
		return nil
	}
	var none user.UnknownUserError
	err := w.knowUser()
	if !errors.As(err, &none) {
		return err
	}
	argv := []string{"useradd", "--system", "--user-group", "--home-dir", l.Prefix, "--no-create-home", "--shell", "/usr/sbin/nologin", l.User}
	if l.Init == Launchd {
		argv = []string{"sysadminctl", "-addUser", l.User, "-fullName", "Tugline runner", "-home", l.Prefix, "-shell", "/usr/bin/false", "-roleAccount"}
	}
	return w.do("user "+l.User, func() error {
		if err := w.tool(ctx, argv...); err != nil {
			return err
		}
		return w.knowUser()
	})
}

// command runs a tool that changes something, told as a change.
func (w *work) command(ctx context.Context, argv ...string) error {
	return w.do("command: "+strings.Join(argv, " "), func() error { return w.tool(ctx, argv...) })
}

// tool runs a tool that has to succeed.
func (w *work) tool(ctx context.Context, argv ...string) error {
	return succeed(ctx, w.Control, argv...)
}

func succeed(ctx context.Context, c Control, argv ...string) error {
	out, code, err := c.Run(ctx, argv...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%s ended with %d: %s", strings.Join(argv, " "), code, strings.Join(strings.Fields(out), " "))
	}
	return nil
}

// says gives what a tool said, without blanks around it; "" where it did not run.
func says(ctx context.Context, c Control, argv ...string) (out string, ok bool) {
	out, code, err := c.Run(ctx, argv...)
	return strings.TrimSpace(out), err == nil && code == 0
}

// Uninstalled says what an uninstallation left.
type Uninstalled struct {
	Data     string   // the data directory, with the identity, worktrees, caches and logs
	Programs string   // the programs, where jobs still need them; else ""
	Kept     []string // what else is still there
}

// Uninstall stops the service and takes away what Install has put in place, but for the
// data directory. Busy is asked once the runner has stopped whether jobs of its go on:
// they need the program.
func Uninstall(ctx context.Context, r Record, c Control, uid int, busy func() (bool, error), say func(string)) (Uninstalled, error) {
	l := r.Layout()
	left := Uninstalled{Data: l.Data}
	fail := func(err error) (Uninstalled, error) { return left, fmt.Errorf("uninstall the runner: %w", err) }
	stop := stopSystemd
	if l.Init == Launchd {
		stop = stopLaunchd
	}
	if err := stop(ctx, l, c, uid, say); err != nil {
		return fail(err)
	}
	if is, err := os.Readlink(l.Link); err == nil && is == l.Program() {
		say("removed " + l.Link)
		if err := os.Remove(l.Link); err != nil {
			return fail(err)
		}
	}
	runs, err := busy()
	if err != nil {
		return fail(err)
	}
	if runs {
		left.Programs = filepath.Join(l.Prefix, "versions")
	} else {
		for _, name := range []string{"current", "versions", "update.json", ".update.lock"} {
			at := filepath.Join(l.Prefix, name)
			if _, err := os.Lstat(at); err != nil {
				continue
			}
			say("removed " + at)
			if err := os.RemoveAll(at); err != nil {
				return fail(err)
			}
		}
	}
	if l.Mode == Agent && l.Init == Systemd {
		left.Kept = append(left.Kept, "that services of your user linger; `loginctl disable-linger` ends that")
	}
	if l.User != "" {
		left.Kept = append(left.Kept, "the user "+l.User)
	}
	if l.ManagedBy != "" {
		left.Kept = append(left.Kept, "the program, "+l.Program()+", which its package manager removes ("+l.ManagedBy+")")
	}
	if err := os.Remove(recordFile(l.Data)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	return left, nil
}

// removeUnit takes a unit away.
func removeUnit(path string, say func(string)) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		say("removed " + path)
	}
	return err
}
