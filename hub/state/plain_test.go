package state

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// TestPlain: the short way writes what encoding/json writes, and reads what it reads.
func TestPlain(t *testing.T) {
	text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z0-9/.: -]{1,12}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		str := func(name string) string { return text.Draw(t, name) }
		num := func(name string) int64 { return rapid.Int64().Draw(t, name) }
		fence := fleet.Fence{Epoch: rapid.Uint64().Draw(t, "epoch"), Index: rapid.Uint64().Draw(t, "index")}
		submit := &SubmitJob{ID: fleet.JobID(str("id")), Prompt: fleet.Digest(str("prompt")), Spec: fleet.Spec{
			Kind: fleet.Kind(str("kind")), Origin: fleet.Origin{Kind: str("origin"), Name: str("name")}, ConcurrencyKey: str("key"), Harness: str("harness"),
			Model: str("model"), Permissions: fleet.Permissions(str("permissions")), Argv: rapid.SliceOfN(text, 0, 3).Draw(t, "argv"),
			ArgvBlob: fleet.Digest(str("blob")), On: str("on"), Push: str("push"), Commit: str("commit"), OnLost: str("on lost"),
		}}
		switch rapid.IntRange(0, 9).Draw(t, "rest") {
		case 0:
			submit.Spec.Repo = &fleet.Repo{URL: str("url")}
		case 1:
			submit.Spec.Require = map[string]string{"a": str("label")}
		case 2:
			submit.Spec.Env = map[string]string{"A": str("value")}
		case 3:
			submit.Spec.Secrets = []string{str("secret")}
		case 4:
			submit.Spec.Timeouts.Queue = 1
		case 5:
			submit.Spec.Priority, submit.Spec.MaxTokens = int(num("priority")), num("tokens")
		case 6:
			submit.Spec.Needs, submit.Spec.Retries, submit.Spec.Fallbacks = &fleet.Needs{}, new(int), []fleet.Choice{{Harness: str("choice")}}
		}
		finish := &FinishAttempt{
			Job: fleet.JobID(str("job")), Fence: fence, Exit: fleet.Exit{Code: int(num("code")), Signal: str("signal"), Reason: str("reason"), Detail: str("detail")},
			Class: fleet.FailureClass(str("class")), Detail: str("detail"), SessionID: str("session"), Model: str("model"),
			FinishedAt: time.Unix(rapid.Int64Range(-1<<35, 1<<37).Draw(t, "end"), rapid.Int64Range(0, 1e9-1).Draw(t, "fraction")).UTC(),
			Output:     num("output"), Text: num("text"), Events: num("events"), Dropped: num("dropped"),
			Evidence: &fleet.Evidence{NoRepo: rapid.Bool().Draw(t, "no repo")},
			Verdict:  &fleet.Verdict{Decision: fleet.Decision(str("decision")), Reasons: rapid.SliceOfN(text, 0, 3).Draw(t, "reasons"), By: str("by")},
			Rules:    rapid.IntRange(0, 1).Draw(t, "rules"), Footprint: rapid.SampledFrom([]int64{0, 1, -1}).Draw(t, "footprint"),
		}
		switch rapid.IntRange(0, 14).Draw(t, "more") {
		case 0:
			finish.StartedAt = finish.FinishedAt.Add(-time.Second)
		case 1:
			finish.FinishedAt = finish.FinishedAt.In(time.FixedZone("", 3600))
		case 2:
			finish.Usage = &fleet.Usage{}
		case 3:
			finish.ResetAt = &finish.FinishedAt
		case 4:
			finish.Evidence = nil
		case 5:
			finish.Verdict = nil
		case 6:
			finish.Evidence.Swept = 1
		case 7:
			finish.Evidence.Notes = []string{str("note")}
		case 8:
			finish.Evidence.Base = str("base")
		case 9:
			finish.Evidence.Stat.Files = 1
		case 10:
			finish.RetryAfter, finish.Acted = time.Duration(num("wait")), true
		case 11:
			finish.StatedEnd, finish.Account = str("end"), str("account")
		}
		for _, c := range []plain{
			submit,
			&AssignJob{Job: fleet.JobID(str("job")), Runner: fleet.RunnerID(str("runner")), Turn: int(num("turn")), Attempts: int(num("attempts")), Slots: int(num("slots")),
				Rules: rapid.IntRange(0, 1).Draw(t, "rules"), Choice: rapid.IntRange(0, 2).Draw(t, "choice"), Reserve: rapid.SampledFrom([]int64{0, 1 << 40, -1}).Draw(t, "reserve"),
				Probes: rapid.SliceOfN(text, 0, 1).Draw(t, "probes"), Base: rapid.IntRange(0, 2).Draw(t, "base"), Automation: rapid.IntRange(0, 2).Draw(t, "automation")},
			&AcceptAttempt{Job: fleet.JobID(str("job")), Fence: fence, Permissions: fleet.Permissions(str("permissions")), BaseCommit: str("base"), Notes: rapid.SliceOfN(text, 0, 1).Draw(t, "notes"), Rules: rapid.IntRange(0, 1).Draw(t, "rules")},
			&SealLog{Job: fleet.JobID(str("job")), Fence: fence, Output: num("output"), Events: num("events")},
			finish,
			&CancelJob{Job: fleet.JobID(str("job")), Abandon: rapid.Bool().Draw(t, "abandon")},
		} {
			want, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := appendCommand(nil, c)
			if err != nil || string(got) != string(want) {
				t.Fatalf("%T is written %s (%v), want %s", c, got, err, want)
			}
			same(t, c.kind(), want)
		}
	})
}

