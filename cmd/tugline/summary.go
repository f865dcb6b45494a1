package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// summary shows what came of a job, and what can be done next.
func (a *app) summary(w io.Writer, colour bool, j *api.Job) {
	fmt.Fprintf(w, "\njob %s %s%s\n", j.ID, statePaint(j.State).on(colour, stateText(j)), bracketed(j))
	for _, f := range facts(j, time.Now()) {
		if f.long || f.value == "" {
			continue
		}
		fmt.Fprintf(w, "  %-12s %s\n", f.name, f.value)
	}
	whatNext(w, colour, j)
}

func whatNext(w io.Writer, colour bool, j *api.Job) {
	next := nextCommands(j)
	wide := 0
	for _, n := range next {
		wide = max(wide, utf8.RuneCountInString(n[0]))
	}
	for i, n := range next {
		if i == 0 {
			fmt.Fprintln(w, "next:")
		}
		fmt.Fprintf(w, "  %-*s  %s\n", wide, n[0], dim.on(colour, n[1]))
	}
}

func words(s fleet.State) string { return strings.ReplaceAll(string(s), "_", " ") }

// cancelling tells where the cancel of a job stands, "" where none is under way.
func cancelling(j *api.Job) string {
	if j.CancelAt == nil || j.State != fleet.Running {
		return ""
	}
	if strings.HasPrefix(j.Why, "cancelling") {
		return line(j.Why)
	}
	return line("cancelling (" + first(j.Reason.Detail, "on "+j.Runner) + ")")
}

// stateText tells a job's state in words.
func stateText(j *api.Job) string { return first(cancelling(j), words(fleet.State(stateWord(j)))) }

// stateWord tells it in one word: of one that failed because nothing was heard of it any
// more, that too.
func stateWord(j *api.Job) string {
	switch {
	case cancelling(j) != "":
		return "cancelling"
	case j.State == fleet.Failed && j.Reason.Code == "stalled":
		return "stalled"
	}
	return string(j.State)
}

func statePaint(s fleet.State) paint {
	switch s {
	case fleet.Succeeded:
		return green
	case fleet.Failed, fleet.Lost:
		return red
	case fleet.NeedsReview, fleet.Blocked, fleet.Cancelled:
		return yellow
	}
	return bold
}

// bracketed tells by whom, where and how long.
func bracketed(j *api.Job) string {
	var p []string
	if j.Kind == fleet.KindAgent {
		p = append(p, strings.TrimSpace(j.Harness+" "+first(j.ReportedModel, j.Model)))
	}
	if j.Runner != "" && cancelling(j) != "cancelling (on "+j.Runner+")" {
		p = append(p, "on "+j.Runner)
	}
	if j.StartedAt != nil && j.FinishedAt != nil {
		p = append(p, "in "+span(j.FinishedAt.Sub(*j.StartedAt)))
	}
	if len(p) == 0 {
		return ""
	}
	return " (" + line(strings.Join(p, ", ")) + ")"
}

// fact is one line about a job; a long one is for `job get` only.
type fact struct {
	name, value string
	long        bool
}

