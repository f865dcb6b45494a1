package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// jobFlags are what run and exec share.
type jobFlags struct {
	repo, ref, branch    string
	depth                int
	dirty                bool
	harness, model       string
	on                   string
	require, env         []string
	secrets              []string
	permissions          string
	push, commit, onLost string
	automation           string
	concurrency          string
	timeout, idle        time.Duration
	firstResponse, queue time.Duration
	detach               bool
	key                  string
	place                placeFlags
}

func (f *jobFlags) add(c *cobra.Command, agent bool) {
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.repo, "repo", "", "repository to work in: a `PATH` here, whose HEAD is sent, or a URL (default an empty directory)")
	s.StringVar(&f.ref, "ref", "", "`REF` to begin at: branch, tag or commit (default HEAD)")
	s.BoolVar(&f.dirty, "include-dirty", false, "send the uncommitted changes of the directory too")
	s.StringVar(&f.branch, "branch", "", "`NAME` of the job's branch (default tugline/JOB)")
	s.IntVar(&f.depth, "depth", 0, "commits `N` of history to fetch from a URL (default all)")
	s.StringVar(&f.on, "on", "", "the only `RUNNER` that may take it")
	s.StringArrayVar(&f.require, "require", nil, "label `K=V` that the runner must carry (repeatable)")
	if agent {
		s.StringVar(&f.harness, "harness", "", "agent `NAME`: codex, claude or opencode (default as set on the hub)")
		s.StringVar(&f.model, "model", "", "`MODEL`, as the agent names it")
	} else {
		s.StringVar(&f.harness, "harness", "", "exec, which is the default")
		s.StringVar(&f.model, "model", "", "")
		s.MarkHidden("harness")
		s.MarkHidden("model")
	}
	f.place.add(s, agent)
	s.StringVar(&f.permissions, "permissions", "", "what it may do, `P`: read, workspace (default) or full; the runner's owner sets the most")
	s.StringArrayVar(&f.env, "env", nil, "environment entry `K=V` (repeatable); recorded, so never a credential")
	s.StringArrayVar(&f.secrets, "secret", nil, "`NAME` of a secret in the runner owner's store (repeatable)")
	s.StringVar(&f.commit, "commit", "", "`WHEN` to commit what is left over: auto (default), or never, which only keeps it safe")
	s.StringVar(&f.push, "push", "", "`BRANCH` to push the accepted work to, never by force")
	s.StringVar(&f.onLost, "on-lost", "", "`WHAT` to do when the runner is lost: hold (default) or rerun")
	s.StringVar(&f.automation, "automation", "", "`NAME` of the script that asks, instead of a person")
	s.StringVar(&f.concurrency, "key", "", "at most one job at a time with this `KEY`")
	s.DurationVar(&f.timeout, "timeout", 0, "end it after a `DURATION` (default 2h)")
	if agent {
		s.DurationVar(&f.idle, "idle-timeout", 0, "end it after a `DURATION` without output (default 15m)")
		s.DurationVar(&f.firstResponse, "first-response-timeout", 0, "end it when nothing came for a `DURATION` (default 5m)")
	} else {
		s.DurationVar(&f.idle, "idle-timeout", 0, "end it after a `DURATION` without output (default none)")
		s.DurationVar(&f.firstResponse, "first-response-timeout", 0, "end it when nothing came for a `DURATION` (default none)")
	}
	s.DurationVar(&f.queue, "queue-timeout", 0, "give up when no runner took it for a `DURATION` (default none)")
	s.BoolVarP(&f.detach, "detach", "d", false, "print the job's id and do not follow it")
	s.StringVar(&f.key, "idempotency-key", "", "repeat a request whose end is unknown: the `KEY` printed then")
}

// addSession adds those of a job that goes on with a session where it lies.
func (f *jobFlags) addSession(c *cobra.Command) {
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.harness, "harness", "", "agent `NAME` that the session is of (default as the runner's list says)")
	s.StringVar(&f.model, "model", "", "`MODEL`, as the agent names it")
	s.StringVar(&f.permissions, "permissions", "", "what it may do, `P`: read, workspace (default) or full; the runner's owner sets the most")
	s.DurationVar(&f.timeout, "timeout", 0, "end it after a `DURATION` (default 2h)")
	s.DurationVar(&f.queue, "queue-timeout", 0, "give up when the runner did not take it for a `DURATION` (default none)")
	s.BoolVarP(&f.detach, "detach", "d", false, "print the job's id and do not follow it")
	s.StringVar(&f.key, "idempotency-key", "", "repeat a request whose end is unknown: the `KEY` printed then")
}

