// Package service puts a runner in place as a service of a machine, takes it away again,
// and speaks with the service manager while the runner runs.
//
//	agent   a service of one user: systemd's user manager with linger, or a LaunchAgent
//	daemon  a service of the machine with a user of its own: a system unit, or a LaunchDaemon
//
// It guarantees that what is in place is left alone, so that a second run changes nothing;
// that nothing is started before the runner is enrolled; that no secret gets into a unit;
// and that taking the service away touches neither the data directory nor what jobs left.
// It leaves to others what the program does, and which version of it there should be.
package service

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tugline.dev/tugline/shared/fleet"
)

// Mode says whose service the runner is.
type Mode string

// The modes.
const (
	Agent  Mode = "agent"
	Daemon Mode = "daemon"
)

// TradeOff says for people what a mode gives and what it costs.
func (m Mode) TradeOff() string {
	if m == Daemon {
		return "daemon: a service of the machine with a user of its own. It needs nobody's login and starts with\n" +
			"the machine; it sees nobody's keychain, ssh keys or logins of agent CLIs: those that jobs need are\n" +
			"given to its own user."
	}
	return "agent: a service of your user. It sees your keychain, ssh keys and logins of agent CLIs, and its jobs\n" +
		"may do what you may; without a login it runs only where the machine lets your services linger (Linux)\n" +
		"or somebody logs in (macOS)."
}

// Init is the kind of service manager.
type Init string

// The service managers.
const (
	Systemd Init = "systemd"
	Launchd Init = "launchd"
)

// The names of the service.
const (
	UnitName = "tugline-runner.service"
	Label    = "dev.tugline.runner"

	// Variable tells the program that launchd started it, for which the exit code of a
	// runner that was sent away means something else.
	Variable = "TUGLINE_SERVICE"
)

// Layout says where everything of an installation is.
type Layout struct {
	Init   Init
	Mode   Mode
	Prefix string // holds versions/V/tugline and the link current
	Data   string // the runner's data directory
	Unit   string // unit or property list
	Link   string // a link for people's PATH; "": none
	User   string // whom the service runs as; "": whoever installs it

	// Of a program that a package manager looks after:
	ManagedBy string // which one; "": the program is in versions
	Binary    string // its path for good
	DropIn    string // where this machine's environment is added to the package's unit; "": the unit is ours
}

// Folders are the user's own, for an agent.
type Folders struct {
	Home   string
	Data   string // the program's below the user's data, such as ~/.local/share/tugline
	Config string // the user's configuration, such as ~/.config
}

// Lay gives the layout of a mode.
func Lay(init Init, mode Mode, f Folders) Layout {
	l := Layout{Init: init, Mode: mode}
	switch {
	case mode == Agent && init == Systemd:
		l.Prefix, l.Unit, l.Link = f.Data, filepath.Join(f.Config, "systemd", "user", UnitName), filepath.Join(f.Home, ".local", "bin", "tugline")
	case mode == Agent:
		l.Prefix, l.Unit, l.Link = f.Data, filepath.Join(f.Home, "Library", "LaunchAgents", Label+".plist"), filepath.Join(f.Home, ".local", "bin", "tugline")
	case init == Systemd:
		l.Prefix, l.Unit, l.Link, l.User = "/var/lib/tugline-runner", "/etc/systemd/system/"+UnitName, "/usr/local/bin/tugline", "tugline-runner"
	default:
		l.Prefix, l.Unit, l.Link, l.User = "/usr/local/var/tugline-runner", "/Library/LaunchDaemons/"+Label+".plist", "/usr/local/bin/tugline", "_tugline"
	}
	l.Data = filepath.Join(l.Prefix, "runner")
	return l
}

// Program is the path that the service starts: the package's, or through the switch
// between versions.
func (l Layout) Program() string {
	return cmp.Or(l.Binary, filepath.Join(l.Prefix, "current", "tugline"))
}

