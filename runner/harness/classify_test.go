package harness

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		text   string
		status int
		want   fleet.FailureClass
	}{
		{"You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro) or try again at Mar 17th, 2030 5:46 PM.", 0, fleet.ClassQuotaExhausted},
		{"You've hit your session limit · resets 5pm (Europe/Berlin)", 429, fleet.ClassQuotaExhausted},
		{"Claude AI usage limit reached|1900000000", 0, fleet.ClassQuotaExhausted},
		{"Quota exceeded. Check your plan and billing details.", 429, fleet.ClassQuotaExhausted},
		{"You exceeded your current quota, please check your plan and billing details.", 429, fleet.ClassQuotaExhausted},
		{"Failed to authenticate. API Error: 403 Upgrade your plan to continue", 403, fleet.ClassQuotaExhausted},
		{"Credit balance is too low", 400, fleet.ClassQuotaExhausted},
		{"Payment Required", 402, fleet.ClassQuotaExhausted},
		{"exceeded retry limit, last status: 429 Too Many Requests", 0, fleet.ClassRateLimited},
		{"This request would exceed your organization's rate limit of 30,000 input tokens per minute.", 0, fleet.ClassRateLimited},
		{"Rate limit reached for fake-model … tokens per min (TPM): Limit 30000", 429, fleet.ClassRateLimited},
		{"unexpected status 401 Unauthorized: Incorrect API key provided", 0, fleet.ClassAuth},
		{"unexpected status 403 Forbidden: no", 403, fleet.ClassAuth},
		{"Missing environment variable: `X_KEY`.", 0, fleet.ClassAuth},
		{"Not logged in · Please run /login", 0, fleet.ClassAuth},
		{"The model `x` does not exist or you do not have access to it.", 404, fleet.ClassModelUnavailable},
		{"{\"detail\": \"The 'x' model is not supported when using Codex with a ChatGPT account.\"}", 400, fleet.ClassModelUnavailable},
		{"Model not found: fake/nope.", 0, fleet.ClassModelUnavailable},
		{"Selected model is at capacity. Please try a different model.", 503, fleet.ClassProviderUnavailable},
		{"API Error: 529 Overloaded", 529, fleet.ClassProviderUnavailable},
		{"stream disconnected before completion: connection closed", 0, fleet.ClassProviderUnavailable},
		{"Codex ran out of room in the model's context window.", 0, fleet.ClassTaskFailed},
		{"Prompt is too long", 400, fleet.ClassTaskFailed},
		{"please upgrade to version 9", 0, ""},
		{"", 0, ""},
		{"", 503, fleet.ClassProviderUnavailable},
		{"something else", 0, ""},
	} {
		if got, _ := classify(c.text, c.status); got != c.want {
			t.Errorf("classify(%q, %d) = %q, want %q", c.text, c.status, got, c.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		text  string
		acted bool
		want  bool
	}{
		{"You've hit your usage limit. Upgrade your plan to continue", false, true},
		{"You've hit your usage limit. Upgrade your plan to continue", true, true},
		{"You’ve hit your weekly limit · resets Mar 17, 5pm (UTC)", true, true},
		{"Claude AI usage limit reached|1900000000", true, true},
		{"Session limit reached ∙ resets 5pm", false, true},
		{"Sorry: the usage limit of this plan is used up, try again at 5 PM.", false, true},
		{"Sorry: the usage limit of this plan is used up, try again at 5 PM.", true, false},
		{"I added a usage limit to the billing page; users see \"upgrade your plan\" when they hit it.", true, false},
		{"Done: hello.txt now exists.", false, false},
		{"The rate limiter now resets every minute.", false, false},
		{"", false, false},
	} {
		if got := refusal(c.text, c.acted); got != c.want {
			t.Errorf("refusal(%q, acted %v) = %v, want %v", c.text, c.acted, got, c.want)
		}
	}
}

// Some CLIs print a refusal as the answer of a run that ends well.
func TestRefusalWithExitCodeZero(t *testing.T) {
	const words = "You've hit your usage limit. Upgrade your plan to continue, or try again at Mar 17th, 2030 5:46 PM."
	reset := time.Date(2030, 3, 17, 17, 46, 0, 0, time.UTC)
	for cli, out := range map[string]string{
		"codex": `{"type":"thread.started","thread_id":"t"}` + "\n" + `{"type":"turn.started"}` + "\n" +
			`{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"` + words + `"}}` + "\n" +
			`{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}` + "\n",
		"claude": `{"type":"system","subtype":"init","session_id":"s","model":"m"}` + "\n" +
			`{"type":"result","subtype":"success","is_error":false,"result":"` + words + `","session_id":"s"}` + "\n",
		"opencode": `{"type":"text","sessionID":"ses_abcdef","part":{"id":"p1","type":"text","text":"` + words + `"}}` + "\n" +
			`{"type":"step_finish","sessionID":"ses_abcdef","part":{"id":"p2","type":"step-finish","reason":"stop"}}` + "\n",
	} {
		_, o := sample{cli: cli, out: []byte(out)}.parse(t, ParseRequest{}, ExitInfo{})
		if o.Class != fleet.ClassQuotaExhausted || o.ResetAt == nil || !o.ResetAt.Equal(reset) {
			t.Errorf("%s: class %s, reset %v; want quota_exhausted until %v", cli, o.Class, o.ResetAt, reset)
		}
		_, o = sample{cli: cli, out: []byte(words + "\n")}.parse(t, ParseRequest{}, ExitInfo{})
		if o.Class != fleet.ClassQuotaExhausted || o.ResetAt == nil || !o.ResetAt.Equal(reset) {
			t.Errorf("%s: plain words: class %s, reset %v; want quota_exhausted until %v", cli, o.Class, o.ResetAt, reset)
		}
	}
}

func TestParseLimits(t *testing.T) {
	at := time.Date(2030, 3, 16, 12, 0, 0, 0, time.UTC)
	zone := time.FixedZone("home", 2*3600)
	day := func(d, h, m int) string { return time.Date(2030, 3, d, h, m, 0, 0, time.UTC).Format(time.RFC3339) }
	for _, c := range []struct {
		text  string
		reset string
		after time.Duration
	}{
		{"try again at Mar 17th, 2030 5:46 PM.", day(17, 15, 46), 0},
		{"resets Mar 17, 2030, 5:46pm (UTC)", day(17, 17, 46), 0},
		{"resets Mar 17, 5pm (UTC)", day(17, 17, 0), 0},
		{"resets Jan 2, 5pm (UTC)", "2031-01-02T17:00:00Z", 0},
		{"resets 5pm (UTC)", day(16, 17, 0), 0},
		{"resets 11am (UTC)", day(17, 11, 0), 0},
		{"try again at 12:05 AM.", day(16, 22, 5), 0},
		{"try again at 23:30.", day(16, 21, 30), 0},
		{"Try again at 0:30", day(16, 22, 30), 0},
		{"resets 14:00", day(17, 12, 0), 0},
		{"resets at 23:30:15 (UTC)", day(16, 23, 30), 0},
		{"resets at 23:30 UTC.", day(16, 23, 30), 0},
		{"resets 5pm utc", day(16, 17, 0), 0},
		{"available again at 23:30", day(16, 21, 30), 0},
		{"retry at 5:46 PM", day(16, 15, 46), 0},
		{"resets Mar 17, 2030, 17:46", day(17, 15, 46), 0},
		{"try again on Mar 17 at 17:46 (UTC)", day(17, 17, 46), 0},
		{"Mar 16 11:59:30 studio agent: rate limit reached", "", 0},
		{"try again at 24:10", "", 0},
		{"try again at 23:70", "", 0},
		{"try again at 23", "", 0},
		{"usage limit reached|1900000000", "2030-03-17T17:46:40Z", 0},
		{"available at 2030-03-17T17:46:40Z", "2030-03-17T17:46:40Z", 0},
		{"Please try again in 1s.", "", time.Second},
		{"Please try again in 6m0s.", "", 6 * time.Minute},
		{"try again in 3 days 4 hours 5 minutes.", "", 76*time.Hour + 5*time.Minute},
		{"retry after 20.5 seconds", "", 20*time.Second + 500*time.Millisecond},
		{"Retry after 30", "", 30 * time.Second},
		{"Retry after 30.", "", 30 * time.Second},
		{"Too many requests (retry after 1.5)", "", 1500 * time.Millisecond},
		{"retry-after: 30", "", 30 * time.Second},
		{"Retry-After: 2m", "", 2 * time.Minute},
		{`{"error":"slow down","retry_after":30}`, "", 30 * time.Second},
		{"try again in 30 and no sooner", "", 30 * time.Second},
		{"retry after 99999999999999999999", "", maxWait},
		{"retry after 2030-03-17", "", 0},
		{"retry after 3/4 of them", "", 0},
		{"retry-after-ms: 500", "", 0},
		{"try again in 99999999999999 days", "", maxWait},
		{"try again later", "", 0},
		{"resets 25pm", "", 0},
	} {
		got := parseLimits(c.text, at, zone)
		reset := ""
		if got.resetAt != nil {
			reset = got.resetAt.Format(time.RFC3339)
		}
		if reset != c.reset || got.retryAfter != c.after {
			t.Errorf("parseLimits(%q) = %q, %v; want %q, %v", c.text, reset, got.retryAfter, c.reset, c.after)
		}
	}
	if got := headerLimits(map[string]string{"retry-after": "3600"}, at); got.retryAfter != time.Hour {
		t.Errorf("retry-after in seconds = %v", got.retryAfter)
	}
	if got := headerLimits(map[string]string{"retry-after": "Sun, 17 Mar 2030 17:46:40 GMT"}, at); got.resetAt == nil || got.resetAt.Unix() != 1900000000 {
		t.Errorf("retry-after as a date = %v", got.resetAt)
	}
}

func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"resets Mar 17, 2030, 5:46pm (UTC)", "try again in 6m0s", "limit reached|1900000000", "resets 5pm (../etc/passwd)"} {
		f.Add(s, int64(sampleTime))
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		l := parseLimits(text, frameTime(at), time.UTC)
		if l.retryAfter < 0 || l.retryAfter > maxWait {
			t.Errorf("parseLimits(%q) waits %v", text, l.retryAfter)
		}
		if l.resetAt != nil && (l.resetAt.Year() < 0 || l.resetAt.Year() > 9999) {
			t.Errorf("parseLimits(%q) resets in the year %d", text, l.resetAt.Year())
		}
		_, _ = classify(text, int(at%1000))
		_ = refusal(text, at%2 == 0)
	})
}

