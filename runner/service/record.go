package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tugline.dev/tugline/runner/durable"
)

const recordVersion = 1

// Record is service.json in the data directory: what was installed.
type Record struct {
	Version int    `json:"version"`
	Mode    Mode   `json:"mode"`
	Init    Init   `json:"init"`
	Prefix  string `json:"prefix"`
	Unit    string `json:"unit"`
	DropIn  string `json:"drop_in,omitempty"`
	Link    string `json:"link,omitempty"`
	User    string `json:"user,omitempty"`
	Path    string `json:"path"` // PATH of the service
	// Environment is what the unit sets, NAME=VALUE each.
	Environment []string `json:"environment,omitempty"`
	ManagedBy   string   `json:"managed_by"`        // deb, rpm or brew; "": the program is in versions and replaced by itself
	Program     string   `json:"program,omitempty"` // of the package
	Installed   string   `json:"installed"`         // version of the program that wrote this
}

func recordFile(data string) string { return filepath.Join(data, "service.json") }

// Installed reads the record of a data directory. The error wraps fs.ErrNotExist where the
// runner is no service.
func Installed(data string) (Record, error) {
	var r Record
	b, err := os.ReadFile(recordFile(data))
	if err != nil {
		return r, fmt.Errorf("read how the runner was installed: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read how the runner was installed: %s: %w", recordFile(data), err)
	}
	if r.Version > recordVersion {
		return r, &durable.Newer{What: "how the runner was installed", Path: recordFile(data), Format: r.Version, Known: recordVersion}
	}
	return r, nil
}

// Expect refuses a record of a daemon by which root would take away other things than an installation puts in place: the
// service's user may write it.
func (r Record) Expect(l Layout) error {
	if l.Mode != Daemon {
		return nil
	}
	l = Lay(l.Init, Daemon, Folders{}).By(Package{Manager: r.ManagedBy, Program: r.Program})
	if r.Layout() != l {
		return fmt.Errorf("%s does not name the places of a daemon, which are %s, %s and %s; look at it, and install again to have it right", recordFile(l.Data), l.Prefix, l.unit(), l.Link)
	}
	return nil
}

// Layout gives where everything of it is.
func (r Record) Layout() Layout {
	return Layout{
		Init: r.Init, Mode: r.Mode, Prefix: r.Prefix, Data: filepath.Join(r.Prefix, "runner"), Unit: r.Unit, Link: r.Link, User: r.User,
		ManagedBy: r.ManagedBy, Binary: r.Program, DropIn: r.DropIn,
	}
}

func (l Layout) record(version string, vars []variable) ([]byte, error) {
	r := Record{
		Version: recordVersion, Mode: l.Mode, Init: l.Init, Prefix: l.Prefix, Unit: l.Unit, DropIn: l.DropIn, Link: l.Link, User: l.User,
		ManagedBy: l.ManagedBy, Program: l.Binary, Installed: version,
	}
	for _, v := range vars {
		r.Environment = append(r.Environment, v.Name+"="+v.Value)
		if v.Name == "PATH" {
			r.Path = v.Value
		}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// awayFile names why the hub sent the runner away, where it did last.
const awayFile = "stood-down"

// StoodDown leaves a note that the runner was sent away and does not come back by itself.
func StoodDown(data, why string) error {
	if err := durable.Replace(filepath.Join(data, awayFile), []byte(why+"\n"), 0o600); err != nil {
		return fmt.Errorf("note that the runner was sent away: %w", err)
	}
	return nil
}

// Starts takes the note away: the runner tries again.
func Starts(data string) error {
	if err := os.Remove(filepath.Join(data, awayFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take away the note of being sent away: %w", err)
	}
	return nil
}

// Away gives the note, or "".
func Away(data string) string {
	b, _ := os.ReadFile(filepath.Join(data, awayFile))
	return string(b)
}
