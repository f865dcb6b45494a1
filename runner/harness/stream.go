package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	maxStderrEvents = 500     // lines of standard error told as events; the whole is in the output
	stderrTail      = 8 << 10 // bytes of standard error kept for the classification of a failed start
	maxOpenItems    = 200     // items begun and not ended that are remembered
)

// decoder is what differs between the CLIs: it reads lines and tells its stream what they mean.
type decoder interface {
	line(s *stream, l []byte)                // one non-empty line of standard output
	errLine(s *stream, l string)             // one line of standard error, told as an event already
	end(s *stream, x ExitInfo) fleet.Outcome // after the last line
}

// stream is what all parsers share: lines, times, the record of open items, and the wait on a provider.
type stream struct {
	req ParseRequest
	dec decoder

	out, err  lineBuffer
	at        time.Time // of the frame in hand
	events    []fleet.Event
	live      []fleet.Event
	tail      []byte
	errEvents int

	wait wait

	open  map[string]fleet.Event // items begun and not ended
	order []string               // their ids, oldest first

	session    string
	model      string
	usage      fleet.Usage
	acted      bool   // a tool was used, or may have been
	responded  bool   // the provider has completed a response
	dockerless bool   // the last command that failed says that there is no Docker
	answer     string // the last message of the agent, cut
	lastError  string // the last error event's text
	plain      string // the first line of standard output that was not JSON and reads like a provider's refusal
}

// wait is the state of a CLI that tries its provider again by itself.
type wait struct {
	class  fleet.FailureClass
	reason string
	since  time.Time
	resets limits
}

func newStream(r ParseRequest, d decoder) *stream {
	return &stream{req: r, dec: d, open: map[string]fleet.Event{}}
}

func (s *stream) Frame(f fleet.Frame) (events, live []fleet.Event) {
	s.at = frameTime(f.At)
	switch f.Kind {
	case fleet.FrameStdout:
		s.out.feed(f.Payload, s.outLine)
	case fleet.FrameStderr:
		s.err.feed(f.Payload, s.errLine)
	case fleet.FrameMark:
		// Bytes are missing from here on: the unfinished lines can't be completed.
		s.out.drop()
		s.err.drop()
		s.acted = true // what is missing may have told of a tool
		if m, err := f.Mark(); err == nil {
			s.log("warn", fmt.Sprintf("%d bytes of output are missing up to here (%s)", m.DroppedBytes, fleet.CutText(m.Reason, 200)))
		}
	}
	return s.take()
}

func (s *stream) take() (events, live []fleet.Event) {
	events, live = s.events, s.live
	s.events, s.live = nil, nil
	return events, live
}

// frameTime gives the time of a frame, or none where no such year can be written down.
func frameTime(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if ms <= 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func (s *stream) outLine(l []byte, total int64) {
	if total > maxLine {
		s.log("warn", fmt.Sprintf("a line of %d bytes is passed over; it begins: %s", total, head(l)))
		return
	}
	if l = bytes.TrimSpace(l); len(l) > 0 {
		s.dec.line(s, l)
	}
}

func head(l []byte) string {
	return strings.ToValidUTF8(string(l[:min(len(l), overlongHead)]), "\uFFFD")
}

func (s *stream) errLine(l []byte, _ int64) {
	text := strings.TrimSpace(stripANSI(strings.ToValidUTF8(string(l[:min(len(l), 16<<10)]), "\uFFFD")))
	if text == "" || noise().MatchString(text) {
		return
	}
	s.tail = append(append(s.tail, text...), '\n')
	if len(s.tail) > 2*stderrTail {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-stderrTail:]...)
	}
	switch s.errEvents++; {
	case s.errEvents < maxStderrEvents:
		s.log(stderrLevel(text), fleet.CutText(text, 4<<10))
	case s.errEvents == maxStderrEvents:
		s.log("info", "further lines of standard error are in the output only")
	}
	s.dec.errLine(s, text)
}