// same says what is wrong where the short way reads something else than encoding/json.
func same(t rapid.TB, k Kind, b []byte) (short bool) {
	t.Helper()
	got, want := kinds[k]().(plain), kinds[k]()
	s := scanner{b: b}
	if got.scan(&s); !s.whole() {
		return false
	}
	if err := json.Unmarshal(b, want); err != nil {
		t.Fatalf("the short way takes %s, the long one gives %v", b, err)
	}
	if d := cmp.Diff(want, Command(got)); d != "" {
		t.Fatalf("%s is read differently (-long +short):\n%s", b, d)
	}
	return true
}

// TestPlainIsTaken: what a small job says goes the short way.
func TestPlainIsTaken(t *testing.T) {
	f := fleet.Fence{Epoch: 1, Index: 7}
	for _, c := range []plain{
		&SubmitJob{ID: "j", Spec: fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"make", "test"}, OnLost: "hold"}},
		&AssignJob{Job: "j", Runner: "r-1", Turn: 1, Slots: 8}, &AcceptAttempt{Job: "j", Fence: f, Permissions: fleet.PermFull},
		&AssignJob{Job: "j", Runner: "r-1", Turn: 1, Rules: 1, Choice: 2, Reserve: 1 << 30, Base: 2, Automation: 1}, &AcceptAttempt{Job: "j", Fence: f, Rules: 1},
		&SealLog{Job: "j", Fence: f, Output: 12}, &CancelJob{Job: "j"},
		&FinishAttempt{
			Job: "j", Fence: f, Exit: fleet.Exit{Reason: "exited"}, Class: fleet.ClassOK, StartedAt: time.Unix(1, 2).UTC(), FinishedAt: time.Unix(3, 4).UTC(),
			Output: 12, Text: 3, Events: 4, Evidence: &fleet.Evidence{NoRepo: true}, Verdict: &fleet.Verdict{Decision: fleet.Accept, Reasons: []string{"exit code 0"}, By: "gate"}, Rules: 1, Footprint: 9,
		},
	} {
		var w printer
		c.print(&w)
		if w.bad || !same(t, c.kind(), w.b) {
			t.Errorf("%T goes the long way: %s", c, w.b)
		}
	}
}

// FuzzPlain: whatever the short way takes, encoding/json takes and reads alike.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{`{"job":"j"}`, `{"job":"j","fence":"1-2","output":1,"events":0}`, `{"job":"j","runner":"r","turn":1,"attempts":0,"slots":8}`,
		`{"job":"j","runner":"r","turn":1,"attempts":0,"slots":0,"rules":1,"choice":1,"reserve":5,"base":1,"automation":2}`, `{"job":"j","fence":"1-2","rules":1}`,
		`{"job":"j","fence":"1-2","permissions":"read","base_commit":"c"}`,
		`{"job":"j","fence":"1-2","exit":{"code":0,"reason":"exited"},"class":"ok","started_at":"2026-01-02T03:04:05.6Z","finished_at":"2026-01-02T03:04:06Z","output":1,"text":1,"events":0,"evidence":{"commit_count":0,"stat":{"files":0,"insertions":0,"deletions":0},"bundle_checked":false,"no_repo":true},"verdict":{"decision":"accept","reasons":["exit code 0"],"by":"gate"}}`,
		`{"id":"j","spec":{"kind":"exec","origin":{"kind":"manual"},"harness":"exec","permissions":"read","argv":["a","b"],"on_lost":"hold","timeouts":{}},"prompt":"p"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for k, mk := range kinds {
			if _, ok := mk().(plain); ok {
				same(t, k, b)
			}
		}
	})
}
