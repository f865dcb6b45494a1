// Package harness finds the pinned agent command lines that install.sh brought
// and sets each one up against a model server: its own home, its own
// configuration, no network but loopback. The tests that drive the real CLIs lie
// here behind the build tag "harness"; the package itself starts no process.
package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CLI names an agent command line.
type CLI string

// The pinned command lines.
const (
	Codex    CLI = "codex"
	Claude   CLI = "claude"
	OpenCode CLI = "opencode"
)

// All lists the pinned command lines.
var All = []CLI{Codex, Claude, OpenCode}

// Models that each CLI knows without asking anybody. Codex offers its tools in
// the plain way for this one; opencode's is the one that Setup declares.
var models = map[CLI]string{Codex: "gpt-5.5", Claude: "claude-sonnet-4-5", OpenCode: "scripted/fake-model"}

// Model is the model name that the CLI is set up with.
func (c CLI) Model() string { return models[c] }

// Path is the absolute path of the CLI's native program, for the tests of this folder,
// which run in it. The error says how to install it.
func (c CLI) Path() (string, error) {
	link, err := filepath.Abs(filepath.Join("node_modules", ".clis", string(c)))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", c, err)
	}
	path, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find %s: %s is missing; run test/harness/install.sh", c, link)
	}
	if err != nil {
		return "", fmt.Errorf("find %s: %w", c, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", c, err)
	}
	if st.IsDir() || st.Mode()&0o111 == 0 {
		return "", fmt.Errorf("find %s: %s is no program; run test/harness/install.sh", c, path)
	}
	return path, nil
}
