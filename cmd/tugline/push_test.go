package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// pushedTurn is a turn whose work was to be pushed to main, with what became of that.
func pushedTurn(result string) *fleet.Turn {
	sha := strings.Repeat("f", 40)
	return &fleet.Turn{N: 1, State: fleet.Succeeded, Current: 1, Attempts: []*fleet.Attempt{{
		N: 1, RunnerName: "mini", State: fleet.AttemptFinished, Evidence: &fleet.Evidence{CommitCount: 1, Tip: sha},
		Pushes: []fleet.Push{{Remote: "git@x.test:team/app.git"}, {Ref: "main", SHA: sha, Result: result}},
	}}}
}

func pushJob(result string, edit ...func(*api.Job)) api.Job {
	j := endedJob(fleet.Succeeded)
	j.Spec.Push, j.Turns = "main", []*fleet.Turn{pushedTurn(result)}
	for _, e := range edit {
		e(&j)
	}
	return j
}

func TestWhatBecameOfAPush(t *testing.T) {
	none := func(j *api.Job) { j.Turns[0].Attempts[0].Pushes = nil }
	for name, c := range map[string]struct {
		job             api.Job
		says            string
		pending, refuse bool
	}{
		"not asked for":  {pushJob("", func(j *api.Job) { j.Spec.Push = "" }), "", false, false},
		"not succeeded":  {pushJob("", func(j *api.Job) { j.Turns[0].State = fleet.NeedsReview }), "", false, false},
		"without a turn": {pushJob("", func(j *api.Job) { j.Turns = nil }), "", false, false},
		"no commit":      {pushJob("", func(j *api.Job) { j.Turns[0].Attempts[0].Evidence.CommitCount = 0 }), "nothing to push", false, false},
		"not asked yet":  {pushJob("", none), "not pushed yet", true, false},
		"under way":      {pushJob(""), "not pushed yet", true, false},
		"pushed":         {pushJob("pushed"), "pushed ffffffffff to main", false, false},
		"refused by git": {pushJob("rejected: non-fast-forward"), "push refused: rejected: non-fast-forward", false, true},
		"no permit":      {pushJob("refused: the job was asked to stop"), "push refused: the job was asked to stop", false, true},
		"left behind":    {pushJob("", none, func(j *api.Job) { j.Turn = 2 }), "push refused: turn 2 began", false, true},
		"ended badly":    {pushJob("", none, func(j *api.Job) { j.Turns[0].Attempts[0].Failure = fleet.ClassTaskFailed }), "push refused: the run ended as task failed", false, true},
	} {
		p := pushOf(&c.job, 1)
		if p.pending != c.pending || p.refused != c.refuse || !strings.HasPrefix(p.text, c.says) || (c.says == "") != (p.text == "") {
			t.Errorf("%s: %+v, want %q, pending %v, refused %v", name, p, c.says, c.pending, c.refuse)
		}
	}
}

// Exit code 0 says that the work is where it was to be pushed.
func TestFollowerWaitsForThePush(t *testing.T) {
	for _, c := range []struct {
		result, says string
		code         int
	}{
		{"pushed", "pushed ffffffffff to main", exitOK},
		{"refused: non-fast-forward", "push refused: non-fast-forward", exitFailed},
		{"", "not pushed yet", exitFailed},
	} {
		looks := 0
		g := &stage{job: pushJob("")}
		g.serve(t)
		srv := script(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/{id}/events": g.stream,
			"GET /v1/jobs/{id}": func(w http.ResponseWriter, r *http.Request) {
				if looks++; looks < 4 {
					answer(w, 200, pushJob("", func(j *api.Job) { j.Turns[0].Attempts[0].Pushes = nil }))
					return
				}
				answer(w, 200, pushJob(c.result))
			},
		})
		s := newShell(t, srv.URL)
		f := follower(s, "01job")
		f.push = 2 * time.Second
		if code := exitCode(f.run(t.Context(), s.signals)); code != c.code || looks < 4 {
			t.Errorf("result %q: exit %d after %d looks, want %d\n%s", c.result, code, looks, c.code, s.err)
		}
		has(t, "standard error", s.err.String(), "waits for the push to main", "tugline: "+c.says, "  push         "+c.says, "job 01job succeeded")
	}
}

// That output is missing is said only where it is.
func TestFollowerWaitsForTheSeal(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		looks := 0
		g := &stage{}
		g.serve(t)
		srv := script(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/{id}/events": g.stream,
			"GET /v1/jobs/{id}": func(w http.ResponseWriter, r *http.Request) {
				j := endedJob(fleet.Succeeded)
				j.Exit, j.Log = &fleet.Exit{Reason: "exited"}, fleet.LogState{Bytes: 9, Durable: 5}
				if looks++; sealed && looks > 3 {
					j.Log = fleet.LogState{Bytes: 9, Durable: 9, Sealed: true}
				}
				answer(w, 200, j)
			},
		})
		s := newShell(t, srv.URL)
		start := time.Now()
		s.must("job", "logs", "-f", "01job")
		if took := time.Since(start); sealed && took > sealWait || !sealed && took < sealWait {
			t.Errorf("sealed=%v: it took %v", sealed, took)
		}
		if said := strings.Contains(s.err.String(), "has not sent the whole output"); said == sealed {
			t.Errorf("sealed=%v: %s", sealed, s.err)
		}
	}
}

func TestCancelSaysWhereItStands(t *testing.T) {
	asked := before(time.Minute)
	cancelling := api.Job{ID: "01job", State: fleet.Running, Runner: "dev", CancelAt: asked, Why: "cancelling (on dev)"}
	cancelled := api.Job{ID: "01job", State: fleet.Cancelled, CancelAt: asked, Reason: fleet.Reason{Detail: "cancelled while queued"}}
	for name, c := range map[string]struct {
		was, is api.Job
		says    string
	}{
		"queued":     {api.Job{State: fleet.Queued}, cancelled, "job 01job is cancelled, cancelled while queued\n"},
		"running":    {api.Job{State: fleet.Running}, cancelling, "job 01job was asked to end: cancelling (on dev)\n"},
		"cancelling": {cancelling, cancelling, "job 01job was asked to end already: cancelling (on dev)\n"},
		"cancelled":  {cancelled, cancelled, "job 01job is cancelled already\n"},
		"lost":       {api.Job{State: fleet.Lost}, api.Job{ID: "01job", State: fleet.Lost, CancelAt: asked, Reason: fleet.Reason{Detail: "lost on dev"}}, "job 01job was asked to end: lost, lost on dev\n"},
	} {
		srv := script(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/{id}":         func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, c.was) },
			"POST /v1/jobs/{id}/cancel": func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, c.is) },
		})
		if got := newShell(t, srv.URL).must("job", "cancel", "01job"); got != c.says {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}
