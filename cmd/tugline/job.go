package main

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) jobCommand() *cobra.Command {
	c := group("job", "Jobs: what became of them, and what to do with it", groupLook,
		a.jobListCommand(), a.jobGetCommand(), a.jobExplainCommand(), a.jobLogsCommand(),
		a.jobDiffCommand(), a.jobPullCommand(), a.jobArtifactsCommand(), a.jobDiscardCommand(),
		a.jobFollowUpCommand(), a.jobCancelCommand(), a.jobRetryCommand(),
		a.jobSettleCommand("accept", "Settle a job that needs review as succeeded"),
		a.jobSettleCommand("reject", "Settle a job that needs review as failed"),
		a.jobOrphansCommand(),
	)
	c.Long = "Jobs: what became of them, and what to do with it. An ID may be any prefix of it that\nfits no other job, of at least four characters."
	return c
}

// jobPath is where a job is on the hub.
func jobPath(id, below string) string { return "/v1/jobs/" + url.PathEscape(id) + below }

// job gets one job.
func (c *client) job(ctx context.Context, id string) (*api.Job, []byte, error) {
	if id == "" {
		return nil, nil, usage("the job's id is empty; `tugline job list` shows the jobs")
	}
	var j api.Job
	raw, err := c.read(ctx, jobPath(id, ""), nil, &j)
	return &j, raw, err
}

func (a *app) jobListCommand() *cobra.Command {
	var state, runner, before string
	var active bool
	var limit int
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Jobs, newest first", Args: cobra.NoArgs,
		Example: "  tugline job list --active\n  tugline job list --state needs_review --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 500 {
				return usage("--limit %d is not from 1 to 500; --before shows further pages", limit)
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			for k, v := range map[string]string{"state": state, "runner": runner, "before": before} {
				if v != "" {
					q.Set(k, v)
				}
			}
			if active {
				q.Set("active", "true")
			}
			var js api.Jobs
			if done, err := a.answer(cmd.Context(), reading("/v1/jobs", q), &js); done {
				return err
			}
			if len(js.Jobs) == 0 && (state != "" || runner != "" || before != "" || active) {
				fmt.Fprintln(a.out, "No job is like that; `tugline job list` shows all.")
				return nil
			}
			return a.jobTable(js, time.Now())
		},
	}
	c.Flags().StringVar(&state, "state", "", "only jobs in this `STATE`")
	c.Flags().BoolVar(&active, "active", false, "only jobs that have not ended")
	c.Flags().StringVar(&runner, "runner", "", "only jobs of this `RUNNER`")
	c.Flags().IntVar(&limit, "limit", 50, "at most `N`, up to 500")
	c.Flags().StringVar(&before, "before", "", "only jobs older than the job `ID`")
	c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateWords(), cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("runner", a.completeRunners)
	return a.jsonFlag(c)
}

func stateWords() (out []cobra.Completion) {
	for _, s := range fleet.States {
		out = append(out, string(s))
	}
	return out
}

func (a *app) jobTable(js api.Jobs, now time.Time) error {
	if len(js.Jobs) == 0 {
		fmt.Fprintln(a.out, "No jobs. Give one with `tugline run` or `tugline exec`.")
		return nil
	}
	t := table{head: []string{"ID", "STATE", "HARNESS", "RUNNER", "CREATED", "TOOK", "WHAT"}}
	for _, j := range js.Jobs {
		t.add(string(j.ID), stateWord(&j), j.Harness, first(j.Runner, "-"), ago(now, &j.CreatedAt), since(now, &j), what(&j))
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	if js.Next != "" {
		fmt.Fprintf(a.out, "There are more: `tugline job list --before %s`.\n", js.Next)
	}
	return nil
}

// what tells of a job in a few words: why it stands where it stands, else what it is.
func what(j *api.Job) string {
	switch {
	case cancelling(j) != "":
		return cancelling(j)
	case j.State == fleet.Queued, j.State == fleet.Blocked, j.State == fleet.Lost:
		return whyLine(j)
	case (j.State == fleet.Failed || j.State == fleet.NeedsReview) && j.Verdict != nil && len(j.Verdict.Reasons) > 0:
		return j.Verdict.Reasons[0]
	case j.Kind == fleet.KindExec:
		return kindLine(j)[len("exec"):]
	case j.Evidence != nil && len(j.Evidence.Commits) > 0:
		cs := j.Evidence.Commits
		return cs[len(cs)-1].Subject
	}
	return repoName(j)
}

// repoName tells a job's repository in a few words.
func repoName(j *api.Job) string {
	if j.Repo == "" {
		return ""
	}
	if strings.HasPrefix(j.Repo, "bundle:") {
		return strings.TrimSpace("bundle " + short(j.BaseCommit))
	}
	return strings.TrimSuffix(path.Base(j.Repo), ".git")
}

func (a *app) jobGetCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "get ID", Aliases: []string{"show"}, Short: "One job: state, verdict, evidence", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			j, raw, err := c.job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			a.describe(j, time.Now())
			return nil
		},
	})
}