func stderrLevel(text string) string {
	low := strings.ToLower(text[:min(len(text), 200)])
	switch {
	case strings.Contains(low, "error"):
		return "error"
	case strings.Contains(low, "warn"):
		return "warn"
	}
	return "info"
}

// stderrText gives the end of standard error.
func (s *stream) stderrText(x ExitInfo) string {
	t := s.tail
	if len(t) == 0 {
		t = []byte(stripANSI(strings.ToValidUTF8(x.StderrTail, "\uFFFD")))
	}
	return strings.TrimSpace(string(t[max(0, len(t)-stderrTail):]))
}

// add records an event, bounded and with the time of the frame.
func (s *stream) add(e fleet.Event) {
	if e.At.IsZero() {
		e.At = s.at
	}
	e.Bound()
	if e.Type == fleet.EventCommandExecution && e.Status != fleet.StatusInProgress {
		s.dockerless = failed(e) && noDocker(e.Output+"\n"+e.Text)
	}
	s.events = append(s.events, e)
}

// partial tells a piece of a message that is still being written.
func (s *stream) partial(e fleet.Event) {
	e.At, e.Status = s.at, fleet.StatusInProgress
	e.Bound()
	s.live = append(s.live, e)
}

func (s *stream) log(level, text string) {
	s.add(fleet.Event{Type: fleet.EventLog, Level: level, Text: text})
}

// unknown keeps a line that says nothing to the parser.
func (s *stream) unknown(l []byte) {
	if json.Valid(l) {
		s.add(fleet.Event{Type: fleet.EventLog, Level: "info", Raw: bytes.Clone(l)})
		return
	}
	text := strings.ToValidUTF8(string(l), "\uFFFD")
	if c, _ := classify(text, 0); c == fleet.ClassQuotaExhausted && s.plain == "" {
		s.plain = fleet.CutText(text, 2<<10)
	}
	s.log("info", text)
}

// fail records an error, once where a CLI says it twice.
func (s *stream) fail(text string) {
	if text = strings.TrimSpace(text); text != s.lastError || text == "" {
		s.add(fleet.Event{Type: fleet.EventError, Text: text})
	}
	s.lastError = text
}

// say records a finished message of the agent.
func (s *stream) say(e fleet.Event) {
	e.Type, e.Status = fleet.EventAgentMessage, fleet.StatusCompleted
	if strings.TrimSpace(e.Text) != "" {
		s.answer = fleet.CutText(e.Text, 4<<10)
		// Some CLIs word a provider's refusal as a message of the agent's.
		s.responded = s.responded || !refusal(e.Text, s.acted) && statusIn(e.Text) == 0
	}
	s.add(e)
}

