package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// program writes a script that stands for a CLI.
func program(t *testing.T, path, script string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func plainFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func byName(found []Found) map[string]Found {
	m := map[string]Found{}
	for _, f := range found {
		m[f.Name] = f
	}
	return m
}

func TestDetect(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, bin := filepath.Join(root, "home"), filepath.Join(root, "bin")
	// The npm layout: a Node script in PATH by a link, the real program in a package beside it.
	wrapper := program(t, filepath.Join(root, "nm/@openai/codex/bin/codex.js"), "#!/usr/bin/env node\n")
	real := nativeCodex(wrapper)
	if real != wrapper {
		t.Fatalf("behind a wrapper without the real program: %s", real)
	}
	triples, platform := []string{"x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "x86_64-apple-darwin", "aarch64-apple-darwin"}, nodePlatform()
	for _, triple := range triples {
		program(t, filepath.Join(root, "nm/@openai/codex-"+platform+"/vendor/"+triple+"/bin/codex"),
			"#!/bin/sh\ncase \"$*\" in --version) echo 'codex-cli 0.171.0';; 'login status') echo no >&2; exit 1;; *) touch '"+root+"/asked'; esac\n")
	}
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(wrapper, filepath.Join(bin, "codex")); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(home, ".local/bin/claude"),
		"#!/bin/sh\ncase \"$*\" in --version) echo '2.1.197 (Claude Code)';; 'auth status') echo '{\"loggedIn\": true, \"authMethod\": \"oauth\"}';; *) touch '"+root+"/asked'; esac\n")
	plainFile(t, filepath.Join(home, ".codex/config.toml"), "model = \"x\"\n")
	plainFile(t, filepath.Join(home, ".local/share/opencode/auth.json"), `{"zed":{},"anthropic":{"type":"api"}}`)
	other := program(t, filepath.Join(root, "elsewhere/oc"), "#!/bin/sh\n[ \"$*\" = --version ] && echo 1.18.33\n")

	env := []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + home}
	got := byName(Detect(t.Context(), DetectRequest{Env: env, Paths: map[string]string{"opencode": other}}))
	for name, want := range map[string]Found{
		"exec":     {SignedIn: "yes"},
		"codex":    {Version: "0.171.0", SignedIn: "no", Detail: "run codex login; behind the wrapper " + wrapper},
		"claude":   {Path: filepath.Join(home, ".local/bin/claude"), Version: "2.1.197", SignedIn: "yes", Detail: "oauth; found in " + filepath.Join(home, ".local/bin") + ", which is not in PATH"},
		"opencode": {Path: other, Version: "1.18.33", SignedIn: "yes", Detail: "anthropic, zed"},
	} {
		g := got[name]
		if g.Name != name || g.Version != want.Version || g.SignedIn != want.SignedIn || g.Detail != want.Detail || want.Path != "" && g.Path != want.Path {
			t.Errorf("%s: %+v, want %+v", name, g, want)
		}
	}
	if p := got["codex"].Path; filepath.Base(p) != "codex" || !strings.Contains(p, "codex-"+platform) {
		t.Errorf("codex is %s, want the program behind the wrapper", p)
	}
	if _, err := os.Stat(filepath.Join(root, "asked")); err == nil {
		t.Error("a CLI was asked something else than its version and its sign-in")
	}
}

// A CLI that a busy machine keeps from answering in time is what it was found to be
// before. One that was not found before, or at another place, is not told.
func TestDetectKeepsWhatIsSlow(t *testing.T) {
	bin := t.TempDir()
	claude, codex := filepath.Join(bin, "claude"), filepath.Join(bin, "codex")
	for _, path := range []string{claude, codex, filepath.Join(bin, "opencode")} {
		program(t, path, "#!/bin/sh\nexec sleep 60\n")
	}
	was := Found{Name: "claude", Path: claude, Version: "2.1.197", SignedIn: SignedInYes, Capabilities: []string{"resume"}}
	var mu sync.Mutex
	var slow []string
	got := byName(Detect(t.Context(), DetectRequest{
		Env: []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin}, Patience: 300 * time.Millisecond,
		Known: []Found{was, {Name: "codex", Path: "/elsewhere/codex", Version: "0.1.0"}},
		Slow:  func(name string) { mu.Lock(); slow = append(slow, name); mu.Unlock() },
	}))
	if g := got["claude"]; g.Path != was.Path || g.Version != was.Version || g.SignedIn != was.SignedIn || len(g.Capabilities) != 1 {
		t.Errorf("claude is told as %+v; want it as it was", g)
	}
	for _, name := range []string{"codex", "opencode"} {
		if f, ok := got[name]; ok {
			t.Errorf("%s is told as %+v", name, f)
		}
	}
	if slices.Sort(slow); !slices.Equal(slow, []string{"claude", "codex", "opencode"}) {
		t.Errorf("slow were %q; want all three", slow)
	}
}

