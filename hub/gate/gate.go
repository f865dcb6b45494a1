// Package gate decides what a finished attempt is worth. Judge is a function of
// the job's spec and the recorded evidence: no clock, no disk, no git. What it
// reads must already have been checked by whoever recorded it.
package gate

import (
	"fmt"

	"tugline.dev/tugline/shared/fleet"
)

// By is the name that the gate signs its verdicts with.
const By = "gate"

// Judge gives the verdict on a finished attempt. Accept and Reject are final;
// Ask leaves the job to a person; Unknown says that evidence is still missing.
func Judge(spec fleet.Spec, a *fleet.Attempt) fleet.Verdict {
	v := func(d fleet.Decision, format string, args ...any) fleet.Verdict {
		return fleet.Verdict{Decision: d, By: By, Reasons: []string{fmt.Sprintf(format, args...)}}
	}
	if a.Exit == nil {
		return v(fleet.Unknown, "evidence incomplete: no record of how the attempt ended")
	}
	switch a.Exit.Reason {
	case "exited", "":
	case "timeout", "idle_timeout", "first_response_timeout":
		return v(fleet.Reject, "ended by its %s", words[a.Exit.Reason])
	case "stopped":
		return v(fleet.Reject, "stopped before it was done")
	case "start_failed":
		return v(fleet.Reject, "could not be started: %s", a.Exit.Detail)
	default:
		return v(fleet.Ask, "ended in a way that this hub does not know: %s", a.Exit.Reason)
	}
	if spec.Kind == fleet.KindExec {
		return exec(spec, a, v)
	}
	return agent(spec, a, v)
}

var words = map[string]string{
	"timeout": "time limit", "idle_timeout": "idle limit: no output for too long",
	"first_response_timeout": "first-response limit: no output at all",
}

type verdict = func(d fleet.Decision, format string, args ...any) fleet.Verdict

// exec: a command is judged by its exit code; its commits, where it made any and
// they are to be pushed, must have been verified too.
func exec(spec fleet.Spec, a *fleet.Attempt, v verdict) fleet.Verdict {
	switch {
	case a.Exit.Signal != "":
		return v(fleet.Reject, "ended by signal %s", a.Exit.Signal)
	case a.Exit.Code != 0:
		return v(fleet.Reject, "exit code %d", a.Exit.Code)
	}
	if e := a.Evidence; e != nil && e.CommitCount > 0 {
		if out, bad := commits(e, v); bad {
			return out
		}
		return v(fleet.Accept, "exit code 0, %s", count(e.CommitCount))
	}
	return v(fleet.Accept, "exit code 0")
}

// agent: an exit code is not a result. New commits that descend from the base, or
// the run's own note that nothing needs to change, are.
func agent(spec fleet.Spec, a *fleet.Attempt, v verdict) fleet.Verdict {
	switch a.Failure {
	case fleet.ClassOK:
	case fleet.ClassUnknown, "":
		return v(fleet.Ask, "the agent ended without saying how: %s", detail(a))
	case fleet.ClassTaskFailed:
		return v(fleet.Reject, "the agent reports failure: %s", detail(a))
	default:
		return v(fleet.Reject, "%s: %s%s", a.Failure, detail(a), final(a))
	}
	e := a.Evidence
	switch {
	case e == nil:
		return v(fleet.Unknown, "evidence incomplete: the runner sent none")
	case e.CommitCount > 0 && (e.Before == "" || e.Tip != e.Before): // what earlier turns committed proves nothing of this one
		if out, bad := commits(e, v); bad {
			return out
		}
		return v(fleet.Accept, "%s verified", count(e.CommitCount))
	case e.Closure != "" && e.RescueRef == "":
		return v(fleet.Accept, "nothing to change, says the run: %s", e.Closure)
	case e.NoRepo || spec.Repo == nil:
		return v(fleet.Ask, "there is no repository, so nothing but the answer shows what was done")
	case e.RescueRef != "":
		return v(fleet.Ask, "changes were left uncommitted and saved under %s", e.RescueRef)
	}
	return v(fleet.Ask, "no new commit, and no note why nothing needed to change")
}

// commits checks what git proved on the runner and the hub saw of the bundle.
func commits(e *fleet.Evidence, v verdict) (fleet.Verdict, bool) {
	switch {
	case !e.Descends:
		return v(fleet.Ask, "the new commits do not descend from the base commit %s", e.Base), true
	case e.BundleError != "":
		return v(fleet.Unknown, "evidence incomplete: %s", e.BundleError), true
	case !e.BundleChecked:
		return v(fleet.Unknown, "evidence incomplete: the bundle of the commits has not arrived"), true
	}
	return fleet.Verdict{}, false
}

func detail(a *fleet.Attempt) string {
	if a.Detail != "" {
		return a.Detail
	}
	return fmt.Sprintf("exit code %d", a.Exit.Code)
}

// final says why an end that another try, or another choice, might have mended is final.
func final(a *fleet.Attempt) string {
	if (a.Failure.Provider() || a.Failure == fleet.ClassCrashed) && a.Acted && a.SessionID == "" {
		return "; not tried again: a tool ran already, and there is no session to go on with"
	}
	return ""
}

func count(n int) string {
	if n == 1 {
		return "1 new commit"
	}
	return fmt.Sprintf("%d new commits", n)
}
