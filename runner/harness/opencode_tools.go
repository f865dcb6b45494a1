package harness

import (
	"encoding/json"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

type opencodeState struct {
	Status   string          `json:"status"`
	Input    json.RawMessage `json:"input,omitempty"`
	Output   string          `json:"output,omitempty"`
	Error    string          `json:"error,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// opencodeTools are its own; any other name with an underline is SERVER_TOOL of MCP.
var opencodeTools = []string{"bash", "edit", "write", "multiedit", "apply_patch", "patch", "read", "grep", "glob", "list", "todowrite",
	"todoread", "task", "webfetch", "websearch", "codesearch", "lsp", "skill", "question", "invalid", "batch", "plan_enter", "plan_exit"}

// tool tells one state of a tool: running at most once, then its end.
func (d *opencodeDecoder) tool(s *stream, p *opencodePart) {
	st := p.State
	if st == nil || st.Status == "pending" {
		return
	}
	e := opencodeItem(p)
	if st.Status == "running" {
		if _, open := s.open[fleet.CutText(e.ID, fleet.MaxEventWord)]; !open {
			s.begin(e)
		}
		return
	}
	s.done(e.ID)
	e.Status = fleet.StatusCompleted
	if st.Status == "error" {
		e.Status, e.Text = fleet.StatusFailed, st.Error
	}
	switch e.Type {
	case fleet.EventCommandExecution:
		var meta struct {
			Exit   *int   `json:"exit"`
			Output string `json:"output"`
		}
		_ = json.Unmarshal(st.Metadata, &meta)
		e.ExitCode, e.Output = meta.Exit, meta.Output
		if e.Output == "" {
			e.Output = st.Output
		}
		// opencode calls a command completed whatever its exit code; an aborted one has none.
		if meta.Exit == nil || *meta.Exit != 0 {
			e.Status = fleet.StatusFailed
		}
	case fleet.EventFileChange:
		e.Changes = opencodeChanges(e.Changes, p.Tool, st)
	case fleet.EventMCPToolCall:
		if b, err := json.Marshal(st.Output); err == nil && st.Output != "" {
			e.Result = b
		}
	case fleet.EventTodo:
	default:
		e.Output = st.Output
	}
	s.add(e)
}

func opencodeItem(p *opencodePart) fleet.Event {
	var in struct {
		Command string `json:"command"`
		Path    string `json:"filePath"`
		URL     string `json:"url"`
		Query   string `json:"query"`
		Todos   []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"todos"`
	}
	_ = json.Unmarshal(p.State.Input, &in)
	id := p.CallID
	if id == "" {
		id = p.ID
	}
	e := fleet.Event{ID: id, Turn: p.MessageID}
	switch p.Tool {
	case "bash":
		e.Type, e.Command = fleet.EventCommandExecution, in.Command
	case "write", "edit", "multiedit", "apply_patch", "patch":
		e.Type, e.Tool = fleet.EventFileChange, p.Tool
		if in.Path != "" {
			e.Changes = []fleet.FileChange{{Path: in.Path, Kind: "update"}}
		}
	case "webfetch":
		e.Type, e.Tool, e.Query = fleet.EventWebSearch, p.Tool, in.URL
	case "websearch", "codesearch":
		e.Type, e.Tool, e.Query = fleet.EventWebSearch, p.Tool, in.Query
	case "todowrite":
		e.Type = fleet.EventTodo
		for _, t := range in.Todos {
			e.Items = append(e.Items, fleet.TodoItem{Text: t.Content, Completed: t.Status == "completed", Status: t.Status})
		}
	default:
		e.Type, e.Tool, e.Arguments = fleet.EventDynamicToolCall, p.Tool, p.State.Input
		if server, tool, ok := strings.Cut(p.Tool, "_"); ok && !slices.Contains(opencodeTools, p.Tool) {
			e.Type, e.Server, e.Tool = fleet.EventMCPToolCall, server, tool
		}
	}
	return e
}

// opencodeChanges reads what a tool changed; the kind of a written file shows only when it is over.
func opencodeChanges(changes []fleet.FileChange, tool string, st *opencodeState) []fleet.FileChange {
	var meta struct {
		Path   string `json:"filepath"`
		Exists *bool  `json:"exists"`
		Files  []struct {
			Path  string `json:"filePath"`
			Path2 string `json:"path"`
			Type  string `json:"type"`
		} `json:"files"`
	}
	_ = json.Unmarshal(st.Metadata, &meta)
	if tool == "write" && meta.Exists != nil && !*meta.Exists && meta.Path != "" {
		return []fleet.FileChange{{Path: meta.Path, Kind: "add"}}
	}
	if len(changes) > 0 {
		return changes
	}
	for _, f := range meta.Files {
		if f.Path == "" {
			f.Path = f.Path2
		}
		kind := f.Type
		if kind != "add" && kind != "delete" {
			kind = "update"
		}
		changes = append(changes, fleet.FileChange{Path: f.Path, Kind: kind})
	}
	return changes
}
