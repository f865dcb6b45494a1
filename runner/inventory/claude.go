package inventory

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// claude reads the sessions of Claude Code: HOME/projects/DIRECTORY/ID.jsonl. How the
// directory is written there can't be read back; the lines say it.
type claude struct{ home string }

type claudeLine struct {
	Type      string    `json:"type"`
	SessionID string    `json:"sessionId"`
	Timestamp time.Time `json:"timestamp"`
	Cwd       string    `json:"cwd"`
	Meta      bool      `json:"isMeta"`
	Sidechain bool      `json:"isSidechain"`
	Message   struct {
		Role    string          `json:"role"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

type claudeBlock struct {
	Type  string          `json:"type"`
	Text  string          `json:"text"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

func (c claude) sessions(l *look) ([]candidate, error) {
	f, err := l.open(c.home)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var out []candidate
	for _, r := range f.files("projects", 1, func(name string) bool { return claudeID(name) != "" }) {
		id := claudeID(r.name)
		out = append(out, candidate{id: id, used: r.mod, file: r.name, read: func(l *look) (fleet.CLISession, bool) { return c.read(l, r.name, id) }})
	}
	return out, nil
}

// claudeID gives the session that a file's name says, "" where it is none: those of
// sub-agents have names of their own.
func claudeID(name string) string {
	if id, ok := strings.CutSuffix(path.Base(name), ".jsonl"); ok && isUUID(id) {
		return id
	}
	return ""
}

func decodeClaude(b []byte) (line claudeLine, ok bool) {
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(b, &line); err != nil && !asType(err, &wrong) {
		return line, false
	}
	return line, !line.Sidechain
}

// asType says whether nothing but the type of one part was not as known.
func asType(err error, wrong **json.UnmarshalTypeError) bool { return errors.As(err, wrong) }

// blocks gives what a message is made of; one that is a text alone is one block.
func (m *claudeLine) blocks() []claudeBlock {
	var text string
	if json.Unmarshal(m.Message.Content, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}
	}
	return elements[claudeBlock](m.Message.Content)
}

func (c claude) read(l *look, name, id string) (s fleet.CLISession, ok bool) {
	f, err := l.open(c.home)
	if err != nil {
		return s, false
	}
	defer f.close()
	head, tail := f.ends(name)
	for _, part := range [][][]byte{head, tail} {
		for _, b := range part {
			line, good := decodeClaude(b)
			if !good || line.SessionID != id {
				continue
			}
			if line.Timestamp.After(s.Used) {
				s.Used = line.Timestamp
			}
			if s.Started.IsZero() {
				s.Started = line.Timestamp
			}
			if s.Dir == "" && usable(line.Cwd) {
				s.ID, s.Dir = id, line.Cwd // later ones say where a command went
			}
			switch {
			case line.Type == "assistant" && line.Message.Model != "" && line.Message.Model != "<synthetic>":
				s.Model = line.Message.Model
			case line.Type == "user" && s.Title == "" && !line.Meta:
				for _, b := range line.blocks() {
					if s.Title == "" && b.Type == "text" && said(b.Text) {
						s.Title = b.Text
					}
				}
			}
		}
	}
	return s, s.ID != ""
}

func (c claude) messages(l *look, cand candidate, n int) ([]fleet.CLIMessage, bool) {
	f, err := l.open(c.home)
	if err != nil {
		return nil, false
	}
	defer f.close()
	all, more := f.last(cand.file, detailBytes)
	keep := ring{n: n, more: more}
	for _, b := range all {
		line, ok := decodeClaude(b)
		if !ok || line.Meta || line.Type != "user" && line.Type != "assistant" {
			continue
		}
		for _, b := range line.blocks() {
			switch {
			case b.Type == "text" && (line.Type == "assistant" || said(b.Text)):
				keep.add(fleet.CLIMessage{Role: line.Type, Text: b.Text, At: line.Timestamp})
			case b.Type == "tool_use" && line.Type == "assistant":
				keep.add(call(b.Name, string(b.Input), line.Timestamp))
			}
		}
	}
	return keep.all, keep.more
}
