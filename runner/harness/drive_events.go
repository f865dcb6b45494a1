package harness

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// maxDriven bounds what is remembered of parts and messages of one turn.
const maxDriven = 20000

type serverProperties struct {
	SessionID string        `json:"sessionID"`
	Part      *opencodePart `json:"part"`
	PartID    string        `json:"partID"`
	Field     string        `json:"field"`
	Delta     string        `json:"delta"`
	Info      struct {
		ID       string         `json:"id"`
		Role     string         `json:"role"`
		Model    string         `json:"modelID"`
		Provider string         `json:"providerID"`
		Error    *opencodeError `json:"error"`
	} `json:"info"`
	Status struct {
		Type    string `json:"type"`
		Attempt int    `json:"attempt"`
		Message string `json:"message"`
		Next    int64  `json:"next"`
	} `json:"status"`
	Error *opencodeError `json:"error"`

	// Of a question.
	ID         string   `json:"id"`
	Permission string   `json:"permission"`
	Patterns   []string `json:"patterns"`
}

// event tells one event of the server. The error is an *errEnd when the run is over.
func (d *driver) event(ctx context.Context, e serverEvent) error {
	var p serverProperties
	if json.Unmarshal(e.Properties, &p) != nil {
		return nil // an event of another shape than any that matters here
	}
	ours := p.SessionID == d.session
	switch e.Type {
	case "permission.asked":
		d.answer(ctx, p)
	case "question.asked":
		_, _ = d.srv.call(ctx, "POST", "/question/"+p.ID+"/reject", map[string]any{}, nil)
		d.write(opencodeLine{Event: "note", Detail: "the agent asked a question; nobody is there to answer"})
	case "session.status":
		return d.status(p, ours)
	case "message.part.updated", "message.part.delta":
		if !ours {
			d.progress()
			return nil
		}
		d.busy = true
		if e.Type == "message.part.delta" {
			d.piece(p)
		} else if p.Part != nil {
			d.part(p.Part)
		}
	case "message.updated":
		if !ours {
			return nil
		}
		if p.Info.Role == "user" {
			remember(d.user, p.Info.ID, true)
			return nil
		}
		d.busy = true
		if m := p.Info.Provider + "/" + p.Info.Model; p.Info.Model != "" && m != d.model {
			d.model = m
			d.write(opencodeLine{Event: "model", Model: m})
		}
		if p.Info.Error != nil {
			d.fail(p.Info.Error)
		}
	case "session.error":
		if ours && p.Error != nil {
			d.fail(p.Error)
		}
	case "session.idle":
		if ours && (d.busy || d.failed) {
			return &errEnd{reason: driveIdle}
		}
	}
	return nil
}

func remember[V any](m map[string]V, key string, v V) {
	if len(m) < maxDriven {
		m[key] = v
	}
}

// status reads how a session stands. Sub-agents have sessions of their own, whose waits hold up the turn as well.
func (d *driver) status(p serverProperties, ours bool) error {
	if p.Status.Type != "retry" {
		d.busy = d.busy || ours && p.Status.Type == "busy"
		return nil
	}
	d.flush()
	d.busy, d.retried = true, true
	d.write(opencodeLine{Event: "retry", Attempt: p.Status.Attempt, Message: p.Status.Message, Next: p.Status.Next})
	if c, _ := classify(p.Status.Message, 0); c == fleet.ClassQuotaExhausted {
		end := &errEnd{reason: driveQuota, detail: p.Status.Message}
		// A next try within moments is opencode's own back-off, not a time that the provider named.
		if time.Until(time.UnixMilli(p.Status.Next)) > 2*time.Minute {
			end.next = p.Status.Next
		}
		return end
	}
	if time.Until(time.UnixMilli(p.Status.Next)) > driveFarOff {
		return &errEnd{reason: driveFar, detail: p.Status.Message, next: p.Status.Next}
	}
	return nil
}

// progress tells that a provider has answered somewhere where no event of the record shows it.
func (d *driver) progress() {
	if d.retried {
		d.retried = false
		d.write(opencodeLine{Event: "progress"})
	}
}

