package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Package says which package manager looks after a program: that replaces it, and nobody
// else does.
type Package struct {
	Manager string `json:"manager"` // deb, rpm or brew
	Program string `json:"program"` // the path that stays while versions come and go
}

// updatedBy has a command for each package manager that is known.
var updatedBy = map[string]string{
	"deb":  "sudo apt-get install ./tugline_VERSION_ARCH.deb",
	"rpm":  "sudo rpm -U tugline-VERSION.ARCH.rpm",
	"brew": "brew upgrade tugline",
}

// UpdatedBy is the command that updates the program.
func (p Package) UpdatedBy() string { return updatedBy[p.Manager] }

// packageFile is where a package leaves a Package, seen from the program's directory.
const packageFile = "../lib/tugline/package.json"

// PackageOf says which package manager looks after a program, by its path, links
// resolved; none is a Package without a manager.
func PackageOf(exe string) (Package, error) {
	at := filepath.Join(filepath.Dir(exe), packageFile)
	b, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return Package{}, nil
	}
	var p Package
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil && (updatedBy[p.Manager] == "" || !filepath.IsAbs(p.Program)) {
		err = fmt.Errorf("it names the manager %q and the program %q", p.Manager, p.Program)
	}
	if err != nil {
		return Package{}, fmt.Errorf("read which package manager looks after %s: %s: %w", exe, at, err)
	}
	return p, nil
}

// The files of a package of the machine's, and what is added to its unit.
const (
	packagedUnit = "/usr/lib/systemd/system/" + UnitName
	unitDropIn   = "/etc/systemd/system/" + UnitName + ".d/environment.conf"
)

// By gives the layout for a program that a package manager looks after, or the same one.
// A daemon's unit comes with the package where that is the machine's own.
func (l Layout) By(p Package) Layout {
	if p.Manager == "" {
		return l
	}
	l.ManagedBy, l.Binary, l.Link = p.Manager, p.Program, ""
	if l.Init == Systemd && l.Mode == Daemon && p.Manager != "brew" {
		l.Unit, l.DropIn = packagedUnit, unitDropIn
	}
	return l
}

// PackagedUnit is the unit that comes with a package.
func PackagedUnit() ([]byte, error) {
	l := Lay(Systemd, Daemon, Folders{}).By(Package{Manager: "deb", Program: "/usr/bin/tugline"})
	return render(l, []variable{{"PATH", strings.Join(always, ":")}})
}

// FormulaFiles are the property list and the unit that a Homebrew formula writes, with the
// formula's own names for places.
func FormulaFiles() (plist, unit []byte, err error) {
	f := filling{
		Origin: "It came with a formula; the runner has to be enrolled first.",
		Label:  Label, Errors: "#{var}/log/tugline.log", Arguments: []string{"#{opt_bin}/tugline", "runner", "run"},
		Variables: []variable{{"PATH", "#{HOMEBREW_PREFIX}/bin:" + strings.Join(always, ":")}},
	}
	f.Mode, f.ManagedBy = Agent, "brew"
	f.Init = Systemd
	if unit, err = fill(f); err != nil {
		return nil, nil, err
	}
	f.Init = Launchd
	f.Variables = append(f.Variables, variable{Variable, string(Launchd)})
	plist, err = fill(f)
	return plist, unit, err
}

// renderDropIn gives what is added to the unit of a package: the environment of the
// service on this machine.
func renderDropIn(_ Layout, vars []variable) ([]byte, error) {
	var b strings.Builder
	b.WriteString("# " + writtenHere + "\n[Service]\n")
	for _, v := range vars {
		if err := plain(v.Value); err != nil {
			return nil, err
		}
		b.WriteString("Environment=" + unitWord(v.Name+"="+v.Value) + "\n")
	}
	return []byte(b.String()), nil
}

// packaged sees that what the package has to bring is there.
func (w *work) packaged() error {
	need := []string{w.Layout.Binary}
	if w.Layout.DropIn != "" {
		need = append(need, w.Layout.Unit)
	}
	for _, at := range need {
		if _, err := os.Stat(at); err != nil {
			return fmt.Errorf("the package (%s) is not whole, install it again: %w", w.Layout.ManagedBy, err)
		}
	}
	was, err := Installed(w.Layout.Data)
	// systemd tells which program runs, launchd does not.
	w.restart = w.restart || err == nil && w.Layout.Init == Launchd && was.Installed != w.Version
	return nil
}

// supersede takes away what an installation of another kind left, where a package has
// taken its place or it that of a package. Its versions stay: jobs may run from there.
func (w *work) supersede(ctx context.Context) error {
	was, err := Installed(w.Layout.Data)
	if err != nil || was.ManagedBy == w.Layout.ManagedBy {
		return nil // a record that can't be read is written anew
	}
	if err := was.Expect(Lay(w.Layout.Init, w.Layout.Mode, Folders{})); err != nil {
		return err
	}
	w.restart = true
	old := was.Layout()
	if old.unit() != w.Layout.unit() {
		if w.Layout.Init == Systemd {
			if err := w.disable(ctx); err != nil {
				return err
			}
		}
		if err := w.gone(old.unit()); err != nil {
			return err
		}
	}
	if is, err := os.Readlink(old.Link); err == nil && is == old.Program() && old.Link != w.Layout.Link {
		return w.gone(old.Link)
	}
	return nil
}

// disable takes away the links by which systemd would go on to look for the unit where it
// was.
func (w *work) disable(ctx context.Context) error {
	if is, _ := says(ctx, w.Control, systemctl(w.Layout, "is-enabled", UnitName)...); is != "enabled" {
		return nil
	}
	return w.command(ctx, systemctl(w.Layout, "disable", UnitName)...)
}

// gone takes a file away.
func (w *work) gone(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return w.do("removed "+path, func() error { return os.Remove(path) })
}
