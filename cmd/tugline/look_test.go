package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func newTLS(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func pemOf(srv *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

var noon = time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *time.Time {
	t := noon.Add(-d)
	return &t
}

// sampleJobs are one of each kind that a person may meet.
func sampleJobs() []api.Job {
	zero, one := 0, 1
	return []api.Job{
		{ID: "01jqueued", Kind: fleet.KindAgent, State: fleet.Queued, Harness: "codex", CreatedAt: *before(30 * time.Second), Why: "studio has no free slot"},
		{ID: "01jrunning", Kind: fleet.KindExec, State: fleet.Running, Harness: "exec", Runner: "studio", CreatedAt: *before(5 * time.Minute), StartedAt: before(4 * time.Minute),
			Turn: 1, Attempt: 2, Fence: "1-20", Spec: fleet.Spec{Argv: []string{"sh", "-c", "make test; echo 'done'"}}, Log: fleet.LogState{Bytes: 2048, Durable: 1024}},
		{ID: "01jdone", Kind: fleet.KindAgent, State: fleet.Succeeded, Harness: "claude", Model: "m1", ReportedModel: "m1-2031", Runner: "studio", Permissions: fleet.PermWorkspace,
			CreatedAt: *before(3 * time.Hour), StartedAt: before(179 * time.Minute), FinishedAt: before(170 * time.Minute), Turn: 1, Attempt: 1, Fence: "1-9", Actor: "t-1",
			Repo: "https://x.test/app.git", BaseCommit: strings.Repeat("a", 40), HeadCommit: strings.Repeat("b", 40), Branch: "tugline/01jdone", Exit: &fleet.Exit{Reason: "exited"}, ExitCode: &zero,
			Verdict: &fleet.Verdict{Decision: fleet.Accept, Reasons: []string{"2 new commits, verified"}, By: "gate"}, SessionID: "s-1", Usage: api.Usage{Input: 1234567, Output: 890},
			Evidence: &fleet.Evidence{CommitCount: 2, Commits: []fleet.CommitInfo{{SHA: strings.Repeat("c", 40), Subject: "Find the mistake"}, {SHA: strings.Repeat("b", 40), Subject: "Mend it"}},
				Stat: fleet.DiffStat{Files: 3, Insertions: 40, Deletions: 7}, Branch: "tugline/01jdone"}, Log: fleet.LogState{Bytes: 900, Text: 801, Durable: 900, Sealed: true}},
		{ID: "01jreview", Kind: fleet.KindAgent, State: fleet.NeedsReview, Harness: "codex", Runner: "mini", CreatedAt: *before(50 * time.Hour), StartedAt: before(50 * time.Hour), FinishedAt: before(49 * time.Hour), Turn: 1, Attempt: 1,
			Verdict: &fleet.Verdict{Decision: fleet.Ask, Reasons: []string{"no new commit and no closure note"}, By: "gate"}, Evidence: &fleet.Evidence{}},
		{ID: "01jfailed", Kind: fleet.KindExec, State: fleet.Failed, Harness: "exec", Runner: "mini", CreatedAt: *before(9 * 24 * time.Hour), StartedAt: before(9 * 24 * time.Hour), FinishedAt: before(9*24*time.Hour - 90*time.Second),
			Turn: 1, Attempt: 1, Exit: &fleet.Exit{Code: -1, Signal: "KILL", Reason: "timeout"}, ExitCode: &one, Verdict: &fleet.Verdict{Decision: fleet.Reject, Reasons: []string{strings.Repeat("very long reason ", 12)}, By: "t-2"}, VerdictByName: "ada"},
		{ID: "01jlost", Kind: fleet.KindAgent, State: fleet.Lost, Harness: "opencode", Runner: "laptop\x1b[31m", CreatedAt: *before(time.Hour), StartedAt: before(time.Hour), Reason: fleet.Reason{Code: "lost", Detail: "no word for 10 m"},
			FailureClass: fleet.ClassQuotaExhausted, ResetAt: before(-time.Hour), Turn: 1, Attempt: 1},
		{ID: "01jcancelling", Kind: fleet.KindExec, State: fleet.Running, Harness: "exec", Runner: "dev", CreatedAt: *before(time.Hour), StartedAt: before(time.Hour), CancelAt: before(3 * time.Minute),
			Why: "cancelling (runner offline 3 m)", Reason: fleet.Reason{Code: "cancelling", Detail: "on dev"}, Turn: 1, Attempt: 1, Spec: fleet.Spec{Argv: []string{"sleep", "9"}}},
		{ID: "01jbundle", Kind: fleet.KindAgent, State: fleet.Succeeded, Harness: "codex", Runner: "mini", CreatedAt: *before(time.Hour), StartedAt: before(time.Hour), FinishedAt: before(time.Minute),
			Repo: "bundle:" + strings.Repeat("d", 40), BaseCommit: strings.Repeat("e", 40), Turn: 1, Attempt: 1, Verdict: &fleet.Verdict{Decision: fleet.Accept, By: "gate"}},
		{ID: "01jpushed", Kind: fleet.KindAgent, State: fleet.Succeeded, Harness: "codex", Runner: "mini", CreatedAt: *before(time.Hour), StartedAt: before(time.Hour), FinishedAt: before(time.Minute),
			Repo: "git@x.test:team/app.git", Spec: fleet.Spec{Push: "main"}, Turn: 1, Attempt: 1, Turns: []*fleet.Turn{pushedTurn("refused: [rejected] main (non-fast-forward)")}},
	}
}

func TestTables(t *testing.T) {
	s := newShell(t, "")
	if err := s.jobTable(api.Jobs{Jobs: sampleJobs(), Next: "01jlost"}, noon); err != nil {
		t.Fatal(err)
	}
	golden(t, "jobs.txt", s.out.String())
	for l := range strings.Lines(s.out.String()) {
		if n := len([]rune(l)) - 1; n > maxWidth {
			t.Errorf("a line of %d characters: %s", n, l)
		}
		if strings.Contains(l, "\x1b") {
			t.Errorf("a line that steers the terminal: %q", l)
		}
	}
}

func TestDescriptions(t *testing.T) {
	var all strings.Builder
	for _, j := range sampleJobs() {
		s := newShell(t, "")
		s.describe(&j, noon)
		all.WriteString(s.out.String() + "--\n")
		s.summary(s.err, false, &j)
		all.WriteString(strings.TrimPrefix(s.err.String(), "\n") + "====\n")
	}
	golden(t, "descriptions.txt", all.String())
	s := newShell(t, "")
	r := sampleRunners()[0]
	s.describeRunner(&r, noon)
	golden(t, "runner.txt", s.out.String())
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		size(0): "0 B", size(1023): "1023 B", size(1024): "1.0 KiB", size(5 << 30): "5.0 GiB", size(3 << 50): "3072.0 TiB",
		count(0): "0", count(999): "999", count(1000): "1,000", count(-1234567): "-1,234,567",
		span(0): "0ms", span(1500 * time.Millisecond): "1.5s", span(59 * time.Second): "59s", span(61 * time.Second): "1m01s", span(25*time.Hour + time.Minute): "25h01m", span(51*time.Hour + time.Minute): "2d03h",
		ago(noon, nil): "-", ago(noon, before(-time.Second)): "now", ago(noon, before(59*time.Second)): "59s ago", ago(noon, before(47*time.Hour)): "47h ago", ago(noon, before(49*time.Hour)): "2d ago",
		ahead(400 * time.Millisecond): "0s", ahead(45 * time.Second): "45s", ahead(2*time.Hour - 400*time.Millisecond): "2h", ahead(2*time.Hour - time.Minute): "1h59m",
		ahead(30*time.Minute - time.Second): "30m", ahead(10 * time.Minute): "10m", ahead(time.Hour + 10*time.Minute): "1h10m", ahead(47*time.Hour + 59*time.Minute): "47h59m",
		ahead(72*time.Hour - time.Minute): "3d", ahead(71 * time.Hour): "2d23h", ahead(239*time.Hour + 59*time.Minute): "10d", ahead(260 * time.Hour): "11d",
		cut("abc", 3): "abc", cut("abcd", 3): "ab…", cut("äöü", 2): "ä…",
		line(" a\x1b[31m\n b\u202e\tc "): "a[31m b c", quoted("a/b.c"): "a/b.c", quoted("it's"): `'it'\''s'`, quoted(""): "''",
		days("2160h0m0s"): "90 days", days("36h0m0s"): "36h0m0s", days("odd"): "odd",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSONIsTheHubsOwn(t *testing.T) {
	srv := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, map[string]any{"jobs": []any{}, "from_a_newer_hub": 1})
		},
		"GET /v1/jobs/{id}":           func(w http.ResponseWriter, r *http.Request) { answer(w, 200, sampleJobs()[2]) },
		"GET /v1/runners":             func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Runners{Runners: []api.Runner{}}) },
		"GET /v1/status":              func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Status{}) },
		"GET /v1/audit":               func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.AuditRecords{}) },
		"GET /v1/tokens":              func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Tokens{}) },
		"GET /v1/jobs/{id}/artifacts": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Artifacts{}) },
		"GET /v1/jobs/{id}/explain":   func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Explanation{}) },
	})
	s := newShell(t, srv.URL)
	for _, l := range []string{"job list", "job get 01j", "job artifacts 01j", "job explain 01j", "runner list", "hub status", "hub audit", "token list", "context list", "version", "harness list"} {
		s.must(append(strings.Fields(l), "--json")...)
		if !json.Valid([]byte(s.out.String())) || !strings.HasSuffix(s.out.String(), "\n") {
			t.Errorf("tugline %s --json: %s", l, s.out)
		}
		s.must(strings.Fields(l)...)
	}
	has(t, "the list", s.must("job", "list", "--json"), `"from_a_newer_hub": 1`)
	has(t, "a job", s.must("job", "get", "01j", "--json"), `"follow_ups_queued": 0`, `"input_tokens": 1234567`, `"durable_bytes": 900`, `"created_at": "2031-03-04T09:00:00Z"`, `"failure_class": ""`)
}

