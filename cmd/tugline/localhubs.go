package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/durable"
)

// localHub is a hub that this user started on this machine. One file each, so that two
// that start at once don't write over each other; the token stays in its own file.
type localHub struct {
	Hub       string    `yaml:"hub" json:"hub"`
	Dir       string    `yaml:"data_dir" json:"data_dir"`
	TokenFile string    `yaml:"token_file" json:"-"`
	CAFile    string    `yaml:"ca_file,omitempty" json:"ca_file,omitempty"`
	Again     string    `yaml:"again" json:"-"` // the command that starts it again
	At        time.Time `yaml:"started_at" json:"started_at"`
	Runs      bool      `yaml:"-" json:"running"`
}

func (a *app) localHubsDir() string { return filepath.Join(filepath.Dir(a.configFile()), "hubs") }

func localHubFile(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + ".yaml"
}

// keepLocalHub lets this user's commands on this machine find a hub that has just
// started. Entries of data directories that are gone go with it.
func (a *app) keepLocalHub(l localHub) error {
	dir := a.localHubsDir()
	if !filepath.IsAbs(dir) {
		return errors.New("HOME is not set")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	alive := map[string]bool{}
	for _, l := range a.localHubs() {
		alive[localHubFile(l.Dir)] = true
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, file := range old {
		if !alive[filepath.Base(file)] {
			_ = os.Remove(file)
		}
	}
	b, err := yaml.Marshal(l)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, localHubFile(l.Dir)), b, 0o600)
}

// foundHere keeps a hub and says whether commands find it by themselves. That they do
// is a convenience: where it can't be had the exports that are printed still do.
func (a *app) foundHere(url, dir, tokenFile, caFile, again string) bool {
	if _, err := os.Stat(tokenFile); err != nil {
		return false
	}
	err := a.keepLocalHub(localHub{Hub: url, Dir: dir, TokenFile: tokenFile, CAFile: caFile, Again: again, At: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		a.say("commands on this machine won't find the hub by themselves: %v", err)
	}
	return err == nil
}

// localHubs lists what was kept, the newest first. What can't be read, others may write,
// or has lost its data directory is passed over: it is a convenience and no configuration.
func (a *app) localHubs() (out []localHub) {
	dir := a.localHubsDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, f := range files {
		st, err := f.Info()
		if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
			continue
		}
		var l localHub
		if b, err := os.ReadFile(filepath.Join(dir, f.Name())); err != nil || yaml.Unmarshal(b, &l) != nil || l.Hub == "" || localHubFile(l.Dir) != f.Name() {
			continue
		}
		if _, err := os.Stat(l.Dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b localHub) int { return b.At.Compare(a.At) })
	return out
}

// spot reads the token that the hub keeps for the people beside it.
func (l localHub) spot() (hubSpot, error) {
	t, err := os.ReadFile(l.TokenFile)
	if err != nil {
		return hubSpot{}, fail(exitUnauthorised, "the hub %s runs here, but its token can't be read: %v; give --token or set TUGLINE_TOKEN", l.Hub, err)
	}
	return hubSpot{Hub: l.Hub, Token: strings.TrimSpace(string(t)), CAFile: l.CAFile}, nil
}

// hubHere finds the hub that runs on this machine as this user; there is at most one
// that could be meant.
func (a *app) hubHere() (hubSpot, error) {
	kept := a.localHubs()
	var run []localHub
	for _, l := range kept {
		if answers(l.Hub) {
			run = append(run, l)
		}
	}
	if s, ok := a.devSpot(); ok && !slices.ContainsFunc(run, func(l localHub) bool { return sameHub(l.Hub, s.Hub) }) {
		if len(run) == 0 {
			return s, nil
		}
		run = append(run, localHub{Hub: s.Hub, Dir: a.devDir()})
	}
	switch {
	case len(run) == 1:
		return run[0].spot()
	case len(run) > 1:
		var each []string
		for _, l := range run {
			each = append(each, fmt.Sprintf("%s (data in %s)", l.Hub, l.Dir))
		}
		return hubSpot{}, usage("%d hubs run here: %s; say which with --hub or TUGLINE_HUB", len(run), strings.Join(each, ", "))
	case len(kept) > 0:
		l := kept[0]
		return hubSpot{}, usage("the hub that was last started here, %s, does not answer; start it again with `%s`, or give --hub and --token", l.Hub, l.Again)
	}
	return hubSpot{}, nil
}

// answers says whether something listens at a URL.
func answers(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", hostPort(u), 500*time.Millisecond)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// hostPort is where a URL leads to, its scheme's port where it names none.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}
