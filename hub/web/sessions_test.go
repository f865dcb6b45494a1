package web

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const labID = "01a22b58-e674-74f2-906d-0f431ca24300"

// told gives a world whose runner "lead" stands as p says and answers as the rest does.
func told(t *testing.T, p *atomic.Pointer[fleet.Presence], answer func(context.Context) error, last *fleet.CLISessions) *world {
	t.Helper()
	one := fleet.CLISession{ID: labID, Harness: "codex", Dir: "/w", Title: "mend it"}
	w := newWorld(t, func(c *Config) {
		c.Presence = func() []fleet.Presence {
			q := *p.Load()
			q.Runner = "r-lead"
			return []fleet.Presence{q}
		}
		c.Sessions = func(ctx context.Context, r fleet.RunnerID) (fleet.CLISessions, error) {
			return fleet.CLISessions{Sessions: []fleet.CLISession{one}}, answer(ctx)
		}
		c.LastSessions = func(fleet.RunnerID) (fleet.CLISessions, time.Duration, bool) {
			if last == nil {
				return fleet.CLISessions{}, 0, false
			}
			return *last, time.Minute, true
		}
		c.Session = func(ctx context.Context, r fleet.RunnerID, id string, n int) (fleet.CLITranscript, error) {
			if id != labID {
				return fleet.CLITranscript{}, fleet.Say(fleet.NotFound, "there is no session %s", id)
			}
			all := []fleet.CLIMessage{{Role: "user", Text: "a"}, {Role: "assistant", Text: "b"}}
			return fleet.CLITranscript{CLISession: one, Messages: all[max(len(all)-n, 0):]}, answer(ctx)
		}
	})
	w.enrolled("lead")
	return w
}

func there(p fleet.Presence) *atomic.Pointer[fleet.Presence] {
	var a atomic.Pointer[fleet.Presence]
	a.Store(&p)
	return &a
}

func asked(path string) request {
	return request{method: "GET", path: "/v1/runners/lead/sessions" + path, role: fleet.RoleOperator}
}

// Where a runner can be asked it is; where it can't, the last list is told with its age,
// and what is wrong with it. An owner's word is the last one.
func TestSessionsOfRunners(t *testing.T) {
	at := time.Now()
	on := fleet.Presence{Connected: true, Full: true, LastBeat: at, Sessions: fleet.SessionsFull}
	off, old, away := on, on, on
	off.Sessions, old.Sessions, away.Connected = fleet.SessionsOff, "", false
	fine := func(context.Context) error { return nil }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fails := func(code fleet.Code) func(context.Context) error {
		return func(context.Context) error { return fleet.Say(code, "said so") }
	}
	last := &fleet.CLISessions{Sessions: []fleet.CLISession{}, Notes: []string{"the last"}}
	for _, c := range []struct {
		name    string
		p       fleet.Presence
		answer  func(context.Context) error
		status  int
		code    fleet.Code
		words   string
		outlast bool // where there is a last list, it is told
	}{
		{"there", on, fine, 200, "", "", false},
		{"away", away, fine, 409, fleet.Offline, "last heard", true},
		{"silent", on, hangs, 503, fleet.Unavailable, "has not answered within 50ms", true},
		{"no leader any more", on, fails(fleet.Unavailable), 503, fleet.Unavailable, "said so", false},
		{"the owner does not allow it", off, fine, 409, fleet.OwnerPolicy, "sessions: off", false},
		{"the runner says that", on, fails(fleet.OwnerPolicy), 409, fleet.OwnerPolicy, "said so", false},
		{"an old version", old, fine, 409, fleet.UnknownCritical, "update it", false},
		{"too many ask", on, fails(fleet.QueueFull), 429, fleet.QueueFull, "said so", false},
	} {
		for _, l := range []*fleet.CLISessions{nil, last} {
			w := told(t, there(c.p), c.answer, l)
			if c.status == 200 {
				s := get[api.Sessions](w, asked("?wait=10s"))
				if s.Runner != "r-lead" || s.Name != "lead" || len(s.Sessions) != 1 || s.AgeMS != 0 || s.Waiting != "" {
					t.Errorf("%s: %+v", c.name, s)
				}
				one := get[api.Session](w, asked("/"+labID+"?messages=1"))
				if one.ID != labID || len(one.Messages) != 1 || one.Messages[0].Text != "b" {
					t.Errorf("%s: %+v", c.name, one)
				}
				w.refuses(asked("/other"), 404, fleet.NotFound)
				continue
			}
			if p := w.refuses(asked("/"+labID+"?wait=50ms"), c.status, c.code); !strings.Contains(p.Detail, c.words) {
				t.Errorf("%s: %s", c.name, p.Detail)
			}
			if l != nil && c.outlast {
				s := get[api.Sessions](w, asked("?wait=50ms"))
				if len(s.Notes) != 1 || s.AgeMS != 60_000 || !strings.Contains(s.Waiting, c.words) {
					t.Errorf("%s, and there is a last list: %+v", c.name, s)
				}
				continue
			}
			if p := w.refuses(asked("?wait=50ms"), c.status, c.code); !strings.Contains(p.Detail, c.words) {
				t.Errorf("%s: %s", c.name, p.Detail)
			}
		}
	}
	w := told(t, there(on), fine, nil)
	for _, bad := range []string{"?wait=x", "?wait=-1s", "?wait=21s", "/" + labID + "?wait=0s"} {
		w.refuses(asked(bad), 400, fleet.BadRequest)
	}
	for _, bad := range []string{"0", "51", "x"} {
		w.refuses(asked("/"+labID+"?messages="+bad), 400, fleet.BadRequest)
	}
	r := asked("")
	r.role = fleet.RoleViewer
	w.refuses(r, 403, fleet.Forbidden)
	r = asked("")
	r.path = "/v1/runners/nobody/sessions"
	w.refuses(r, 404, fleet.NotFound)
	w = newWorld(t)
	w.enrolled("lead")
	w.refuses(asked(""), 503, fleet.Unavailable)
}

