package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestWaitingOnProvider(t *testing.T) {
	retry := func(n int) string {
		return fmt.Sprintf(`{"type":"error","message":"Reconnecting... %d/5 (exceeded retry limit, last status: 429 Too Many Requests)"}`+"\n", n)
	}
	type step struct {
		at    int64
		line  string
		want  string
		since int64
	}
	for cli, steps := range map[string][]step{
		"codex": {
			{1000, `{"type":"turn.started"}` + "\n", "", 0},
			{2000, retry(1), "waiting on provider: rate limit, retry 1/5", 2000},
			{3000, retry(2), "waiting on provider: rate limit, retry 2/5", 2000},
			{4000, `{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"x"}}` + "\n", "", 0},
			{5000, retry(1), "waiting on provider: rate limit, retry 1/5", 5000},
		},
		"claude": {
			{1000, `{"type":"system","subtype":"api_retry","attempt":1,"max_retries":5,"retry_delay_ms":600,"error_status":529,"error":"overloaded"}` + "\n",
				"waiting on provider: no answer, retry 1/5", 1000},
			{2000, `{"type":"system","subtype":"api_retry","attempt":2,"max_retries":5,"retry_delay_ms":60000,"error_status":429,"error":"rate_limit"}` + "\n",
				"waiting on provider: rate limit, retry 2/5, until 1970-01-01T00:01:02Z", 1000},
			{3000, `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}` + "\n", "", 0},
		},
		"opencode": {
			{1000, `{"driver":"opencode","event":"retry","attempt":1,"message":"Too Many Requests","next":3000}` + "\n",
				"waiting on provider: rate limit, retry 1", 1000},
			{2000, `{"driver":"opencode","event":"progress"}` + "\n", "", 0},
		},
	} {
		h, _ := Lookup(cli)
		p := h.Parser(ParseRequest{})
		for _, s := range steps {
			events, _ := p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: s.at, Payload: []byte(s.line)})
			for _, e := range events {
				if e.Type == fleet.EventError {
					t.Errorf("%s: a retry is told as an error: %+v", cli, e)
				}
			}
			got, since := p.Status()
			if got != s.want || got != "" && since.UnixMilli() != s.since {
				t.Errorf("%s after %s: status %q since %d, want %q since %d", cli, s.line, got, since.UnixMilli(), s.want, s.since)
			}
		}
	}
}

func TestUsageOfAResumedThread(t *testing.T) {
	s := readSample(t, "codex", "resume-2")
	_, o := s.parse(t, ParseRequest{ResumeID: "01a22b5c-a010-78c2-a1c9-bc25f0769ff9", PriorUsage: fleet.Usage{InputTokens: 9738, OutputTokens: 42}}, ExitInfo{})
	if o.Class != fleet.ClassOK || o.Usage != (fleet.Usage{InputTokens: 19559 - 9738, OutputTokens: 42}) {
		t.Errorf("outcome %s with usage %+v", o.Class, o.Usage)
	}
}

func TestSilentlyNewSession(t *testing.T) {
	for cli, id := range map[string]string{
		"codex": "01a22b5c-0000-78c2-a1c9-bc25f0769ff9", "claude": "11111111-2222-3333-4444-555555555555", "opencode": "ses_other0000",
	} {
		s := readSample(t, cli, "success")
		events, o := s.parse(t, ParseRequest{ResumeID: id}, ExitInfo{})
		last := events[len(events)-1]
		if o.Class != fleet.ClassHarnessStartup || last.Type != fleet.EventError || !strings.Contains(last.Text, id) {
			t.Errorf("%s: class %s, last event %s %q; want harness_startup and an error that names %s", cli, o.Class, last.Type, last.Text, id)
		}
		// The id of a session is the same in either case.
		_, o = s.parse(t, ParseRequest{ResumeID: strings.ToUpper(o.SessionID)}, ExitInfo{})
		if o.Class != fleet.ClassOK {
			t.Errorf("%s: resumed under the same id: class %s (%s)", cli, o.Class, o.Detail)
		}
	}
}

