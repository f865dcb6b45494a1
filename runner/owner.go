package runner

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/shared/fleet"
)

// ExampleOwner is a runner.yaml with every key, explained. It is also what the
// defaults are: an owner who copies it changes nothing.
//
//go:embed runner.example.yaml
var ExampleOwner string

// Owner is runner.yaml: what the owner of this machine allows. It wins over
// whatever the hub asks for.
type Owner struct {
	Slots        int                `yaml:"slots"`        // jobs at a time that people ask for, 0 to 16; the command line wins
	Paused       string             `yaml:"paused"`       // a reason to take nothing new; empty is not paused
	Hours        Hours              `yaml:"hours"`        // when nothing new is taken
	OnBattery    Bound              `yaml:"on_battery"`   // slots in all while there is no mains power
	UserActive   UserActive         `yaml:"user_active"`  // slots in all while somebody works at this machine
	MaxLoad      float64            `yaml:"max_load"`     // of the last minute for each processor, above which nothing new is taken; 0: none
	MinMemory    Bytes              `yaml:"min_memory"`   // that must be available for anything new
	Memory       MemoryShares       `yaml:"memory"`       // how it bounds the slots for automation
	Floors       Floors             `yaml:"floors"`       // of the disk, for automation
	Repositories Repositories       `yaml:"repositories"` // what jobs may work in
	Harnesses    map[string]Harness `yaml:"harnesses"`    // empty allows all that are found
	EnvNames     []string           `yaml:"env_names"`    // more variables that jobs get; * and ? stand for anything
	Origins      []string           `yaml:"origins"`      // manual, automation; empty allows both
	Push         string             `yaml:"push"`         // runner, agent or never
	Updates      string             `yaml:"updates"`      // auto, ask or off
	ReleaseKey   string             `yaml:"release_key"`  // minisign public key of releases; empty: as enrolled
	Permissions  fleet.Permissions  `yaml:"permissions"`  // the most that an agent may do
	AllowFile    bool               `yaml:"allow_file"`   // repositories at paths of this machine
	MinFree      Bytes              `yaml:"min_free_bytes"`
	Git          GitIdentity        `yaml:"git"`
	Docker       DockerRules        `yaml:"docker"`
	Transport    string             `yaml:"transport"` // ws, http or auto; the command line wins
	KeepScratch  Keep               `yaml:"keep_scratch"`
	// What ended jobs leave, and the repositories' caches.
	KeepWorkspaces Keep      `yaml:"keep_workspaces"`
	KeepRescue     Keep      `yaml:"keep_rescue"`
	KeepCaches     Keep      `yaml:"keep_caches"`
	RescueIgnored  []string  `yaml:"rescue_ignored"` // files that git ignores and that are saved all the same
	DiskLimit      Bytes     `yaml:"disk_limit"`     // that the runner's data may take; 0: none
	BuildOutput    []string  `yaml:"build_output"`   // names of directories that builds make again
	Provision      Provision `yaml:"provision"`      // what a hub may have installed
	// Sessions that people have on this machine.
	Sessions     string            `yaml:"sessions"`      // of agent CLIs on this machine, what of them is told: off, list or full
	SessionHomes map[string]string `yaml:"session_homes"` // where an agent keeps them, when not where its own settings say
	SessionDirs  []string          `yaml:"session_dirs"`  // in which, and below which, jobs may go on with one
}

// Hours holds the quiet hours, in this machine's own time.
type Hours struct {
	Quiet   []string `yaml:"quiet"`   // "22:00-07:00", "Mon-Fri 09:00-17:30", "Sat"
	Updates []string `yaml:"updates"` // alike: when the runner may update itself; empty: at any time
}

// Provision says what a hub may have installed below the runner's data directory, and
// whether it may give credentials along with it.
type Provision struct {
	Allow       []string `yaml:"allow"`
	Credentials bool     `yaml:"credentials"`
	Hours       []string `yaml:"hours"` // as those of updates; empty: at any time

	BrowserSource string `yaml:"browser_source"` // where builds of the browser come from; empty: their maker's
}

// Repositories holds the allowlist and what is special about some.
type Repositories struct {
	Allow   []string           `yaml:"allow"` // URL patterns; empty allows all
	Options []RepositoryOption `yaml:"options"`
}

// RepositoryOption says how the repositories of a pattern are fetched.
type RepositoryOption struct {
	Match  string `yaml:"match"`
	Depth  int    `yaml:"depth"`  // commits of history; 0 is all
	Filter string `yaml:"filter"` // of a partial clone, e.g. blob:none
}

// Harness allows one agent CLI; Path is where it is, when not in PATH. Models are those
// that jobs may name; none allows all, and a job that names no model gets what the
// CLI's own settings say.
type Harness struct {
	Path   string   `yaml:"path"`
	Models []string `yaml:"models,omitempty"`
}

// GitIdentity signs the commits that the runner makes itself.
type GitIdentity struct {
	Name  string `yaml:"name"`
	Email string `yaml:"email"`
}

