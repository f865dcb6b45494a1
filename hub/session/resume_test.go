package session

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// TestResume sees what each attempt goes on from.
func TestResume(t *testing.T) {
	t.Parallel()
	use := &fleet.Usage{InputTokens: 5}
	first := &fleet.Attempt{N: 1, Runner: "r-1", BaseCommit: "base", SessionID: "s-1", Usage: use, Evidence: &fleet.Evidence{Bundle: "b1", Tip: "t1"}}
	retried := &fleet.Attempt{N: 2, Runner: "r-2"}
	second := &fleet.Attempt{N: 1, Runner: "r-1"}
	fresh := &fleet.Attempt{N: 1, Runner: "r-2"}
	job := func(turns ...*fleet.Turn) *fleet.Job { return &fleet.Job{Turns: turns} }
	one := &fleet.Turn{N: 1, Attempts: []*fleet.Attempt{first}}
	for _, c := range []struct {
		name string
		job  *fleet.Job
		at   *fleet.Attempt
		want *wire.Resume
	}{
		{"the first attempt", job(one), first, nil},
		{"the first turn again", job(&fleet.Turn{N: 1, Attempts: []*fleet.Attempt{first, retried}}), retried, &wire.Resume{BaseCommit: "base"}},
		{"a follow-up", job(one, &fleet.Turn{N: 2, Attempts: []*fleet.Attempt{second}}), second,
			&wire.Resume{SessionID: "s-1", BaseCommit: "base", Bundle: "b1", Tip: "t1", Usage: use}},
		{"a fresh follow-up elsewhere", job(one, &fleet.Turn{N: 2, Fresh: true, Attempts: []*fleet.Attempt{fresh}}), fresh,
			&wire.Resume{BaseCommit: "base", Bundle: "b1", Tip: "t1"}},
		{"after a turn without commits", job(one, &fleet.Turn{N: 2, Attempts: []*fleet.Attempt{{N: 1, Runner: "r-1", SessionID: "s-2"}}}, &fleet.Turn{N: 3, Attempts: []*fleet.Attempt{second}}), second,
			&wire.Resume{SessionID: "s-2", BaseCommit: "base", Bundle: "b1", Tip: "t1"}},
		{"a third turn of one session", job(one, &fleet.Turn{N: 2, Attempts: []*fleet.Attempt{{N: 1, Runner: "r-1", SessionID: "s-1", Usage: &fleet.Usage{InputTokens: 7}}}},
			&fleet.Turn{N: 3, Attempts: []*fleet.Attempt{second}}), second,
			&wire.Resume{SessionID: "s-1", BaseCommit: "base", Bundle: "b1", Tip: "t1", Usage: &fleet.Usage{InputTokens: 12}}},
		{"after a lost turn", job(&fleet.Turn{N: 1, Attempts: []*fleet.Attempt{{N: 1, Runner: "r-1", BaseCommit: "base", SessionID: "s-1", State: fleet.AttemptLost}}},
			&fleet.Turn{N: 2, Attempts: []*fleet.Attempt{second}}), second, &wire.Resume{SessionID: "s-1", BaseCommit: "base"}},
		{"where nothing was ever committed", job(&fleet.Turn{N: 1, Attempts: []*fleet.Attempt{{N: 1, Runner: "r-1", BaseCommit: "base", Evidence: &fleet.Evidence{Base: "base", Tip: "base"}}}},
			&fleet.Turn{N: 2, Fresh: true, Attempts: []*fleet.Attempt{fresh}}), fresh, &wire.Resume{BaseCommit: "base", Tip: "base"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, again := resume(c.job, c.job.Turn(), c.at)
			if d := cmp.Diff(c.want, got); d != "" || again {
				t.Errorf("again %v, resume (-want +got):\n%s", again, d)
			}
		})
	}
}

// TestResumeAgain: a turn that ended by no doing of its own is gone on with where it was
// begun, and its session only by the harness that has something in it.
func TestResumeAgain(t *testing.T) {
	t.Parallel()
	at := time.Now()
	ended := func(change func(*fleet.Attempt)) *fleet.Attempt {
		a := &fleet.Attempt{N: 1, Runner: "r-1", BaseCommit: "base", SessionID: "s-1", Harness: "codex", State: fleet.AttemptFinished, AcceptedAt: &at,
			Failure: fleet.ClassRateLimited, Acted: true, Usage: &fleet.Usage{InputTokens: 5}, Evidence: &fleet.Evidence{Bundle: "b1", Tip: "t1", CommitCount: 1}}
		if change != nil {
			change(a)
		}
		return a
	}
	next := func(r fleet.RunnerID, harness string) *fleet.Attempt {
		return &fleet.Attempt{N: 3, Runner: r, Harness: harness, State: fleet.AttemptAssigned}
	}
	whole := &wire.Resume{SessionID: "s-1", BaseCommit: "base", Bundle: "b1", Tip: "t1", Usage: &fleet.Usage{InputTokens: 5}}
	tree := &wire.Resume{BaseCommit: "base", Bundle: "b1", Tip: "t1"}
	bare := &wire.Resume{BaseCommit: "base"}
	for _, c := range []struct {
		name  string
		was   *fleet.Attempt
		at    *fleet.Attempt
		again bool
		want  *wire.Resume
	}{
		{"the same runner and harness", ended(nil), next("r-1", "codex"), true, whole},
		{"it answered and did nothing", ended(func(a *fleet.Attempt) { a.Acted, a.Responded = false, true }), next("r-1", "codex"), true, whole},
		{"it crashed", ended(func(a *fleet.Attempt) { a.Failure = fleet.ClassCrashed }), next("r-1", "codex"), true, whole},
		{"nothing is in its session", ended(func(a *fleet.Attempt) { a.Acted = false }), next("r-1", "codex"), true, tree},
		{"another harness", ended(nil), next("r-1", "claude"), true, tree},
		{"another runner", ended(nil), next("r-2", "codex"), false, bare},
		{"its work failed, and a person tries it again", ended(func(a *fleet.Attempt) { a.Failure = fleet.ClassTaskFailed }), next("r-1", "codex"), false, bare},
		{"it is lost", ended(func(a *fleet.Attempt) { a.State, a.Failure, a.Evidence = fleet.AttemptLost, "", nil }), next("r-1", "codex"), false, bare},
	} {
		t.Run(c.name, func(t *testing.T) {
			declined := &fleet.Attempt{N: 2, Runner: "r-2", State: fleet.AttemptDeclined} // never begun, it says nothing
			j := &fleet.Job{Spec: fleet.Spec{Kind: fleet.KindAgent, Harness: "codex"}, Turns: []*fleet.Turn{{N: 1, Attempts: []*fleet.Attempt{c.was, declined, c.at}}}}
			got, again := resume(j, j.Turn(), c.at)
			if d := cmp.Diff(c.want, got); d != "" || again != c.again {
				t.Errorf("again %v, want %v; resume (-want +got):\n%s", again, c.again, d)
			}
		})
	}
}
