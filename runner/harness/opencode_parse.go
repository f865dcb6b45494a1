package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// opencodeDecoder reads the lines of Drive and, the same things in other wrapping, those of
// `opencode run --format json`. The latter has no last line: it ends when its output does. Usage stands in every
// step and is summed up.
type opencodeDecoder struct {
	seen   bool // a line of its own
	steps  int
	finish string // reason of the last step's end
	texts  map[string]bool
	err    *opencodeError
	ended  string // Drive's last word
	detail string
	next   int64  // when opencode would have tried again, ms
	logged string // the last failed try on standard error
}

// The last words of Drive.
const (
	driveIdle      = "idle"      // the turn is over
	driveAborted   = "aborted"   // asked to stop
	driveQuota     = "quota"     // the provider refuses for lack of quota; opencode would have gone on trying
	driveFar       = "far_retry" // the next try is too far off to wait for
	driveStartup   = "startup"   // server or session could not be had
	driveGone      = "session_gone"
	driveDied      = "server_died"
	driveMalformed = "protocol" // the server answers otherwise than known
)

type opencodeLine struct {
	Driver    string         `json:"driver,omitempty"`
	Event     string         `json:"event,omitempty"` // of Drive's lines
	Type      string         `json:"type,omitempty"`  // of the lines of run
	SessionID string         `json:"sessionID,omitempty"`
	Timestamp int64          `json:"timestamp,omitempty"` // ms
	Part      *opencodePart  `json:"part,omitempty"`
	Error     *opencodeError `json:"error,omitempty"`

	// Of Drive's lines only.
	Model   string `json:"model,omitempty"`
	Field   string `json:"field,omitempty"` // of a delta: text or reasoning
	Delta   string `json:"delta,omitempty"`
	PartID  string `json:"part_id,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Message string `json:"message,omitempty"`
	Next    int64  `json:"next,omitempty"` // when opencode tries again, ms
	Reason  string `json:"reason,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

type opencodePart struct {
	ID        string         `json:"id,omitempty"`
	MessageID string         `json:"messageID,omitempty"`
	Type      string         `json:"type"`
	Text      string         `json:"text,omitempty"`
	Synthetic bool           `json:"synthetic,omitempty"`
	Tool      string         `json:"tool,omitempty"`
	CallID    string         `json:"callID,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Tokens    opencodeTokens `json:"tokens,omitzero"`
	Cost      float64        `json:"cost,omitempty"`
	State     *opencodeState `json:"state,omitempty"`
	Time      *opencodeTime  `json:"time,omitempty"`
}

type opencodeTokens struct {
	Total     int64 `json:"total"`
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning"`
	Cache     struct {
		Read  int64 `json:"read"`
		Write int64 `json:"write"`
	} `json:"cache"`
}

type opencodeTime struct {
	End int64 `json:"end,omitempty"`
}

type opencodeError struct {
	Name string            `json:"name"`
	Data opencodeErrorData `json:"data"`
}

type opencodeErrorData struct {
	Message string            `json:"message,omitempty"`
	Status  int               `json:"statusCode,omitempty"`
	Headers map[string]string `json:"responseHeaders,omitempty"`
	Body    string            `json:"responseBody,omitempty"`
}

func (d *opencodeDecoder) line(s *stream, l []byte) {
	var c opencodeLine
	if json.Unmarshal(l, &c) != nil {
		s.unknown(l)
		return
	}
	if s.at.IsZero() {
		s.at = frameTime(c.Timestamp)
	}
	kind := c.Type
	if c.Driver == "opencode" {
		kind = c.Event
	}
	d.seen = d.seen || kind != ""
	if s.session == "" && opencodeSession().MatchString(c.SessionID) {
		s.session = c.SessionID
	}
	switch kind {
	case "step_start", "text", "reasoning", "tool_use", "step_finish", "part":
		if c.Part == nil || !d.part(s, c.Part, c.Driver != "") {
			s.unknown(l)
		}
	case "error":
		if c.Error == nil {
			s.unknown(l)
			return
		}
		d.fail(s, c.Error)
	case "delta":
		p := fleet.Event{Type: fleet.EventAgentMessage, ID: c.PartID, Text: c.Delta}
		if c.Field == "reasoning" {
			p.Type = fleet.EventReasoning
		}
		s.progress()
		s.partial(p)
	case "model":
		s.model = fleet.CutText(c.Model, fleet.MaxEventWord)
	case "retry":
		d.retry(s, c)
	case "session":
		// The session id is taken above.
	case "progress":
		s.progress()
	case "note":
		s.log("warn", c.Detail)
	case "end":
		d.ended, d.detail, d.next = c.Reason, c.Detail, c.Next
		if c.Reason != driveIdle && c.Reason != driveAborted {
			s.fail(c.Detail)
		}
	default:
		s.unknown(l)
	}
}

func (d *opencodeDecoder) retry(s *stream, c opencodeLine) {
	class, ok := classify(c.Message, 0)
	if !ok {
		class = fleet.ClassProviderUnavailable
	}
	r := limits{}
	if t := millis(c.Next); t != nil && (s.at.IsZero() || t.Sub(s.at) >= 30*time.Second) {
		r.resetAt, r.words = t, "the next try is at "+t.Format(time.RFC3339)
	}
	s.waiting(class, fmt.Sprintf("retry %d", c.Attempt), r)
	s.log("warn", fmt.Sprintf("retry %d: %s", c.Attempt, c.Message))
}

// part tells one part of a message; driven says that it may come more than once, on its way to its end.
func (d *opencodeDecoder) part(s *stream, p *opencodePart, driven bool) bool {
	e := fleet.Event{ID: p.ID, Turn: p.MessageID}
	switch p.Type {
	case "step-start":
		s.progress()
	case "text", "reasoning":
		s.progress()
		if driven && (p.Time == nil || p.Time.End == 0) || d.texts[p.ID] {
			return true
		}
		if len(d.texts) > 10000 || d.texts == nil {
			d.texts = map[string]bool{}
		}
		if p.ID != "" {
			d.texts[fleet.CutText(p.ID, fleet.MaxEventWord)] = true
		}
		e.Text = p.Text
		switch {
		case p.Synthetic:
			e.Type, e.Level = fleet.EventLog, "info"
			s.add(e)
		case p.Type == "reasoning":
			e.Type, e.Status = fleet.EventReasoning, fleet.StatusCompleted
			s.add(e)
		default:
			s.say(e)
		}
	case "tool":
		s.progress()
		d.tool(s, p)
	case "step-finish":
		s.progress()
		d.steps++
		d.finish = p.Reason
		t := p.Tokens
		u := fleet.Usage{InputTokens: t.Input + t.Cache.Read + t.Cache.Write, CachedInputTokens: t.Cache.Read,
			OutputTokens: t.Output, ReasoningTokens: t.Reasoning, CostUSD: p.Cost}
		// Some versions count reasoning beside the output, as their total shows.
		if t.Total >= u.InputTokens+t.Output+t.Reasoning {
			u.OutputTokens += t.Reasoning
		}
		s.spend(u)
	case "patch", "snapshot", "file", "agent", "compaction", "subtask", "retry":
		// Bookkeeping of opencode's own.
	default:
		return false
	}
	return true
}

func (d *opencodeDecoder) fail(s *stream, e *opencodeError) {
	s.progress()
	if e.Name == "MessageAbortedError" {
		if d.err == nil {
			s.log("info", "the message was aborted")
			d.err = e
		}
		return
	}
	d.err = e
	text := e.Data.Message
	if text == "" {
		text = e.Name
	}
	s.fail(text)
}

var opencodeLogError = lazily(`level=ERROR .*error\.error="((?:[^"\\]|\\.)*)"`)

// errLine reads opencode's log, where it is printed: it tells failed tries that its stream does not.
func (d *opencodeDecoder) errLine(s *stream, l string) {
	m := opencodeLogError().FindStringSubmatch(l)
	if m == nil || d.ended != "" {
		return
	}
	d.logged = m[1]
	class, ok := classify(m[1], 0)
	if !ok {
		class = fleet.ClassProviderUnavailable
	}
	s.waiting(class, "", parseLimits(m[1], s.at, s.req.Zone))
}

func (d *opencodeDecoder) end(s *stream, x ExitInfo) fleet.Outcome {
	o := fleet.Outcome{Detail: d.detail, Terminal: true}
	switch d.ended {
	case driveQuota, driveFar:
		o.Class = fleet.ClassQuotaExhausted
		r := parseLimits(d.detail, s.at, s.req.Zone)
		if t := millis(d.next); t != nil {
			r.resetAt, r.retryAfter = t, 0
			if r.words == "" {
				r.words = "the next try is at " + t.Format(time.RFC3339)
			}
		}
		r.put(&o, s.at)
		return o
	case driveAborted:
		o.Class, o.Detail = fleet.ClassCancelled, "stopped"
		if strings.Contains(x.Reason, "timeout") {
			o.Class, o.Detail = timedOut(x.Reason), x.Reason
			if s.wait.class != "" {
				o.Class, o.Detail = s.wait.class, x.Reason+" while "+s.wait.reason
				s.wait.resets.put(&o, s.wait.since)
			}
		}
		return o
	case driveGone:
		o.Class = fleet.ClassHarnessStartup
		return o
	case driveStartup, driveMalformed:
		o.Class = fleet.ClassHarnessStartup
		if c, ok := classify(d.detail, 0); ok && (c == fleet.ClassModelUnavailable || c == fleet.ClassAuth) {
			o.Class = c
		}
		return o
	case driveDied:
		o.Class = fleet.ClassCrashed
		return o
	}
	over := d.ended == driveIdle || x.Reason == "exited" && x.Signal == "" && x.Code == 0
	switch {
	case d.err != nil && d.err.Name == "MessageAbortedError":
		o.Class, o.Detail = fleet.ClassCancelled, "aborted"
		return o
	case d.err != nil && (over || d.finish != "stop" || x.Code != 0):
		return d.failure(s)
	case over && d.steps > 0 && d.finish == "tool-calls":
		// The turn was to go on after these tools. It does not where a permission was refused.
		o.Class, o.Detail = fleet.ClassTaskFailed, "the run ended after a tool whose permission was refused"
		return o
	case over && d.steps > 0:
		return s.ok(s.answer)
	}
	return s.ended(x, d.seen, 0)
}

// failure tells what the error that ended the run means.
func (d *opencodeDecoder) failure(s *stream) fleet.Outcome {
	e := d.err
	text := e.Data.Message
	o := fleet.Outcome{Class: fleet.ClassUnknown, Detail: strings.TrimSpace(e.Name + ": " + text), Terminal: true}
	switch {
	case e.Name == "ContextOverflowError", e.Name == "MessageOutputLengthError", e.Name == "StructuredOutputError":
		o.Class = fleet.ClassTaskFailed
	case e.Name == "ProviderAuthError":
		o.Class = fleet.ClassAuth
	case e.Name == "ProviderModelNotFoundError", e.Name == "UnknownError" && d.steps == 0 && strings.HasPrefix(text, "Unexpected server error"):
		// So it says when provider or model are not in its settings.
		o.Class = fleet.ClassModelUnavailable
	default:
		if c, ok := classify(text+"\n"+e.Data.Body, e.Data.Status); ok {
			o.Class = c
		}
	}
	r := headerLimits(lowerKeys(e.Data.Headers), s.at)
	if r == (limits{}) {
		r = parseLimits(text, s.at, s.req.Zone)
	}
	r.put(&o, s.at)
	return o
}

func lowerKeys(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out[strings.ToLower(k)] = m[k]
	}
	return out
}
