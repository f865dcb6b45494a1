package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) sessionCommand() *cobra.Command {
	c := group("session", "Sessions of agent CLIs on a runner's machine", groupLook, a.sessionListCommand(), a.sessionShowCommand(), a.sessionResumeCommand())
	c.Long = `Look at the sessions that people have with agent CLIs (Codex, Claude Code, opencode) on a runner's
machine, and go on with one of them. The owner of the machine says in runner.yaml what of them is
told (sessions) and where jobs may go on with one (session_dirs).`
	return c
}

func (a *app) sessionListCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list RUNNER", Aliases: []string{"ls"}, Short: "The newest 200 on its machine, the last used first", Args: exactly("RUNNER"), ValidArgsFunction: a.completeRunners,
		Long: `List the sessions of agent CLIs on a runner's machine, the last used first. The runner is asked
now; where it is away, the last list that it gave to the hub node that leads is shown with its age.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var s api.Sessions
			if done, err := a.answer(cmd.Context(), asking(runnerPath(args[0], "/sessions"), nil), &s); done {
				return err
			}
			return a.sessionTable(&s, time.Now())
		},
	})
}

func (a *app) sessionTable(s *api.Sessions, now time.Time) error {
	name := line(first(s.Name, string(s.Runner)))
	if s.Waiting != "" {
		a.say("%s; this list is of %s ago", line(s.Waiting), span(time.Duration(s.AgeMS)*time.Millisecond))
	}
	for _, n := range s.Notes {
		a.say("%s", line(n))
	}
	if len(s.Sessions) == 0 {
		_, err := fmt.Fprintf(a.out, "No session of an agent CLI was found on runner %s.\n", name)
		return err
	}
	t := table{head: []string{"SESSION", "AGENT", "USED", "DIRECTORY", "TITLE"}, full: !a.ttyOut}
	for _, x := range s.Sessions {
		t.add(x.ID, x.Harness, ago(now, &x.Used), x.Dir, first(x.Title, "-"))
	}
	if s.More {
		a.say("there are older ones, which are not listed")
	}
	return t.print(a.out)
}

func (a *app) sessionShowCommand() *cobra.Command {
	n := fleet.SessionShown
	c := &cobra.Command{
		Use: "show RUNNER SESSION", Short: "One of them with its last messages", Args: exactly("RUNNER", "SESSION"), ValidArgsFunction: a.completeRunners,
		Long: `Show a session with its last messages. What looks like a secret is masked on the runner's machine.
Of tools it is told what they were called with, and not what they answered.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > fleet.MaxSessionShown {
				return usage("--messages %d is not from 1 to %d", n, fleet.MaxSessionShown)
			}
			var s api.Session
			if done, err := a.answer(cmd.Context(), asking(sessionPath(args[0], args[1]), url.Values{"messages": {strconv.Itoa(n)}}), &s); done {
				return err
			}
			return a.showSession(&s, time.Now())
		},
	}
	c.Flags().IntVar(&n, "messages", n, "the last `N` messages, up to 50")
	return a.jsonFlag(c)
}

// asking is the request for what a runner is asked for: where the hub node that leads is
// lost meanwhile, the next one is asked.
func asking(path string, query url.Values) request {
	r := reading(path, query)
	r.patience = actPatience
	return r
}

func sessionPath(runner, id string) string {
	return runnerPath(runner, "/sessions/"+url.PathEscape(id))
}

func (a *app) showSession(s *api.Session, now time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "session %s of %s on runner %s\n", line(s.ID), line(s.Harness), line(first(s.Name, string(s.Runner))))
	for _, l := range [][2]string{{"title", s.Title}, {"directory", s.Dir}, {"model", s.Model}, {"begun", ago(now, &s.Started)}, {"last used", ago(now, &s.Used)}} {
		if l[1] != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", l[0], line(l[1]))
		}
	}
	if s.Earlier {
		b.WriteString("\n  … earlier messages are not shown\n")
	}
	for _, m := range s.Messages {
		when := ""
		if !m.At.IsZero() {
			when = " " + m.At.Local().Format("2006-01-02 15:04")
		}
		fmt.Fprintf(&b, "\n%s%s\n", line(m.Role), when)
		for l := range strings.Lines(clean(m.Text)) {
			b.WriteString(strings.TrimRight("  "+strings.TrimSuffix(l, "\n"), " \t") + "\n")
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func (a *app) sessionResumeCommand() *cobra.Command {
	var f jobFlags
	var p promptFlags
	c := &cobra.Command{
		Use: `resume RUNNER SESSION "PROMPT"`, Short: "Go on with one, as a job on that machine",
		Long: `Give a session of an agent CLI a further prompt. It becomes a job for that runner alone, which
waits while the runner is away. The session's own CLI goes on with it in the session's own
directory, without a worktree: what it changes there is changed at once. The owner of the machine
allows that by directory, with session_dirs in runner.yaml.
` + exitHelp,
		Example: `  tugline session list studio
  tugline session resume studio a98636ab-62e9-4439-9143-d6f8620541a1 "now add a test for it"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactly("RUNNER", "SESSION")(cmd, args)
			}
			if len(args) > 3 {
				return usage("the prompt is one word: put it in quotes")
			}
			return nil
		},
		ValidArgsFunction: a.completeRunners,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.submit(cmd)
			if err != nil {
				return err
			}
			s.Kind, s.On, s.Session = fleet.KindAgent, args[0], &fleet.SessionRef{ID: args[1]}
			if s.Prompt, err = p.prompt(a, args[2:]); err != nil {
				return err
			}
			if s.Harness == "" {
				if s.Harness, err = a.harnessOf(cmd.Context(), args[0], args[1]); err != nil {
					return err
				}
			}
			return a.give(cmd.Context(), &f, s)
		},
	}
	f.addSession(c)
	p.add(c)
	a.completeJobFlags(c)
	return a.jsonFlag(c)
}

// harnessOf gives the agent whose CLI a session is of, as the runner's list says.
func (a *app) harnessOf(ctx context.Context, runner, id string) (string, error) {
	c, err := a.dial()
	if err != nil {
		return "", err
	}
	defer c.close()
	var s api.Sessions
	if _, err := c.ask(ctx, asking(runnerPath(runner, "/sessions"), nil), &s); err != nil {
		if errors.Is(err, fleet.Offline) {
			return "", usage("%s; to have the job wait for it, say with --harness which agent the session is of", sentence(err))
		}
		return "", refusedSubmit(err)
	}
	for _, x := range s.Sessions {
		if x.ID == id {
			return x.Harness, nil
		}
	}
	return "", usage("runner %s has no session %s among the newest %d; `tugline session list %s` shows them, and --harness names the agent of an older one",
		line(first(s.Name, runner)), line(cut(id, fleet.MaxSessionID)), len(s.Sessions), line(runner))
}
