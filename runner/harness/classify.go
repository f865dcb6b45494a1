package harness

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// statusBefore is what stands before a number that is an HTTP status and not any other.
const statusBefore = `\b(?:status|code|error|http|rejected)(?: code)?[^\w\n]{0,3}`

// The texts of failures, as the CLIs and their providers word them, in the order in which they are tried. Quota
// comes first: a refusal for lack of quota may come as a 403 or a 429 and must not pass for a wrong key or a
// rate limit that is over in a minute.
var failureTexts = []struct {
	class fleet.FailureClass
	re    func() *regexp.Regexp
}{
	{fleet.ClassQuotaExhausted, lazily(`(hit|reached|exceeded|exhausted) your [^.\n]{0,60}(limit|quota|credits)` +
		`|(usage|session|weekly|monthly|5-hour|five-hour|opus|spending|credit) limit[^.\n]{0,20}(reached|exceeded|hit)` +
		`|usage limit|usage_limit|quota exceeded|exceeded your (current )?quota|insufficient[_ ]quota|quota[_ ]exhausted` +
		`|upgrade to (plus|pro|max|team|business|enterprise|ultra|an? (higher|paid|bigger))|upgrade your (plan|account|subscription)|credit balance is too low|billing_error|billing hard limit|insufficient (credits|balance|funds)` +
		`|out of credits|payment required`)},
	{fleet.ClassModelUnavailable, lazily(`model[^\n]{0,120}(does not exist|do not have access|don't have access` +
		`|is not supported|not available|isn't available|not found|not_found)|issue with the selected model` +
		`|unknown model|invalid model|no such model|model_not_found|providermodelnotfound`)},
	{fleet.ClassRateLimited, lazily(`rate[ _-]?limit|too many requests|` + statusBefore + `429\b|tokens per min|requests per min`)},
	{fleet.ClassAuth, lazily(statusBefore + `40[13]\b|unauthorized|forbidden|invalid[ _]api[ _]key|incorrect api key|api key (is )?(missing|invalid|not)` +
		`|missing (api key|environment variable)|not logged in|/login|authentication[ _](failed|error)|failed to authenticate` +
		`|token (has )?expired|permission_error|sign in again|log in again|oauth_org_not_allowed`)},
	{fleet.ClassTaskFailed, lazily(`ran out of room|prompt is too long|context window|context length|contextoverflow|maximum context`)},
	{fleet.ClassProviderUnavailable, lazily(`at capacity|overloaded|` + statusBefore + `5\d\d\b|server[ _]error|unavailable|bad gateway|stream disconnected` +
		`|connection (refused|reset|closed|error|lost)|error sending request|fetch failed|timed? ?out|econn\w+|enotfound` +
		`|unable to connect|network error|\bdns\b|socket hang up`)},
}

// classify tells what a provider's or CLI's own words about a failure mean, "" if nothing known. A status of 0 is
// none. It is for texts of errors: the agent's own messages go through refusal.
func classify(text string, status int) (class fleet.FailureClass, known bool) {
	low := fold(text)
	for _, f := range failureTexts {
		if f.re().MatchString(low) {
			// A plain text of another class says less than a status that came with it.
			if c := statusClass(status); c != "" && f.class != fleet.ClassQuotaExhausted && f.class != fleet.ClassModelUnavailable && f.class != fleet.ClassTaskFailed {
				return c, true
			}
			return f.class, true
		}
	}
	c := statusClass(status)
	return c, c != ""
}

// statusClass tells what an HTTP status of a model's provider means by itself, "" if nothing certain.
func statusClass(status int) fleet.FailureClass {
	switch {
	case status == 402:
		return fleet.ClassQuotaExhausted
	case status == 429:
		return fleet.ClassRateLimited
	case status == 401, status == 403:
		return fleet.ClassAuth
	case status == 404:
		return fleet.ClassModelUnavailable
	case status == 408, status >= 500:
		return fleet.ClassProviderUnavailable
	}
	return ""
}

func fold(text string) string {
	return strings.ToLower(strings.NewReplacer("’", "'", "‘", "'").Replace(text))
}

const maxRefusal = 600 // bytes; an agent's report on work about limits is longer or begins otherwise

var (
	refusalStart = lazily(`^\W*(you('ve| have)? (hit|reached|exceeded|used up|run out of) your [^.\n]{0,60}(limit|quota|credits)` +
		`|(\w+ (ai )?)?(usage|session|weekly|monthly) limit (was |has been |is )?(reached|exceeded|hit)|quota exceeded|you exceeded your current quota` +
		`|credit balance is too low|upgrade your plan)`)
	refusalWords = lazily(`(usage|session|weekly|plan) limit|quota|hit your limit`)
	refusalMend  = lazily(`upgrade (to|your)|try again|resets?( at)? |purchase more`)
)

// refusal says whether the last message of a run that ended well is in truth the provider's refusal: some CLIs
// print it as an answer and exit with 0. An agent may also speak of limits because its task was about them, so the
// words must open the message, or name a limit and its mend where no tool was ever used.
func refusal(text string, acted bool) bool {
	low := strings.TrimSpace(fold(text))
	if low == "" || len(low) > maxRefusal {
		return false
	}
	return refusalStart().MatchString(low) || !acted && refusalWords().MatchString(low) && refusalMend().MatchString(low)
}

