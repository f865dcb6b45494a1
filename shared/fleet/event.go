package fleet

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// EventType is the closed vocabulary in which every agent CLI's stream is told.
type EventType string

// The event types. A line that no parser understands is kept as a log event.
const (
	EventAgentMessage     EventType = "agent_message"
	EventReasoning        EventType = "reasoning"
	EventCommandExecution EventType = "command_execution"
	EventFileChange       EventType = "file_change"
	EventMCPToolCall      EventType = "mcp_tool_call"
	EventDynamicToolCall  EventType = "dynamic_tool_call" // any other tool: read, search in files, sub-agent …
	EventWebSearch        EventType = "web_search"
	EventTodo             EventType = "todo"
	EventUsage            EventType = "usage"
	EventError            EventType = "error"
	EventLog              EventType = "log"
)

// ItemStatus says how far an item has come. A long item appears twice under the
// same id: in progress, then completed or failed.
type ItemStatus string

// The statuses of an item.
const (
	StatusInProgress ItemStatus = "in_progress"
	StatusCompleted  ItemStatus = "completed"
	StatusFailed     ItemStatus = "failed"
)

// Bounds of one event. Bound applies them; what is cut carries a mark that says so.
const (
	MaxEventText    = 64 << 10 // bytes of Text
	MaxEventOutput  = 16 << 10 // bytes of Output, head and tail kept
	MaxEventCommand = 16 << 10 // bytes of Command
	MaxEventRaw     = 16 << 10 // bytes each of Arguments, Result and Raw
	MaxEventPath    = 4 << 10  // bytes of a path
	MaxEventItems   = 200      // changes or todo items
	MaxEventWord    = 1 << 10  // bytes of ids, names, queries and todo texts
	MaxDetail       = 500      // bytes of an outcome's detail
)

