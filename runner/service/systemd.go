package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// managerPatience is how long a user's service manager may take to come up once it may.
const managerPatience = 15 * time.Second

func systemctl(l Layout, words ...string) []string {
	if l.Mode == Agent {
		return append([]string{"systemctl", "--user"}, words...)
	}
	return append([]string{"systemctl"}, words...)
}

// systemd has systemd run the service as it is installed now.
func (w *work) systemd(ctx context.Context, unitChanged bool) error {
	l := w.Layout
	if l.Mode == Agent {
		if err := w.linger(ctx); err != nil {
			return err
		}
	}
	ask := func(words ...string) string {
		out, _ := says(ctx, w.Control, systemctl(l, words...)...)
		return out
	}
	if unitChanged || ask("show", "-p", "NeedDaemonReload", "--value", UnitName) == "yes" {
		if err := w.command(ctx, systemctl(l, "daemon-reload")...); err != nil {
			return err
		}
	}
	if ask("is-enabled", UnitName) != "enabled" {
		if err := w.command(ctx, systemctl(l, "enable", UnitName)...); err != nil {
			return err
		}
	}
	verb := ""
	switch state := ask("show", "-p", "ActiveState", "--value", UnitName); {
	case state != "active":
		verb = "start"
	case w.restart || w.runsAnother(ask("show", "-p", "MainPID", "--value", UnitName)):
		verb = "restart" // jobs go on
	default:
		return nil
	}
	if err := w.command(ctx, systemctl(l, verb, UnitName)...); err != nil {
		return fmt.Errorf("%w; `%s` shows why", err, journal(l))
	}
	return nil
}

func journal(l Layout) string {
	if l.Mode == Agent {
		return "journalctl --user -n 50 -u " + UnitName
	}
	return "journalctl -n 50 -u " + UnitName
}

// runsAnother says whether a process is of another program than the one installed: a run
// before this one was cut short between the switch and the restart.
func (w *work) runsAnother(pid string) bool {
	if pid == "" || pid == "0" {
		return false
	}
	exe, err := os.Readlink("/proc/" + pid + "/exe")
	if w.Layout.Binary != "" {
		real, _ := filepath.EvalSymlinks(w.Layout.Binary)
		return err == nil && exe != real // one that its package has replaced is told by its path
	}
	return err == nil && exe != w.Layout.OfVersion(w.Version)
}

// Lingers says whether the services of a user run without a login: yes, no, or "" where
// it can't be told.
func Lingers(ctx context.Context, c Control, who string) string {
	out, ok := says(ctx, c, "loginctl", "show-user", who, "--property=Linger", "--value")
	switch {
	case ok:
		return out
	case out != "":
		return "no" // logind knows nobody of that name: there was no login and no linger
	}
	return ""
}

// State says what the service manager says of an installed service: active is one that
// runs or is about to.
func State(ctx context.Context, r Record, c Control, uid int) (state string, active bool) {
	l := r.Layout()
	if l.Init == Launchd {
		for _, d := range domains(ctx, l, c, uid) {
			if _, there := says(ctx, c, "launchctl", "print", d+"/"+Label); there {
				return "loaded in " + d, true
			}
		}
		return "not loaded", false
	}
	out, _ := says(ctx, c, systemctl(l, "show", "-p", "ActiveState", "--value", UnitName)...)
	return out, out == "active" || out == "activating"
}

// linger has the user's services run without a login, and waits until there is somebody
// to run them.
func (w *work) linger(ctx context.Context) error {
	if Lingers(ctx, w.Control, w.Who) != "yes" {
		var failed error
		err := w.do("command: loginctl enable-linger "+w.Who, func() error {
			failed = w.tool(ctx, "loginctl", "enable-linger", w.Who)
			return nil // it is said below
		})
		if err != nil {
			return err
		}
		if failed != nil {
			w.Note("the runner will end when you log out, and not start with the machine, because services of your user don't linger (" +
				failed.Error() + "); `sudo loginctl enable-linger " + w.Who + "` mends it")
		}
	}
	if w.Print {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, managerPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		out, code, err := w.Control.Run(ctx, "systemctl", "--user", "show-environment")
		if err == nil && code == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("systemd runs no service manager for %s (%s); log in as that user, not by su or sudo, and install again", w.Who, out), err)
		}
	}
}

func stopSystemd(ctx context.Context, l Layout, c Control, _ int, say func(string)) error {
	if out, _ := says(ctx, c, systemctl(l, "show", "-p", "LoadState", "--value", UnitName)...); out == "loaded" {
		say("stopped " + UnitName + "; its jobs, if any, go on")
		if err := succeed(ctx, c, systemctl(l, "disable", "--now", UnitName)...); err != nil {
			return err
		}
	}
	if err := removeUnit(l.unit(), say); err != nil {
		return err
	}
	if err := succeed(ctx, c, systemctl(l, "daemon-reload")...); err != nil {
		return err
	}
	_, _, err := c.Run(ctx, systemctl(l, "reset-failed", UnitName)...) // it fails where there is nothing to reset
	return err
}