func TestLogsGoOnWhereTheConnectionBroke(t *testing.T) {
	t.Parallel()
	var record []byte
	for i := range 30 {
		kind := fleet.FrameStdout
		if i%3 == 1 {
			kind = fleet.FrameStderr
		}
		record = fleet.AppendFrame(record, fleet.Frame{Kind: kind, At: 1000, Payload: []byte("piece " + strconv.Itoa(i) + "\n")})
	}
	record = fleet.AppendFrame(record, fleet.MarkAt(5, fleet.Mark{DroppedBytes: 10, Reason: fleet.MarkEnd}))
	tries := 0
	srv := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Job{ID: "01j", Kind: fleet.KindExec}) },
		"GET /v1/jobs/{id}/log": func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("from"))
			if r.URL.Query().Get("format") != "frames" || r.URL.Query().Get("turn") != "2" {
				t.Errorf("asked for %s", r.URL.RawQuery)
			}
			part := record[from:]
			if tries++; tries < 4 {
				w.Header().Set("Content-Length", strconv.Itoa(len(part)))
				part = part[:min(len(part), 100)]
			}
			_, _ = w.Write(part)
		},
	})
	s := newShell(t, srv.URL)
	s.must("job", "logs", "01j", "--turn", "2")
	var wantOut, wantErr strings.Builder
	for i := range 30 {
		w := &wantOut
		if i%3 == 1 {
			w = &wantErr
		}
		w.WriteString("piece " + strconv.Itoa(i) + "\n")
	}
	wantErr.WriteString("tugline: note: 10 B of output are missing (end)\n")
	if s.out.String() != wantOut.String() || s.err.String() != wantErr.String() {
		t.Errorf("after %d connections:\n%s\n%s", tries, s.out, s.err)
	}
	s.must("job", "logs", "01j", "--turn", "2", "--json")
	for l := range strings.Lines(s.out.String()) {
		var r recorded
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.Stream == "" {
			t.Fatalf("%s: %v", l, err)
		}
	}
}

