package state

import (
	"encoding/json"
	"strconv"

	"tugline.dev/tugline/shared/fleet"
)

// The commands of every small job are written and read without reflection where they
// are plain: nothing in them that JSON escapes, no field that is seldom used. Both ways
// give exactly what encoding/json gives; whatever is not plain is left to it.

// plain is a command with a short way.
type plain interface {
	Command
	print(*printer)
	scan(*scanner)
}

func marshal(c Command) ([]byte, error) {
	if p, ok := c.(plain); ok {
		w := printer{b: make([]byte, 0, 512)}
		if p.print(&w); !w.bad {
			return w.b, nil
		}
	}
	return json.Marshal(c)
}

// printer writes JSON; bad says that the long way must be taken.
type printer struct {
	b   []byte
	bad bool
}

func (w *printer) lit(s string) { w.b = append(w.b, s...) }

func (w *printer) text(name, s string) {
	w.lit(name)
	w.quoted(s)
}

// maybe writes a field that is left out when it is empty.
func (w *printer) maybe(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *printer) quoted(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			w.bad = true
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
}

func (w *printer) number(name string, n int64) {
	w.lit(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

// scanner reads what printer wrote; bad says that it is something else.
type scanner struct {
	b   []byte
	bad bool
}

// whole says whether everything was read and nothing is left.
func (s *scanner) whole() bool { return !s.bad && len(s.b) == 0 }

// has takes a literal if it comes next.
func (s *scanner) has(lit string) bool {
	if len(s.b) < len(lit) || string(s.b[:len(lit)]) != lit {
		return false
	}
	s.b = s.b[len(lit):]
	return true
}

func (s *scanner) lit(lit string) {
	if !s.has(lit) {
		s.bad = true
	}
}

func (s *scanner) text(name string) string {
	s.lit(name)
	return s.quoted()
}

func (s *scanner) maybe(name string) string {
	if !s.has(name) {
		return ""
	}
	return s.quoted()
}

func (s *scanner) quoted() string {
	s.lit(`"`)
	for i, c := range s.b {
		switch {
		case s.bad || c < ' ' || c > '~' || c == '\\':
			s.bad = true
			return ""
		case c == '"':
			v := string(s.b[:i])
			s.b = s.b[i+1:]
			return v
		}
	}
	s.bad = true
	return ""
}

func (s *scanner) number(name string) int64 {
	s.lit(name)
	i := 0
	for i < len(s.b) && s.b[i] >= '0' && s.b[i] <= '9' {
		i++
	}
	// No sign, no leading zero, nothing that could be too large.
	if i == 0 || i > 18 || i > 1 && s.b[0] == '0' {
		s.bad = true
		return 0
	}
	n, err := strconv.ParseInt(string(s.b[:i]), 10, 64)
	s.bad = s.bad || err != nil
	s.b = s.b[i:]
	return n
}

func (s *scanner) fence(name string) (f fleet.Fence) {
	v := s.text(name)
	if v == "" || f.UnmarshalText([]byte(v)) != nil {
		s.bad = true
	}
	return f
}

func (c *SubmitJob) print(w *printer) {
	sp := &c.Spec
	w.bad = sp.Repo != nil || len(sp.Require)+len(sp.Env)+len(sp.Secrets) > 0 || sp.Timeouts != (fleet.Timeouts{})
	w.text(`{"id":`, string(c.ID))
	w.text(`,"spec":{"kind":`, string(sp.Kind))
	w.text(`,"origin":{"kind":`, sp.Origin.Kind)
	w.maybe(`,"name":`, sp.Origin.Name)
	w.lit(`}`)
	w.maybe(`,"concurrency_key":`, sp.ConcurrencyKey)
	w.text(`,"harness":`, sp.Harness)
	w.maybe(`,"model":`, sp.Model)
	w.text(`,"permissions":`, string(sp.Permissions))
	if len(sp.Argv) > 0 {
		w.text(`,"argv":[`, sp.Argv[0])
		for _, a := range sp.Argv[1:] {
			w.text(`,`, a)
		}
		w.lit(`]`)
	}
	w.maybe(`,"argv_blob":`, string(sp.ArgvBlob))
	w.maybe(`,"on":`, sp.On)
	w.maybe(`,"push":`, sp.Push)
	w.maybe(`,"commit":`, sp.Commit)
	w.text(`,"on_lost":`, sp.OnLost)
	w.lit(`,"timeouts":{}}`)
	w.maybe(`,"prompt":`, string(c.Prompt))
	w.lit(`}`)
}

func (c *SubmitJob) scan(s *scanner) {
	sp := &c.Spec
	c.ID = fleet.JobID(s.text(`{"id":`))
	sp.Kind = fleet.Kind(s.text(`,"spec":{"kind":`))
	sp.Origin.Kind = s.text(`,"origin":{"kind":`)
	sp.Origin.Name = s.maybe(`,"name":`)
	s.lit(`}`)
	sp.ConcurrencyKey = s.maybe(`,"concurrency_key":`)
	sp.Harness = s.text(`,"harness":`)
	sp.Model = s.maybe(`,"model":`)
	sp.Permissions = fleet.Permissions(s.text(`,"permissions":`))
	if s.has(`,"argv":[`) {
		sp.Argv = append(sp.Argv, s.quoted())
		for !s.bad && s.has(`,`) {
			sp.Argv = append(sp.Argv, s.quoted())
		}
		s.lit(`]`)
	}
	sp.ArgvBlob = fleet.Digest(s.maybe(`,"argv_blob":`))
	sp.On = s.maybe(`,"on":`)
	sp.Push = s.maybe(`,"push":`)
	sp.Commit = s.maybe(`,"commit":`)
	sp.OnLost = s.text(`,"on_lost":`)
	s.lit(`,"timeouts":{}}`)
	c.Prompt = fleet.Digest(s.maybe(`,"prompt":`))
	s.lit(`}`)
}

func (c *AssignJob) print(w *printer) {
	w.text(`{"job":`, string(c.Job))
	w.text(`,"runner":`, string(c.Runner))
	w.number(`,"turn":`, int64(c.Turn))
	w.number(`,"attempts":`, int64(c.Attempts))
	w.number(`,"slots":`, int64(c.Slots))
	w.lit(`}`)
}

func (c *AssignJob) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Runner = fleet.RunnerID(s.text(`,"runner":`))
	c.Turn = int(s.number(`,"turn":`))
	c.Attempts = int(s.number(`,"attempts":`))
	c.Slots = int(s.number(`,"slots":`))
	s.lit(`}`)
}

func (c *AcceptAttempt) print(w *printer) {
	w.bad = len(c.Notes) > 0
	w.text(`{"job":`, string(c.Job))
	w.text(`,"fence":`, c.Fence.String())
	w.maybe(`,"permissions":`, string(c.Permissions))
	w.maybe(`,"base_commit":`, c.BaseCommit)
	w.lit(`}`)
}

func (c *AcceptAttempt) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Fence = s.fence(`,"fence":`)
	c.Permissions = fleet.Permissions(s.maybe(`,"permissions":`))
	c.BaseCommit = s.maybe(`,"base_commit":`)
	s.lit(`}`)
}

func (c *SealLog) print(w *printer) {
	w.text(`{"job":`, string(c.Job))
	w.text(`,"fence":`, c.Fence.String())
	w.number(`,"output":`, c.Output)
	w.number(`,"events":`, c.Events)
	w.lit(`}`)
}

func (c *SealLog) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Fence = s.fence(`,"fence":`)
	c.Output = s.number(`,"output":`)
	c.Events = s.number(`,"events":`)
	s.lit(`}`)
}

func (c *CancelJob) print(w *printer) {
	w.text(`{"job":`, string(c.Job))
	if c.Abandon {
		w.lit(`,"abandon":true`)
	}
	w.lit(`}`)
}

func (c *CancelJob) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Abandon = s.has(`,"abandon":true`)
	s.lit(`}`)
}
