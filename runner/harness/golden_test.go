package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// sample is one recorded run of a real CLI.
type sample struct {
	cli, name   string
	out, stderr []byte
	exit        int
}

func readSample(t testing.TB, cli, name string) sample {
	t.Helper()
	base := filepath.Join("testdata", cli, name)
	exit, err := os.ReadFile(base + ".exit")
	if err != nil {
		t.Fatal(err)
	}
	s := sample{cli: cli, name: name}
	if s.exit, err = strconv.Atoi(strings.TrimSpace(string(exit))); err != nil {
		t.Fatal(err)
	}
	// Empty streams have no file.
	s.out, _ = os.ReadFile(base + ".jsonl")
	s.stderr, _ = os.ReadFile(base + ".stderr")
	return s
}

func allSamples(t testing.TB) []sample {
	t.Helper()
	files, err := filepath.Glob("testdata/*/*.exit")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d samples, error %v", len(files), err)
	}
	var out []sample
	for _, f := range files {
		out = append(out, readSample(t, filepath.Base(filepath.Dir(f)), strings.TrimSuffix(filepath.Base(f), ".exit")))
	}
	return out
}

const sampleTime = 1796026400000 // 2026-11-30T08:13:20Z

// parse gives everything that a parser says of a sample.
func (s sample) parse(t testing.TB, r ParseRequest, x ExitInfo) (events []fleet.Event, o fleet.Outcome) {
	t.Helper()
	events, o, _ = s.parsed(t, r, x)
	return events, o
}

func (s sample) parsed(t testing.TB, r ParseRequest, x ExitInfo) (events []fleet.Event, o fleet.Outcome, responded bool) {
	t.Helper()
	h, ok := Lookup(s.cli)
	if !ok {
		t.Fatalf("no harness %s", s.cli)
	}
	if r.Zone == nil {
		r.Zone = time.UTC
	}
	p := h.Parser(r)
	for _, f := range []fleet.Frame{{Kind: fleet.FrameStdout, At: sampleTime, Payload: s.out}, {Kind: fleet.FrameStderr, At: sampleTime, Payload: s.stderr}} {
		e, _ := p.Frame(f)
		events = append(events, e...)
	}
	e, o := p.End(x)
	return append(events, e...), o, p.Responded()
}