// What is not there says what to do.
func TestDetectWhatIsNotThere(t *testing.T) {
	p := probe{env: []string{"PATH=" + t.TempDir()}, home: t.TempDir()}
	_, _, err := p.find("an-agent-of-nobody", "")
	if !errors.Is(err, errMissing) || !strings.Contains(err.Error(), "install it, or give its path in runner.yaml") || strings.Contains(err.Error(), `"`) {
		t.Errorf("it says %v", err)
	}
	if _, _, err := p.find("codex", "/nowhere/codex"); !errors.Is(err, errMissing) || !strings.Contains(err.Error(), "/nowhere/codex") {
		t.Errorf("a path of runner.yaml that leads nowhere: %v", err)
	}
}

func TestDetectWhatDoesNotRun(t *testing.T) {
	bin := t.TempDir()
	program(t, filepath.Join(bin, "codex"), "#!/bin/sh\necho broken >&2\nexit 127\n")
	program(t, filepath.Join(bin, "claude"), "#!/bin/sh\necho hello\n")
	program(t, filepath.Join(bin, "opencode"), "#!/bin/sh\nexec sleep 60\n")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	r := DetectRequest{Env: []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin}}
	begun := time.Now()
	if found := Detect(ctx, r); len(found) != 1 || found[0].Name != "exec" {
		t.Errorf("found %+v, want exec alone", found)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a CLI that hangs held the search up for %v", took)
	}
	r.All, r.Paths = true, map[string]string{"opencode": "relative/opencode"}
	got := byName(Detect(t.Context(), r))
	for name, want := range map[string]string{"codex": "broken", "claude": "does not tell a version", "opencode": "not absolute"} {
		if f := got[name]; f.Path != "" || !strings.Contains(f.Detail, want) {
			t.Errorf("%s: %+v, want a detail with %q", name, f, want)
		}
	}
}

func TestSignedIn(t *testing.T) {
	home := t.TempDir()
	const provider = "model_provider = \"corp\" # x\n[model_providers.other]\nenv_key = \"NO\"\n[model_providers.corp]\nname = \"Corp\"\nenv_key = \"CORP_KEY\"\n"
	for _, c := range []struct {
		name   string
		ask    func(*probe, string) (string, string)
		file   string
		text   string
		env    []string
		want   string
		detail string
	}{
		{"codex: a provider of the owner's, its key set", codexSignedIn, ".codex/config.toml", provider, []string{"CORP_KEY=x"}, "yes", "provider corp with CORP_KEY"},
		{"codex: its key missing", codexSignedIn, ".codex/config.toml", provider, nil, "no", "provider corp needs CORP_KEY, which is not set"},
		{"codex: a provider without a key", codexSignedIn, ".codex/config.toml", "model_provider = \"local\"\n", nil, "unknown", "provider local"},
		{"codex: a provider named in a table only", codexSignedIn, ".codex/config.toml", "[profiles.x]\nmodel_provider = \"local\"\n", []string{"CODEX_API_KEY=x"}, "yes", "with CODEX_API_KEY"},
		{"claude: a key", claudeSignedIn, "x", "", []string{"ANTHROPIC_API_KEY=x"}, "yes", "with ANTHROPIC_API_KEY"},
		{"claude: an old version is not asked", claudeSignedIn, "x", "", nil, "unknown", ""},
		{"claude: its store", claudeSignedIn, ".claude/.credentials.json", "{\"a\":1}", nil, "yes", ""},
		{"opencode: nothing", opencodeSignedIn, "x", "", nil, "unknown", ""},
		{"opencode: settings with a reference", opencodeSignedIn, ".config/opencode/opencode.json", `{"apiKey": "{env:OC_KEY}"}`, []string{"OC_KEY=x"}, "yes", "with OC_KEY"},
		{"opencode: a reference to nothing", opencodeSignedIn, ".config/opencode/opencode.json", `{"apiKey": "{env:OC_KEY}"}`, nil, "no", "its settings need OC_KEY, which is not set"},
		{"opencode: a key in the environment", opencodeSignedIn, "x", "", []string{"OPENAI_API_KEY=x"}, "yes", "with OPENAI_API_KEY"},
	} {
		dir := filepath.Join(home, strings.ReplaceAll(c.name, " ", "_"))
		plainFile(t, filepath.Join(dir, c.file), c.text)
		p := &probe{ctx: t.Context(), env: append([]string{"HOME=" + dir}, c.env...), home: dir, version: "1.0.0"}
		got, detail := c.ask(p, "/nonexistent/cli")
		if got != c.want || detail != c.detail {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, detail, c.want, c.detail)
		}
	}
	for v, want := range map[string]bool{"2.1.197": true, "2.1.198-beta": true, "2.2.0": true, "3.0.0": true, "2.1.100": false, "1.9.999": false, "x": false} {
		if atLeast(v, claudeStatusSince) != want {
			t.Errorf("atLeast(%q) = %v", v, !want)
		}
	}
}
