package fleet

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestEventLineRoundTrip(t *testing.T) {
	code := 3
	e := Event{Type: EventCommandExecution, ID: "item_1", Turn: "t1", Status: StatusFailed,
		At: time.Date(2026, 11, 30, 7, 26, 16, 123456789, time.FixedZone("x", 3600)), Command: "ls <x> && echo ü", ExitCode: &code,
		Output: "a\nb", Changes: []FileChange{{"a b", "add"}}, Items: []TodoItem{{Text: "x", Completed: true}},
		Arguments: json.RawMessage(`{ "a" : 1 }`), Usage: &Usage{InputTokens: 5}}
	e.Bound()
	line := e.Line()
	if n := strings.Count(string(line), "\n"); n != 1 || line[len(line)-1] != '\n' {
		t.Fatalf("line %q has %d line ends", line, n)
	}
	if !strings.Contains(string(line), `"at":"2026-11-30T06:26:16.123Z"`) {
		t.Errorf("time is not UTC milliseconds: %s", line)
	}
	var got Event
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("read back differs (-written +read):\n%s", diff)
	}
}

func TestEventBound(t *testing.T) {
	big := strings.Repeat("ü", 1<<20)
	e := Event{Type: EventLog, ID: big, Turn: big, Level: big, Text: big, Command: big, Output: big, Server: big, Tool: big, Query: big,
		Arguments: json.RawMessage(`"` + big + `"`), Result: json.RawMessage(`{broken`), Raw: json.RawMessage("\xff\xfe")}
	for range 1000 {
		e.Changes = append(e.Changes, FileChange{big[:8000], "update"})
		e.Items = append(e.Items, TodoItem{Text: big[:8000]})
	}
	e.Bound()
	line := e.Line()
	if len(line) > 2<<20 {
		t.Errorf("bounded event is %d bytes", len(line))
	}
	if !json.Valid(line) || !utf8.Valid(line) {
		t.Errorf("bounded event is no valid JSON line: %.200q", line)
	}
	if len(e.Text) > MaxEventText || !strings.HasSuffix(e.Text, cutMark) {
		t.Errorf("text of %d bytes, end %q", len(e.Text), e.Text[len(e.Text)-20:])
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in           string
		limit        int
		text, middle string
	}{
		{"short", 10, "short", "short"},
		{"0123456789ABCDEFGHIJ", 16, "0123456" + cutMark, "0" + middleMark + "J"},
		{"a\xffb", 10, "a\uFFFDb", "a\uFFFDb"},
		{"", 0, "", ""},
		{"üüü", 3, "ü", "ü"},
	} {
		if got := CutText(c.in, c.limit); got != c.text {
			t.Errorf("CutText(%q, %d) = %q, want %q", c.in, c.limit, got, c.text)
		}
		if got := CutMiddle(c.in, c.limit); got != c.middle {
			t.Errorf("CutMiddle(%q, %d) = %q, want %q", c.in, c.limit, got, c.middle)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("héllo wörld, this is long", 12)
	f.Add("\xf0\x9f\x98", 2)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		for name, got := range map[string]string{"CutText": CutText(s, limit), "CutMiddle": CutMiddle(s, limit)} {
			if len(got) > limit && len(got) > len(s)*3 || len(got) > limit && limit >= 3 && len(strings.ToValidUTF8(s, "\uFFFD")) > limit {
				t.Errorf("%s(%q, %d) is %d bytes", name, s, limit, len(got))
			}
			if !utf8.ValidString(got) {
				t.Errorf("%s(%q, %d) = %q is not UTF-8", name, s, limit, got)
			}
		}
	})
}

func TestOutcomeLine(t *testing.T) {
	at := time.Date(2030, 3, 17, 17, 46, 40, 0, time.UTC)
	got := string(Outcome{Class: ClassQuotaExhausted, ResetAt: &at, SessionID: "s", Model: "m", Detail: strings.Repeat("x", 600)}.Line())
	want := `{"type":"outcome","class":"quota_exhausted","reset_at":"2030-03-17T17:46:40Z","session_id":"s","model":"m",` +
		`"usage":{"input_tokens":0,"output_tokens":0},"detail":"`
	if !strings.HasPrefix(got, want) {
		t.Errorf("line = %s, want prefix %s", got, want)
	}
	var o Outcome
	if err := json.Unmarshal([]byte(got), &o); err != nil || len(o.Detail) > MaxDetail {
		t.Errorf("detail of %d bytes, error %v", len(o.Detail), err)
	}
}

func TestUsageSub(t *testing.T) {
	total := Usage{InputTokens: 19559, OutputTokens: 84}
	if got, want := total.Sub(Usage{InputTokens: 9738, OutputTokens: 42}), (Usage{InputTokens: 9821, OutputTokens: 42}); got != want {
		t.Errorf("second turn = %+v, want %+v", got, want)
	}
	if got := total.Sub(Usage{InputTokens: 1 << 40}); got != total {
		t.Errorf("after a count that began anew = %+v, want the whole %+v", got, total)
	}
	if got := total.Sub(Usage{}).Add(Usage{}); got != total {
		t.Errorf("got %+v, want %+v", got, total)
	}
}

func TestProviderClasses(t *testing.T) {
	want := map[FailureClass]bool{ClassRateLimited: true, ClassQuotaExhausted: true, ClassAuth: true, ClassModelUnavailable: true, ClassProviderUnavailable: true}
	for _, c := range Classes() {
		if c.Provider() != want[c] {
			t.Errorf("%s.Provider() = %v", c, c.Provider())
		}
	}
}
