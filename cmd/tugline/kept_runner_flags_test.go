package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"tugline.dev/tugline/runner/journal"
)

func runnerFlagSet(t *testing.T, args ...string) (f *pflag.FlagSet, slots *int, transport *string) {
	t.Helper()
	f = pflag.NewFlagSet("run", pflag.ContinueOnError)
	slots, transport = f.Int("slots", 0, ""), f.String("transport", "", "")
	f.String("ticket", "", "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f, slots, transport
}

// A flag counts most, then what the owner says, then a flag that is remembered.
func TestFlagsOfARunnerAreRecalled(t *testing.T) {
	dir := t.TempDir()
	f, _, _ := runnerFlagSet(t, "--slots", "4", "--transport", "ws", "--ticket", "secret")
	if _, err := keepRunnerFlags(f, dir); err != nil {
		t.Fatal(err)
	}
	kept := readFile(t, filepath.Join(dir, keptFlagsFile))
	if strings.Contains(kept, "secret") {
		t.Errorf("the ticket is kept: %s", kept)
	}
	for _, c := range []struct {
		owner     string
		args      []string
		slots     int
		transport string
	}{
		{"", nil, 4, "ws"},
		{"", []string{"--slots", "2"}, 2, "ws"},
		{"slots: 7\n", nil, 0, "ws"}, // 0: as the owner says
		{"slots: 7\n", []string{"--slots", "2"}, 2, "ws"},
		{"transport: http\npaused: tea\n", nil, 4, ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, "runner.yaml"), []byte(c.owner), 0o600); err != nil {
			t.Fatal(err)
		}
		f, slots, transport := runnerFlagSet(t, c.args...)
		if err := recallRunnerFlags(f, dir); err != nil || *slots != c.slots || *transport != c.transport {
			t.Errorf("%q and %q: %d slots, transport %q, %v; want %d, %q", c.owner, c.args, *slots, *transport, err, c.slots, c.transport)
		}
	}

	// Who finds the directory taken leaves it as it is.
	f, _, _ = runnerFlagSet(t, "--slots", "9")
	undo, err := keepRunnerFlags(f, dir)
	if err != nil {
		t.Fatal(err)
	}
	undo(journal.ErrLocked)
	if now := readFile(t, filepath.Join(dir, keptFlagsFile)); now != kept {
		t.Errorf("kept %s, want %s", now, kept)
	}
	if undo, err = keepRunnerFlags(f, dir); err != nil {
		t.Fatal(err)
	}
	undo(errors.New("it ended otherwise"))
	if now := readFile(t, filepath.Join(dir, keptFlagsFile)); !strings.Contains(now, "9") {
		t.Errorf("kept %s", now)
	}
}

// A data directory that is none is named, with what to do.
func TestADataDirectoryThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"hub", "runner"} {
		s := newShell(t, "")
		if code := s.do(what, "run", "--data-dir", file); code != exitUsage {
			t.Errorf("%s: exit %d", what, code)
		}
		has(t, what, s.err.String(), file+" is no directory", "--data-dir")
	}
}
