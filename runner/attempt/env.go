package attempt

import (
	"path"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// passed are the variables of the runner's own environment that every job gets.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "SHELL", "TERM", "TMPDIR", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
}

// harnessEnv are the variables by which an agent CLI finds its own account and
// settings; a job gets those of its harness alone.
var harnessEnv = map[string][]string{
	"codex":    {"CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"},
	"claude":   {"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_*", "ANTHROPIC_*"},
	"opencode": {"OPENCODE_*", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"},
}

// environ is a job's environment and the values in it that must not leave the machine.
type environ struct {
	vars   []string // NAME=value, in order of name
	hidden []string
}

// buildEnv makes a job's environment: the allowlist, what the owner and the harness
// add, what the job sets, its secrets, and our own marks, each over the ones before.
func buildEnv(own []string, p Policy, spec fleet.Spec, secrets map[string]string, marks map[string]string) environ {
	allow := slices.Concat(passed, harnessEnv[spec.Harness], p.EnvNames)
	if p.Push == "agent" {
		allow = append(allow, "SSH_AUTH_SOCK")
	}
	vars := map[string]string{}
	for _, kv := range own {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && slices.ContainsFunc(allow, func(pattern string) bool { m, _ := path.Match(pattern, name); return m }) {
			vars[name] = value
		}
	}
	for name, value := range spec.Env {
		vars[name] = value
	}
	for _, name := range spec.Secrets {
		vars[name] = secrets[name]
	}
	for name, value := range marks {
		vars[name] = value
	}
	var e environ
	for name, value := range vars {
		e.vars = append(e.vars, name+"="+value)
		_, ours := marks[name]
		switch {
		case ours: // no secrets, whatever their names look like; hiding them would spoil ordinary output
		case slices.Contains(spec.Secrets, name) && len(value) >= minMaskedSecret,
			looksSecret(name) && len(value) >= minMaskedEnv:
			e.hidden = append(e.hidden, value)
		}
	}
	slices.Sort(e.vars)
	slices.Sort(e.hidden)
	e.hidden = slices.Compact(e.hidden)
	return e
}

// with gives the environment with settings of the harness over it. Values that look
// like keys are hidden too.
func (e environ) with(settings []string) environ {
	out := environ{hidden: slices.Clone(e.hidden)}
	set := map[string]bool{}
	for _, kv := range settings {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = true
		if looksSecret(name) && len(value) >= minMaskedEnv {
			out.hidden = append(out.hidden, value)
		}
	}
	for _, kv := range e.vars {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			out.vars = append(out.vars, kv)
		}
	}
	out.vars = append(out.vars, settings...)
	slices.Sort(out.hidden)
	out.hidden = slices.Compact(out.hidden)
	return out
}

// zone gives that in which the agent words times, where its job sets another than the
// machine's; nil: it does not.
func (a *Attempt) zone() *time.Location {
	name := strings.TrimPrefix(a.asg.Spec.Env["TZ"], ":")
	if name == "" || name == "Local" {
		return nil
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return z
}