func TestOutcomeOfEverySample(t *testing.T) {
	table, err := os.ReadFile("testdata/outcomes.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		if !strings.HasPrefix(line, "#") {
			words := strings.Fields(line)
			want[words[0]+" "+words[1]] = line
		}
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, s := range allSamples(t) {
		key := s.cli + " " + s.name
		_, o, responded := s.parsed(t, ParseRequest{}, ExitInfo{Code: s.exit})
		did := ""
		if responded {
			did = "responded"
		}
		if o.Acted {
			did = "acted"
		}
		reset := ""
		if o.ResetAt != nil {
			reset = o.ResetAt.Format(time.RFC3339)
		}
		got := strings.Join([]string{s.cli, s.name, string(o.Class), dash(o.SessionID), dash(o.Model),
			fmt.Sprint(o.Usage.InputTokens), fmt.Sprint(o.Usage.OutputTokens), dash(reset), dash(did)}, " ")
		if got != want[key] {
			t.Errorf("got  %s\nwant %s\n(%s)", got, want[key], o.Detail)
		}
		if o.Class == fleet.ClassOK && !responded || o.Acted && !responded {
			t.Errorf("%s: class %s, acted %v, and its provider never answered", key, o.Class, o.Acted)
		}
		if o.Class != fleet.ClassOK && o.Detail == "" {
			t.Errorf("%s: class %s without a detail", key, o.Class)
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("%s is in the table but not among the samples", key)
	}
}

// The runs that somebody stopped or that ran out of time, as the supervisor would record them.
func TestOutcomeWithReason(t *testing.T) {
	for _, c := range []struct {
		cli, name, reason string
		want              fleet.FailureClass
	}{
		{"codex", "sigint", "stopped", fleet.ClassCancelled},
		{"codex", "sigkill", "stopped", fleet.ClassCancelled},
		{"codex", "sigkill", "timeout", fleet.ClassTimeout},
		{"codex", "rate429_long", "stopped", fleet.ClassCancelled},
		{"codex", "rate429_long", "idle_timeout", fleet.ClassRateLimited},
		{"codex", "success", "stopped", fleet.ClassOK},
		{"codex", "success", "lost", fleet.ClassOK},
		{"codex", "sigkill", "lost", fleet.ClassCrashed},
		{"codex", "usage_limit", "stopped", fleet.ClassQuotaExhausted},
		{"claude", "sigint", "stopped", fleet.ClassCancelled},
		{"claude", "sigint", "timeout", fleet.ClassTimeout},
		{"claude", "sigkill", "stopped", fleet.ClassCancelled},
		{"claude", "sigterm", "idle_timeout", fleet.ClassStalled},
		{"claude", "success", "stopped", fleet.ClassOK},
		{"opencode", "sigint", "stopped", fleet.ClassCancelled},
		{"opencode", "usage_limit", "first_response_timeout", fleet.ClassStalled},
		{"opencode", "quota-printlogs", "idle_timeout", fleet.ClassQuotaExhausted},
		{"opencode", "nothing", "start_failed", fleet.ClassHarnessStartup},
	} {
		s := sample{cli: c.cli, name: c.name}
		if c.name != "nothing" {
			s = readSample(t, c.cli, c.name)
		}
		if _, o := s.parse(t, ParseRequest{}, ExitInfo{Code: s.exit, Reason: c.reason}); o.Class != c.want {
			t.Errorf("%s %s, %s: class %s, want %s (%s)", c.cli, c.name, c.reason, o.Class, c.want, o.Detail)
		}
	}
}

// brief writes an event as a test can read it.
func brief(e fleet.Event) string {
	out := string(e.Type)
	add := func(format string, args ...any) { out += " " + fmt.Sprintf(format, args...) }
	if e.ID != "" && e.Status != "" && e.Type != fleet.EventAgentMessage && e.Type != fleet.EventReasoning {
		add("%s", e.Status)
	}
	if e.Level != "" {
		add("%s", e.Level)
	}
	if e.Command != "" {
		add("%q", e.Command)
	}
	if e.ExitCode != nil {
		add("exit=%d", *e.ExitCode)
	}
	for _, c := range e.Changes {
		add("%s:%s", c.Kind, filepath.Base(c.Path))
	}
	if e.Server != "" {
		add("server=%s", e.Server)
	}
	if e.Tool != "" {
		add("tool=%s", e.Tool)
	}
	if e.Output != "" {
		add("output=%q", fleet.CutText(e.Output, 300))
	}
	if e.Text != "" {
		add("%q", fleet.CutText(e.Text, 300))
	}
	if e.Usage != nil {
		add("%d/%d", e.Usage.InputTokens, e.Usage.OutputTokens)
	}
	return out
}

func TestEventsOfSamples(t *testing.T) {
	for _, c := range []struct {
		cli, name string
		want      []string
	}{
		{"codex", "success", []string{
			"log warn \"Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\"",
			`reasoning "I should create the file and then check it."`,
			`agent_message "I will create hello.txt."`,
			`file_change in_progress add:hello.txt`,
			`file_change completed add:hello.txt`,
			`command_execution in_progress "/bin/bash -lc 'cat hello.txt && ls'"`,
			`command_execution completed "/bin/bash -lc 'cat hello.txt && ls'" exit=0 output="hello from the agent\nREADME.md\nhello.txt\n"`,
			`agent_message "Done: hello.txt now exists."`,
			`usage 31577/126`,
		}},
		{"codex", "bgleft-workspace-write", []string{
			`command_execution in_progress "/bin/bash -lc 'echo early; sleep 304; echo late'"`,
			`agent_message "Leaving it running."`,
			`usage 19675/84`,
			`log error "2026-11-30T08:10:48.786121Z ERROR codex_core::session: failed to record rollout items: thread 01a22b81-a9b6-7131-a6bf-e6f3477be3f4 not found"`,
			`command_execution failed "/bin/bash -lc 'echo early; sleep 304; echo late'" "not over when the run ended"`,
		}},
		{"codex", "quota", []string{
			"log warn \"Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.\"",
			`error "Quota exceeded. Check your plan and billing details."`,
		}},
		{"claude", "success", []string{
			`reasoning "I should create the file and then check it."`,
			`agent_message "I will create hello.txt."`,
			`file_change in_progress update:hello.txt tool=Write`,
			`file_change completed add:hello.txt tool=Write`,
			`command_execution in_progress "cat hello.txt && ls"`,
			`command_execution completed "cat hello.txt && ls" exit=0 output="hello from the agent\nREADME.md\nhello.txt"`,
			`agent_message "Done: hello.txt now exists."`,
			`usage 87267/126`,
		}},
		{"claude", "cmdfail", []string{
			`command_execution in_progress "echo out; echo err >&2; ls /nonexistent; exit 3"`,
			`command_execution failed "echo out; echo err >&2; ls /nonexistent; exit 3" exit=3 output="out\nerr\nls: cannot access '/nonexistent': No such file or directory"`,
			`agent_message "The command failed with exit status 3."`,
			`usage 58025/84`,
		}},
		{"claude", "mcp", []string{
			`mcp_tool_call in_progress server=lab tool=echo`,
			`mcp_tool_call completed server=lab tool=echo`,
			`mcp_tool_call in_progress server=lab tool=boom`,
			`mcp_tool_call failed server=lab tool=boom`,
			`agent_message "Called the MCP tools."`,
			`usage 87257/126`,
		}},
		{"claude", "oauth-usage_limit", []string{
			`log warn "plan limit five_hour: rejected, resets 2030-03-17T17:46:40Z"`,
			`error "You've hit your session limit · resets Mar 17, 2030, 5:46pm (UTC)"`,
		}},
		{"opencode", "cmdfail", []string{
			`command_execution failed "echo out; echo err >&2; ls /nonexistent; exit 3" exit=3 output="out\nerr\nls: cannot access '/nonexistent': No such file or directory\n"`,
			`usage 7690/42`,
			`agent_message "The command failed with exit status 3."`,
			`usage 7784/42`,
		}},
		{"opencode", "mcp", []string{
			`mcp_tool_call completed server=lab tool=echo`,
			`usage 7776/42`,
			`mcp_tool_call failed server=lab tool=boom "boom failed"`,
			`usage 7834/42`,
			`agent_message "Called the MCP tools."`,
			`usage 7888/42`,
		}},
		{"opencode", "perm-ask", []string{
			`agent_message "I will create hello.txt."`,
			`file_change failed update:hello.txt tool=write "The user rejected permission to use this specific tool call."`,
			`usage 7690/42`,
			`log info "! permission requested: edit (hello.txt); auto-rejecting"`,
		}},
	} {
		s := readSample(t, c.cli, c.name)
		events, _ := s.parse(t, ParseRequest{}, ExitInfo{Code: s.exit})
		var got []string
		for _, e := range events {
			got = append(got, brief(e))
			if e.At.UnixMilli() != sampleTime {
				t.Errorf("%s %s: %s is at %v, not at its frame's time", c.cli, c.name, e.Type, e.At)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s: events differ (-want +got):\n%s", c.cli, c.name, diff)
		}
	}
}

// record gives every byte that a parser says for the record, for the stream cut into pieces by cut.
func record(t testing.TB, cli string, r ParseRequest, out, stderr []byte, x ExitInfo, cut func(left int) int) string {
	t.Helper()
	h, _ := Lookup(cli)
	r.Zone = time.UTC
	p := h.Parser(r)
	var b bytes.Buffer
	feed := func(kind fleet.FrameKind, data []byte) {
		for len(data) > 0 {
			n := min(max(cut(len(data)), 1), len(data))
			events, live := p.Frame(fleet.Frame{Kind: kind, At: sampleTime, Payload: bytes.Clone(data[:n])})
			data = data[n:]
			for _, e := range events {
				b.Write(e.Line())
			}
			for _, e := range live {
				if l := e.Line(); !json.Valid(l) {
					t.Errorf("live line %q is not JSON", l)
				}
			}
			checkBounds(t, p)
		}
	}
	feed(fleet.FrameStdout, out)
	feed(fleet.FrameStderr, stderr)
	events, o := p.End(x)
	for _, e := range events {
		b.Write(e.Line())
	}
	b.Write(o.Line())
	return b.String()
}

// checkBounds holds a parser to the memory that it may keep.
func checkBounds(t testing.TB, p Parser) {
	t.Helper()
	s, ok := p.(*stream)
	if !ok {
		return
	}
	kept := len(s.tail) + len(s.answer) + len(s.plain) + len(s.session) + len(s.model)
	for _, e := range s.open {
		kept += len(e.Line())
	}
	if len(s.out.buf) > maxLine || len(s.err.buf) > maxLine || len(s.open) > maxOpenItems || len(s.order) != len(s.open) || len(s.tail) > 3*(16<<10) {
		t.Fatalf("parser keeps lines of %d and %d bytes, %d open items in an order of %d, %d bytes in all",
			len(s.out.buf), len(s.err.buf), len(s.open), len(s.order), kept)
	}
}

func whole(left int) int { return left }

func TestEventsDoNotDependOnChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range allSamples(t) {
		x := ExitInfo{Code: s.exit}
		want := record(t, s.cli, ParseRequest{}, s.out, s.stderr, x, whole)
		for name, cut := range map[string]func(int) int{
			"one byte":  func(int) int { return 1 },
			"random":    func(int) int { return 1 + rng.IntN(400) },
			"4096":      func(int) int { return 4096 },
			"once more": whole,
		} {
			if got := record(t, s.cli, ParseRequest{}, s.out, s.stderr, x, cut); got != want {
				t.Errorf("%s %s: in pieces (%s) the record differs:\n%s", s.cli, s.name, name, cmp.Diff(want, got))
			}
		}
	}
}
