package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const exitHelp = `
A hub that does not answer is tried for up to 15 minutes (TUGLINE_RETRY_FOR=30s for less).
Exit codes: 0 succeeded (and pushed, with --push), 1 failed or not pushed, 2 the request was
wrong, 3 cancelled or lost, 4 hub unreachable, 5 not authorised, 6 needs review, 7 blocked.
The first Ctrl-C leaves the job to itself (130), a second within 3 seconds cancels it.`

func (a *app) runCommand() *cobra.Command {
	var f jobFlags
	var p promptFlags
	c := &cobra.Command{
		Use: `run [FLAGS] "PROMPT"`, Short: "Give a prompt to a coding agent", GroupID: groupWork,
		Long: `Give a prompt to a coding agent on one of the runners, follow it, and end with its result.
` + exitHelp,
		Example: `  tugline run --repo . --harness codex "fix the failing test in parser/"
  tugline run --repo https://example.com/app.git --ref main --push fix/login -f task.md
  tugline run --repo . --include-dirty --on studio --detach "finish what I began"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("the prompt is one word: put it in quotes, as in `tugline run \"fix the test\"`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.submit(cmd)
			if err != nil {
				return err
			}
			s.Kind = fleet.KindAgent
			if s.Prompt, err = p.prompt(a, args); err != nil {
				return err
			}
			if s.Harness == "exec" {
				return usage("the harness exec runs a command, not a prompt; use `tugline exec -- ARGV`")
			}
			return a.give(cmd.Context(), &f, s)
		},
	}
	f.add(c, true)
	p.add(c)
	a.completeJobFlags(c)
	return a.jsonFlag(c)
}

func (a *app) execCommand() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use: "exec [FLAGS] -- ARGV...", Short: "Run a command, without a shell", GroupID: groupWork,
		Long: `Run a command on one of the runners, without a shell, follow it, and end with its result.
Its standard output and error come out as they are, on standard output and error.
` + exitHelp,
		Example: `  tugline exec --repo . -- make test
  tugline exec --require os=darwin -- sw_vers
  tugline exec --repo . --commit never -- sh -c 'make && ./bench > result.txt'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("the command is missing; give it after --: `tugline exec -- make test`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.submit(cmd)
			if err != nil {
				return err
			}
			s.Kind, s.Argv = fleet.KindExec, args
			n := 0
			for i, w := range args {
				if n += len(w) + 1; !utf8.ValidString(w) {
					return usage("word %d of the command, %q, is not UTF-8 text; put such bytes into a file", i+1, cut(w, 80))
				}
			}
			if n > fleet.MaxArgv {
				return usage("the command is over %d KiB; put long input in a file", fleet.MaxArgv>>10)
			}
			if args[0] == "" {
				return usage("the command is empty; give it after --: `tugline exec -- make test`")
			}
			return a.give(cmd.Context(), &f, s)
		},
	}
	c.Flags().SetInterspersed(false)
	f.add(c, false)
	a.completeJobFlags(c)
	return a.jsonFlag(c)
}

// give submits a job and, unless it is to be left alone, follows it.
func (a *app) give(ctx context.Context, f *jobFlags, s api.Submit) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	job, raw, err := a.submitted(ctx, c, f, s)
	if err != nil {
		return err
	}
	if f.detach {
		if a.json {
			return a.printRaw(raw)
		}
		_, err := fmt.Fprintln(a.out, job.ID)
		return err
	}
	return a.follow(ctx, c, job.ID, followOptions{})
}

// submitted brings a job to the hub. An interrupt ends it.
func (a *app) submitted(ctx context.Context, c *client, f *jobFlags, s api.Submit) (api.Job, []byte, error) {
	var job api.Job
	ctx, stop := a.interruptible(ctx)
	defer stop()
	var err error
	if s.Repo, err = a.repoOf(ctx, c, f); err != nil {
		return job, nil, refusedSubmit(err)
	}
	key := first(f.key, newKey())
	raw, err := c.create(ctx, "/v1/jobs", key, s, a.patient())
	if err != nil {
		return job, nil, refusedSubmit(err)
	}
	return job, raw, decode(raw, &job)
}

// create posts what makes something, under a key, and gives that key to the user
// when the outcome stays unknown.
func (c *client) create(ctx context.Context, path, key string, body any, patience time.Duration) ([]byte, error) {
	raw, _, err := c.call(ctx, request{method: http.MethodPost, path: path, body: body, key: key, patience: patience})
	code := exitCode(err)
	if errors.Is(err, fleet.Internal) && code == exitFailed {
		code = exitUnreachable // nobody knows what came of it
	}
	if code == exitUnreachable || code == exitInterrupted {
		return nil, &failure{
			code: code, cause: err,
			text: fmt.Sprintf("%s; to try again without doing it twice, give the same command with --idempotency-key %s",
				sentence(err), key),
		}
	}
	return raw, err
}

// refusedSubmit ends a submit that made no job: exit 1 would say that the job failed.
func refusedSubmit(err error) error {
	if exitCode(err) == exitFailed {
		return &failure{code: exitUsage, text: sentence(err), cause: err}
	}
	return err
}

// patient gives how long a creation is tried.
func (a *app) patient() time.Duration {
	if d, err := time.ParseDuration(a.env("TUGLINE_RETRY_FOR")); err == nil && d >= 0 && d <= createPatience {
		return d
	}
	return createPatience
}

// interruptible ends a context at the first signal.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals, off := a.interrupts()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		off()
		<-done
	}
}
