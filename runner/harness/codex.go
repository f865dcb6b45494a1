package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// codexHarness drives `codex exec`. Its thread id comes back on a resume; a word that is not a UUID would be taken
// for a thread's name and, not found, silently begin a new thread.
var codexHarness = &Harness{
	Name:         "codex",
	Title:        "Codex",
	Capabilities: []string{CapResume, CapModel, CapPermissions, CapKeyGuard},
	program:      "codex",
	native:       nativeCodex,
	version:      versionRE,
	signedIn:     codexSignedIn,
	account:      codexAccount,
	launch:       launchCodex,
	decoder:      func(ParseRequest) decoder { return &codexDecoder{} },
	resumeID:     uuid().MatchString,
	sessionModel: codexSessionModel,
	hasSession:   codexHasSession,
}

func launchCodex(r Request) (Launch, error) {
	mode := map[fleet.Permissions]string{
		fleet.PermRead: "read-only", fleet.PermWorkspace: "workspace-write", fleet.PermFull: "danger-full-access",
	}[r.Permissions]
	argv := []string{r.Path, "exec", "--sandbox", mode, "--skip-git-repo-check", "-C", r.Dir,
		"-c", "analytics.enabled=false", "-c", "features.plugins=false", "-c", "check_for_update_on_startup=false",
		"-c", "shell_environment_policy.exclude=" + tomlStrings(hiddenPatterns(r.Env, r.KeepEnv))}
	if r.Permissions == fleet.PermWorkspace {
		for _, dir := range r.ExtraWritable {
			argv = append(argv, "--add-dir", dir)
		}
	}
	// The flags above belong to exec, not to its subcommand.
	if r.ResumeID != "" {
		argv = append(argv, "resume")
	}
	argv = append(argv, "--json")
	if r.Model != "" {
		argv = append(argv, "-m", r.Model)
	}
	if r.ResumeID != "" {
		argv = append(argv, r.ResumeID)
	}
	l := Launch{Argv: append(argv, "-"), StopSignal: "INT"}
	if r.Permissions == fleet.PermRead {
		l.Notes = append(l.Notes, "codex tells a patch that its read-only sandbox refused on standard error only")
	}
	return l, nil
}

// tomlStrings writes a TOML array; a JSON string is a TOML basic string.
func tomlStrings(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		b, err := json.Marshal(s)
		if err != nil {
			b = []byte(fmt.Sprintf("%q", s))
		}
		quoted[i] = string(b)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}