func TestAgentEventsForPeople(t *testing.T) {
	code := 2
	events := []fleet.Event{
		{Type: fleet.EventReasoning, Text: "The test fails for the sign."},
		{Type: fleet.EventAgentMessage, ID: "m1", Text: "I look at the test first.\n"},
		{Type: fleet.EventCommandExecution, ID: "c1", Status: fleet.StatusInProgress, Command: "go test ./..."},
		{Type: fleet.EventCommandExecution, ID: "c1", Status: fleet.StatusCompleted, Command: "go test ./...", ExitCode: &code, Output: "a\nb\n"},
		{Type: fleet.EventDynamicToolCall, ID: "d1", Tool: "read", Arguments: json.RawMessage(`{"path":"x.go"}`)},
		{Type: fleet.EventMCPToolCall, ID: "d2", Server: "tickets", Tool: "get", Status: fleet.StatusFailed, Text: "no such ticket"},
		{Type: fleet.EventWebSearch, ID: "w", Query: "sign of zero"},
		{Type: fleet.EventTodo, Items: []fleet.TodoItem{{Text: "mend", Completed: true}, {Text: "test"}}},
		{Type: fleet.EventFileChange, Changes: []fleet.FileChange{{Path: "a.go", Kind: "add"}, {Path: "b.go", Kind: "update"}, {Path: "c.go", Kind: "delete"}}},
		{Type: fleet.EventCommandExecution, Command: "true", Status: fleet.StatusCompleted, ExitCode: new(int)},
		{Type: fleet.EventLog, Level: "info", Text: "not for people"},
		{Type: fleet.EventLog, Level: "warn", Text: "slow\x1b]0;title\x07"},
		{Type: fleet.EventError, Text: "stream broke"},
		{Type: fleet.EventUsage, Usage: &fleet.Usage{InputTokens: 12345, OutputTokens: 67}},
		{Type: fleet.EventAgentMessage, ID: "m2", Text: "It is mended."},
	}
	var b bytes.Buffer
	r := newRenderer(&b, false, false)
	for _, e := range events {
		r.live(fleet.Event{Type: fleet.EventAgentMessage, ID: e.ID, Text: "partial"})
		r.event(e)
	}
	golden(t, "events.txt", b.String())
}

