package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// What a CLI left on the machine decides whether its session can be taken up; what is
// not understood counts neither as there nor as gone.
func TestHasSession(t *testing.T) {
	const id, other = "ab0afdc0-1470-471e-9362-d2187e3b1107", "ab0afdc0-1470-471e-9362-d2187e3b1108"
	const ses = "ses_0123456789abcdef"
	for _, c := range []struct {
		name, cli, id string
		files         map[string]string // below the home
		env           []string
		want          string
	}{
		{"codex, its rollout", "codex", id, map[string]string{".codex/sessions/2026/01/02/rollout-2026-01-02T03-04-05-" + id + ".jsonl": ""}, nil, SessionThere},
		{"codex, asked in capitals", "codex", strings.ToUpper(id), map[string]string{".codex/sessions/2026/01/02/rollout-x-" + id + ".jsonl": ""}, nil, SessionThere},
		{"codex, another rollout", "codex", id, map[string]string{".codex/sessions/2026/01/02/rollout-x-" + other + ".jsonl": ""}, nil, SessionGone},
		{"codex, nothing at all", "codex", id, nil, nil, SessionGone},
		{"codex, archived", "codex", id, map[string]string{".codex/archived_sessions/rollout-x-" + id + ".jsonl": ""}, nil, SessionUnknown},
		{"codex, packed", "codex", id, map[string]string{".codex/sessions/2026/01/02/rollout-x-" + id + ".jsonl.zst": ""}, nil, SessionUnknown},
		{"codex, another home", "codex", id, map[string]string{".codex/sessions/2026/01/02/rollout-x-" + id + ".jsonl": ""}, []string{"CODEX_HOME=/no/such/place"}, SessionGone},
		{"codex, unreadable", "codex", id, map[string]string{".codex/sessions": "a file"}, nil, SessionUnknown},
		{"no form of an id", "codex", "the-last-one", nil, nil, SessionUnknown},

		{"claude, its file", "claude", id, map[string]string{".claude/projects/-w-job-1-my-repo/" + id + ".jsonl": ""}, nil, SessionThere},
		{"claude, of another folder", "claude", id, map[string]string{".claude/projects/-elsewhere/" + id + ".jsonl": ""}, nil, SessionUnknown},
		{"claude, another session", "claude", id, map[string]string{".claude/projects/-w-job-1-my-repo/" + other + ".jsonl": ""}, nil, SessionGone},
		{"claude, another home", "claude", id, map[string]string{".claude/projects/-w-job-1-my-repo/" + id + ".jsonl": ""}, []string{"CLAUDE_CONFIG_DIR=/no/such/place"}, SessionGone},

		{"opencode, in the database", "opencode", ses, map[string]string{".local/share/opencode/opencode.db": "SQLite" + strings.Repeat("x", 1<<20-20) + ses + "…"}, nil, SessionThere},
		{"opencode, in the log of the database", "opencode", ses, map[string]string{".local/share/opencode/opencode.db": "SQLite", ".local/share/opencode/opencode.db-wal": ses}, nil, SessionThere},
		{"opencode, not in the database", "opencode", ses, map[string]string{".local/share/opencode/opencode.db": "SQLite ses_other0000"}, nil, SessionGone},
		{"opencode, an old version", "opencode", ses, map[string]string{".local/share/opencode/storage/session/p/" + ses + ".json": "{}"}, nil, SessionUnknown},
		{"opencode, a database elsewhere", "opencode", ses, nil, []string{"OPENCODE_DB=/x.db"}, SessionUnknown},

		{"exec", "exec", id, nil, nil, SessionUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h, _ := Lookup(c.cli)
			if got := h.HasSession(append([]string{"HOME=" + home}, c.env...), "/w/job_1/my.repo", c.id); got != c.want {
				t.Errorf("session %s: %s, want %s", c.id, got, c.want)
			}
		})
	}
	if got := codexHarness.HasSession(nil, "/w", id); got != SessionUnknown {
		t.Errorf("without a home: %s", got)
	}
}

// Session and model are known before the end of a run, as soon as a line shows them.
func TestSessionIsKnownBeforeTheEnd(t *testing.T) {
	for _, cli := range []string{"codex", "claude", "opencode"} {
		s := readSample(t, cli, "success")
		h, _ := Lookup(cli)
		p := h.Parser(ParseRequest{})
		if id, model := p.Session(); id != "" || model != "" {
			t.Errorf("%s: session %q and model %q before the first line", cli, id, model)
		}
		first, rest, _ := strings.Cut(string(s.out), "\n")
		p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(first + "\n")})
		early, _ := p.Session()
		p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(rest)})
		id, model := p.Session()
		_, o := p.End(ExitInfo{})
		if early != o.SessionID || id != o.SessionID || id == "" || model != o.Model {
			t.Errorf("%s: session %q after the first line, %q and model %q before the end; the outcome has %q and %q", cli, early, id, model, o.SessionID, o.Model)
		}
	}
}