// describe shows all that a person may want to know of a job.
func (a *app) describe(j *api.Job, now time.Time) {
	fmt.Fprintf(a.out, "job %s %s%s\n", j.ID, statePaint(j.State).on(a.colourOut(), stateText(j)), bracketed(j))
	for _, f := range facts(j, now) {
		if f.value != "" {
			fmt.Fprintf(a.out, "  %-12s %s\n", f.name, f.value)
		}
	}
	for _, tu := range j.Turns {
		if len(j.Turns) == 1 && len(tu.Attempts) < 2 {
			break
		}
		fmt.Fprintf(a.out, "  turn %d: %s\n", tu.N, words(tu.State))
		if tu.N == j.Turn && len(j.Attempts) > 0 {
			for _, at := range j.Attempts {
				fmt.Fprintf(a.out, "    attempt %d on %s: %s\n", at.N, line(at.Runner), attemptText(&at, now))
			}
			continue
		}
		for _, at := range tu.Attempts {
			fmt.Fprintf(a.out, "    attempt %d on %s: %s\n", at.N, line(at.RunnerName), line(string(at.State)+" "+first(string(at.Failure), string(at.Code))+" "+at.Detail))
		}
	}
	whatNext(a.out, a.colourOut(), j)
}

// jobAct makes a command that posts to a job and tells in words what it became. Where
// look is set, tell is given the job from before too.
func (a *app) jobAct(use, verb, short string, flags func(*cobra.Command), body func() any, look bool, tell func(was, is *api.Job) string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			was := &api.Job{}
			if look {
				if was, _, err = c.job(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			var j api.Job
			raw, err := c.act(cmd.Context(), jobPath(args[0], "/"+verb), body(), &j)
			if err != nil {
				return err
			}
			if a.json {
				return a.printRaw(raw)
			}
			fmt.Fprintf(a.out, "job %s %s\n", j.ID, tell(was, &j))
			return nil
		},
	}
	if flags != nil {
		flags(c)
	}
	return a.jsonFlag(c)
}

func (a *app) jobCancelCommand() *cobra.Command {
	var abandon bool
	return a.jobAct("cancel ID", "cancel", "Cancel a job", func(c *cobra.Command) {
		c.Flags().BoolVar(&abandon, "abandon", false, "end it although its processes may still run (admin)")
		c.Long = "Cancel a job: at once while it waits, else as soon as its runner has ended its processes.\nWhere that runner is gone, --abandon ends the job without knowing that they are."
	}, func() any { return api.Cancel{Abandon: abandon} }, true, func(was, is *api.Job) string {
		switch {
		case was.State == fleet.Cancelled:
			return "is cancelled already"
		case cancelling(was) != "" && cancelling(is) != "":
			return "was asked to end already: " + cancelling(is)
		case is.State == fleet.Cancelled:
			return "is cancelled" + because(is)
		}
		return "was asked to end: " + stateText(is) + because(is)
	})
}

// because gives the reason why a job stands where it stands, behind a comma.
func because(j *api.Job) string {
	if why := whyLine(j); why != "" {
		return ", " + why
	}
	return ""
}

func (a *app) jobSettleCommand(verb, short string) *cobra.Command {
	var reason string
	return a.jobAct(verb+" ID", verb, short, func(c *cobra.Command) {
		c.Flags().StringVar(&reason, "reason", "", "why, for the record: `TEXT`")
	}, func() any { return api.Settle{Reason: reason} }, false, func(_, is *api.Job) string {
		return "is settled: " + words(is.State) + because(is)
	})
}

