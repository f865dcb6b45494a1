package main

import (
	"fmt"
	"io"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// renderer writes an agent's events as lines for people.
type renderer struct {
	w      io.Writer
	tty    bool // the writer is a terminal
	colour bool
	err    error

	begun   map[string]bool // items whose start was shown
	partial string          // id of the message that is being written
	shown   string          // what of it was
	todo    string
	before  fleet.EventType
}

// maxBegun bounds what is remembered of items that never end.
const maxBegun = 10_000

func newRenderer(w io.Writer, tty, colour bool) *renderer {
	return &renderer{w: w, tty: tty, colour: colour, begun: map[string]bool{}}
}

func (r *renderer) put(p paint, format string, args ...any) {
	if r.err != nil {
		return
	}
	text := p.on(r.colour && p != "", clean(fmt.Sprintf(format, args...)))
	_, r.err = io.WriteString(r.w, text+"\n")
}

// flush ends a line that is being written.
func (r *renderer) flush() {
	if r.shown != "" && r.err == nil {
		_, r.err = io.WriteString(r.w, "\n")
	}
	r.partial, r.shown = "", ""
}

// live shows a piece of a message while the agent writes it, on a terminal only:
// elsewhere the finished message will do.
func (r *renderer) live(e fleet.Event) {
	if !r.tty || e.Type != fleet.EventAgentMessage || e.Text == "" || r.err != nil {
		return
	}
	if r.partial != e.ID {
		r.flush()
		r.gap(e.Type)
		r.partial = e.ID
	}
	r.shown += e.Text
	_, r.err = io.WriteString(r.w, clean(e.Text))
}

// gap sets messages apart from what was done between them.
func (r *renderer) gap(t fleet.EventType) {
	said := func(t fleet.EventType) bool { return t == fleet.EventAgentMessage }
	if r.before != "" && (said(t) || said(r.before)) && r.err == nil {
		_, r.err = io.WriteString(r.w, "\n")
	}
	r.before = t
}

// event shows a finished event, or the start of a long one.
func (r *renderer) event(e fleet.Event) {
	if e.Type == fleet.EventAgentMessage && r.shown != "" && r.partial == e.ID {
		rest, whole := strings.CutPrefix(e.Text, r.shown)
		r.partial, r.shown = "", ""
		if whole {
			r.put("", "%s", strings.TrimRight(rest, "\n"))
			return
		}
		r.put("", "")
		r.before = ""
	}
	first := r.first(e)
	lines := r.lines(e, first)
	if len(lines) == 0 {
		return
	}
	r.flush()
	r.gap(e.Type)
	for _, l := range lines {
		r.put(l.paint, "%s", l.text)
	}
}

// first says whether an item is seen for the first time.
func (r *renderer) first(e fleet.Event) bool {
	if e.ID == "" {
		return true
	}
	key := string(e.Type) + " " + e.ID
	if r.begun[key] {
		if e.Status != fleet.StatusInProgress {
			delete(r.begun, key)
		}
		return false
	}
	if e.Status == fleet.StatusInProgress && len(r.begun) < maxBegun {
		r.begun[key] = true
	}
	return true
}

type shownLine struct {
	paint paint
	text  string
}

func (r *renderer) lines(e fleet.Event, isFirst bool) (out []shownLine) {
	add := func(p paint, format string, args ...any) {
		out = append(out, shownLine{p, strings.TrimRight(fmt.Sprintf(format, args...), "\n")})
	}
	ended := e.Status != fleet.StatusInProgress
	switch e.Type {
	case fleet.EventAgentMessage:
		if ended && strings.TrimSpace(e.Text) != "" {
			add("", "%s", e.Text)
		}
	case fleet.EventReasoning:
		if ended && strings.TrimSpace(e.Text) != "" {
			add(dim, "%s", e.Text)
		}
	case fleet.EventCommandExecution:
		if isFirst {
			add(cyan, "$ %s", e.Command)
		}
		if !ended {
			break
		}
		failed := e.Status == fleet.StatusFailed || e.ExitCode != nil && *e.ExitCode != 0
		if failed {
			for _, l := range tail(e.Output, 8) {
				add(dim, "  %s", l)
			}
		}
		switch {
		case e.ExitCode != nil && failed:
			add(red, "  exit %d", *e.ExitCode)
		case failed:
			add(red, "  failed")
		case e.ExitCode != nil:
			add(dim, "  exit 0")
		}
	case fleet.EventFileChange:
		if !ended {
			break
		}
		for _, c := range e.Changes {
			if e.Status == fleet.StatusFailed {
				add(red, "%s %s failed", mark(c.Kind), line(c.Path))
			} else {
				add(green, "%s %s", mark(c.Kind), line(c.Path))
			}
		}
	case fleet.EventMCPToolCall, fleet.EventDynamicToolCall:
		name := strings.TrimPrefix(e.Server+"."+e.Tool, ".")
		if isFirst {
			add(dim, "· %s %s", name, cut(line(string(e.Arguments)), 100-len(name)))
		}
		if e.Status == fleet.StatusFailed {
			add(red, "  %s failed: %s", name, cut(line(first(e.Text, e.Output, string(e.Result))), 160))
		}
	case fleet.EventWebSearch:
		if isFirst {
			add(dim, "· searches the web: %s", cut(line(e.Query), 100))
		}
	case fleet.EventTodo:
		var b strings.Builder
		for _, t := range e.Items {
			box := "[ ]"
			if t.Completed {
				box = "[x]"
			}
			fmt.Fprintf(&b, "%s %s\n", box, line(t.Text))
		}
		if b.String() != r.todo && b.Len() > 0 {
			r.todo = b.String()
			add(dim, "%s", r.todo)
		}
	case fleet.EventUsage:
		if e.Usage != nil && !e.Usage.IsZero() {
			add(dim, "· tokens: %s in, %s out", count(e.Usage.InputTokens), count(e.Usage.OutputTokens))
		}
	case fleet.EventError:
		add(red, "error: %s", e.Text)
	case fleet.EventLog:
		if e.Level == "warn" || e.Level == "error" {
			add(yellow, "%s: %s", e.Level, first(e.Text, string(e.Raw)))
		}
	}
	return out
}

func mark(kind string) string {
	switch kind {
	case "add":
		return "+"
	case "delete":
		return "-"
	}
	return "~"
}

// tail gives the last lines of a text.
func tail(s string, n int) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	l := strings.Split(s, "\n")
	if len(l) > n {
		l = append([]string{"…"}, l[len(l)-n:]...)
	}
	return l
}