// begin records an item that takes time, until done with the same id.
func (s *stream) begin(e fleet.Event) {
	e.Status = fleet.StatusInProgress
	s.acted, s.responded = true, true
	e.Bound()
	if _, ok := s.open[e.ID]; !ok {
		if len(s.order) >= maxOpenItems {
			delete(s.open, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, e.ID)
	}
	s.open[e.ID] = e
	s.add(e)
}

// done records the end of an item; begun says what it was, if its begin was seen.
func (s *stream) done(id string) (begun fleet.Event, ok bool) {
	s.acted, s.responded = true, true
	id = fleet.CutText(id, fleet.MaxEventWord)
	begun, ok = s.open[id]
	if !ok {
		return begun, false
	}
	delete(s.open, id)
	for i, o := range s.order {
		if o == id {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	begun.At = time.Time{}
	return begun, true
}

// spend records the usage of the run so far.
func (s *stream) spend(u fleet.Usage) {
	s.usage = s.usage.Add(u)
	s.responded = s.responded || u.OutputTokens > 0
	s.add(fleet.Event{Type: fleet.EventUsage, Usage: &u})
}

// waiting notes that the CLI is going to try its provider again by itself.
func (s *stream) waiting(c fleet.FailureClass, retry string, r limits) {
	if s.wait.class == "" {
		s.wait.since = s.at
	}
	s.wait.class, s.wait.resets = c, r
	s.wait.reason = fleet.WaitingOnProvider + ": " + waitWord(c)
	if retry != "" {
		s.wait.reason += ", " + retry
	}
	if r.resetAt != nil {
		s.wait.reason += ", until " + r.resetAt.UTC().Format(time.RFC3339)
	}
}

// progress ends a wait: the provider has answered.
func (s *stream) progress() { s.wait = wait{} }

func (s *stream) Status() (string, time.Time) { return s.wait.reason, s.wait.since }

func (s *stream) Session() (id, model string) { return s.session, s.model }

func (s *stream) Responded() bool { return s.responded }

func waitWord(c fleet.FailureClass) string {
	switch c {
	case fleet.ClassRateLimited:
		return "rate limit"
	case fleet.ClassQuotaExhausted:
		return "quota exhausted"
	case fleet.ClassAuth:
		return "sign-in refused"
	case fleet.ClassModelUnavailable:
		return "model unavailable"
	}
	return "no answer"
}

// sessionGone is how the CLIs say that they do not know the session which they are to take up.
var sessionGone = lazily(`(?i)no conversation found|no rollout found|session \S+ does not exist here`)

// End closes the lines and open items, asks the decoder for the outcome and completes it.
func (s *stream) End(x ExitInfo) ([]fleet.Event, fleet.Outcome) {
	x = x.normal()
	s.out.flush(s.outLine)
	s.err.flush(s.errLine)
	for _, id := range s.order {
		e := s.open[id]
		e.At, e.Status, e.Text = time.Time{}, fleet.StatusFailed, "not over when the run ended"
		s.add(e)
	}
	s.order, s.open = nil, map[string]fleet.Event{}
	o := s.dec.end(s, x)
	if s.req.ResumeID != "" && s.session != "" && !strings.EqualFold(s.session, s.req.ResumeID) {
		text := fmt.Sprintf("asked to resume session %s, but the CLI began a new one, %s", s.req.ResumeID, s.session)
		s.fail(text)
		o.Class, o.Detail = fleet.ClassHarnessStartup, text
	}
	if s.req.ResumeID != "" && o.Class == fleet.ClassHarnessStartup && sessionGone().MatchString(o.Detail) {
		o.Detail = "the agent's session is gone from this machine; ask for the follow-up with --fresh, which begins a new one: " + o.Detail
	}
	s.blameDocker(&o, x)
	s.responded = s.responded || o.Class == fleet.ClassOK
	o.Type, o.SessionID, o.Model, o.Usage, o.Acted = "outcome", s.session, s.model, s.usage, s.acted
	o.Detail = fleet.CutText(strings.TrimSpace(o.Detail), fleet.MaxDetail)
	events, _ := s.take()
	return events, o
}

// normal gives the exit with signal and code told apart: recorders write a signal as -N, shells as 128+N.
func (x ExitInfo) normal() ExitInfo {
	x.Signal = strings.TrimPrefix(strings.ToUpper(x.Signal), "SIG")
	if x.Signal == "" && (x.Code < -1 || x.Code == -1 && x.Reason == "") {
		x.Signal, x.Code = signalWord(-x.Code), -1
	}
	if x.Reason == "" {
		x.Reason = "exited"
	}
	return x
}

func signalWord(n int) string {
	switch n {
	case 1:
		return "HUP"
	case 2:
		return "INT"
	case 9:
		return "KILL"
	case 15:
		return "TERM"
	}
	return strconv.Itoa(n)
}

// stripANSI takes colour sequences out of a line.
func stripANSI(s string) string {
	if !strings.Contains(s, "\x1b[") {
		return s
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		i := strings.IndexFunc(after, func(r rune) bool { return r >= '@' && r <= '~' })
		if i < 0 {
			return b.String()
		}
		s = after[i+1:]
	}
}
