package harness

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// claudeDecoder reads the stream-json of `claude -p`: system/init, one assistant line a content block, user lines
// with the results of tools, and a result, which need not be the last line. A result may say success and be an
// error; its is_error decides. Usage stands in the result alone, counted for this run.
type claudeDecoder struct {
	started bool
	message string // id of the assistant message in hand
	blocks  int    // of it

	partialID string // id of the message whose pieces come in
	spent     fleet.Usage
	errKind   string // of the last synthetic failure
	rejected  bool   // a plan's limit refused a request
	resets    limits
	result    *claudeResult
}

type claudeLine struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	SessionID string          `json:"session_id"`
	Parent    string          `json:"parent_tool_use_id"`
	Model     string          `json:"model"`
	Error     json.RawMessage `json:"error"`
	Message   json.RawMessage `json:"message"`
	ToolUse   json.RawMessage `json:"tool_use_result"`
	Event     json.RawMessage `json:"event"`

	Attempt    int     `json:"attempt"`
	MaxRetries int     `json:"max_retries"`
	DelayMS    float64 `json:"retry_delay_ms"`
	ErrStatus  int     `json:"error_status"`

	Limit *struct {
		Status   string `json:"status"`
		ResetsAt int64  `json:"resetsAt"`
		Kind     string `json:"rateLimitType"`
	} `json:"rate_limit_info"`
}

type claudeMessage struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
}

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type claudeUsage struct {
	Input   int64 `json:"input_tokens"`
	Created int64 `json:"cache_creation_input_tokens"`
	Read    int64 `json:"cache_read_input_tokens"`
	Output  int64 `json:"output_tokens"`
}

func (u claudeUsage) fleet() fleet.Usage {
	return fleet.Usage{InputTokens: u.Input + u.Created + u.Read, CachedInputTokens: u.Read, OutputTokens: u.Output}
}

type claudeResult struct {
	Subtype string      `json:"subtype"`
	IsError bool        `json:"is_error"`
	Status  int         `json:"api_error_status"`
	Result  string      `json:"result"`
	Reason  string      `json:"terminal_reason"`
	Cost    float64     `json:"total_cost_usd"`
	Usage   claudeUsage `json:"usage"`
	Errors  []string    `json:"errors"`
	// Stop is why the model ended its last answer: null where the answer broke off, absent in old versions.
	Stop    json.RawMessage `json:"stop_reason"`
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

func (d *claudeDecoder) line(s *stream, l []byte) {
	var c claudeLine
	if json.Unmarshal(l, &c) != nil {
		s.unknown(l)
		return
	}
	if s.session == "" && c.SessionID != "" {
		s.session = fleet.CutText(c.SessionID, fleet.MaxEventWord)
	}
	known := true
	switch c.Type {
	case "system":
		known = d.system(s, c)
	case "stream_event":
		d.streamEvent(s, c)
	case "assistant":
		known = d.assistant(s, c)
	case "user":
		known = d.user(s, c)
	case "rate_limit_event":
		d.limit(s, c, l)
	case "result":
		var r claudeResult
		if known = json.Unmarshal(l, &r) == nil; known {
			d.over(s, r)
		}
	default:
		known = false
	}
	if !known {
		s.unknown(l)
	}
}

func (d *claudeDecoder) system(s *stream, c claudeLine) bool {
	switch c.Subtype {
	case "init":
		d.started = true
		if c.SessionID != "" {
			s.session = fleet.CutText(c.SessionID, fleet.MaxEventWord)
		}
		s.model = fleet.CutText(c.Model, fleet.MaxEventWord)
	case "api_retry":
		var kind string
		_ = json.Unmarshal(c.Error, &kind)
		class := claudeKind(kind)
		if class == "" {
			class, _ = classify(kind, c.ErrStatus)
		}
		if class == "" {
			class = fleet.ClassProviderUnavailable
		}
		r := limits{}
		// A short wait is over before anybody reads of it.
		if delay := capped(c.DelayMS * float64(time.Millisecond)); delay >= 30*time.Second {
			r.retryAfter, r.words = delay, "retry in "+delay.String()
			if !s.at.IsZero() {
				t := s.at.Add(delay).Truncate(time.Second)
				r.resetAt = &t
			}
		}
		s.waiting(class, fmt.Sprintf("retry %d/%d", c.Attempt, c.MaxRetries), r)
		s.log("warn", fmt.Sprintf("retry %d/%d after status %d (%s)", c.Attempt, c.MaxRetries, c.ErrStatus, fleet.CutText(kind, 80)))
	case "status", "thinking_tokens", "tool_progress", "hook_started", "hook_progress":
		// Signs of life without content.
	default:
		return false
	}
	return true
}

// streamEvent reads the pieces of a message. The broken ones of a request that is asked again are never taken back,
// which is one reason why pieces are not for the record.
func (d *claudeDecoder) streamEvent(s *stream, c claudeLine) {
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message struct {
			ID string `json:"id"`
		} `json:"message"`
		Delta struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
		} `json:"delta"`
		Usage *claudeUsage `json:"usage"`
	}
	if json.Unmarshal(c.Event, &e) != nil {
		return
	}
	s.progress()
	switch e.Type {
	case "message_start":
		d.partialID = fleet.CutText(e.Message.ID, fleet.MaxEventWord)
	case "message_delta":
		if e.Usage != nil {
			d.spent = d.spent.Add(e.Usage.fleet())
		}
	case "content_block_delta":
		p := fleet.Event{Turn: c.Parent, ID: fmt.Sprintf("%s/%d", d.partialID, e.Index)}
		switch e.Delta.Type {
		case "text_delta":
			p.Type, p.Text = fleet.EventAgentMessage, e.Delta.Text
		case "thinking_delta":
			p.Type, p.Text = fleet.EventReasoning, e.Delta.Thinking
		default:
			return
		}
		s.partial(p)
	}
}

