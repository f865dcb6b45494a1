package retry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// choices of the tests: two of one account, one of another, and a harness that speaks to
// the first account's provider with an account of its own.
var (
	codex  = fleet.Choice{Harness: "codex"}
	codexB = fleet.Choice{Harness: "codex", Model: "b"}
	claude = fleet.Choice{Harness: "claude", Model: "a"}
	open   = fleet.Choice{Harness: "opencode", Model: "openai/b"}
)

func agent(fallbacks ...fleet.Choice) *fleet.Job {
	return &fleet.Job{Spec: fleet.Spec{Kind: fleet.KindAgent, Harness: "codex", Fallbacks: fallbacks}, Turns: []*fleet.Turn{{N: 1}}}
}

// ended adds an attempt that ended with a class, as its turn's choice was.
func ended(j *fleet.Job, class fleet.FailureClass, change ...func(*fleet.Attempt)) *fleet.Attempt {
	tu := j.Turn()
	c := j.ChoiceOf(tu)
	a := &fleet.Attempt{N: len(tu.Attempts) + 1, Runner: "r-1", State: fleet.AttemptFinished, AcceptedAt: &now, Exit: &fleet.Exit{Code: 1, Reason: "exited"},
		Failure: class, Harness: c.Harness, Provider: c.Provider(), Requested: c.Model}
	for _, f := range change {
		f(a)
	}
	tu.Attempts = append(tu.Attempts, a)
	return a
}

func next(j *fleet.Job, accounts map[string]string) Step {
	tu := j.Turn()
	return Next(Case{Job: j, Turn: tu, Attempt: tu.Attempts[len(tu.Attempts)-1], Now: now, Account: func(c fleet.Choice) string { return accounts[c.Harness] }})
}

func acted(a *fleet.Attempt)   { a.Acted = true }
func session(a *fleet.Attempt) { a.SessionID = "s" }

// TestClasses: what follows the first attempt of a job that has somewhere to go, and of
// one that has not.
func TestClasses(t *testing.T) {
	want := map[fleet.FailureClass][2]Do{
		fleet.ClassOK:                  {End, End},
		fleet.ClassTaskFailed:          {End, End},
		fleet.ClassRateLimited:         {Forward, Again},
		fleet.ClassQuotaExhausted:      {Forward, Again},
		fleet.ClassAuth:                {Forward, Again},
		fleet.ClassModelUnavailable:    {Forward, Again},
		fleet.ClassProviderUnavailable: {Forward, Again},
		fleet.ClassHarnessStartup:      {Forward, Again},
		fleet.ClassCancelled:           {End, End},
		fleet.ClassTimeout:             {End, End},
		fleet.ClassStalled:             {End, End},
		fleet.ClassDocker:              {Again, Again},
		fleet.ClassCrashed:             {Again, Again},
		fleet.ClassUnknown:             {End, End},
	}
	for _, class := range fleet.Classes() {
		w, ok := want[class]
		if !ok {
			t.Errorf("class %s is not in the table", class)
		}
		for i, fallbacks := range [][]fleet.Choice{{claude}, nil} {
			j := agent(fallbacks...)
			ended(j, class)
			if got := next(j, nil); got.Do != w[i] {
				t.Errorf("%s with choices %v: %s, want %s", class, fallbacks, got.Do, w[i])
			}
		}
	}
}