func TestMessagesAppearWhileTheyAreWritten(t *testing.T) {
	piece := func(id, text string) fleet.Event {
		return fleet.Event{Type: fleet.EventAgentMessage, ID: id, Text: text}
	}
	var b bytes.Buffer
	r := newRenderer(&b, true, false)
	r.live(piece("m1", "Hel"))
	r.live(piece("m1", "lo"))
	r.event(piece("m1", "Hello there"))
	r.live(piece("m2", "lost its be"))
	r.event(piece("m2", "A message that lost its beginning"))
	r.live(piece("m3", "cut off"))
	r.flush()
	if want := "Hello there\n\nlost its be\nA message that lost its beginning\n\ncut off\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestLogFileIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "x.log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 100
	for i := range 60 {
		if _, err := l.Write([]byte(strings.Repeat("x", 38) + " " + strconv.Itoa(10+i) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != logFiles {
		t.Errorf("files %v, %v, want %d", files, err, logFiles)
	}
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || len(b) > 100 || len(b) == 0 {
			t.Errorf("%s has %d bytes, %v", f, len(b), err)
		}
		if want := strconv.Itoa(69 - 2*i); !strings.HasSuffix(string(b), want+"\n") {
			t.Errorf("%s ends with %q, want %s", f, b[len(b)-5:], want)
		}
	}
	if _, err := l.Write([]byte("x")); err == nil {
		t.Error("a closed log takes more")
	}
}

func TestLogsThatEndInsideAPiece(t *testing.T) {
	record := fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, At: 1, Payload: []byte("whole\n")})
	record = fleet.AppendFrame(record, fleet.Frame{Kind: fleet.FrameStdout, At: 2, Payload: []byte("half of this\n")})
	cuts := []int{3, fleet.FrameHeaderSize + 2}
	for _, cut := range cuts {
		first := fleet.FrameHeaderSize + len("whole\n")
		srv := script(t, map[string]http.HandlerFunc{
			"GET /v1/jobs/01j": func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, api.Job{ID: "01j", Kind: fleet.KindExec, State: fleet.Running})
			},
			"GET /v1/jobs/01j/log": func(w http.ResponseWriter, _ *http.Request) { w.Write(record[:first+cut]) },
		})
		s := newShell(t, srv.URL)
		if got := s.must("job", "logs", "01j"); got != "whole\n" {
			t.Errorf("cut %d bytes into a frame: %q", cut, got)
		}
		has(t, "the note", s.err.String(), "has not reached the hub yet")
	}
}

