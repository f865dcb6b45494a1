package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Setup is how one CLI is to reach one scripted model.
type Setup struct {
	CLI CLI
	// Home is an existing, empty folder that becomes the CLI's HOME; two runs that
	// share it share sessions.
	Home string
	// BaseURL is that of the run at the model server, without /v1.
	BaseURL string
	// Key is the API key.
	Key string
	// Model replaces the CLI's usual one; "" keeps it.
	Model string
	// Retries is how often the CLI asks a provider again that fails; 0 leaves Codex
	// its own five and gives Claude Code two. opencode can't be told.
	Retries int
}

// KeyVar is the environment variable that a CLI reads its API key from.
func (c CLI) KeyVar() string {
	if c == Claude {
		return "ANTHROPIC_API_KEY"
	}
	return "SCRIPTED_API_KEY"
}

// Env writes the CLI's configuration under Home and gives the whole environment
// to start it with. Nothing of the caller's environment but PATH is in it.
func (s Setup) Env() ([]string, error) {
	tmp := filepath.Join(s.Home, "tmp")
	// Codex can't apply a patch when its TMPDIR does not exist.
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, fmt.Errorf("set up %s: %w", s.CLI, err)
	}
	env := []string{
		"HOME=" + s.Home, "TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/bash",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		s.CLI.KeyVar() + "=" + s.Key,
	}
	var own []string
	var err error
	switch s.CLI {
	case Codex:
		own, err = s.codex()
	case Claude:
		own = s.claude()
	case OpenCode:
		own, err = s.openCode()
	default:
		err = fmt.Errorf("there is no CLI of that name; there are %v", All)
	}
	if err != nil {
		return nil, fmt.Errorf("set up %s: %w", s.CLI, err)
	}
	return append(env, own...), nil
}

func (s Setup) model() string {
	if s.Model != "" {
		return s.Model
	}
	return s.CLI.Model()
}

func (s Setup) codex() ([]string, error) {
	dir := filepath.Join(s.Home, ".codex")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	retries := ""
	if s.Retries > 0 {
		retries = fmt.Sprintf("request_max_retries = %d\nstream_max_retries = %d\n", s.Retries, s.Retries)
	}
	config := fmt.Sprintf(`model = %q
model_provider = "scripted"

[model_providers.scripted]
name = "Scripted"
base_url = %q
wire_api = "responses"
env_key = %q
%s
[analytics]
enabled = false

[features]
plugins = false
`, s.model(), s.BaseURL+"/v1", Codex.KeyVar(), retries)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	return []string{"CODEX_HOME=" + dir}, nil
}

func (s Setup) claude() []string {
	// The usual ten retries of a wrong key take three minutes.
	retries := 2
	if s.Retries > 0 {
		retries = s.Retries
	}
	return []string{
		"ANTHROPIC_BASE_URL=" + s.BaseURL,
		// This one keeps it from looking up its vendor's hosts.
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		fmt.Sprintf("CLAUDE_CODE_MAX_RETRIES=%d", retries),
	}
}

func (s Setup) openCode() ([]string, error) {
	model := s.model()
	_, name, ok := strings.Cut(model, "/")
	if !ok {
		return nil, fmt.Errorf("the model %q has no provider; write provider/model", model)
	}
	type m = map[string]any
	config, err := json.Marshal(m{
		"model": model, "small_model": model, "autoupdate": false, "share": "disabled",
		"provider": m{"scripted": m{
			"npm": "@ai-sdk/openai-compatible", "name": "Scripted",
			"options": m{"baseURL": s.BaseURL + "/v1", "apiKey": "{env:" + OpenCode.KeyVar() + "}"},
			"models":  m{name: m{"name": "Scripted Model", "limit": m{"context": 128000, "output": 8192}}},
		}},
	})
	if err != nil {
		return nil, err
	}
	return []string{
		"OPENCODE_CONFIG_CONTENT=" + string(config),
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_SHARE=1",
		// It would install a plugin package into its configuration folder.
		"npm_config_offline=true",
	}, nil
}

// Argv is the command line of one turn without a terminal: the prompt comes on
// standard input, events go to standard output as JSON lines. A session id makes
// it a further turn of that session, which must be run in the same folder with
// the same Home.
func (s Setup) Argv(session string) ([]string, error) {
	path, err := s.CLI.Path()
	if err != nil {
		return nil, err
	}
	argv := []string{path}
	switch s.CLI {
	case Codex:
		argv = append(argv, "exec", "--json", "--sandbox", "workspace-write", "--skip-git-repo-check")
		if session != "" {
			argv = append(argv, "resume", session)
		}
		return append(argv, "-"), nil
	case Claude:
		argv = append(argv, "-p", "--output-format", "stream-json", "--verbose", "--model", s.model(),
			"--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write,Edit,Read")
		if session != "" {
			argv = append(argv, "--resume", session)
		}
	case OpenCode:
		argv = append(argv, "run", "--format", "json")
		if session != "" {
			argv = append(argv, "--session", session)
		}
	}
	return argv, nil
}