// limits is what a failure says about its own end.
type limits struct {
	resetAt    *time.Time
	retryAfter time.Duration
	words      string // in which it was said, also where nothing could be read in them
}

// maxStated bounds the words of a stated end, in bytes.
const maxStated = 200

// put writes the limits into an outcome, where its class has any use for them. A wait that ends a quota is also
// told as a time, if it is known when it was stated.
func (l limits) put(o *fleet.Outcome, at time.Time) {
	switch o.Class {
	case fleet.ClassRateLimited, fleet.ClassQuotaExhausted, fleet.ClassProviderUnavailable:
	default:
		return
	}
	o.RetryAfterMS, o.StatedEnd = l.retryAfter.Milliseconds(), fleet.CutText(l.words, maxStated)
	o.ResetAt = l.resetAt
	// A burst is over soon unless a later end can be read: "please try again later" is none, and must not have the
	// hub wait as long as for a window whose end it cannot tell.
	if o.Class == fleet.ClassRateLimited && o.ResetAt == nil && l.retryAfter == 0 {
		o.StatedEnd = ""
	}
	if o.ResetAt == nil && l.retryAfter > 0 && o.Class == fleet.ClassQuotaExhausted && !at.IsZero() {
		t := at.Add(l.retryAfter).UTC()
		o.ResetAt = &t
	}
}

// ended gives the outcome of a run whose stream did not tell its end.
func (s *stream) ended(x ExitInfo, started bool, interruptCode int) fleet.Outcome {
	o := fleet.Outcome{}
	stderr := s.stderrText(x)
	stopped := x.Signal == "INT" || x.Signal == "TERM" || x.Code == 130 || x.Code == 143
	waited := s.wait.class
	switch {
	case x.Reason == "stopped":
		o.Class, o.Detail = fleet.ClassCancelled, "stopped"
	case x.Reason == "start_failed":
		o.Class, o.Detail = fleet.ClassHarnessStartup, stderr
	case x.Reason == exitLost:
		o.Class, o.Detail = fleet.ClassCrashed, "how it ended is not known"
	case strings.Contains(x.Reason, "timeout"):
		o.Class, o.Detail = timedOut(x.Reason), x.Reason
		if waited != "" {
			o.Class, o.Detail = waited, x.Reason+" while "+s.wait.reason
			s.wait.resets.put(&o, s.wait.since)
		}
	case stopped:
		o.Class, o.Detail = fleet.ClassCancelled, "ended by a signal that asks to stop, before its stream told an end"
	case waited != "":
		o.Class, o.Detail = waited, "ended while "+s.wait.reason
		s.wait.resets.put(&o, s.wait.since)
	case x.Signal != "" || x.Code == 137:
		o.Class, o.Detail = fleet.ClassCrashed, "killed by signal "+x.Signal
		if x.Signal == "" {
			o.Detail = "killed"
		}
	case s.plain != "":
		o.Class, o.Detail = fleet.ClassQuotaExhausted, s.plain
		parseLimits(s.plain, s.at, s.req.Zone).put(&o, s.at)
	case started && x.Code == interruptCode && interruptCode != 0:
		o.Class, o.Detail = fleet.ClassCancelled, "ended in mid-turn without a word, as it does when it is interrupted"
	case started:
		o.Class, o.Detail = fleet.ClassCrashed, "ended in mid-turn: "+lastWords(x, stderr)
	case x.Code != 0:
		o.Class, o.Detail = fleet.ClassHarnessStartup, lastWords(x, stderr)
		// Of what a CLI may say before it gives up, only this is told apart with certainty.
		switch c, _ := classify(stderr, 0); c {
		case fleet.ClassQuotaExhausted, fleet.ClassModelUnavailable, fleet.ClassAuth:
			o.Class = c
			parseLimits(stderr, s.at, s.req.Zone).put(&o, s.at)
		}
	default:
		o.Class, o.Detail = fleet.ClassUnknown, "ended with exit code 0 and without a word"
	}
	return o
}

// lastWords gives what a CLI said last, or that it said nothing: somebody is told it as the reason.
func lastWords(x ExitInfo, stderr string) string {
	return cmp.Or(lastLines(stderr), fmt.Sprintf("exit code %d, without a word", x.Code))
}

// timedOut tells an end by the clock: nothing was heard for too long, or the time was up.
func timedOut(reason string) fleet.FailureClass {
	if reason == "idle_timeout" || reason == "first_response_timeout" {
		return fleet.ClassStalled
	}
	return fleet.ClassTimeout
}

// noise is what CLIs say on standard error whether all is well or not.
var noise = lazily(`^Reading additional input from stdin\.\.\.$|^WARNING: proceeding, even though we could not create PATH aliases` +
	`|^opencode server listening on `)

// lastLines gives the end of a text in one line.
func lastLines(text string) string {
	var lines []string
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		if !noise().MatchString(l) {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines[max(0, len(lines)-4):], "; ")
}
