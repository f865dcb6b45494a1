package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// opencodeHarness drives opencode through its own server by way of Drive: its `run` command is silent while it
// waits for its provider, for hours if told so, and leaves its commands running when it is stopped.
var opencodeHarness = &Harness{
	Name:         "opencode",
	Title:        "opencode",
	Capabilities: []string{CapResume, CapModel, CapPermissions, CapPartial, CapServer, CapKeyGuard},
	program:      "opencode",
	native:       nativeOpencode,
	version:      versionRE,
	signedIn:     opencodeSignedIn,
	account:      opencodeAccount,
	launch:       launchOpencode,
	decoder:      func(ParseRequest) decoder { return &opencodeDecoder{} },
	resumeID:     opencodeSession().MatchString,
	hasSession:   opencodeHasSession,
}

var opencodeSession = lazily(`^ses_[A-Za-z0-9]{4,80}$`)

// opencodeQuiet turns off what opencode would fetch or tell by itself.
var opencodeQuiet = []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
	"OPENCODE_DISABLE_SHARE=1", "npm_config_offline=true"}

func launchOpencode(r Request) (Launch, error) {
	if r.Self == "" {
		return Launch{}, fmt.Errorf("the path of the tugline binary is missing: %w", fleet.BadRequest)
	}
	if provider, model, ok := strings.Cut(r.Model, "/"); r.Model != "" && (!ok || provider == "" || model == "") {
		return Launch{}, fmt.Errorf("model %q: opencode wants PROVIDER/MODEL: %w", r.Model, fleet.BadRequest)
	}
	d := DriveRequest{Program: r.Path, Dir: r.Dir, Model: r.Model, Session: r.ResumeID, ApproveAll: r.Permissions == fleet.PermFull}
	content, err := opencodeSettings(r)
	if err != nil {
		return Launch{}, err
	}
	l := Launch{Argv: append([]string{r.Self}, d.Args()...), StopSignal: "INT", Env: append([]string{"OPENCODE_CONFIG_CONTENT=" + content}, opencodeQuiet...)}
	l.Env = append(l.Env, defaults(r.Env, "OPENCODE_DISABLE_DEFAULT_PLUGINS=1")...)
	shell, note, err := guardShell(r, "OPENCODE_SERVER_PASSWORD", "OPENCODE_CONFIG_CONTENT")
	if err != nil {
		return Launch{}, err
	}
	if shell != "" {
		l.Env = append(l.Env, "SHELL="+shell)
	} else {
		l.Notes = append(l.Notes, note)
	}
	return l, nil
}

// opencodeSettings gives the owner's inline settings with those of this run laid over them. They stay in the
// environment: they may hold keys.
func opencodeSettings(r Request) (string, error) {
	settings := map[string]any{}
	if own, _ := envValue(r.Env, "OPENCODE_CONFIG_CONTENT"); own != "" {
		if err := json.Unmarshal([]byte(own), &settings); err != nil {
			return "", fmt.Errorf("OPENCODE_CONFIG_CONTENT is not a JSON object: %w", fleet.BadRequest)
		}
	}
	settings["autoupdate"] = false
	settings["share"] = "disabled"
	settings["snapshot"] = false // the worktree is a git repository already
	permission := map[string]any{}
	if own, ok := settings["permission"].(map[string]any); ok {
		maps.Copy(permission, own)
	}
	switch r.Permissions {
	case fleet.PermRead:
		for _, tool := range []string{"edit", "bash", "external_directory"} {
			permission[tool] = "deny"
		}
	case fleet.PermWorkspace:
		// "ask" can't be answered by anybody here and would end the run; a denial is told to the agent, which goes on.
		// The last rule that matches counts, and keys are written in the order of their bytes: "*" before any path.
		outside := map[string]string{"*": "deny", "/tmp/**": "allow"}
		for _, dir := range append([]string{r.ScratchDir}, r.ExtraWritable...) {
			if dir != "" {
				outside[strings.TrimRight(dir, "/")+"/**"] = "allow"
			}
		}
		permission["external_directory"] = outside
	case fleet.PermFull:
		for _, tool := range []string{"edit", "bash", "external_directory", "webfetch"} {
			permission[tool] = "allow"
		}
	}
	settings["permission"] = permission
	b, err := json.Marshal(settings)
	if err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	return string(b), nil
}
