package main

import (
	"fmt"
	"strings"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// push is what became of the push that a job asked for. One without a text was not
// asked for, or its turn has not succeeded.
type push struct {
	text    string
	pending bool // nobody knows yet
	refused bool
}

// failed says that the work is not where it was to be pushed.
func (p push) failed() bool { return p.pending || p.refused }

// pushOf tells what became of the push of a job's turn.
func pushOf(j *api.Job, turn int) push {
	if j.Spec.Push == "" || turn < 1 || turn > len(j.Turns) || j.Turns[turn-1].State != fleet.Succeeded {
		return push{}
	}
	a := attemptOf(j, turn)
	switch {
	case a == nil:
		return push{}
	case a.Evidence == nil || a.Evidence.CommitCount == 0:
		return push{text: "nothing to push: there is no new commit"}
	}
	for i := len(a.Pushes) - 1; i >= 0; i-- {
		if p := a.Pushes[i]; p.SHA != "" && p.Ref == j.Spec.Push {
			return push{text: pushText(p), pending: p.Result == "", refused: p.Result != "" && p.Result != pushedWord}
		}
	}
	switch {
	case a.Failure != "" && a.Failure != fleet.ClassOK:
		return push{text: fmt.Sprintf("push refused: the run ended as %s", strings.ReplaceAll(string(a.Failure), "_", " ")), refused: true}
	case turn < j.Turn:
		return push{text: fmt.Sprintf("push refused: turn %d began before the work of turn %d was pushed", turn+1, turn), refused: true}
	}
	return push{text: "not pushed yet: the runner has not asked for it", pending: true}
}

// pushedWord is how a runner reports a push that was done.
const pushedWord = "pushed"

// pushText tells one push.
func pushText(p fleet.Push) string {
	switch p.Result {
	case pushedWord:
		return line(fmt.Sprintf("pushed %s to %s", short(p.SHA), p.Ref))
	case "":
		return line(fmt.Sprintf("not pushed yet: the runner has not told what became of %s to %s", short(p.SHA), p.Ref))
	}
	return cut(line("push refused: "+strings.TrimPrefix(p.Result, "refused: ")), 400)
}

// attemptOf gives the attempt of a turn that counts: the one with the authority, else
// the newest.
func attemptOf(j *api.Job, turn int) *fleet.Attempt {
	if turn < 1 || turn > len(j.Turns) {
		return nil
	}
	t := j.Turns[turn-1]
	if t.Current > 0 && t.Current <= len(t.Attempts) {
		return t.Attempts[t.Current-1]
	}
	if n := len(t.Attempts); n > 0 {
		return t.Attempts[n-1]
	}
	return nil
}

// pushes gives the pushes of a turn, those that its agent makes by itself among them.
func pushes(j *api.Job, turn int) []fleet.Push {
	if a := attemptOf(j, turn); a != nil {
		return a.Pushes
	}
	return nil
}
