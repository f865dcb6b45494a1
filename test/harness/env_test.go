package harness_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/test/harness"
)

func TestEnvIsTheCLIsOwn(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-the-developer")
	const url = "http://127.0.0.1:1/s/success/n1"
	for _, cli := range harness.All {
		home := t.TempDir()
		env, err := harness.Setup{CLI: cli, Home: home, BaseURL: url, Key: "sk-test"}.Env()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"HOME=" + home, cli.KeyVar() + "=sk-test"} {
			if !slices.Contains(env, want) {
				t.Errorf("%s: no %s in %q", cli, want, env)
			}
		}
		if strings.Contains(strings.Join(env, "\n"), "sk-of-the-developer") {
			t.Errorf("%s: a variable of the caller is in its environment", cli)
		}
		// Each reaches the model server by a variable or by its configuration file.
		config, err := os.ReadFile(filepath.Join(home, ".codex", "config.toml"))
		if (err == nil) != (cli == harness.Codex) {
			t.Errorf("%s: reading config.toml: %v", cli, err)
		}
		if !strings.Contains(strings.Join(env, "\n")+string(config), url) {
			t.Errorf("%s is not told of %s", cli, url)
		}
	}
}

func TestEnvRefuses(t *testing.T) {
	tests := []struct {
		setup harness.Setup
		err   string
	}{
		{harness.Setup{CLI: "vim", Home: t.TempDir()}, "no CLI of that name"},
		{harness.Setup{CLI: harness.OpenCode, Home: t.TempDir(), Model: "bare"}, "has no provider"},
		{harness.Setup{CLI: harness.Codex, Home: filepath.Join(os.DevNull, "home")}, "set up codex"},
	}
	for _, tt := range tests {
		if _, err := tt.setup.Env(); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: %v, want an error with %q", tt.setup, err, tt.err)
		}
	}
}