func facts(j *api.Job, now time.Time) []fact {
	fs := []fact{
		{name: "why", value: aged(whyLine(j), j, now)},
		{name: "verdict", value: verdictLine(j)},
		{name: "exit", value: exitLine(j)},
		{name: "failure", value: failureLine(j)},
		{name: "kind", value: kindLine(j), long: true},
		{name: "asked by", value: askedBy(j), long: true},
		{name: "permissions", value: string(j.Permissions), long: true},
		{name: "repository", value: line(j.Repo), long: true},
		{name: "base", value: j.BaseCommit, long: true},
		{name: "head", value: j.HeadCommit, long: true},
	}
	fs = append(fs, choiceFacts(j, now)...)
	if e := j.Evidence; e != nil {
		for i, c := range e.Commits {
			name := ""
			if i == 0 {
				name = "commits"
			}
			if i == 5 && len(e.Commits) > 6 {
				fs = append(fs, fact{name: "", value: fmt.Sprintf("… and %d more", max(e.CommitCount, len(e.Commits))-i)})
				break
			}
			fs = append(fs, fact{name: name, value: short(c.SHA) + " " + cut(line(c.Subject), 90)})
		}
		if e.Stat != (fleet.DiffStat{}) {
			fs = append(fs, fact{name: "changes", value: fmt.Sprintf("%s, +%s -%s", plural(e.Stat.Files, "file", "files"), count(int64(e.Stat.Insertions)), count(int64(e.Stat.Deletions)))})
		}
		if e.CommitCount > 0 {
			fs = append(fs, fact{name: "branch", value: line(j.Branch)})
		}
		fs = append(fs, fact{name: "artifacts", value: artifactsLine(e.Artifacts)},
			fact{name: "closure", value: line(e.Closure)}, fact{name: "rescued", value: line(e.RescueRef)})
		for _, n := range e.Notes {
			fs = append(fs, fact{name: "note", value: cut(line(n), 200)})
		}
	}
	if j.Usage != (api.Usage{}) {
		fs = append(fs, fact{name: "tokens", value: count(j.Usage.Input) + " in, " + count(j.Usage.Output) + " out"})
	}
	fs = append(fs, fact{name: "push", value: pushOf(j, j.Turn).text})
	for _, p := range pushes(j, j.Turn) {
		switch {
		case p.SHA == "":
			fs = append(fs, fact{name: "push", value: "the agent was given credentials for " + line(p.Remote), long: true})
		case p.Ref != j.Spec.Push:
			fs = append(fs, fact{name: "push", value: pushText(p)})
		}
	}
	for _, n := range j.Notes {
		fs = append(fs, fact{name: "note", value: cut(line(n), 200)})
	}
	if j.FollowUps > 0 {
		fs = append(fs, fact{name: "follow-ups", value: strings.TrimSuffix(fmt.Sprintf("%d queued, %s", j.FollowUps, line(j.Paused)), ", ")})
	}
	fs = append(fs,
		fact{name: "session", value: line(j.SessionID), long: true},
		fact{name: "attempt", value: attemptLine(j), long: true},
		fact{name: "output", value: logLine(j), long: true},
	)
	return fs
}

