package harness

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tugline.dev/tugline/runner/process"
)

// All three CLIs hand their whole environment, API keys included, to the shell commands of the agent. Codex can be
// told to leave variables out. The others can be told which shell to use: they get a script that drops the
// variables and becomes the real shell. This keeps keys out of what a command prints or sends by accident. It is
// no wall: a command that runs as the same user can look at the memory of the CLI.

// keyPatterns are the names of variables that hold keys, in upper case; Codex matches them without regard to case.
var keyPatterns = []string{"*KEY*", "*TOKEN*", "*SECRET*", "*PASSWORD*"}

// hiddenPatterns gives the patterns of variables that the agent's commands don't get. A pattern that would take one
// of keep along is replaced by the names it matches.
func hiddenPatterns(env, keep []string) []string {
	var out []string
	for _, p := range keyPatterns {
		if !slices.ContainsFunc(keep, func(n string) bool { return matches(p, n) }) {
			out = append(out, p)
			continue
		}
		for _, name := range hiddenNames(env, keep) {
			if matches(p, name) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// hiddenNames gives the variables of env that hold keys, but for those of keep, sorted.
func hiddenNames(env, keep []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains(keep, name) && slices.ContainsFunc(keyPatterns, func(p string) bool { return matches(p, name) }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, strings.ToUpper(name))
	return ok && err == nil
}

var shellName = lazily(`^[A-Za-z_][A-Za-z0-9_]*$`)

// guardShell writes the script that stands for the shell into the attempt's scratch directory and gives its path.
// Its name is bash: the CLIs look at the name to know how a shell is called. Without a scratch directory or bash
// there is none, and note says so.
func guardShell(r Request, more ...string) (shell, note string, err error) {
	bash, lookErr := process.LookPath("bash", r.Env)
	if lookErr != nil || r.ScratchDir == "" {
		return "", "keys in the environment are not kept from the agent's commands: no bash here", nil
	}
	var names []string
	for _, n := range append(hiddenNames(r.Env, r.KeepEnv), more...) {
		if shellName().MatchString(n) {
			names = append(names, n)
		}
	}
	script := "#!/bin/sh\n"
	if len(names) > 0 {
		script += "unset " + strings.Join(names, " ") + "\n"
	}
	quoted := "'" + strings.ReplaceAll(bash, "'", `'\''`) + "'"
	script += "SHELL=" + quoted + "\nexport SHELL\nexec " + quoted + " \"$@\"\n"
	dir := filepath.Join(r.ScratchDir, "keyless")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("write the shell of the agent: %w", err)
	}
	shell = filepath.Join(dir, "bash")
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		return "", "", fmt.Errorf("write the shell of the agent: %w", err)
	}
	return shell, "", nil
}
