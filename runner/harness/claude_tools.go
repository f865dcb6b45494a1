package harness

import (
	"encoding/json"
	"strconv"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

type claudeInput struct {
	Command  string `json:"command"`
	FilePath string `json:"file_path"`
	Notebook string `json:"notebook_path"`
	Query    string `json:"query"`
	URL      string `json:"url"`
	Subject  string `json:"subject"`
	TaskID   string `json:"taskId"`
	Status   string `json:"status"`
	Todos    []struct {
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"todos"`
}

func (d *claudeDecoder) toolUse(s *stream, parent string, b claudeBlock) {
	var in claudeInput
	_ = json.Unmarshal(b.Input, &in)
	e := fleet.Event{ID: b.ID, Turn: parent}
	switch b.Name {
	case "Bash":
		e.Type, e.Command = fleet.EventCommandExecution, in.Command
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		path := in.FilePath
		if path == "" {
			path = in.Notebook
		}
		e.Type, e.Tool, e.Changes = fleet.EventFileChange, b.Name, []fleet.FileChange{{Path: path, Kind: "update"}}
	case "WebSearch", "web_search":
		e.Type, e.Query = fleet.EventWebSearch, in.Query
	case "WebFetch", "web_fetch":
		e.Type, e.Tool, e.Query = fleet.EventWebSearch, b.Name, in.URL
	case "TodoWrite", "TaskCreate", "TaskUpdate":
		e.Type, e.Tool = fleet.EventTodo, b.Name
		for _, t := range in.Todos {
			e.Items = append(e.Items, fleet.TodoItem{Text: t.Content, Completed: t.Status == "completed", Status: t.Status})
		}
		if b.Name != "TodoWrite" {
			text := in.Subject
			if text == "" {
				text = "#" + in.TaskID
			}
			e.Items = []fleet.TodoItem{{Text: text, Completed: in.Status == "completed", Status: in.Status}}
		}
	default:
		e.Type, e.Tool, e.Arguments = fleet.EventDynamicToolCall, b.Name, b.Input
		if server, tool, ok := mcpName(b.Name); ok {
			e.Type, e.Server, e.Tool = fleet.EventMCPToolCall, server, tool
		}
	}
	s.begin(e)
}

// mcpName takes mcp__SERVER__TOOL apart.
func mcpName(name string) (server, tool string, ok bool) {
	rest, ok := strings.CutPrefix(name, "mcp__")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "__")
}

// A failed command tells its exit code in the first line of its result only.
var claudeExit = lazily(`^(?:Error: )?Exit code (-?\d{1,6})(?:\n|$)`)

func (d *claudeDecoder) toolResult(s *stream, b claudeBlock, typed json.RawMessage) {
	e, ok := s.done(b.ToolUseID)
	if !ok {
		e = fleet.Event{Type: fleet.EventDynamicToolCall, ID: b.ToolUseID}
	}
	text := blockText(b.Content)
	e.Status = fleet.StatusCompleted
	if b.IsError {
		e.Status = fleet.StatusFailed
	}
	switch e.Type {
	case fleet.EventCommandExecution:
		e.Output = text
		if m := claudeExit().FindStringSubmatchIndex(text); m != nil && b.IsError {
			code, _ := strconv.Atoi(text[m[2]:m[3]])
			e.ExitCode, e.Output = &code, text[m[1]:]
		} else if !b.IsError && !inBackground(typed) {
			code := 0
			e.ExitCode = &code
		}
	case fleet.EventFileChange:
		var r struct {
			Type string `json:"type"`
			Path string `json:"filePath"`
		}
		if json.Unmarshal(typed, &r) == nil && r.Type == "create" && len(e.Changes) == 1 {
			e.Changes = []fleet.FileChange{{Path: e.Changes[0].Path, Kind: "add"}}
		}
		if b.IsError {
			e.Text = text
		}
	case fleet.EventMCPToolCall:
		e.Result = b.Content
	default:
		e.Output = text
	}
	s.add(e)
}

// inBackground says whether a command goes on after its result.
func inBackground(typed json.RawMessage) bool {
	var r struct {
		Task        string `json:"backgroundTaskId"`
		Interrupted bool   `json:"interrupted"`
	}
	return json.Unmarshal(typed, &r) == nil && (r.Task != "" || r.Interrupted)
}

// blockText reads a content that is a string or a list of blocks.
func blockText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &blocks)
	var parts []string
	for _, b := range blocks {
		if b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}
