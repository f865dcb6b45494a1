package harness

import (
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// claudeHarness drives `claude -p` with its stream of JSON lines. Sessions are found by the working directory, so
// a resume needs the directory that the session began in.
var claudeHarness = &Harness{
	Name:         "claude",
	Title:        "Claude Code",
	Capabilities: []string{CapResume, CapModel, CapPermissions, CapPartial, CapKeyGuard},
	program:      "claude",
	native:       func(path string) string { return path },
	version:      versionRE,
	signedIn:     claudeSignedIn,
	account:      claudeAccount,
	launch:       launchClaude,
	decoder:      func(ParseRequest) decoder { return &claudeDecoder{} },
	resumeID:     uuid().MatchString,
	hasSession:   claudeHasSession,
}

// claudeTools are allowed without a question where edits are. A question can't be answered in a printed run and
// would be a denial.
const claudeTools = "Bash,Edit,MultiEdit,Write,NotebookEdit,Read,Glob,Grep,LS,Task,TodoWrite,WebFetch,WebSearch"

func launchClaude(r Request) (Launch, error) {
	argv := []string{r.Path, "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"}
	l := Launch{StopSignal: "INT", Env: []string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
	}}
	// Ten tries, its own default, take three minutes to find out that a key is wrong.
	l.Env = append(l.Env, defaults(r.Env, "CLAUDE_CODE_MAX_RETRIES=5")...)
	shell, note, err := guardShell(r)
	if err != nil {
		return Launch{}, err
	}
	if shell != "" {
		l.Env = append(l.Env, "CLAUDE_CODE_SHELL="+shell)
	} else {
		l.Notes = append(l.Notes, note)
	}
	// Lists are given in one word with their flag: as words of their own they would swallow what follows.
	switch r.Permissions {
	case fleet.PermRead:
		argv = append(argv, "--permission-mode", "plan")
	case fleet.PermWorkspace:
		argv = append(argv, "--permission-mode", "acceptEdits", "--allowedTools="+claudeTools)
		for _, dir := range r.ExtraWritable {
			argv = append(argv, "--add-dir="+dir)
		}
	case fleet.PermFull:
		argv = append(argv, "--permission-mode", "bypassPermissions")
		if v, _ := envValue(r.Env, "IS_SANDBOX"); r.AsRoot && v != "1" {
			l.Env = append(l.Env, "IS_SANDBOX=1")
			l.Notes = append(l.Notes, "full permissions as root: IS_SANDBOX=1 is set, without which Claude Code refuses to start")
		}
	}
	if r.Model != "" {
		argv = append(argv, "--model", r.Model)
	}
	if r.ResumeID != "" {
		argv = append(argv, "--resume", strings.ToLower(r.ResumeID))
	}
	l.Argv = argv
	return l, nil
}