func (d *claudeDecoder) assistant(s *stream, c claudeLine) bool {
	var m claudeMessage
	var blocks []claudeBlock
	if json.Unmarshal(c.Message, &m) != nil || json.Unmarshal(m.Content, &blocks) != nil {
		return false
	}
	var kind string
	_ = json.Unmarshal(c.Error, &kind)
	if kind != "" {
		d.errKind = kind
		for _, b := range blocks {
			s.fail(b.Text)
		}
		return true
	}
	s.progress()
	d.errKind = ""
	if m.Model != "" && m.Model != "<synthetic>" && c.Parent == "" {
		s.model = fleet.CutText(m.Model, fleet.MaxEventWord)
	}
	if m.ID != d.message {
		d.message, d.blocks = fleet.CutText(m.ID, fleet.MaxEventWord), 0
	}
	for _, b := range blocks {
		e := fleet.Event{Turn: c.Parent, ID: fmt.Sprintf("%s/%d", d.message, d.blocks)}
		d.blocks++
		switch b.Type {
		case "text":
			e.Text = b.Text
			if c.Parent == "" {
				s.say(e)
				continue
			}
			e.Type, e.Status = fleet.EventAgentMessage, fleet.StatusCompleted
			s.add(e)
		case "thinking", "redacted_thinking":
			e.Type, e.Status, e.Text = fleet.EventReasoning, fleet.StatusCompleted, b.Thinking
			s.add(e)
		case "tool_use", "server_tool_use", "mcp_tool_use":
			d.toolUse(s, c.Parent, b)
		case "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_result":
			d.toolResult(s, b, nil)
		default:
			s.acted = true // it may be a tool of a newer version
			e.Type, e.Level, e.Text = fleet.EventLog, "info", "content of type "+b.Type
			s.add(e)
		}
	}
	return true
}

func (d *claudeDecoder) user(s *stream, c claudeLine) bool {
	var m claudeMessage
	if json.Unmarshal(c.Message, &m) != nil {
		return false
	}
	var blocks []claudeBlock
	if json.Unmarshal(m.Content, &blocks) != nil {
		return false
	}
	for _, b := range blocks {
		switch b.Type {
		case "tool_result":
			d.toolResult(s, b, c.ToolUse)
		case "text":
			s.add(fleet.Event{Type: fleet.EventLog, Level: "info", Turn: c.Parent, Text: b.Text})
		}
	}
	return true
}

// limit reads how a plan's limits stand; only a refusal matters to the outcome.
func (d *claudeDecoder) limit(s *stream, c claudeLine, l []byte) {
	if c.Limit == nil || c.Limit.Status == "allowed" {
		return
	}
	if c.Limit.Status == "rejected" {
		d.rejected, d.resets = true, limits{resetAt: epoch(c.Limit.ResetsAt)}
		if t := d.resets.resetAt; t != nil {
			d.resets.words = "resets " + t.Format(time.RFC3339)
		}
	}
	text := fmt.Sprintf("plan limit %s: %s", c.Limit.Kind, c.Limit.Status)
	if t := epoch(c.Limit.ResetsAt); t != nil {
		text += ", resets " + t.Format(time.RFC3339)
	}
	s.add(fleet.Event{Type: fleet.EventLog, Level: "warn", Text: text, Raw: json.RawMessage(strings.Clone(string(l)))})
}

func (d *claudeDecoder) errLine(*stream, string) {}
