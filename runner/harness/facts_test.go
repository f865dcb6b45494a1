package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// A provider has responded with the first thing that it completed, not when it was
// reached, nor when it refused.
func TestRespondedAtTheFirstCompletedResponse(t *testing.T) {
	for _, c := range []struct {
		cli   string
		lines []string // the last of them completes a response
	}{
		{"codex", []string{`{"type":"thread.started","thread_id":"t"}`, `{"type":"turn.started"}`, `{"type":"error","message":"Reconnecting... 1/5 (stream disconnected)"}`,
			`{"type":"item.completed","item":{"id":"0","type":"error","message":"a warning"}}`, `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"hello"}}`}},
		{"codex", []string{`{"type":"turn.started"}`, `{"type":"item.started","item":{"id":"1","type":"command_execution","command":"ls"}}`}},
		{"codex", []string{`{"type":"turn.started"}`, `{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":1}}`}},
		{"codex", []string{`{"type":"turn.started"}`, `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"You've hit your usage limit. Try again at 5:46 PM."}}`,
			`{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"hello"}}`}},
		{"claude", []string{`{"type":"system","subtype":"init","session_id":"s","model":"m"}`, `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`,
			`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"he"}}}`,
			`{"type":"system","subtype":"api_retry","attempt":1,"max_retries":3,"error_status":529}`,
			`{"type":"assistant","error":"rate_limit","message":{"id":"m0","content":[{"type":"text","text":"API Error: 429"}]}}`,
			`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"hello"}]}}`}},
		{"claude", []string{`{"type":"system","subtype":"init"}`, `{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"u","name":"Bash","input":{"command":"ls"}}]}}`}},
		{"opencode", []string{`{"driver":"opencode","event":"session","sessionID":"ses_1"}`, `{"driver":"opencode","event":"retry","attempt":1,"message":"overloaded"}`,
			`{"driver":"opencode","event":"part","part":{"id":"p0","type":"step-start"}}`, `{"driver":"opencode","event":"part","part":{"id":"p","type":"text","text":"hel"}}`,
			`{"driver":"opencode","event":"part","part":{"id":"p","type":"text","text":"hello","time":{"end":5}}}`}},
		{"opencode", []string{`{"driver":"opencode","event":"part","part":{"id":"p0","type":"step-start"}}`,
			`{"driver":"opencode","event":"part","part":{"id":"p","type":"step-finish","reason":"stop","tokens":{"input":3,"output":1}}}`}},
	} {
		h, _ := Lookup(c.cli)
		p := h.Parser(ParseRequest{Zone: time.UTC})
		for i, line := range c.lines {
			p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(line + "\n")})
			if got := p.Responded(); got != (i == len(c.lines)-1) {
				t.Errorf("%s: responded is %v after %s", c.cli, got, line)
			}
		}
	}
}