// unit is the file by which the service is as it is installed here: the unit itself, or
// what is added to that of a package.
func (l Layout) unit() string { return cmp.Or(l.DropIn, l.Unit) }

// OfVersion is the path of the program of one version.
func (l Layout) OfVersion(version string) string {
	return filepath.Join(l.Prefix, "versions", version, "tugline")
}

var versionName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,99}$`)

// variable is one variable of the service's environment.
type variable struct{ Name, Value string }

// carried are variables that hold for the service as they hold where it is installed.
// None of them is a secret.
var carried = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// carriedByAgent are of the user whose service it is: where CLIs keep their logins.
var carriedByAgent = []string{"CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"}

// environment gives what the service's environment is made of, from that of whoever
// installs it, and what of it was left out and why.
func environment(l Layout, env []string) (vars []variable, notes []string) {
	value := func(name string) string {
		for _, kv := range slices.Backward(env) {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v
			}
		}
		return ""
	}
	path, dropped := servicePath(value("PATH"))
	for _, d := range dropped {
		notes = append(notes, "left out of the service's PATH: "+d)
	}
	vars = append(vars, variable{"PATH", path})
	names := carried
	if l.Mode == Agent {
		names = slices.Concat(carried, carriedByAgent)
	}
	for _, n := range names {
		v := value(n)
		switch {
		case v == "":
		case strings.Contains(v, "@"):
			// A unit is for everybody on the machine to read.
			notes = append(notes, n+" has a password or a user in it and is not kept; give it to the service in a drop-in of your own")
		case plain(v) != nil:
			notes = append(notes, n+" has characters that a unit can't have and is not kept")
		default:
			vars = append(vars, variable{n, v})
		}
	}
	if l.Init == Launchd {
		vars = append(vars, variable{Variable, string(Launchd)})
		if l.User != "" {
			vars = append(vars, variable{"HOME", l.Prefix})
		}
	}
	return vars, notes
}

// always are at the end of every service's PATH.
var always = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"}

// servicePath gives the absolute directories of a PATH, each once. What everybody may
// write to is no place to start programs from for months.
func servicePath(path string) (kept string, dropped []string) {
	var dirs []string
	for _, d := range filepath.SplitList(path) {
		at := filepath.Clean(d)
		st, err := os.Stat(at)
		switch {
		case d == "":
			dropped = append(dropped, "an empty name, which is the directory one is in")
		case !filepath.IsAbs(d):
			dropped = append(dropped, fmt.Sprintf("%q, which is not absolute", d))
		case plain(d) != nil:
			dropped = append(dropped, fmt.Sprintf("%q, which a unit can't have", d))
		case err == nil && st.Mode().Perm()&0o002 != 0:
			dropped = append(dropped, fmt.Sprintf("%q, to which everybody may write", d))
		case !slices.Contains(dirs, at):
			dirs = append(dirs, at)
		}
	}
	for _, d := range always {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, ":"), dropped
}

// plain refuses what can't stand in a unit or a property list.
func plain(s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return fmt.Errorf("%q has a control character or is not UTF-8, which a unit can't have: %w", s, fleet.BadRequest)
	}
	return nil
}

// check says what is wrong with a layout.
func (l Layout) check(version string) error {
	if !versionName.MatchString(version) {
		return fmt.Errorf("the version %q can't be the name of a directory: %w", version, fleet.BadRequest)
	}
	for _, p := range []string{l.Prefix, l.Data, l.Unit, cmp.Or(l.Link, "/")} {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("%q is not absolute: %w", p, fleet.BadRequest)
		}
		if err := plain(p); err != nil {
			return err
		}
	}
	if l.Init == Systemd && strings.ContainsAny(l.Program(), "\"'\\") {
		return fmt.Errorf("systemd starts no program whose path has a quote or a backslash, as %s has; set XDG_DATA_HOME to another place: %w", l.Program(), fleet.BadRequest)
	}
	return nil
}