// Bytes is a size such as 1073741824, 512MiB or 2GiB.
type Bytes int64

// UnmarshalYAML reads a size.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	s, unit := strings.TrimSpace(n.Value), int64(1)
	for name, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(s, name); ok {
			s, unit = strings.TrimSpace(rest), u
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 || v > (1<<62)/unit {
		return fmt.Errorf("line %d: size %q: want a number of bytes, or one with KiB, MiB, GiB or TiB", n.Line, n.Value)
	}
	*b = Bytes(v * unit)
	return nil
}

// Keep is for how long something is kept: 72h, 0s, or forever, which is below zero.
type Keep time.Duration

// UnmarshalYAML reads a time.
func (k *Keep) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "forever" {
		*k = -1
		return nil
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || d < 0 {
		return fmt.Errorf("line %d: time %q: want one such as 72h, or forever", n.Line, n.Value)
	}
	*k = Keep(d)
	return nil
}

// MarshalYAML writes a time as it may be given.
func (k Keep) MarshalYAML() (any, error) {
	if k < 0 {
		return "forever", nil
	}
	text := time.Duration(k).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok { // 72h, not 72h0m0s
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text, nil
}

// DefaultOwner is what holds without a runner.yaml.
func DefaultOwner() Owner {
	return Owner{
		Slots: 1, OnBattery: AllSlots, UserActive: UserActive{Within: Keep(5 * time.Minute), Slots: AllSlots},
		Memory: MemoryShares{Keep: 3 << 30, PerSlot: 4 << 30},
		Push:   "runner", Updates: "ask", Permissions: fleet.PermWorkspace, MinFree: 1 << 30, Transport: "auto", KeepScratch: Keep(72 * time.Hour),
		KeepWorkspaces: Keep(24 * time.Hour), KeepRescue: Keep(168 * time.Hour), KeepCaches: Keep(336 * time.Hour),
		BuildOutput: slices.Clone(buildOutput),
		Provision:   Provision{Allow: fleet.Provisionable()},
		Sessions:    fleet.SessionsFull,
	}
}

// unreadOwner are the rules while a file is there and none of it could be read yet:
// nobody knows what it forbids.
func unreadOwner() Owner {
	o := DefaultOwner()
	o.Paused = "runner.yaml can't be read; see the runner's alerts"
	o.Updates, o.Sessions = "off", fleet.SessionsOff
	o.KeepWorkspaces, o.KeepRescue, o.KeepCaches, o.KeepScratch = -1, -1, -1, -1 // forever
	return o
}

// ParseOwner reads a runner.yaml. What it leaves out is as DefaultOwner has it. The
// error names the line.
func ParseOwner(b []byte) (Owner, error) {
	o := DefaultOwner()
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&o); err != nil && !errors.Is(err, io.EOF) {
		return Owner{}, fmt.Errorf("runner.yaml: %s", plainYAML(err))
	}
	var rest yaml.Node
	if err := d.Decode(&rest); !errors.Is(err, io.EOF) {
		return Owner{}, errors.New("runner.yaml: more than one document; keep the first")
	}
	if err := o.check(); err != nil {
		line := lineOf(b, err.key, err.value)
		return Owner{}, fmt.Errorf("runner.yaml: line %d: %s: %s", line, err.key, err.text)
	}
	return o, nil
}

// plainYAML makes one line of what the parser says.
func plainYAML(err error) string { return strings.ReplaceAll(plainErrors(err), "\n", " ") }

func plainErrors(err error) string {
	var t *yaml.TypeError
	if !errors.As(err, &t) {
		return strings.TrimPrefix(err.Error(), "yaml: ")
	}
	words := slices.Clone(t.Errors)
	for i, w := range words {
		if before, _, ok := strings.Cut(w, " not found in type"); ok {
			words[i] = strings.Replace(before, "field ", "unknown key ", 1)
		}
	}
	return strings.Join(words, "; ")
}

type ownerError struct{ key, value, text string }