func (a *app) jobRetryCommand() *cobra.Command {
	var grant bool
	return a.jobAct("retry ID", "retry", "Queue the last turn of an ended job again", func(c *cobra.Command) {
		c.Flags().BoolVar(&grant, "grant", false, "give it a whole new budget of executions")
	}, func() any { return api.Retry{Grant: grant} }, false, func(_, is *api.Job) string {
		return "is queued again: " + words(is.State) + because(is)
	})
}

func (a *app) jobFollowUpCommand() *cobra.Command {
	var b api.FollowUp
	var p promptFlags
	var detach bool
	var key string
	c := &cobra.Command{
		Use: `follow-up ID "PROMPT"`, Aliases: []string{"followup"}, Short: "Go on from a job, in the same session and worktree",
		Long: `Give an agent's job a further prompt. While the job runs it waits for its turn (20 may
wait); afterwards the same session is resumed in the same worktree on the same runner.`,
		Example: `  tugline job follow-up 01jq8 "now add a test for it"
  tugline job follow-up 01jq8 --fresh --on studio -f next.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("`%s` needs the job's ID; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
			}
			if len(args) > 2 {
				return usage("the prompt is one word: put it in quotes")
			}
			return nil
		},
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := given(cmd, "model", "on", "idempotency-key", "prompt-file")
			if err != nil {
				return err
			}
			if b.Prompt, err = p.prompt(a, args[1:]); err != nil {
				return err
			}
			if b.On != "" && !b.Fresh {
				return usage("--on moves the job to another runner, where its session is not; add --fresh to go on without it")
			}
			return a.followUp(cmd.Context(), args[0], b, key, detach)
		},
	}
	p.add(c)
	c.Flags().StringVar(&b.Model, "model", "", "another `MODEL` for this turn")
	c.Flags().BoolVar(&b.Fresh, "fresh", false, "begin a new session instead of the old one")
	c.Flags().StringVar(&b.On, "on", "", "another `RUNNER` (with --fresh)")
	c.Flags().BoolVarP(&detach, "detach", "d", false, "print the job's id and do not follow it")
	c.Flags().StringVar(&key, "idempotency-key", "", "repeat a request whose end is unknown: the `KEY` printed then")
	c.RegisterFlagCompletionFunc("on", a.completeRunners)
	return a.jsonFlag(c)
}

func (a *app) followUp(ctx context.Context, id string, b api.FollowUp, key string, detach bool) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	var j api.Job
	raw, err := func() ([]byte, error) {
		ctx, stop := a.interruptible(ctx)
		defer stop()
		return c.create(ctx, jobPath(id, "/follow-ups"), first(key, newKey()), b, a.patient())
	}()
	if err != nil {
		return refusedSubmit(err)
	}
	if err := decode(raw, &j); err != nil {
		return err
	}
	if detach {
		if a.json {
			return a.printRaw(raw)
		}
		_, err := fmt.Fprintln(a.out, j.ID)
		return err
	}
	if j.FollowUps > 0 && !a.json {
		a.say("waits for its turn: %s", plural(j.FollowUps, "follow-up is queued", "follow-ups are queued"))
	}
	return a.follow(ctx, c, j.ID, followOptions{turn: j.Turn + j.FollowUps})
}

func (a *app) jobDiscardCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "discard ID", Short: "Give up the only copy of a job's commits", Args: exactly("ID"), ValidArgsFunction: a.completeJobs,
		Long: `The hub keeps a job's commits for as long as nobody has pulled them, however old they
get. This says that they may go when their keep time has passed. A pull says the same.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usage("this may lose the only copy of the commits of job %s; add --yes if they are not wanted", args[0])
			}
			if done, err := a.answer(cmd.Context(), acting(jobPath(args[0], "/pulled"), struct{}{}), nil); done {
				return err
			}
			fmt.Fprintf(a.out, "the commits of job %s go when their keep time has passed\n", args[0])
			return nil
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "yes, they are not wanted")
	return a.jsonFlag(c)
}