// artifactsLine names the first of the files that a run left.
func artifactsLine(as []fleet.Artifact) string {
	var out []string
	for i, f := range as {
		if i == 3 && len(as) > 4 {
			out = append(out, fmt.Sprintf("%d more", len(as)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s (%s)", cut(line(f.Name), 40), size(f.Size)))
	}
	return strings.Join(out, ", ")
}

// aged adds since when a job that goes on is said to be as it is.
func aged(why string, j *api.Job, now time.Time) string {
	switch j.State {
	case fleet.Assigned, fleet.Preparing, fleet.Running, fleet.Verifying:
		if why != "" && !j.Reason.Since.IsZero() {
			return why + " (for " + roughly(max(now.Sub(j.Reason.Since), 0)) + ")"
		}
	}
	return why
}

func whyLine(j *api.Job) string {
	switch j.State {
	case fleet.Succeeded, fleet.Failed, fleet.NeedsReview:
		if j.Verdict != nil {
			return ""
		}
	}
	if cancelling(j) != "" {
		return "" // the state says it
	}
	return line(queuedWhy(j))
}

// queuedWhy tells why a job waits; of one that came back to the queue by itself, first
// how that came.
func queuedWhy(j *api.Job) string {
	if c := j.Reason.Code; j.State == fleet.Queued && (c == "fallback" || c == "retry_waits") && j.Why != "" {
		return j.Reason.Detail + "; " + j.Why
	}
	return first(j.Why, j.Reason.Detail)
}

func verdictLine(j *api.Job) string {
	if j.Verdict == nil {
		return ""
	}
	text := string(j.Verdict.Decision)
	if len(j.Verdict.Reasons) > 0 {
		text += ": " + strings.Join(j.Verdict.Reasons, "; ")
	}
	if by := j.Verdict.By; by != "" && by != "gate" {
		text += " (by " + first(j.VerdictByName, by) + ")"
	}
	return cut(line(text), 400)
}

func exitLine(j *api.Job) string {
	switch {
	case j.Exit == nil:
		return ""
	case j.Exit.Signal != "":
		return line("signal " + j.Exit.Signal + " " + notExited(j.Exit.Reason) + j.Exit.Detail)
	}
	return line(fmt.Sprint(j.Exit.Code, " ", notExited(j.Exit.Reason), j.Exit.Detail))
}

func notExited(reason string) string {
	if reason == "" || reason == "exited" {
		return ""
	}
	return strings.ReplaceAll(reason, "_", " ") + " "
}

func failureLine(j *api.Job) string {
	switch j.FailureClass {
	case "", fleet.ClassOK, fleet.ClassTaskFailed, fleet.ClassCancelled:
		return ""
	}
	text := strings.ReplaceAll(string(j.FailureClass), "_", " ")
	if j.ResetAt != nil {
		text += ", until " + j.ResetAt.Local().Format("2006-01-02 15:04")
	}
	return text
}

func kindLine(j *api.Job) string {
	if j.Kind == fleet.KindExec {
		var argv []string
		for _, w := range j.Spec.Argv {
			argv = append(argv, quoted(w))
		}
		if argv == nil {
			argv = []string{"a command too long to be kept here"}
		}
		return cut(line("exec "+strings.Join(argv, " ")), 100)
	}
	text := string(j.Kind) + " " + j.Harness
	if m := first(j.ReportedModel, j.Model); m != "" && modelLine(j) == "" {
		text += ", model " + m
	}
	return line(text)
}

func askedBy(j *api.Job) string {
	text := first(j.ActorName, j.Actor)
	if j.Spec.Origin.Kind == "automation" {
		text += ", automation " + j.Spec.Origin.Name
	}
	return line(strings.TrimPrefix(text+", ", ", ") + j.CreatedAt.Local().Format("2006-01-02 15:04:05"))
}

func attemptLine(j *api.Job) string {
	if j.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf("%d of turn %d on %s, fence %s", j.Attempt, j.Turn, line(j.Runner), j.Fence)
}

func logLine(j *api.Job) string {
	if j.Attempt == 0 {
		return ""
	}
	text := size(j.Log.Bytes)
	switch {
	case j.Log.Text > 0:
		text = fmt.Sprintf("%s (%s with framing)", size(j.Log.Text), text)
	case j.Log.Bytes > 0: // what was printed is counted at the end
		text += " with framing"
	}
	if j.Log.Durable < j.Log.Bytes {
		text += ", of which the hub has " + size(j.Log.Durable)
	}
	if j.Log.Dropped > 0 {
		text += ", " + size(j.Log.Dropped) + " dropped"
	}
	if !j.Log.Sealed {
		text += ", not complete yet"
	}
	return text
}

func short(sha string) string { return sha[:min(len(sha), 10)] }

// nextCommands are what makes sense now.
func nextCommands(j *api.Job) (out [][2]string) {
	id := string(j.ID)
	add := func(cmd, what string) { out = append(out, [2]string{"tugline job " + cmd, what}) }
	retry := func() {
		if spent(j) {
			add("retry --grant "+id, "give it a new budget of executions and queue it again")
		} else {
			add("retry "+id, "queue it again")
		}
	}
	if e := j.Evidence; e != nil && e.CommitCount > 0 {
		add("diff "+id, "see the changes")
		add("pull "+id, "fetch the branch into your repository")
	}
	if e := j.Evidence; e != nil && len(e.Artifacts) > 0 {
		add("artifacts "+id, "its files")
	}
	switch j.State {
	case fleet.NeedsReview:
		add("accept "+id, "settle it as succeeded")
		add("reject "+id, "settle it as failed")
	case fleet.Blocked, fleet.Lost:
		retry()
	case fleet.Failed:
		add("logs "+id, "read its output again")
		retry()
	case fleet.Queued:
		add("explain "+id, "see why it waits, runner by runner")
	case fleet.Assigned, fleet.Preparing, fleet.Running, fleet.Verifying:
		add("logs -f "+id, "follow it")
		if cancelling(j) != "" {
			add("cancel --abandon "+id, "end it although its processes may still run")
		} else {
			add("cancel "+id, "cancel it")
		}
	}
	if j.Kind == fleet.KindAgent && j.SessionID != "" && j.State.Ended() {
		add("follow-up "+id+` "…"`, "go on from here in the same session")
	}
	return out
}

// spent says whether the newest turn has used up its executions.
func spent(j *api.Job) bool {
	return j.Reason.Code == "budget" || j.Budget.Of > 0 && j.Budget.Used >= j.Budget.Of
}

// since gives the time that a job has taken or takes.
func since(now time.Time, j *api.Job) string {
	if j.StartedAt == nil {
		return "-"
	}
	end := now
	if j.FinishedAt != nil {
		end = *j.FinishedAt
	}
	return span(end.Sub(*j.StartedAt))
}