func TestRetryBeyondTheBudgetNeedsAGrant(t *testing.T) {
	for _, c := range []struct {
		job   api.Job
		grant bool
	}{
		{api.Job{State: fleet.Failed, Budget: api.Executions{Used: 4, Of: 4}}, true},
		{api.Job{State: fleet.Failed, Budget: api.Executions{Used: 4, Of: 8}}, false},
		{api.Job{State: fleet.Lost, Budget: api.Executions{Used: 3, Of: 4}}, false},
		{api.Job{State: fleet.Lost, Reason: fleet.Reason{Code: "budget"}}, true},
	} {
		c.job.ID = "01j"
		var got strings.Builder
		whatNext(&got, false, &c.job)
		if strings.Contains(got.String(), "job retry --grant 01j") != c.grant || strings.Contains(got.String(), "job retry 01j") == c.grant {
			t.Errorf("%s, grant %t:\n%s", c.job.State, c.grant, &got)
		}
	}
}

func TestRevokedRunnerSaysHowItComesBack(t *testing.T) {
	r := api.Runner{ID: "r-1", Name: "studio", State: "revoked"}
	s := newShell(t, "")
	s.describeRunner(&r, noon)
	has(t, "the runner", s.out.String(), "runner studio revoked", "`tugline hub ticket --for studio`")
	has(t, "its notes", runnerNotes(&r, noon), "`tugline hub ticket --for studio`")
}

func TestNoJobOfMany(t *testing.T) {
	s := newShell(t, script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, api.Jobs{}) },
	}).URL)
	has(t, "an empty hub", s.must("job", "list"), "No jobs. Give one")
	for _, args := range [][]string{{"--active"}, {"--state", "lost"}, {"--runner", "studio"}, {"--before", strings.Repeat("0", 26)}} {
		has(t, args[0], s.must(append([]string{"job", "list"}, args...)...), "No job is like that")
	}
}

func TestFilesOfARunAreNamed(t *testing.T) {
	j := sampleJobs()[2]
	for n, want := range map[int]string{1: "f0 (1 B)", 4: "f0 (1 B), f1 (2 B), f2 (3 B), f3 (4 B)", 6: "f0 (1 B), f1 (2 B), f2 (3 B), 3 more"} {
		j.Evidence.Artifacts = nil
		for i := range n {
			j.Evidence.Artifacts = append(j.Evidence.Artifacts, fleet.Artifact{Name: "f" + strconv.Itoa(i), Size: int64(i + 1)})
		}
		var b bytes.Buffer
		newShell(t, "").summary(&b, false, &j)
		has(t, "the summary", b.String(), "  artifacts    "+want+"\n", "tugline job artifacts 01jdone")
	}
}
