package inventory

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// opencodeFiles reads the sessions of an opencode that keeps them as files:
// HOME/storage/session/PROJECT/ID.json, message/ID/*.json and part/MESSAGE/*.json.
type opencodeFiles struct{ home string }

// ocSession is a session as opencode describes it, in a file or a row.
type ocSession struct {
	ID        string `json:"id"`
	Parent    string `json:"parentID"`
	Directory string `json:"directory"`
	Title     string `json:"title"`
	Time      ocTime `json:"time"`
}

type ocTime struct {
	Created int64 `json:"created"` // in milliseconds
	Updated int64 `json:"updated"`
}

type ocMessage struct {
	ID      string `json:"id"`
	Role    string `json:"role"`
	ModelID string `json:"modelID"`
	Time    ocTime `json:"time"`
}

type ocPart struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Synthetic bool   `json:"synthetic"`
	Tool      string `json:"tool"`
	State     struct {
		Input json.RawMessage `json:"input"`
	} `json:"state"`
}

// session gives it as it is told; false: it is none, or one of a sub-agent.
func (o *ocSession) session() (fleet.CLISession, bool) {
	if !sesForm().MatchString(o.ID) || o.Parent != "" || !usable(o.Directory) {
		return fleet.CLISession{}, false
	}
	return fleet.CLISession{ID: o.ID, Dir: o.Directory, Title: o.Title, Started: moment(o.Time.Created), Used: moment(o.Time.Updated)}, true
}

// moment is a time of the CLI's; what can't be one is none.
func moment(ms int64) time.Time {
	if ms <= 0 || ms > 1<<42 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// message gives what is told of one part.
func (p *ocPart) message(m *ocMessage) (fleet.CLIMessage, bool) {
	switch {
	case p.Type == "text" && !p.Synthetic && (m.Role == "user" || m.Role == "assistant"):
		return fleet.CLIMessage{Role: m.Role, Text: unquoted(p.Text), At: moment(m.Time.Created)}, true
	case p.Type == "tool" && p.Tool != "":
		return call(p.Tool, string(p.State.Input), moment(m.Time.Created)), true
	}
	return fleet.CLIMessage{}, false
}

// unquoted takes away the quotes in which opencode puts words of its command line.
func unquoted(s string) string {
	if in, ok := strings.CutPrefix(s, `"`); ok && strings.HasSuffix(in, `"`) && strings.Count(in, `"`) == 1 {
		return in[:len(in)-1]
	}
	return s
}

func (o opencodeFiles) sessions(l *look) ([]candidate, error) {
	f, err := l.open(o.home)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var out []candidate
	for _, r := range f.files("storage/session", 1, func(name string) bool { return fileID(name, "ses_") != "" }) {
		id := fileID(r.name, "ses_")
		out = append(out, candidate{id: id, used: r.mod, file: r.name, read: func(l *look) (fleet.CLISession, bool) { return o.read(l, r.name, id) }})
	}
	return out, nil
}

// fileID gives the id that a file's name says, "" where it has not that form.
func fileID(name, prefix string) string {
	id, ok := strings.CutSuffix(path.Base(name), ".json")
	if rest, is := strings.CutPrefix(id, prefix); ok && is && sesForm().MatchString("ses_"+rest) {
		return id
	}
	return ""
}

func (o opencodeFiles) read(l *look, name, id string) (fleet.CLISession, bool) {
	f, err := l.open(o.home)
	if err != nil {
		return fleet.CLISession{}, false
	}
	defer f.close()
	var s ocSession
	if json.Unmarshal(f.document(name), &s) != nil || s.ID != id {
		return fleet.CLISession{}, false
	}
	out, ok := s.session()
	if !ok {
		return out, false
	}
	ids := f.ids("storage/message/"+id, "msg_")
	for i, last := range slices.Backward(ids) { // the last ones name the model
		var m ocMessage
		if json.Unmarshal(f.document("storage/message/"+id+"/"+last+".json"), &m) == nil && m.ModelID != "" {
			out.Model = m.ModelID
			break
		}
		if len(ids)-i >= 4 {
			break
		}
	}
	if len(ids) > 0 {
		if t := f.said(id, ids[0]); t != "" {
			out.Title = t
		}
	}
	return out, true
}

// ids lists what files of a directory are named, in order: the CLI numbers by time.
func (f folder) ids(dir, prefix string) []string {
	var ids []string
	for _, m := range f.files(dir, 0, func(name string) bool { return fileID(name, prefix) != "" }) {
		ids = append(ids, fileID(m.name, prefix))
	}
	slices.Sort(ids)
	return ids
}

// said gives what the user said in a message, "" where it is not his.
func (f folder) said(session, message string) string {
	m, parts := f.message(session, message)
	return saidIn(&m, parts)
}

func saidIn(m *ocMessage, parts []ocPart) string {
	for _, p := range parts {
		if t, ok := p.message(m); ok && t.Role == "user" && said(t.Text) {
			return t.Text
		}
	}
	return ""
}

func (f folder) message(session, id string) (m ocMessage, parts []ocPart) {
	if json.Unmarshal(f.document("storage/message/"+session+"/"+id+".json"), &m) != nil {
		return m, nil
	}
	ids := f.ids("storage/part/"+id, "prt_")
	for _, n := range ids[:min(len(ids), maxParts)] {
		var p ocPart
		if json.Unmarshal(f.document("storage/part/"+id+"/"+n+".json"), &p) == nil {
			parts = append(parts, p)
		}
	}
	return m, parts
}

func (o opencodeFiles) messages(l *look, c candidate, n int) ([]fleet.CLIMessage, bool) {
	f, err := l.open(o.home)
	if err != nil {
		return nil, false
	}
	defer f.close()
	ids := f.ids("storage/message/"+c.id, "msg_")
	from := max(len(ids)-n, 0)
	keep := ring{n: n, more: from > 0}
	for _, id := range ids[from:] {
		m, parts := f.message(c.id, id)
		for _, p := range parts {
			if t, ok := p.message(&m); ok {
				keep.add(t)
			}
		}
	}
	return keep.all, keep.more
}