func TestSessionThatIsGone(t *testing.T) {
	id := "ab0afdc0-1470-471e-9362-d2187e3b1107"
	for cli, frame := range map[string]fleet.Frame{
		"codex":  {Kind: fleet.FrameStderr, Payload: []byte("Error: thread/resume: thread/resume failed: no rollout found for thread id " + id + "\n")},
		"claude": {Kind: fleet.FrameStderr, Payload: []byte("No conversation found with session ID: " + id + "\n")},
	} {
		h, _ := Lookup(cli)
		p := h.Parser(ParseRequest{ResumeID: id})
		p.Frame(frame)
		if _, o := p.End(ExitInfo{Code: 1, Reason: "exited"}); o.Class != fleet.ClassHarnessStartup || !strings.Contains(o.Detail, "--fresh") || !strings.Contains(o.Detail, id) {
			t.Errorf("%s: %s (%s); want harness_startup, the mend and the session", cli, o.Class, o.Detail)
		}
	}
}

func TestPartialTextIsLiveOnly(t *testing.T) {
	s := readSample(t, "claude", "success")
	p := claudeHarness.Parser(ParseRequest{})
	var recorded, live strings.Builder
	events, pieces := p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: s.out})
	for _, e := range events {
		if e.Type == fleet.EventAgentMessage {
			fmt.Fprintf(&recorded, "[%s %s]%s", e.ID, e.Status, e.Text)
		}
	}
	last := ""
	for _, e := range pieces {
		if e.Type == fleet.EventAgentMessage {
			if e.ID != last {
				fmt.Fprintf(&live, "[%s]", e.ID)
				last = e.ID
			}
			live.WriteString(e.Text)
		}
		if e.Status != fleet.StatusInProgress {
			t.Errorf("live event with status %q", e.Status)
		}
	}
	if want := "[msg_fake000345/1 completed]I will create hello.txt.[msg_fake000349/0 completed]Done: hello.txt now exists."; recorded.String() != want {
		t.Errorf("recorded %q, want %q", recorded.String(), want)
	}
	if want := "[msg_fake000345/1]I will create hello.txt.[msg_fake000349/0]Done: hello.txt now exists."; live.String() != want {
		t.Errorf("live %q, want %q", live.String(), want)
	}
}

func TestUnknownLinesAreKept(t *testing.T) {
	for _, cli := range []string{"codex", "claude", "opencode"} {
		in := `{"type":"from_the_future","x":[1,2]}` + "\n" + "not json\n" + `{"type":` + "\n" + "last without an end"
		events, _ := sample{cli: cli, out: []byte(in)}.parse(t, ParseRequest{}, ExitInfo{})
		if len(events) != 4 || string(events[0].Raw) != `{"type":"from_the_future","x":[1,2]}` || events[1].Text != "not json" ||
			events[2].Text != `{"type":` || events[3].Text != "last without an end" {
			t.Errorf("%s: events %+v", cli, events)
		}
	}
}

func TestOverlongLine(t *testing.T) {
	long := `{"type":"turn.started","x":"` + strings.Repeat("y", 3<<20) + "\"}\n"
	in := []byte(long + `{"type":"thread.started","thread_id":"t1"}` + "\n")
	got := record(t, "codex", ParseRequest{}, in, nil, ExitInfo{Code: 1}, whole)
	if again := record(t, "codex", ParseRequest{}, in, nil, ExitInfo{Code: 1}, func(int) int { return 64 << 10 }); again != got {
		t.Error("the record of an overlong line depends on the pieces it came in")
	}
	if !strings.Contains(got, fmt.Sprintf("a line of %d bytes is passed over", len(long)-1)) || !strings.Contains(got, `"session_id":"t1"`) {
		t.Errorf("record %.400s", got)
	}
}

// Where output was dropped, the line in hand can't be trusted, and the stream is told to lack something.
func TestMarkEndsTheLineInHand(t *testing.T) {
	p := codexHarness.Parser(ParseRequest{})
	p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: 1, Payload: []byte(`{"type":"thread.star`)})
	events, _ := p.Frame(fleet.MarkAt(2, fleet.Mark{DroppedBytes: 77, Reason: fleet.MarkDiskLow}))
	if len(events) != 1 || !strings.Contains(events[0].Text, "77 bytes of output are missing") {
		t.Errorf("events of a mark: %+v", events)
	}
	p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: 3, Payload: []byte(`{"type":"thread.started","thread_id":"t2"}` + "\n")})
	if _, o := p.End(ExitInfo{Code: 1}); o.SessionID != "t2" {
		t.Errorf("session %q after a mark, want t2", o.SessionID)
	}
}