// submit checks the flags and makes the request, all but the repository.
func (f *jobFlags) submit(cmd *cobra.Command) (api.Submit, error) {
	s := api.Submit{
		Harness: f.harness, Model: f.model, Permissions: fleet.Permissions(f.permissions), On: f.on, Secrets: f.secrets,
		Push: f.push, Commit: f.commit, OnLost: f.onLost, Automation: f.automation, ConcurrencyKey: f.concurrency,
	}
	if err := given(cmd, "repo", "ref", "branch", "on", "harness", "model", "permissions", "commit", "push", "on-lost", "automation", "key", "idempotency-key", "prompt-file"); err != nil {
		return s, err
	}
	if slices.Contains(f.secrets, "") {
		return s, usage("--secret is empty; give the name of a secret in the runner owner's store, or leave it out")
	}
	for _, o := range []struct {
		flag, value string
		allowed     []string
	}{
		{"permissions", f.permissions, []string{"read", "workspace", "full"}},
		{"commit", f.commit, []string{"auto", "never"}},
		{"on-lost", f.onLost, []string{"hold", "rerun"}},
	} {
		if err := oneOf(o.flag, o.value, o.allowed...); err != nil {
			return s, err
		}
	}
	err := f.place.put(cmd, &s)
	if err != nil {
		return s, err
	}
	if s.Require, err = pairs("require", f.require); err != nil {
		return s, err
	}
	if s.Env, err = pairs("env", f.env); err != nil {
		return s, err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		to    *string
	}{
		{"timeout", f.timeout, &s.Timeout}, {"idle-timeout", f.idle, &s.IdleTimeout},
		{"first-response-timeout", f.firstResponse, &s.FirstTimeout}, {"queue-timeout", f.queue, &s.QueueTimeout},
	} {
		if !cmd.Flags().Changed(d.flag) {
			continue
		}
		if d.value < 0 || d.value > 0 && d.value < time.Second {
			return s, usage("--%s %s is too short; give 1s or more, or 0 for none", d.flag, d.value)
		}
		*d.to = d.value.String()
	}
	if f.depth < 0 {
		return s, usage("--depth %d is below zero; give a number of commits, or 0 for all", f.depth)
	}
	if f.repo == "" {
		for flag, set := range map[string]bool{"ref": f.ref != "", "branch": f.branch != "", "depth": f.depth > 0, "push": f.push != "", "include-dirty": f.dirty} {
			if set {
				return s, usage("--%s belongs to a repository; give --repo too", flag)
			}
		}
	}
	return s, nil
}

// given refuses flags with nothing in them: a variable in somebody's script was not
// set, and what it was to say must not go unsaid.
func given(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return usage("--%s is empty; give it a value, or leave it out", name)
		}
	}
	return nil
}

func oneOf(flag, value string, allowed ...string) error {
	if value == "" {
		return nil
	}
	for _, a := range allowed {
		if a == value {
			return nil
		}
	}
	return usage("--%s %q is none of %s", flag, value, strings.Join(allowed, ", "))
}

// pairs reads k=v words.
func pairs(flag string, words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(words))
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, usage("--%s %q is not of the form k=v", flag, cut(w, 80))
		}
		if !utf8.ValidString(w) {
			return nil, usage("--%s %q is not UTF-8 text", flag, cut(w, 80))
		}
		if _, twice := m[k]; twice {
			return nil, usage("--%s gives %s twice; keep one of them", flag, k)
		}
		m[k] = v
	}
	return m, nil
}

// promptFlags are where a prompt may come from.
type promptFlags struct{ file string }

func (p *promptFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&p.file, "prompt-file", "f", "", "`FILE` with the prompt, - for standard input")
}

// prompt takes the one prompt that was given.
func (p *promptFlags) prompt(a *app, args []string) (string, error) {
	if (len(args) > 0) == (p.file != "") {
		return "", usage("give one prompt: as one word in quotes, or with --prompt-file FILE (- for standard input)")
	}
	text := ""
	if len(args) > 0 {
		text = args[0]
	} else {
		r := a.in
		if p.file != "-" {
			f, err := os.Open(p.file)
			if err != nil {
				return "", usage("cannot read the prompt: %v", err)
			}
			defer f.Close()
			r = f
		}
		b, err := io.ReadAll(io.LimitReader(r, fleet.MaxPrompt+1))
		if err != nil {
			return "", usage("cannot read the prompt: %v", err)
		}
		text = string(b)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", usage("the prompt is empty; say what is to be done")
	case len(text) > fleet.MaxPrompt:
		return "", usage("the prompt is over %d KiB; put long material in the repository and name the file", fleet.MaxPrompt>>10)
	case !utf8.ValidString(text):
		return "", usage("the prompt is not UTF-8 text")
	case strings.ContainsRune(text, 0):
		return "", usage("the prompt has a NUL character, which no program can be given; take it out")
	}
	return text, nil
}
