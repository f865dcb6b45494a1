package main

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/runner/harness"
	"tugline.dev/tugline/shared/api"
)

// completeTime bounds what a shell waits for when a user presses Tab.
const completeTime = 700 * time.Millisecond

// ask reads from the hub for a completion; nothing is better than a late answer.
func (a *app) ask(path string, query url.Values, out any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	s, err := a.spot()
	if err != nil {
		return false
	}
	c, err := newClient(s, func(string, ...any) {})
	if err != nil {
		return false
	}
	defer c.close()
	_, err = c.read(ctx, path, query, out)
	return err == nil
}

func (a *app) completeJobs(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var js api.Jobs
	if len(args) > 0 || !a.ask("/v1/jobs", url.Values{"limit": {"50"}}, &js) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, j := range js.Jobs {
		if strings.HasPrefix(string(j.ID), strings.ToLower(start)) {
			out = append(out, cobra.CompletionWithDesc(string(j.ID), cut(line(words(j.State)+" "+what(&j)), 60)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) completeRunners(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var rs api.Runners
	if len(args) > 0 || !a.ask("/v1/runners", nil, &rs) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, r := range rs.Runners {
		if strings.HasPrefix(r.Name, start) {
			out = append(out, cobra.CompletionWithDesc(r.Name, runnerState(&r)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeContexts(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := a.loadContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(c.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeJobFlags gives values for the flags of run and exec.
func (a *app) completeJobFlags(c *cobra.Command) {
	words := func(w ...cobra.Completion) cobra.CompletionFunc {
		return cobra.FixedCompletions(w, cobra.ShellCompDirectiveNoFileComp)
	}
	var agents []cobra.Completion
	for _, n := range harness.Names() {
		if n != "exec" {
			agents = append(agents, n)
		}
	}
	for flag, f := range map[string]cobra.CompletionFunc{
		"harness": words(agents...), "permissions": words("read", "workspace", "full"), "commit": words("auto", "never"), "on-lost": words("hold", "rerun"),
		"os": words("linux", "darwin"), "arch": words("amd64", "arm64"), "fallback": words(agents...),
		"on": a.completeRunnerFlag,
		"repo": func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	} {
		c.RegisterFlagCompletionFunc(flag, f)
	}
}
