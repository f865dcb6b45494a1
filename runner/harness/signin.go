package harness

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tugline.dev/tugline/runner/process"
)

var (
	codexProvider = lazily(`(?m)^\s*model_provider\s*=\s*["']([^"'\n]+)["']`)
	codexBaseURL  = lazily(`(?m)^\s*base_url\s*=\s*["']([^"'\n]+)["']`)
	codexEnvKey   = lazily(`(?m)^\s*env_key\s*=\s*["']([^"'\n]+)["']`)
)

// codexSignedIn asks `codex login status`, which reads the CLI's own store. A provider of the owner's needs no
// sign-in but its key.
func codexSignedIn(p *probe, path string) (string, string) {
	home := p.folder("CODEX_HOME", ".codex")
	config := string(small(filepath.Join(home, "config.toml")))
	if own := codexOwnProvider(config); own.name != "" {
		switch {
		case own.variable == "":
			return SignedInUnknown, "provider " + own.name
		case p.set(own.variable) != "":
			return SignedInYes, "provider " + own.name + " with " + own.variable
		}
		return SignedInNo, "provider " + own.name + " needs " + own.variable + ", which is not set"
	}
	if name := p.set("CODEX_API_KEY"); name != "" {
		return SignedInYes, "with " + name
	}
	if st, err := os.Stat(home); err != nil || !st.IsDir() {
		return SignedInNo, "run codex login"
	}
	_, err := p.run(path, "login", "status")
	var exit *process.ExitError
	switch {
	case err == nil:
		return SignedInYes, ""
	case errors.As(err, &exit) && exit.ExitCode == 1:
		return SignedInNo, "run codex login"
	}
	return SignedInUnknown, "codex login status: " + err.Error()
}

// claudeStatusSince is the oldest version known to have `auth status`; an older one could take the words for a
// prompt.
var claudeStatusSince = []int{2, 1, 197}

// What stands for the CLI's own sign-in, in the order in which it is taken.
var (
	claudeKeys   = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}
	claudeClouds = []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}
)

func claudeSignedIn(p *probe, path string) (string, string) {
	if name := p.set(claudeKeys...); name != "" {
		return SignedInYes, "with " + name
	}
	if name := p.set(claudeClouds...); name != "" {
		return SignedInUnknown, "by " + name
	}
	if atLeast(p.version, claudeStatusSince) {
		out, err := p.run(path, "auth", "status")
		var status struct {
			LoggedIn *bool  `json:"loggedIn"`
			Method   string `json:"authMethod"`
		}
		if json.Unmarshal(out, &status) == nil && status.LoggedIn != nil {
			if *status.LoggedIn {
				return SignedInYes, status.Method
			}
			return SignedInNo, "run claude and /login"
		}
		if err != nil {
			return SignedInUnknown, "claude auth status: " + err.Error()
		}
	}
	dir := p.folder("CLAUDE_CONFIG_DIR", ".claude")
	if len(small(filepath.Join(dir, ".credentials.json"))) > 2 {
		return SignedInYes, ""
	}
	return SignedInUnknown, ""
}

func atLeast(version string, least []int) bool {
	var have []int
	for _, part := range strings.SplitN(version, ".", 3) {
		digits := strings.TrimLeft(part, "0123456789")
		n, err := strconv.Atoi(part[:len(part)-len(digits)])
		if err != nil {
			return false
		}
		have = append(have, n)
	}
	return slices.Compare(have, least) >= 0
}

var (
	opencodeKeys = []string{"OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY",
		"GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY"}
	opencodeKeyRef = lazily(`"apiKey"\s*:\s*"(?:\{env:([A-Za-z0-9_]+)\})?`)
)

// opencodeSignedIn reads the CLI's own store and settings: to ask the CLI would cost seconds.
func opencodeSignedIn(p *probe, _ string) (string, string) {
	var store map[string]json.RawMessage
	if json.Unmarshal(small(filepath.Join(p.folder("XDG_DATA_HOME", ".local/share"), "opencode", "auth.json")), &store) == nil && len(store) > 0 {
		var names []string
		for n := range store {
			names = append(names, n)
		}
		slices.Sort(names)
		return SignedInYes, strings.Join(names, ", ")
	}
	content, _ := envValue(p.env, "OPENCODE_CONFIG_CONTENT")
	dir := filepath.Join(p.folder("XDG_CONFIG_HOME", ".config"), "opencode")
	for _, settings := range []string{content, string(small(filepath.Join(dir, "opencode.json"))), string(small(filepath.Join(dir, "opencode.jsonc")))} {
		if m := opencodeKeyRef().FindStringSubmatch(settings); m != nil {
			if m[1] == "" {
				return SignedInYes, "with a key in its settings"
			}
			if p.set(m[1]) != "" {
				return SignedInYes, "with " + m[1]
			}
			return SignedInNo, "its settings need " + m[1] + ", which is not set"
		}
	}
	if name := p.set(opencodeKeys...); name != "" {
		return SignedInYes, "with " + name
	}
	return SignedInUnknown, ""
}