func TestAnswerThatBrokeOff(t *testing.T) {
	for stop, want := range map[string]fleet.FailureClass{
		`"stop_reason":"end_turn",`: fleet.ClassOK, ``: fleet.ClassOK, `"stop_reason":null,`: fleet.ClassProviderUnavailable,
	} {
		h, _ := Lookup("claude")
		p := h.Parser(ParseRequest{})
		p.Frame(fleet.Frame{Kind: fleet.FrameStdout, Payload: []byte(`{"type":"result","subtype":"success","is_error":false,` + stop + `"result":""}` + "\n")})
		if _, o := p.End(ExitInfo{Reason: "exited"}); o.Class != want {
			t.Errorf("a result with %q is %s (%s), want %s", stop, o.Class, o.Detail, want)
		}
	}
}

// TestEndWithoutAWord: the detail of an end is what people are told as its reason, in a circuit too. One that is
// empty, or ends at a colon, tells them nothing.
func TestEndWithoutAWord(t *testing.T) {
	for _, cli := range []string{"codex", "claude", "opencode"} {
		h, _ := Lookup(cli)
		_, o := h.Parser(ParseRequest{}).End(ExitInfo{Code: 127, Reason: "exited"})
		if o.Class != fleet.ClassHarnessStartup || o.Detail != "exit code 127, without a word" {
			t.Errorf("%s that says nothing: %s (%q)", cli, o.Class, o.Detail)
		}
	}
	p := claudeHarness.Parser(ParseRequest{})
	p.Frame(fleet.Frame{Kind: fleet.FrameStdout, Payload: []byte(`{"type":"system","subtype":"init","session_id":"5ee8835e-6c30-4706-b4c9-9a62b0402237"}` + "\n")})
	if _, o := p.End(ExitInfo{Code: 3, Reason: "exited"}); o.Class != fleet.ClassCrashed || o.Detail != "ended in mid-turn: exit code 3, without a word" {
		t.Errorf("in mid-turn: %s (%q)", o.Class, o.Detail)
	}
}