// TestNext tells, case by case, what follows and why.
func TestNext(t *testing.T) {
	zero, one := 0, 1
	for _, c := range []struct {
		name string
		make func() *fleet.Job
		has  map[string]string
		want Step
	}{
		{"the first pause", func() *fleet.Job { j := agent(); ended(j, fleet.ClassCrashed); return j }, nil, Step{Do: Again, Pause: time.Minute}},
		{"the second", func() *fleet.Job {
			j := agent()
			ended(j, fleet.ClassCrashed)
			ended(j, fleet.ClassAuth)
			return j
		}, nil, Step{Do: Again, Pause: 2 * time.Minute}},
		{"the third", func() *fleet.Job {
			j := agent()
			for range 3 {
				ended(j, fleet.ClassCrashed)
			}
			return j
		}, nil, Step{Do: Again, Pause: 4 * time.Minute}},
		{"the budget is used up", func() *fleet.Job {
			j := agent(claude)
			for range 4 {
				ended(j, fleet.ClassRateLimited, acted, session)
			}
			return j
		}, nil, Step{Do: Blocked, Bound: true, Why: "4 executions, the budget of a turn; `tugline job retry --grant` gives a new one"}},
		{"a budget of its own", func() *fleet.Job {
			j := agent()
			j.Spec.Retries = &one
			ended(j, fleet.ClassCrashed)
			ended(j, fleet.ClassCrashed)
			return j
		}, nil, Step{Do: Blocked, Why: "2 executions, the budget of a turn; `tugline job retry --grant` gives a new one"}},
		{"no retries wanted", func() *fleet.Job {
			j := agent(claude)
			j.Spec.Retries = &zero
			ended(j, fleet.ClassCrashed)
			return j
		}, nil, Step{Do: End}},
		{"a whole new budget begins with the first pause", func() *fleet.Job {
			j := agent()
			for range 5 {
				ended(j, fleet.ClassCrashed)
			}
			j.Turn().Granted = 4
			return j
		}, nil, Step{Do: Again, Pause: time.Minute}},
		{"stops cost nothing", func() *fleet.Job {
			j := agent()
			for range 6 {
				ended(j, fleet.ClassCrashed, func(a *fleet.Attempt) { a.Free = true })
			}
			ended(j, fleet.ClassCrashed)
			return j
		}, nil, Step{Do: Again, Pause: time.Minute}},
		{"stopped itself", func() *fleet.Job {
			j := agent(claude)
			ended(j, fleet.ClassRateLimited, func(a *fleet.Attempt) { a.Free = true })
			return j
		}, nil, Step{Do: End}},
		{"a cancel was asked for", func() *fleet.Job {
			j := agent(claude)
			ended(j, fleet.ClassRateLimited)
			j.CancelRequestedAt = &now
			return j
		}, nil, Step{Do: End}},
		{"assignments that came to nothing cost nothing", func() *fleet.Job {
			j := agent()
			for range 9 {
				ended(j, "", func(a *fleet.Attempt) { a.AcceptedAt, a.State = nil, fleet.AttemptDeclined })
			}
			ended(j, fleet.ClassCrashed)
			return j
		}, nil, Step{Do: Again, Pause: time.Minute}},
		{"a command", func() *fleet.Job {
			j := agent()
			j.Spec.Kind = fleet.KindExec
			ended(j, fleet.ClassCrashed)
			return j
		}, nil, Step{Do: End}},
		{"the CLI could not be started at all", func() *fleet.Job {
			j := agent(claude)
			ended(j, fleet.ClassHarnessStartup, func(a *fleet.Attempt) { a.Exit.Reason = "start_failed" })
			return j
		}, nil, Step{Do: End}},
		{"something was done, and no session is left", func() *fleet.Job {
			j := agent(codexB, claude)
			ended(j, fleet.ClassQuotaExhausted, acted)
			return j
		}, nil, Step{Do: End, Why: "something was done already, and there is no session to go on with"}},
		{"something was done: the session goes on with another model of its harness", func() *fleet.Job {
			j := agent(claude, codexB)
			ended(j, fleet.ClassModelUnavailable, acted, session)
			return j
		}, nil, Step{Do: Forward, Choice: 2, Skipped: []fleet.Choice{claude}, Bound: true}},
		{"something was done, and no other choice has the harness", func() *fleet.Job {
			j := agent(claude)
			ended(j, fleet.ClassModelUnavailable, acted, session)
			return j
		}, nil, Step{Do: Again, Pause: time.Minute, Bound: true}},
		{"a later turn keeps to what was said before", func() *fleet.Job {
			j := agent(claude, codexB)
			j.Turns = append(j.Turns, &fleet.Turn{N: 2})
			ended(j, fleet.ClassRateLimited)
			return j
		}, nil, Step{Do: Forward, Choice: 2, Skipped: []fleet.Choice{claude}}},
		{"a fresh later turn need not", func() *fleet.Job {
			j := agent(claude, codexB)
			j.Turns = append(j.Turns, &fleet.Turn{N: 2, Fresh: true})
			ended(j, fleet.ClassRateLimited)
			return j
		}, nil, Step{Do: Forward, Choice: 1}},
		{"the own choice again", func() *fleet.Job {
			j := agent(codex, claude)
			ended(j, fleet.ClassRateLimited)
			return j
		}, nil, Step{Do: Forward, Choice: 2, Skipped: []fleet.Choice{codex}}},
		{"the quota of an account whose mark is not known", func() *fleet.Job {
			j := agent(codexB, open, claude)
			ended(j, fleet.ClassQuotaExhausted)
			return j
		}, nil, Step{Do: Forward, Choice: 3, Skipped: []fleet.Choice{codexB, open}}},
		{"the same provider by another account", func() *fleet.Job {
			j := agent(codexB, open, claude)
			ended(j, fleet.ClassQuotaExhausted, func(a *fleet.Attempt) { a.Account = "chat" })
			return j
		}, map[string]string{"codex": "chat", "opencode": "key"}, Step{Do: Forward, Choice: 2, Skipped: []fleet.Choice{codexB}}},
		{"the job has an account of its own", func() *fleet.Job {
			j := agent(codexB, claude)
			ended(j, fleet.ClassQuotaExhausted, func(a *fleet.Attempt) { a.Account = "the job's" })
			return j
		}, map[string]string{"codex": "the runner's"}, Step{Do: Forward, Choice: 2, Skipped: []fleet.Choice{codexB}}},
		{"the quota was found used up earlier in the turn", func() *fleet.Job {
			j := agent(claude, codexB)
			ended(j, fleet.ClassQuotaExhausted)
			j.Turn().Choice = 1
			ended(j, fleet.ClassRateLimited)
			return j
		}, nil, Step{Do: Again, Pause: 2 * time.Minute}},
		{"and is back since", func() *fleet.Job {
			j := agent(claude, codexB)
			ended(j, fleet.ClassQuotaExhausted, func(a *fleet.Attempt) { a.ResetAt = &now })
			j.Turn().Choice = 1
			ended(j, fleet.ClassRateLimited)
			return j
		}, nil, Step{Do: Forward, Choice: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, next(c.make(), c.has)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestLost: a lost attempt runs again within the same budget, with the same pauses.
func TestLost(t *testing.T) {
	j := agent()
	var got []string
	for range 5 {
		ended(j, "", func(a *fleet.Attempt) { a.State = fleet.AttemptLost })
		s := Lost(Case{Job: j, Turn: j.Turn(), Attempt: j.Turn().Attempts[0], Pause: time.Second})
		got = append(got, fmt.Sprint(s.Do, " ", s.Pause))
	}
	if want := []string{"again 1s", "again 2s", "again 4s", "blocked 0s", "blocked 0s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWalk lets turns fail in every way, one attempt after another, and holds each step
// against what must be true of all.
func TestWalk(t *testing.T) {
	all := []fleet.Choice{codex, codexB, claude, open, {Harness: "claude", Model: "b"}, {Harness: "opencode", Model: "x/y"}}
	rapid.Check(t, func(t *rapid.T) {
		yes := rapid.Bool()
		j := agent(rapid.SliceOfN(rapid.SampledFrom(all), 0, 6).Draw(t, "fallbacks")...)
		if n := rapid.IntRange(-1, 5).Draw(t, "retries"); n >= 0 {
			j.Spec.Retries = &n
		}
		tu := j.Turn()
		if yes.Draw(t, "later turn") {
			tu.N, tu.Fresh = 2, yes.Draw(t, "fresh")
		}
		accounts := map[string]string{}
		for _, h := range []string{"codex", "claude", "opencode"} {
			accounts[h] = rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, h)
		}
		whole, spent := Whole(&j.Spec), 0
		if whole < 1 || whole > fleet.AttemptBudget {
			t.Fatalf("a whole budget of %d", whole)
		}
		for range 30 {
			from := j.ChoiceOf(tu)
			was := Executions(tu)
			a := ended(j, rapid.SampledFrom(fleet.Classes()).Draw(t, "class"), func(a *fleet.Attempt) {
				a.Account = accounts[from.Harness]
				a.Acted, a.Responded = yes.Draw(t, "acted"), yes.Draw(t, "responded")
				if yes.Draw(t, "session") {
					a.SessionID = "s"
				}
				a.Free = rapid.IntRange(0, 5).Draw(t, "stopped") == 0
				if yes.Draw(t, "reset") {
					at := now.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "hours")) * time.Hour)
					a.ResetAt = &at
				}
			})
			spent = Executions(tu)
			if a.Free && spent != was || !a.Free && spent != was+1 {
				t.Fatalf("a stop %v took the executions from %d to %d", a.Free, was, spent)
			}
			if spent > whole+tu.Granted {
				t.Fatalf("%d executions of a budget of %d and %d granted", spent, whole, tu.Granted)
			}
			s := next(j, accounts)
			if (s.Do == Again || s.Do == Forward) && (a.Free || a.Acted && a.SessionID == "" || spent == whole+tu.Granted) {
				t.Fatalf("%+v after %+v, with %d executions of %d", s, a, spent, whole+tu.Granted)
			}
			if s.Bound != (s.Do != End && a.Acted) {
				t.Fatalf("%+v after acted %v", s, a.Acted)
			}
			switch s.Do {
			case Again:
				if p := s.Pause; p != time.Minute && p != 2*time.Minute && p != 4*time.Minute {
					t.Fatalf("a pause of %s", p)
				}
			case Forward:
				if s.Choice <= tu.Choice || s.Choice > len(j.Spec.Fallbacks) || s.Pause != 0 {
					t.Fatalf("%+v from place %d of %v", s, tu.Choice, j.Spec.Fallbacks)
				}
				to := j.Spec.Fallbacks[s.Choice-1]
				if d := cmp.Diff(j.Spec.Fallbacks[tu.Choice:s.Choice-1], s.Skipped); d != "" && len(s.Skipped)+s.Choice-tu.Choice > 1 {
					t.Fatalf("what was passed over (-is +told)\n%s", d)
				}
				if to == from || a.Acted && to.Harness != from.Harness || tu.N > 1 && !tu.Fresh && to.Harness != from.Harness {
					t.Fatalf("from %s to %s, acted %v, turn %d", from, to, a.Acted, tu.N)
				}
				if a.Failure == fleet.ClassQuotaExhausted && (a.ResetAt == nil || a.ResetAt.After(now)) && to.Provider() == from.Provider() &&
					(to.Harness == from.Harness || accounts[to.Harness] == accounts[from.Harness] || accounts[to.Harness] == "" || accounts[from.Harness] == "") {
					t.Fatalf("from %s to %s of the same account", from, to)
				}
				tu.Choice = s.Choice
			default:
				if s.Do == Blocked && spent < whole {
					t.Fatalf("blocked after %d executions of %d", spent, whole)
				}
				// A person gives a whole new budget, or tries again what was free.
				tu.Granted = spent
			}
		}
	})
}