// What may have been a tool counts as one: nothing is done twice for a guess.
func TestActedWhereNobodyCanTell(t *testing.T) {
	mark := fleet.MarkAt(sampleTime, fleet.Mark{DroppedBytes: 9, Reason: "disk"})
	line := func(s string) fleet.Frame {
		return fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(s + "\n")}
	}
	for _, c := range []struct {
		cli   string
		frame fleet.Frame
		want  bool
	}{
		{"codex", line(`{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"hello"}}`), false},
		{"codex", line(`{"type":"item.completed","item":{"id":"1","type":"reasoning","text":"hm"}}`), false},
		{"codex", line(`{"type":"item.completed","item":{"id":"1","type":"todo_list","items":[]}}`), false},
		{"codex", line(`{"type":"item.started","item":{"id":"1","type":"file_change"}}`), true},
		{"codex", line(`{"type":"item.started","item":{"id":"1","type":"tool_of_next_year"}}`), true},
		{"claude", line(`{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hello"},{"type":"thinking","thinking":"hm"}]}}`), false},
		{"claude", line(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"u","name":"Read","input":{}}]}}`), true},
		{"claude", line(`{"type":"assistant","message":{"id":"m","content":[{"type":"next_year_use"}]}}`), true},
		{"opencode", line(`{"driver":"opencode","event":"part","part":{"id":"p","type":"tool","tool":"bash","callID":"c","state":{"status":"running"}}}`), true},
		{"codex", mark, true},
	} {
		h, _ := Lookup(c.cli)
		p := h.Parser(ParseRequest{Zone: time.UTC})
		p.Frame(c.frame)
		if _, o := p.End(ExitInfo{Code: -1, Signal: "KILL"}); o.Acted != c.want {
			t.Errorf("%s: acted is %v after %s", c.cli, o.Acted, c.frame.Payload)
		}
	}
}

func TestStatedEnd(t *testing.T) {
	at := time.UnixMilli(sampleTime).UTC() // 2026-11-30 08:53
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, words, reset string }{
		{"You've hit your limit · resets 5pm (America/New_York)", "resets 5pm (America/New_York)", "2026-11-30T22:00:00Z"},
		{"You've hit your usage limit. Try again at 5:46 PM.", "Try again at 5:46 PM", "2026-11-30T16:46:00Z"}, // as this machine's zone has it
		{"Usage limit reached. It resets next Tuesday, when the moon is full.", "resets next Tuesday, when the moon is full", ""},
		{"Claude AI usage limit reached|1900000000", "limit reached|1900000000", "2030-03-17T17:46:40Z"},
		{"Rate limit. Please try again in 6m0s.", "try again in 6m0s", ""},
		{"insufficient_quota", "", ""},
		{"exceeded retry limit, last status: 429 Too Many Requests", "", ""},
		{"Usage limit reached. You may retry on the first of May.", "retry on the first of May", ""},
	} {
		l := parseLimits(c.text, at, berlin)
		reset := ""
		if l.resetAt != nil {
			reset = l.resetAt.Format(time.RFC3339)
		}
		if strings.TrimRight(l.words, ".") != c.words || reset != c.reset {
			t.Errorf("%q: stated as %q, read as %q; want %q, %q", c.text, l.words, reset, c.words, c.reset)
		}
		o := fleet.Outcome{Class: fleet.ClassQuotaExhausted}
		if l.put(&o, at); o.StatedEnd != l.words {
			t.Errorf("%q: told as %q", c.text, o.StatedEnd)
		}
		o = fleet.Outcome{Class: fleet.ClassTaskFailed}
		if l.put(&o, at); o.StatedEnd != "" {
			t.Errorf("%q: a failure of the work has an end: %q", c.text, o.StatedEnd)
		}
	}
}

// A time without a zone is one of the machine that the CLI ran on, for every CLI, unless
// its job had a zone of its own.
func TestTimesAreOfTheMachinesZone(t *testing.T) {
	was := time.Local
	t.Cleanup(func() { time.Local = was })
	const words = "You've hit your usage limit. Try again at 5:46 PM."
	lines := map[string][]string{
		"codex":    {`{"type":"turn.started"}`, `{"type":"turn.failed","error":{"message":"` + words + `"}}`},
		"claude":   {`{"type":"system","subtype":"init","session_id":"s","model":"m"}`, `{"type":"result","subtype":"success","is_error":true,"result":"You've hit your limit · resets 5:46pm"}`},
		"opencode": {`{"driver":"opencode","event":"session","sessionID":"ses_1"}`, `{"driver":"opencode","event":"error","error":{"name":"APIError","data":{"message":"` + words + `","statusCode":429,"isRetryable":false}}}`},
	}
	for zone, want := range map[string]string{"Asia/Kolkata": "12:16", "America/New_York": "22:46", "UTC": "17:46"} {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for cli, lines := range lines {
			for local, req := range map[*time.Location]ParseRequest{z: {}, was: {Zone: z}} {
				time.Local = local
				h, _ := Lookup(cli)
				p := h.Parser(req)
				for _, line := range lines {
					p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(line + "\n")})
				}
				_, o := p.End(ExitInfo{Code: 1})
				if o.ResetAt == nil || o.ResetAt.UTC().Format("15:04") != want {
					t.Errorf("%s in %s: %+v; want the end at %s UTC", cli, zone, o, want)
				}
			}
		}
	}
}

// What a burst says of its end counts where a time can be read in it, and where none can
// it is over in a minute: words would have the hub wait for hours.
func TestStatedEndOfBurst(t *testing.T) {
	at := time.UnixMilli(sampleTime).UTC()
	for _, c := range []struct{ text, told string }{
		{"exceeded retry limit, last status: 429 Too Many Requests", ""},
		{"Too many requests, please try again later.", ""},
		{"Rate limit reached. Retry after a moment.", ""},
		{"Rate limit reached. Please try again in 6m0s.", "try again in 6m0s"},
		{"Too many requests. It resets 5pm (UTC).", "resets 5pm (UTC)"},
	} {
		o := fleet.Outcome{Class: fleet.ClassRateLimited}
		if parseLimits(c.text, at, time.UTC).put(&o, at); strings.TrimRight(o.StatedEnd, ".") != c.told {
			t.Errorf("%q: told as %q, want %q", c.text, o.StatedEnd, c.told)
		}
	}
}

// Nothing that the CLIs said where they were refused for a burst is a stated end.
func TestSamplesOfBurstsStateNoEnd(t *testing.T) {
	for _, name := range []string{"rate429", "noretry"} {
		x := readSample(t, "codex", name)
		if _, o := x.parse(t, ParseRequest{}, ExitInfo{Code: x.exit}); o.Class != fleet.ClassRateLimited || o.StatedEnd != "" || o.ResetAt != nil || o.RetryAfterMS != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

const noDaemon = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"

func TestDockerIsMissed(t *testing.T) {
	for text, want := range map[string]bool{
		noDaemon: true,
		"failed to connect to the docker API at unix:///run/docker.sock; check if the path is correct and if the daemon is running: dial unix /run/docker.sock: connect: no such file or directory": true,
		"docker: error during connect: Head \"http://%2F%2F.%2Fpipe%2FdockerDesktopLinuxEngine/_ping\": open //./pipe/dockerDesktopLinuxEngine":                                                     true,
		"permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock":                                                                                      true,
		"docker.errors.DockerException: Error while fetching server API version: ('Connection aborted.', FileNotFoundError(2))":                                                                     true,
		"Could not find a valid Docker environment. Please see logs":                                                                                                                                true,
		"sh: 1: docker: not found":                                         false,
		"Error response from daemon: pull access denied":                   false,
		"the docker build failed: exit status 1":                           false,
		"dial unix /run/postgres.sock: connect: no such file or directory": false,
	} {
		if got := noDocker(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	line := func(format string, args ...any) string { return fmt.Sprintf(format, args...) + "\n" }
	tool := func(id, output string, exit int) string {
		return line(`{"type":"item.completed","item":{"id":%q,"type":"command_execution","command":"make","aggregated_output":%q,"exit_code":%d,"status":%q}}`, id, output, exit,
			map[bool]string{true: "completed", false: "failed"}[exit == 0])
	}
	began, ended, broke := line(`{"type":"turn.started"}`), line(`{"type":"turn.completed","usage":{}}`), line(`{"type":"turn.failed","error":{"message":"something broke"}}`)
	for _, c := range []struct {
		name, cli, out, stderr string
		exit                   ExitInfo
		want                   fleet.FailureClass
	}{
		{"a command", "exec", line("building") + line(noDaemon), "", ExitInfo{Code: 1}, fleet.ClassDocker},
		{"a command, on standard error", "exec", "", noDaemon, ExitInfo{Code: 1}, fleet.ClassDocker},
		{"a command that came through", "exec", line(noDaemon), "", ExitInfo{}, fleet.ClassOK},
		{"a command that was stopped", "exec", line(noDaemon), "", ExitInfo{Code: 1, Reason: "stopped"}, fleet.ClassCancelled},
		{"a command that said it long ago", "exec", line(noDaemon) + strings.Repeat("tests run and run\n", 4000), "", ExitInfo{Code: 1}, fleet.ClassTaskFailed},
		{"an agent", "codex", began + tool("1", noDaemon, 1) + broke, "", ExitInfo{Code: 1}, fleet.ClassDocker},
		{"an agent that found another way", "codex", began + tool("1", noDaemon, 1) + ended, "", ExitInfo{}, fleet.ClassOK},
		{"an agent that failed later at something else", "codex", began + tool("1", noDaemon, 1) + tool("2", "assertion", 2) + broke, "", ExitInfo{Code: 1}, fleet.ClassUnknown},
		{"an agent that read about it", "codex", began + tool("1", noDaemon, 0) + broke, "", ExitInfo{Code: 1}, fleet.ClassUnknown},
		{"an agent with a limit", "codex", began + tool("1", noDaemon, 1) + line(`{"type":"turn.failed","error":{"message":"unexpected status 429 Too Many Requests"}}`), "", ExitInfo{Code: 1}, fleet.ClassRateLimited},
		{"an agent that does not start", "claude", "", noDaemon, ExitInfo{Code: 1}, fleet.ClassDocker},
		{"an agent that ran out of time", "codex", began + tool("1", noDaemon, 1), "", ExitInfo{Code: -1, Signal: "KILL", Reason: "timeout"}, fleet.ClassTimeout},
	} {
		h, _ := Lookup(c.cli)
		p := h.Parser(ParseRequest{Zone: time.UTC})
		p.Frame(fleet.Frame{Kind: fleet.FrameStdout, At: sampleTime, Payload: []byte(c.out)})
		p.Frame(fleet.Frame{Kind: fleet.FrameStderr, At: sampleTime, Payload: []byte(c.stderr)})
		if _, o := p.End(c.exit); o.Class != c.want || o.Class == fleet.ClassDocker && !strings.Contains(o.Detail, dockerless) {
			t.Errorf("%s: %s (%s); want %s", c.name, o.Class, o.Detail, c.want)
		}
	}
}

func TestExecOutOfTime(t *testing.T) {
	for reason, want := range map[string]fleet.FailureClass{"timeout": fleet.ClassTimeout, "idle_timeout": fleet.ClassStalled, "first_response_timeout": fleet.ClassStalled} {
		if _, o := execHarness.Parser(ParseRequest{}).End(ExitInfo{Code: -1, Signal: "KILL", Reason: reason}); o.Class != want {
			t.Errorf("%s: %s; want %s", reason, o.Class, want)
		}
	}
}