func TestExecOutcome(t *testing.T) {
	for _, c := range []struct {
		x    ExitInfo
		want fleet.FailureClass
	}{
		{ExitInfo{}, fleet.ClassOK},
		{ExitInfo{Code: 3}, fleet.ClassTaskFailed},
		{ExitInfo{Code: 143}, fleet.ClassTaskFailed},
		{ExitInfo{Code: -1, Signal: "KILL", Reason: "exited"}, fleet.ClassCrashed},
		{ExitInfo{Code: -9}, fleet.ClassCrashed},
		{ExitInfo{Code: -1, Signal: "TERM", Reason: "stopped"}, fleet.ClassCancelled},
		{ExitInfo{Code: -1, Signal: "TERM", Reason: "timeout"}, fleet.ClassTimeout},
		{ExitInfo{Code: -1, Reason: "start_failed"}, fleet.ClassHarnessStartup},
		{ExitInfo{Code: -1, Reason: "lost"}, fleet.ClassCrashed},
	} {
		events, o := sample{cli: "exec", out: []byte("You've hit your usage limit\n"), stderr: []byte("error\n")}.parse(t, ParseRequest{}, c.x)
		for _, e := range events {
			t.Errorf("exec tells an event: %+v", e)
		}
		if o.Class != c.want {
			t.Errorf("exec %+v: class %s, want %s", c.x, o.Class, c.want)
		}
	}
}

func TestParseCommand(t *testing.T) {
	s := readSample(t, "codex", "usage_limit")
	var out bytes.Buffer
	if err := Parse("codex", bytes.NewReader(s.out), &out, s.exit, bytes.NewReader(s.stderr)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last struct {
		Type    string     `json:"type"`
		Class   string     `json:"class"`
		ResetAt *time.Time `json:"reset_at"`
		Session string     `json:"session_id"`
		Model   *string    `json:"model"`
		Usage   *struct{}  `json:"usage"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Type != "outcome" || last.Class != "quota_exhausted" || last.ResetAt == nil || last.Session == "" || last.Model == nil || last.Usage == nil {
		t.Errorf("last line %s", lines[len(lines)-1])
	}
	for _, l := range lines[:len(lines)-1] {
		var e fleet.Event
		if err := json.Unmarshal([]byte(l), &e); err != nil || e.Type == "" || e.Type == "outcome" {
			t.Errorf("line %s is no event (%v)", l, err)
		}
	}
	if err := Parse("nope", strings.NewReader(""), &out, 0, nil); !errors.Is(err, fleet.NotFound) {
		t.Errorf("unknown harness: error %v", err)
	}
	if err := Parse("claude", strings.NewReader(""), &out, 0, nil); err != nil {
		t.Errorf("empty stream: %v", err)
	}
}

func fuzzParser(f *testing.F, cli string) {
	for _, s := range allSamples(f) {
		if s.cli == cli {
			f.Add(s.out, s.stderr, s.exit, uint8(7))
		}
	}
	f.Add([]byte(`{"type":"item.completed","item":{"id":"a","id":"b","type":"web_search","query":"q"}}`), []byte("\x1b[31mred\x1b["), -1, uint8(1))
	f.Add([]byte(`{"driver":"opencode","event":"end","reason":"quota","next":99999999999999999}`+"\n"), []byte{}, 1, uint8(3))
	f.Add([]byte("{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"id\":\"\xff\",\"name\":\"Bash\",\"input\":5}]}}\n"), []byte{}, 0, uint8(2))
	f.Fuzz(func(t *testing.T, out, stderr []byte, exit int, piece uint8) {
		x := ExitInfo{Code: exit}
		if exit%3 == 0 {
			x.Reason = []string{"stopped", "timeout", "lost", "exited"}[exit&3]
		}
		r := ParseRequest{PriorUsage: fleet.Usage{InputTokens: int64(exit)}}
		want := record(t, cli, r, out, stderr, x, whole)
		got := record(t, cli, r, out, stderr, x, func(int) int { return int(piece) + 1 })
		if got != want {
			t.Errorf("the record depends on the pieces:\n%s\nand\n%s", want, got)
		}
		lines := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
		for i, l := range lines {
			var e struct {
				Type  string `json:"type"`
				Class string `json:"class"`
			}
			if err := json.Unmarshal([]byte(l), &e); err != nil || (e.Type == "outcome") != (i == len(lines)-1) || e.Type == "outcome" && e.Class == "" {
				t.Errorf("line %d of %d: %.300q (%v)", i, len(lines), l, err)
			}
		}
	})
}

func FuzzCodex(f *testing.F)    { fuzzParser(f, "codex") }
func FuzzClaude(f *testing.F)   { fuzzParser(f, "claude") }
func FuzzOpencode(f *testing.F) { fuzzParser(f, "opencode") }
