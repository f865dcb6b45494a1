//go:build harness

package harness_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/fakemodel"
	"tugline.dev/tugline/test/harness"
	"tugline.dev/tugline/test/mesh"
)

// pinnedVersions reads package.json.
func pinnedVersions(t *testing.T) map[harness.CLI]string {
	t.Helper()
	var pkg struct{ Dependencies, DevDependencies map[string]string }
	b, err := os.ReadFile("package.json")
	if err == nil {
		err = json.Unmarshal(b, &pkg)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[harness.CLI]string{}
	for cli, name := range map[harness.CLI]string{harness.Codex: "@openai/codex", harness.Claude: "@anthropic-ai/claude-code", harness.OpenCode: "opencode-ai"} {
		if out[cli] = pkg.Dependencies[name] + pkg.DevDependencies[name]; out[cli] == "" {
			t.Fatalf("package.json pins no %s", name)
		}
	}
	return out
}

// TestHarnessList asks the command line what is here: once as somebody with keys, once
// as somebody without any.
func TestHarnessList(t *testing.T) {
	var dirs []string
	for _, cli := range harness.All {
		path, err := cli.Path()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.Symlink(path, filepath.Join(dir, string(cli))); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	path := "PATH=" + strings.Join(dirs, ":") + ":" + os.Getenv("PATH")
	list := func(env ...string) map[string]fleet.HarnessInfo {
		res, err := process.Run(t.Context(), process.Cmd{Argv: []string{mesh.Binary(), "harness", "list", "--json"}, Dir: t.TempDir(), Env: append(env, path)})
		var out struct{ Harnesses []fleet.HarnessInfo }
		if err == nil {
			err = json.Unmarshal(res.Stdout, &out)
		}
		if err != nil {
			t.Fatalf("harness list: %v\n%s\n%s", err, res.Stdout, res.Stderr)
		}
		m := map[string]fleet.HarnessInfo{}
		for _, h := range out.Harnesses {
			m[h.Name] = h
		}
		return m
	}
	home := t.TempDir()
	env := []string{"HOME=" + home}
	for _, cli := range harness.All {
		own, err := harness.Setup{CLI: cli, Home: home, BaseURL: "http://127.0.0.1:1", Key: fakemodel.GoodKey}.Env()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{cli.KeyVar(), "CODEX_HOME", "OPENCODE_CONFIG_CONTENT"} {
			if v := value(own, name); v != "" {
				env = append(env, name+"="+v)
			}
		}
	}
	with, without := list(env...), list("HOME="+t.TempDir())
	for cli, version := range pinnedVersions(t) {
		h := with[string(cli)]
		if h.Version != version || h.SignedIn != "yes" || !filepath.IsAbs(h.Path) || len(h.Capabilities) == 0 {
			t.Errorf("with keys: %+v; want version %s, signed in", h, version)
		}
		if h := without[string(cli)]; h.Version != version || h.SignedIn == "yes" {
			t.Errorf("without keys: %+v; want version %s, not signed in", h, version)
		}
	}
}
