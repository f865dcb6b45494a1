package inventory

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// codex reads the rollouts of Codex: HOME/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl, and
// the names that people gave, of HOME/session_index.jsonl where there is one.
type codex struct{ home string }

const (
	codexDepth  = 3       // year, month, day
	codexIDSize = 36      // of a UUID
	indexBytes  = 1 << 20 // of the index, its end
	indexFile   = "session_index.jsonl"
)

// codexLine is one line of a rollout, with what of its kinds is of interest.
type codexLine struct {
	Timestamp time.Time       `json:"timestamp"`
	Type      string          `json:"type"`
	Payload   json.RawMessage `json:"payload"`
}

type codexPayload struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Cwd       string          `json:"cwd"`
	Timestamp time.Time       `json:"timestamp"`
	Model     string          `json:"model"`
	Role      string          `json:"role"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Content   json.RawMessage `json:"content"`
}

type codexContent struct {
	Text string `json:"text"`
}

func (c codex) sessions(l *look) ([]candidate, error) {
	f, err := l.open(c.home)
	if err != nil {
		return nil, err
	}
	defer f.close()
	names := c.index(f)
	var out []candidate
	for _, r := range f.files("sessions", codexDepth, func(name string) bool { return rolloutID(name) != "" }) {
		id := rolloutID(r.name)
		out = append(out, candidate{id: id, used: r.mod, file: r.name, read: func(l *look) (fleet.CLISession, bool) {
			s, ok := c.read(l, r.name, id)
			if n := names[id]; ok && n != "" {
				s.Title = n
			}
			return s, ok
		}})
	}
	return out, nil
}

// rolloutID gives the session that a rollout's name says, "" where it is none.
func rolloutID(name string) string {
	base, ok := strings.CutSuffix(path.Base(name), ".jsonl")
	if !ok || !strings.HasPrefix(base, "rollout-") || len(base) < codexIDSize {
		return ""
	}
	if id := base[len(base)-codexIDSize:]; isUUID(id) {
		return id
	}
	return ""
}

// index gives the names of sessions; the last one of each counts.
func (c codex) index(f folder) map[string]string {
	names := map[string]string{}
	all, _ := f.last(indexFile, indexBytes)
	for _, b := range all {
		var e struct {
			ID   string `json:"id"`
			Name string `json:"thread_name"`
		}
		if json.Unmarshal(b, &e) == nil && isUUID(e.ID) {
			names[e.ID] = e.Name
		}
	}
	return names
}

// decode reads a line. Most kinds are large and of no interest.
func (codexLine) decode(b []byte) (line codexLine, p codexPayload, ok bool) {
	if json.Unmarshal(b, &line) != nil {
		return line, p, false
	}
	switch line.Type {
	case "session_meta", "turn_context", "response_item":
		// A part of another type than is known costs that part, not the line.
		var wrong *json.UnmarshalTypeError
		if err := json.Unmarshal(line.Payload, &p); err != nil && !asType(err, &wrong) {
			return line, p, false
		}
	}
	return line, p, true
}

func (c codex) read(l *look, name, id string) (s fleet.CLISession, ok bool) {
	f, err := l.open(c.home)
	if err != nil {
		return s, false
	}
	defer f.close()
	head, tail := f.ends(name)
	for _, part := range [][][]byte{head, tail} {
		for _, b := range part {
			line, p, good := codexLine{}.decode(b)
			if !good {
				continue
			}
			if line.Timestamp.After(s.Used) {
				s.Used = line.Timestamp
			}
			switch {
			case line.Type == "session_meta" && s.ID == "":
				if p.ID != id || !usable(p.Cwd) {
					return s, false
				}
				s.ID, s.Dir, s.Started = p.ID, p.Cwd, p.Timestamp
			case line.Type == "turn_context" && p.Model != "":
				s.Model = p.Model
			case s.Title == "" && p.Role == "user" && said(p.text()):
				s.Title = p.text()
			}
		}
	}
	return s, s.ID != ""
}

func (p *codexPayload) text() string {
	if p.Type != "message" {
		return ""
	}
	var all []string
	for _, c := range elements[codexContent](p.Content) {
		if c.Text != "" {
			all = append(all, c.Text)
		}
	}
	return strings.Join(all, "\n")
}

func (c codex) messages(l *look, cand candidate, n int) (out []fleet.CLIMessage, earlier bool) {
	f, err := l.open(c.home)
	if err != nil {
		return nil, false
	}
	defer f.close()
	all, more := f.last(cand.file, detailBytes)
	keep := ring{n: n, more: more}
	for _, b := range all {
		line, p, ok := codexLine{}.decode(b)
		if !ok || line.Type != "response_item" {
			continue
		}
		switch text := p.text(); {
		case p.Role == "user" && said(text), p.Role == "assistant" && text != "":
			keep.add(fleet.CLIMessage{Role: p.Role, Text: text, At: line.Timestamp})
		case p.Name != "" && strings.HasSuffix(p.Type, "_call"):
			keep.add(call(p.Name, p.Arguments+p.Input, line.Timestamp))
		}
	}
	return keep.all, keep.more
}

// call is a message that says what a tool was called with.
func call(name, with string, at time.Time) fleet.CLIMessage {
	return fleet.CLIMessage{Role: "tool", Text: strings.TrimSpace(name + " " + fleet.CutText(with, maxCall)), At: at}
}

// ring keeps the last n messages.
type ring struct {
	n    int
	all  []fleet.CLIMessage
	more bool
}

func (r *ring) add(m fleet.CLIMessage) {
	if m.Text == "" {
		return
	}
	if r.all = append(r.all, m); len(r.all) > r.n {
		r.all, r.more = r.all[1:], true
	}
}
