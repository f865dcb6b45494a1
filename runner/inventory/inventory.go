// Package inventory knows the sessions that people have with agent CLIs on this
// machine: those of Codex, Claude Code and opencode. It reads the CLIs' own files.
//
// It guarantees that nothing is written or started; that no link leads out of the
// folders of the CLIs; that time, bytes and counts are bounded whatever lies there;
// that a file which is no record of a session, or a broken one, costs itself alone;
// and that the texts it gives are masked and have no control characters.
//
// It leaves to others who may ask, and whether a session may be gone on with.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// The agents whose sessions are known here, by the name of their harness.
const (
	Codex    = "codex"
	Claude   = "claude"
	Opencode = "opencode"
)

// Agents lists them.
func Agents() []string { return []string{Codex, Claude, Opencode} }

// Config says where to look and what to hide.
type Config struct {
	Env   []string            // of the runner: where the CLIs keep their files
	Homes map[string]string   // by agent, in the place of what Env says
	Hide  func(string) string // masks the values that this machine keeps secret; nil: there are none
	Skip  string              // sessions that work below this directory are the runner's own; "" is none
}

// source is where the sessions of one agent lie.
type source interface {
	// sessions lists what may be a session. What they say is read later.
	sessions(*look) ([]candidate, error)
	// messages gives the last messages of one, oldest first, and whether there are more.
	messages(l *look, c candidate, n int) (all []fleet.CLIMessage, earlier bool)
}

// candidate is something that is probably a session.
type candidate struct {
	agent string
	id    string // "" where only its contents say it
	used  time.Time
	read  func(*look) (fleet.CLISession, bool)
	file  string // in the folder of its agent
	from  source
}

// List gives the sessions that were used last. An error is one of ctx alone.
func List(ctx context.Context, cfg Config) (fleet.CLISessions, error) {
	out := fleet.CLISessions{Sessions: []fleet.CLISession{}}
	l := newLook(ctx, cfg)
	all := l.candidates(&out.Notes)
	seen := map[string]bool{}
	for _, c := range all {
		if len(out.Sessions) == fleet.MaxSessions {
			out.More = true
			break
		}
		if l.spent() {
			out.More = true
			out.Notes = append(out.Notes, "older sessions were left out: reading them would take too long")
			break
		}
		s, ok := c.read(l)
		if !ok || seen[c.agent+" "+s.ID] || l.skipped(s.Dir) {
			continue
		}
		seen[c.agent+" "+s.ID] = true
		out.Sessions = append(out.Sessions, l.sound(s, c))
	}
	slices.SortStableFunc(out.Sessions, func(a, b fleet.CLISession) int { return b.Used.Compare(a.Used) })
	return out, context.Cause(ctx)
}

// Find gives one session; agent may be empty where any will do. The error wraps
// fleet.NotFound where there is none.
func Find(ctx context.Context, cfg Config, agent, id string) (fleet.CLISession, error) {
	_, s, _, err := find(ctx, cfg, agent, id)
	return s, err
}

// Show gives one session with its last n messages.
func Show(ctx context.Context, cfg Config, id string, n int) (fleet.CLITranscript, error) {
	l, s, c, err := find(ctx, cfg, "", id)
	if err != nil {
		return fleet.CLITranscript{}, err
	}
	out := fleet.CLITranscript{CLISession: s, Messages: []fleet.CLIMessage{}}
	all, earlier := c.from.messages(l, c, min(max(n, 1), fleet.MaxSessionShown))
	out.Earlier = earlier
	for _, m := range all {
		m.Text = l.text(m.Text, maxMessage)
		if m.Text != "" {
			m.At = m.At.UTC()
			out.Messages = append(out.Messages, m)
		}
	}
	return out, context.Cause(ctx)
}

func find(ctx context.Context, cfg Config, agent, id string) (*look, fleet.CLISession, candidate, error) {
	l := newLook(ctx, cfg)
	if known(id) {
		for _, c := range l.candidates(new([]string)) {
			if c.id != "" && c.id != id || agent != "" && agent != c.agent {
				continue
			}
			if s, ok := c.read(l); ok && s.ID == id && !l.skipped(s.Dir) {
				return l, l.sound(s, c), c, nil
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fleet.CLISession{}, candidate{}, err
	}
	what := "an agent"
	if agent != "" {
		what = agent
	}
	return nil, fleet.CLISession{}, candidate{}, fmt.Errorf("there is no session %s of %s on this machine: %w", fleet.CutText(plain(id), fleet.MaxSessionID), what, fleet.NotFound)
}

// candidates gives all of them, the last used first. What can't be read is a note.
func (l *look) candidates(notes *[]string) []candidate {
	var all []candidate
	for _, agent := range Agents() {
		home, ok := homeOf(l.cfg, agent)
		if !ok {
			continue
		}
		for _, s := range sourcesOf(agent, home) {
			cs, err := s.sessions(l)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				*notes = append(*notes, fleet.CutText(plain(fmt.Sprintf("the sessions of %s can't be read: %v", agent, err)), fleet.MaxDetail))
			}
			for i := range cs {
				cs[i].agent, cs[i].from = agent, s
			}
			all = append(all, cs...)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.file, b.file)) })
	return all
}

func sourcesOf(agent, home string) []source {
	switch agent {
	case Codex:
		return []source{codex{home}}
	case Claude:
		return []source{claude{home}}
	}
	return []source{opencodeFiles{home}, opencodeDB{home}}
}

// homeOf gives the folder in which an agent keeps its files.
func homeOf(cfg Config, agent string) (string, bool) {
	if h := cfg.Homes[agent]; h != "" {
		return h, filepath.IsAbs(h)
	}
	variable, below, under := "CODEX_HOME", ".codex", ""
	switch agent {
	case Claude:
		variable, below = "CLAUDE_CONFIG_DIR", ".claude"
	case Opencode:
		variable, below, under = "XDG_DATA_HOME", filepath.Join(".local", "share"), "opencode"
	}
	if h := value(cfg.Env, variable); h != "" {
		return filepath.Join(h, under), filepath.IsAbs(h)
	}
	user := value(cfg.Env, "HOME")
	return filepath.Join(user, below, under), filepath.IsAbs(user)
}

// HomeEnv gives the variables by which an agent finds a folder that its owner named,
// and whether it can be told at all.
func HomeEnv(agent, home string) ([]string, bool) {
	switch agent {
	case Codex:
		return []string{"CODEX_HOME=" + home}, true
	case Claude:
		return []string{"CLAUDE_CONFIG_DIR=" + home}, true
	}
	return []string{"XDG_DATA_HOME=" + filepath.Dir(home)}, filepath.Base(home) == "opencode"
}

func value(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

// skipped says whether a session works in a directory of the runner's own.
func (l *look) skipped(dir string) bool {
	return slices.ContainsFunc(l.own, func(own string) bool {
		return dir == own || strings.HasPrefix(dir, strings.TrimSuffix(own, string(os.PathSeparator))+string(os.PathSeparator))
	})
}

// sound gives a session as it may be told.
func (l *look) sound(s fleet.CLISession, c candidate) fleet.CLISession {
	s.Harness, s.Title, s.Model = c.agent, l.text(firstLine(s.Title), maxTitle), l.text(s.Model, maxModel)
	if s.Used.IsZero() {
		s.Used = c.used
	}
	s.Started, s.Used = s.Started.UTC(), s.Used.UTC()
	return s
}