func (o Owner) check() *ownerError {
	oneOf := func(key, v string, allowed ...string) *ownerError {
		if slices.Contains(allowed, v) {
			return nil
		}
		return &ownerError{key, v, fmt.Sprintf("%q: want %s", v, strings.Join(allowed, ", "))}
	}
	for _, e := range []*ownerError{
		oneOf("push", o.Push, "runner", "agent", "never"),
		oneOf("updates", o.Updates, "auto", "ask", "off"),
		oneOf("permissions", string(o.Permissions), "read", "workspace", "full"),
		oneOf("transport", o.Transport, "ws", "http", "auto"),
		oneOf("sessions", o.Sessions, fleet.SessionsOff, fleet.SessionsList, fleet.SessionsFull),
	} {
		if e != nil {
			return e
		}
	}
	if o.Slots < 0 || o.Slots > fleet.MaxSlots {
		return &ownerError{"slots", strconv.Itoa(o.Slots), fmt.Sprintf("%d: want 0 to %d", o.Slots, fleet.MaxSlots)}
	}
	if !(o.MaxLoad >= 0 && o.MaxLoad <= 1000) {
		return &ownerError{"max_load", "", fmt.Sprintf("%v: want 0 to 1000", o.MaxLoad)}
	}
	if o.UserActive.Within < 0 {
		return &ownerError{"within", "forever", "forever: want a time such as 5m"}
	}
	if o.Memory.PerSlot <= 0 {
		return &ownerError{"per_slot", "", "0: want a size above that"}
	}
	for _, v := range o.Origins {
		if e := oneOf("origins", v, "manual", "automation"); e != nil {
			return e
		}
	}
	for _, p := range o.Repositories.Allow {
		if _, err := path.Match(p, ""); err != nil {
			return &ownerError{"allow", p, fmt.Sprintf("%q is no pattern", p)}
		}
	}
	for _, r := range o.Repositories.Options {
		if _, err := path.Match(r.Match, ""); err != nil || r.Match == "" {
			return &ownerError{"match", r.Match, fmt.Sprintf("%q is no pattern", r.Match)}
		}
		if r.Depth < 0 {
			return &ownerError{"depth", strconv.Itoa(r.Depth), fmt.Sprintf("%d: want 0 or more", r.Depth)}
		}
	}
	for _, p := range o.EnvNames {
		if _, err := path.Match(p, ""); err != nil || p == "" || p == "*" || strings.Contains(p, "=") {
			return &ownerError{"env_names", p, fmt.Sprintf("%q is no name of a variable", p)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Harnesses)) {
		if _, ok := harness.Lookup(name); !ok {
			return &ownerError{"harnesses", name, fmt.Sprintf("%q: want %s", name, strings.Join(harness.Names(), ", "))}
		}
		if p := o.Harnesses[name].Path; p != "" && !filepath.IsAbs(p) {
			return &ownerError{"path", p, fmt.Sprintf("%q is not absolute", p)}
		}
		for _, m := range o.Harnesses[name].Models {
			if m == "" || strings.ContainsAny(m, " \t\n") {
				return &ownerError{"models", m, fmt.Sprintf("%q is no name of a model", m)}
			}
		}
	}
	for _, p := range o.RescueIgnored {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return &ownerError{"rescue_ignored", p, fmt.Sprintf("%q is no pattern", p)}
		}
	}
	for _, p := range o.BuildOutput {
		if p == "" || p == "." || p == ".." || strings.ContainsAny(p, "/\\*?[") || strings.HasPrefix(p, ".git") {
			return &ownerError{"build_output", p, fmt.Sprintf("%q is no name of a directory", p)}
		}
	}
	for _, w := range o.Provision.Allow {
		if e := oneOf("allow", w, fleet.Provisionable()...); e != nil {
			return e
		}
	}
	if s := o.Provision.BrowserSource; s != "" {
		if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return &ownerError{"browser_source", s, "it is no address that begins with https:// or http://"}
		}
	}
	for _, q := range o.Provision.Hours {
		if _, err := parseQuiet(q); err != nil {
			return &ownerError{"hours", q, err.Error()}
		}
	}
	if e := o.checkSessions(); e != nil {
		return e
	}
	for _, q := range o.Hours.Quiet {
		if _, err := parseQuiet(q); err != nil {
			return &ownerError{"quiet", q, err.Error()}
		}
	}
	for _, q := range o.Hours.Updates {
		if _, err := parseQuiet(q); err != nil {
			return &ownerError{"updates", q, err.Error()}
		}
	}
	if (o.Git.Name == "") != (o.Git.Email == "") {
		return &ownerError{"git", "", "name and email belong together; give both or neither"}
	}
	return nil
}

// lineOf finds where a key, or a value under it, stands, for a message.
func lineOf(b []byte, key, value string) int {
	at := 0
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, " #")
		if at == 0 && strings.HasPrefix(strings.TrimLeft(line, " -{"), key+":") || at == 0 && strings.Contains(line, "{"+key+":") {
			at = i + 1
		}
		if at > 0 && value != "" && strings.Contains(line, value) {
			return i + 1
		}
	}
	return max(at, 1)
}

// LoadOwner reads the owner's file; a missing one is the default. It refuses a file
// that others may read or write.
func LoadOwner(file string) (Owner, error) {
	b, err := readPrivate(file)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultOwner(), nil
	}
	if err != nil {
		return Owner{}, err
	}
	return ParseOwner(b)
}

// Check says what is wrong with a runner.yaml, for people; a missing file is an error here.
func Check(file string) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("check %s: %w", file, err)
	}
	_, err := LoadOwner(file)
	return err
}

// readPrivate reads a small file that only its owner may read or write.
func readPrivate(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read or changed by others (mode %04o); run: chmod 600 %s", file, st.Mode().Perm(), file)
	}
	if st.Size() > 1<<20 {
		return nil, fmt.Errorf("%s has %d bytes, at most 1 MiB is read", file, st.Size())
	}
	return os.ReadFile(file)
}
