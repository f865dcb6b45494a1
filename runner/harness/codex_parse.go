package harness

import (
	"encoding/json"
	"fmt"
	"strconv"

	"tugline.dev/tugline/shared/fleet"
)

// codexDecoder reads `codex exec --json`: thread.started, turn.started, items, and one of turn.completed and
// turn.failed. An "error" line is terminal only if it is not the notice of a retry; an item of type error is a
// warning. Usage counts for the whole thread, resumed turns included.
type codexDecoder struct {
	started   bool // a turn
	completed bool
	failed    bool
	message   string // of the failure
	counted   fleet.Usage
	haveUsage bool
}

type codexLine struct {
	Type     string          `json:"type"`
	ThreadID string          `json:"thread_id"`
	Message  string          `json:"message"`
	Item     json.RawMessage `json:"item"`
	Error    *struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage *struct {
		Input     int64 `json:"input_tokens"`
		Cached    int64 `json:"cached_input_tokens"`
		Output    int64 `json:"output_tokens"`
		Reasoning int64 `json:"reasoning_output_tokens"`
	} `json:"usage"`
}

// A web search carries two members of the name id; the later one counts here, at its start and its end alike.
type codexItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	ExitCode  *int            `json:"exit_code"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
	Query     string          `json:"query"`
	Prompt    string          `json:"prompt"`
	States    json.RawMessage `json:"agents_states"`
	Changes   []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
	Items []struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	} `json:"items"`
}

var codexRetry = lazily(`(?s)^Reconnecting\.\.\. (\d+)/(\d+)(?: \((.*)\))?$`)

func (d *codexDecoder) line(s *stream, l []byte) {
	var c codexLine
	if json.Unmarshal(l, &c) != nil {
		s.unknown(l)
		return
	}
	switch c.Type {
	case "thread.started":
		s.session = fleet.CutText(c.ThreadID, fleet.MaxEventWord)
	case "turn.started":
		d.started = true
	case "item.started", "item.updated", "item.completed":
		s.progress()
		var it codexItem
		if json.Unmarshal(c.Item, &it) != nil || !d.item(s, c.Type, it, c.Item) {
			s.unknown(l)
		}
	case "turn.completed":
		s.progress()
		d.completed, d.failed = true, false
		if c.Usage != nil {
			total := fleet.Usage{InputTokens: c.Usage.Input, CachedInputTokens: c.Usage.Cached,
				OutputTokens: c.Usage.Output, ReasoningTokens: c.Usage.Reasoning}
			before := s.req.PriorUsage
			if d.haveUsage {
				before = d.counted
			}
			d.counted, d.haveUsage = total, true
			s.spend(total.Sub(before))
		}
	case "turn.failed":
		s.progress()
		d.failed, d.completed = true, false
		if c.Error != nil {
			d.message = c.Error.Message
		}
		s.fail(d.message)
	case "error":
		if m := codexRetry().FindStringSubmatch(c.Message); m != nil {
			d.retry(s, m, c.Message)
			return
		}
		s.progress()
		d.failed, d.message = true, c.Message
		s.fail(c.Message)
	default:
		s.unknown(l)
	}
}

func (d *codexDecoder) retry(s *stream, m []string, text string) {
	class, ok := classify(m[3], 0)
	if !ok {
		class = fleet.ClassProviderUnavailable
	}
	s.waiting(class, "retry "+m[1]+"/"+m[2], parseLimits(m[3], s.at, s.req.Zone))
	s.log("warn", text)
}

// item tells one item; false if its type is not known.
func (d *codexDecoder) item(s *stream, line string, it codexItem, raw json.RawMessage) bool {
	e := fleet.Event{ID: it.ID}
	switch it.Type {
	case "agent_message":
		e.Text = it.Text
		if line == "item.completed" {
			s.say(e)
		}
		return true
	case "reasoning":
		if line == "item.completed" {
			e.Type, e.Status, e.Text = fleet.EventReasoning, fleet.StatusCompleted, it.Text
			s.add(e)
		}
		return true
	case "error":
		e.Type, e.Level, e.Text = fleet.EventLog, "warn", it.Message
		s.add(e)
		return true
	case "todo_list":
		e.Type, e.Status = fleet.EventTodo, fleet.StatusCompleted
		for _, t := range it.Items {
			e.Items = append(e.Items, fleet.TodoItem{Text: t.Text, Completed: t.Completed})
		}
		s.add(e)
		return true
	case "command_execution":
		e.Type, e.Command, e.Output, e.ExitCode = fleet.EventCommandExecution, it.Command, it.Output, it.ExitCode
	case "file_change":
		e.Type = fleet.EventFileChange
		for _, c := range it.Changes {
			e.Changes = append(e.Changes, fleet.FileChange{Path: c.Path, Kind: c.Kind})
		}
	case "mcp_tool_call":
		e.Type, e.Server, e.Tool, e.Arguments, e.Result = fleet.EventMCPToolCall, it.Server, it.Tool, it.Arguments, it.Result
		if text := errorText(it.Error); text != "" {
			e.Text = text
		}
	case "web_search":
		e.Type, e.Query = fleet.EventWebSearch, it.Query
	case "collab_tool_call":
		e.Type, e.Tool, e.Text, e.Result = fleet.EventDynamicToolCall, it.Tool, it.Prompt, it.States
	default:
		s.acted = true // it may be a tool of a newer version
		return false
	}
	switch line {
	case "item.started":
		s.begin(e)
	case "item.updated":
		s.partial(e)
	default:
		s.done(e.ID)
		e.Status = fleet.StatusCompleted
		if it.Status == "failed" || it.Status == "declined" {
			e.Status = fleet.StatusFailed
		}
		s.add(e)
	}
	return true
}

// errorText reads an error that is a string or an object with a message.
func errorText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var obj struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(raw, &obj)
	return obj.Message
}

func (d *codexDecoder) errLine(*stream, string) {}

// codexInterrupted is the exit code of an interrupted run: unlike a failure, it says nothing on its stream.
const codexInterrupted = 1

func (d *codexDecoder) end(s *stream, x ExitInfo) fleet.Outcome {
	switch {
	case d.completed:
		return s.ok(s.answer)
	case d.failed:
		o := fleet.Outcome{Class: fleet.ClassUnknown, Detail: d.message, Terminal: true}
		if c, ok := classify(d.message, statusIn(d.message)); ok {
			o.Class = c
		}
		parseLimits(d.message, s.at, s.req.Zone).put(&o, s.at)
		return o
	}
	return s.ended(x, d.started, codexInterrupted)
}

var statusText = lazily(`(?:unexpected status|last status:|API Error:) (\d{3})\b`)

// statusIn finds the HTTP status that a CLI put into its words, 0 if none.
func statusIn(text string) int {
	m := statusText().FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// ok gives the outcome of a stream that told a good end with the given last words.
func (s *stream) ok(answer string) fleet.Outcome {
	o := fleet.Outcome{Class: fleet.ClassOK, Terminal: true}
	words := answer
	if words == "" {
		words = s.plain
	}
	if refusal(words, s.acted) {
		o.Class = fleet.ClassQuotaExhausted
		o.Detail = fmt.Sprintf("refused although it ended well: %s", words)
		parseLimits(words, s.at, s.req.Zone).put(&o, s.at)
	}
	return o
}