// A runner that a new leader has not heard yet is waited for; one that was silent before is not.
func TestRunnerThatIsExpectedIsWaitedFor(t *testing.T) {
	p := there(fleet.Presence{})
	w := told(t, p, func(context.Context) error { return nil }, nil)
	came := time.AfterFunc(300*time.Millisecond, func() {
		p.Store(&fleet.Presence{Connected: true, Full: true, LastBeat: time.Now(), Sessions: fleet.SessionsFull})
	})
	defer came.Stop()
	if s := get[api.Sessions](w, asked("?wait=20s")); len(s.Sessions) != 1 {
		t.Errorf("it came: %+v", s)
	}
	p.Store(&fleet.Presence{})
	if d := w.refuses(asked("?wait=200ms"), 409, fleet.Offline).Detail; !strings.Contains(d, "has not heard it since it leads") {
		t.Errorf("it did not come: %s", d)
	}
	w.must(&state.SilenceRunner{ID: "r-lead", Since: time.Now().UTC()})
	begun := time.Now()
	if w.refuses(asked("?wait=20s"), 409, fleet.Offline); time.Since(begun) > 15*time.Second {
		t.Error("one that was silent before is waited for")
	}
}

func TestJobOfASession(t *testing.T) {
	w := placed(t, nil)
	w.enrolled("lead")
	give := func(change func(*api.Submit)) request {
		s := api.Submit{Kind: fleet.KindAgent, Prompt: "go on", Harness: "codex", On: "lead", Session: &fleet.SessionRef{ID: labID}}
		change(&s)
		return request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: s}
	}
	w.must(&state.Set{Name: fleet.SettingModelPriority, Value: "codex,claude:m"})
	j := get[api.Job](w, give(func(*api.Submit) {}))
	if s := j.Spec; s.Session == nil || s.Session.ID != labID || s.On == "" || len(s.Fallbacks) > 0 || s.ConcurrencyKey != "session/"+labID || s.Repo != nil {
		t.Errorf("the job is %+v", s)
	}
	if j := get[api.Job](w, give(func(s *api.Submit) { s.ConcurrencyKey = "mine" })); j.Spec.ConcurrencyKey != "mine" {
		t.Errorf("its key is %s", j.Spec.ConcurrencyKey)
	}
	for what, change := range map[string]func(*api.Submit){
		"no id":          func(s *api.Submit) { s.Session.ID = "" },
		"a long id":      func(s *api.Submit) { s.Session.ID = strings.Repeat("a", fleet.MaxSessionID+1) },
		"a strange id":   func(s *api.Submit) { s.Session.ID = "a b\x00" },
		"no runner":      func(s *api.Submit) { s.On = "" },
		"no harness":     func(s *api.Submit) { s.Harness = "" },
		"a repository":   func(s *api.Submit) { s.Repo = &fleet.Repo{URL: "https://x.test/a.git"} },
		"another choice": func(s *api.Submit) { s.Fallbacks = []fleet.Choice{{Harness: "claude", Model: "m"}} },
		"a command":      func(s *api.Submit) { s.Kind, s.Prompt, s.Harness, s.Argv = fleet.KindExec, "", "", []string{"true"} },
	} {
		if d := w.refuses(give(change), 400, fleet.BadRequest).Detail; d == "" {
			t.Errorf("%s: no word", what)
		}
	}
}