// Event is one finished thing that an agent did or said, or the start of a long
// one. Partial text never becomes an event of record.
type Event struct {
	Type      EventType       `json:"type"`
	ID        string          `json:"id,omitempty"`     // of the item, as the CLI names it
	Turn      string          `json:"turn,omitempty"`   // of the CLI's turn, message or sub-agent
	Status    ItemStatus      `json:"status,omitempty"` // of items that take time
	At        time.Time       `json:"at,omitzero"`      // UTC, milliseconds
	Level     string          `json:"level,omitempty"`  // of log events: info, warn, error
	Text      string          `json:"text,omitempty"`
	Command   string          `json:"command,omitempty"`
	ExitCode  *int            `json:"exit_code,omitempty"`
	Output    string          `json:"output,omitempty"`
	Changes   []FileChange    `json:"changes,omitempty"`
	Server    string          `json:"server,omitempty"` // of an MCP tool
	Tool      string          `json:"tool,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Query     string          `json:"query,omitempty"`
	Items     []TodoItem      `json:"items,omitempty"`
	Usage     *Usage          `json:"usage,omitempty"`
	Raw       json.RawMessage `json:"raw,omitempty"` // the line itself, where nothing better is known
}

// FileChange is one file that an agent changed.
type FileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // add, update, delete
}

// TodoItem is one line of an agent's own plan.
type TodoItem struct {
	Text      string `json:"text"`
	Completed bool   `json:"completed,omitempty"`
	Status    string `json:"status,omitempty"` // as the CLI words it
}

// Usage counts the tokens of one run. InputTokens includes those read from or
// written to a cache; OutputTokens includes those of reasoning.
type Usage struct {
	InputTokens       int64   `json:"input_tokens"`
	CachedInputTokens int64   `json:"cached_input_tokens,omitempty"`
	OutputTokens      int64   `json:"output_tokens"`
	ReasoningTokens   int64   `json:"reasoning_tokens,omitempty"`
	CostUSD           float64 `json:"cost_usd,omitempty"` // as the CLI estimates it; 0 is unknown
}

// IsZero says whether nothing was counted.
func (u Usage) IsZero() bool { return u == Usage{} }

// Add gives the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:       u.InputTokens + v.InputTokens,
		CachedInputTokens: u.CachedInputTokens + v.CachedInputTokens,
		OutputTokens:      u.OutputTokens + v.OutputTokens,
		ReasoningTokens:   u.ReasoningTokens + v.ReasoningTokens,
		CostUSD:           u.CostUSD + v.CostUSD,
	}
}

// Sub gives what a total u has beyond an earlier total v, and u itself where v
// can't be an earlier one: a total that went back was counted anew.
func (u Usage) Sub(v Usage) Usage {
	if v.InputTokens > u.InputTokens || v.OutputTokens > u.OutputTokens {
		return u
	}
	return Usage{
		InputTokens:       u.InputTokens - v.InputTokens,
		CachedInputTokens: max(0, u.CachedInputTokens-v.CachedInputTokens),
		OutputTokens:      u.OutputTokens - v.OutputTokens,
		ReasoningTokens:   max(0, u.ReasoningTokens-v.ReasoningTokens),
		CostUSD:           max(0, u.CostUSD-v.CostUSD),
	}
}

// FailureClass says how a run ended, so far as it matters to who is asked next.
type FailureClass string

// The classes. Rate limits pass within minutes; a quota comes back at a stated
// time or when somebody pays.
const (
	ClassOK                  FailureClass = "ok"
	ClassTaskFailed          FailureClass = "task_failed" // the work itself, not its surroundings
	ClassRateLimited         FailureClass = "rate_limited"
	ClassQuotaExhausted      FailureClass = "quota_exhausted"
	ClassAuth                FailureClass = "auth"
	ClassModelUnavailable    FailureClass = "model_unavailable"
	ClassProviderUnavailable FailureClass = "provider_unavailable"
	ClassHarnessStartup      FailureClass = "harness_startup" // the CLI refused to begin
	ClassCancelled           FailureClass = "cancelled"
	ClassTimeout             FailureClass = "timeout"
	ClassStalled             FailureClass = "stalled"            // nothing was heard of it for too long, or never
	ClassDocker              FailureClass = "docker_unavailable" // it needs Docker, and there was none
	ClassCrashed             FailureClass = "crashed"            // ended by a signal nobody of us sent, or in mid-turn
	ClassUnknown             FailureClass = "unknown"
)

// Classes lists every class.
func Classes() []FailureClass {
	return []FailureClass{ClassOK, ClassTaskFailed, ClassRateLimited, ClassQuotaExhausted, ClassAuth, ClassModelUnavailable,
		ClassProviderUnavailable, ClassHarnessStartup, ClassCancelled, ClassTimeout, ClassStalled, ClassDocker, ClassCrashed, ClassUnknown}
}

// Provider says whether the class blames the model's provider or the account,
// not the task: another account, model or time may do better.
func (c FailureClass) Provider() bool {
	switch c {
	case ClassRateLimited, ClassQuotaExhausted, ClassAuth, ClassModelUnavailable, ClassProviderUnavailable:
		return true
	}
	return false
}

// Outcome is the last word on a run, told after its events.
type Outcome struct {
	Type         string       `json:"type"` // always "outcome"
	Class        FailureClass `json:"class"`
	ResetAt      *time.Time   `json:"reset_at"`                 // when a limit ends, as far as it was stated
	RetryAfterMS int64        `json:"retry_after_ms,omitempty"` // stated as a wait, not as a time
	SessionID    string       `json:"session_id"`
	Model        string       `json:"model"` // as reported by the CLI; empty where it reports none
	Usage        Usage        `json:"usage"` // of this run alone
	Detail       string       `json:"detail,omitempty"`
	StatedEnd    string       `json:"stated_end,omitempty"` // the words in which an end of a limit was stated, read or not
	Acted        bool         `json:"acted,omitempty"`      // a tool of the agent ran, or may have
	Terminal     bool         `json:"terminal"`             // the stream itself told the end
}

// Bound cuts every part of the event to its limit and makes its text valid UTF-8.
func (e *Event) Bound() {
	e.ID, e.Turn = CutText(e.ID, MaxEventWord), CutText(e.Turn, MaxEventWord)
	e.Level, e.Server, e.Tool = CutText(e.Level, MaxEventWord), CutText(e.Server, MaxEventWord), CutText(e.Tool, MaxEventWord)
	e.Query = CutText(e.Query, MaxEventWord)
	e.Text = CutText(e.Text, MaxEventText)
	e.Command = CutText(e.Command, MaxEventCommand)
	e.Output = CutMiddle(e.Output, MaxEventOutput)
	if len(e.Changes) > MaxEventItems {
		e.Changes = e.Changes[:MaxEventItems:MaxEventItems]
	}
	for i, c := range e.Changes {
		e.Changes[i] = FileChange{Path: CutText(c.Path, MaxEventPath), Kind: CutText(c.Kind, MaxEventWord)}
	}
	if len(e.Items) > MaxEventItems {
		e.Items = e.Items[:MaxEventItems:MaxEventItems]
	}
	for i, t := range e.Items {
		t.Text, t.Status = CutText(t.Text, MaxEventWord), CutText(t.Status, MaxEventWord)
		e.Items[i] = t
	}
	e.Arguments, e.Result, e.Raw = boundRaw(e.Arguments), boundRaw(e.Result), boundRaw(e.Raw)
	if !e.At.IsZero() {
		e.At = e.At.UTC().Truncate(time.Millisecond)
	}
}

// Line gives the event as one line of JSON with its line end.
func (e Event) Line() []byte { return jsonLine(e) }

// Line gives the outcome as one line of JSON with its line end.
func (o Outcome) Line() []byte {
	o.Type = "outcome"
	o.Detail = CutText(o.Detail, MaxDetail)
	return jsonLine(o)
}

func jsonLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		// Only a raw part that is not JSON, or a year beyond 9999, can fail here.
		b, _ = json.Marshal(Event{Type: EventLog, Level: "error", Text: "event could not be written: " + err.Error()})
	}
	return append(b, '\n')
}

// boundRaw keeps valid JSON that is small enough; anything else becomes a JSON string of its beginning and end.
func boundRaw(r json.RawMessage) json.RawMessage {
	if len(r) == 0 || string(r) == "null" {
		return nil
	}
	if json.Valid(r) {
		var c bytes.Buffer
		if json.Compact(&c, r) == nil && c.Len() <= MaxEventRaw {
			return c.Bytes()
		}
	}
	b, err := json.Marshal(CutMiddle(string(r), MaxEventRaw/2))
	if err != nil {
		return nil
	}
	return b
}

const cutMark = " …[cut]"

// CutText makes s valid UTF-8 of at most limit bytes, with a mark at its end where it was cut.
func CutText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	if limit <= len(cutMark) {
		return s[:boundary(s, limit)]
	}
	return s[:boundary(s, limit-len(cutMark))] + cutMark
}

const middleMark = "\n…[cut]…\n"

// CutMiddle makes s valid UTF-8 of at most limit bytes; of a longer one head and tail are kept around a mark.
func CutMiddle(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	if limit <= len(middleMark)+2 {
		return CutText(s, limit)
	}
	half := (limit - len(middleMark)) / 2
	tail := len(s) - half
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:boundary(s, half)] + middleMark + s[tail:]
}

// boundary gives the greatest start of a rune in s that is not above n.
func boundary(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}