func (d *driver) fail(e *opencodeError) {
	d.flush()
	if e.Name != "MessageAbortedError" {
		d.failed = true
	}
	e.Data.Message = fleet.CutText(e.Data.Message, 4<<10)
	e.Data.Body = fleet.CutText(e.Data.Body, 4<<10)
	kept := map[string]string{}
	for _, name := range []string{"retry-after", "retry-after-ms"} {
		if v, ok := lowerKeys(e.Data.Headers)[name]; ok {
			kept[name] = fleet.CutText(v, 100)
		}
	}
	e.Data.Headers = kept
	d.write(opencodeLine{Event: "error", Error: e})
}

// answer decides on a permission that the agent asks for.
func (d *driver) answer(ctx context.Context, p serverProperties) {
	what := fleet.CutText(p.Permission+" "+strings.Join(p.Patterns, " "), 500)
	reply := map[string]any{"reply": "once"}
	note := "granted by full permissions: " + what
	if !d.req.ApproveAll {
		// With a reason the agent is told and goes on; without one opencode ends the turn.
		reply = map[string]any{"reply": "reject", "message": "The permissions of this run do not allow it. Go on without it."}
		note = "refused by the permissions of this run: " + what
	}
	_, err := d.srv.call(ctx, "POST", "/permission/"+p.ID+"/reply", reply, nil)
	if err != nil {
		note += "; the answer did not arrive: " + err.Error()
	}
	d.write(opencodeLine{Event: "note", Detail: note})
}

// piece gathers a piece of a text that is being written.
func (d *driver) piece(p serverProperties) {
	kind, ok := d.kinds[p.PartID]
	if !ok || p.Field != "text" {
		return
	}
	if d.delta.PartID != p.PartID || len(d.delta.Delta) > 16<<10 {
		d.flush()
	}
	d.delta.PartID, d.delta.Field = p.PartID, kind
	d.delta.Delta += p.Delta
	d.retried = false
}

// flush tells the gathered pieces.
func (d *driver) flush() {
	if d.delta.Delta != "" {
		l := d.delta
		l.Event = "delta"
		d.write(l)
	}
	d.delta = opencodeLine{}
}

// part tells a part of a message where it is over, or the start of a tool.
func (d *driver) part(p *opencodePart) {
	if d.user[p.MessageID] {
		return
	}
	switch p.Type {
	case "text", "reasoning":
		remember(d.kinds, p.ID, p.Type)
		if p.Time == nil || p.Time.End == 0 {
			return
		}
	case "tool":
		if p.State == nil || p.State.Status == "pending" || p.State.Status == "running" && d.running[p.CallID] {
			return
		}
		remember(d.running, p.CallID, true)
	case "step-finish":
	default:
		return
	}
	d.flush()
	d.retried = false
	d.write(opencodeLine{Event: "part", Part: p.reduced()})
}

// reduced leaves out what no event has room for, so that a line stays below its bound.
func (p *opencodePart) reduced() *opencodePart {
	c := *p
	c.Text = fleet.CutText(c.Text, fleet.MaxEventText)
	if p.State == nil {
		return &c
	}
	st := *p.State
	st.Output = fleet.CutMiddle(st.Output, fleet.MaxEventOutput)
	st.Error = fleet.CutText(st.Error, 4<<10)
	st.Input = shrink(st.Input, 4<<10)
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(st.Metadata, &meta)
	for name := range meta {
		switch name {
		case "exit", "output", "filepath", "exists":
		case "files":
			meta[name] = shrink(meta[name], 1<<10)
		default:
			delete(meta, name)
		}
	}
	if b, ok := meta["output"]; ok {
		meta["output"] = shrink(b, fleet.MaxEventOutput)
	}
	st.Metadata = nil
	if len(meta) > 0 {
		if b, err := json.Marshal(meta); err == nil {
			st.Metadata = b
		}
	}
	c.State = &st
	return &c
}

// shrink cuts the strings of a JSON value, and drops the value if it is still too long for a line.
func shrink(raw json.RawMessage, limit int) json.RawMessage {
	if len(raw) <= limit {
		return raw
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	b, err := json.Marshal(shrunk(v, limit))
	if err != nil || len(b) > 128<<10 {
		return nil
	}
	return b
}

func shrunk(v any, limit int) any {
	switch t := v.(type) {
	case string:
		return fleet.CutMiddle(t, limit)
	case []any:
		for i := range t {
			t[i] = shrunk(t[i], limit)
		}
	case map[string]any:
		for k := range t {
			t[k] = shrunk(t[k], limit)
		}
	}
	return v
}
