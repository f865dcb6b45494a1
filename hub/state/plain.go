package state

import (
	"encoding/json"
	"strconv"
	"time"

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

func appendCommand(b []byte, c Command) ([]byte, error) {
	if p, ok := c.(plain); ok {
		w := printer{b: b}
		if p.print(&w); !w.bad {
			return w.b, nil
		}
	}
	body, err := json.Marshal(c)
	return append(b, body...), err
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

// some writes a number that is left out when it is zero.
func (w *printer) some(name string, n int64) {
	if n != 0 {
		w.number(name, n)
	}
}

// moment writes a time as encoding/json does, but for those with a zone.
func (w *printer) moment(name string, t time.Time) {
	w.bad = w.bad || t.Location() != time.UTC || t.Year() < 0 || t.Year() > 9999
	w.lit(name)
	w.b = append(t.AppendFormat(append(w.b, '"'), time.RFC3339Nano), '"')
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
	if !s.next(lit) {
		return false
	}
	s.b = s.b[len(lit):]
	return true
}

// next says whether a literal comes next, and leaves it there.
func (s *scanner) next(lit string) bool { return len(s.b) >= len(lit) && string(s.b[:len(lit)]) == lit }

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
			v := word(s.b[:i])
			s.b = s.b[i+1:]
			return v
		}
	}
	s.bad = true
	return ""
}

// words are what most jobs say, and need not be kept once a job.
var words = map[string]string{}

func init() {
	for _, w := range []string{
		"manual", "hold", "exec", "exited", "gate", "exit code 0", string(fleet.KindAgent), string(fleet.PermRead), string(fleet.PermWorkspace),
		string(fleet.PermFull), string(fleet.ClassOK), string(fleet.Accept),
	} {
		words[w] = w
	}
}

func word(b []byte) string {
	if len(b) == 0 || len(b) > 16 {
		return string(b)
	}
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

func (s *scanner) moment(name string) (t time.Time) {
	if v := s.text(name); s.bad || t.UnmarshalText([]byte(v)) != nil {
		s.bad = true
	}
	return t
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
	n := int64(0)
	for _, c := range s.b[:i] {
		n = 10*n + int64(c-'0')
	}
	s.b = s.b[i:]
	return n
}

func (s *scanner) some(name string) int64 {
	if !s.next(name) {
		return 0
	}
	return s.number(name)
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
	w.bad = sp.Repo != nil || len(sp.Require)+len(sp.Env)+len(sp.Secrets) > 0 || sp.Timeouts != (fleet.Timeouts{}) || ruled(sp) || sp.Session != nil || c.Title != ""
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
	w.some(`,"rules":`, int64(c.Rules))
	w.some(`,"choice":`, int64(c.Choice))
	w.some(`,"reserve":`, c.Reserve)
	w.bad = w.bad || len(c.Probes) > 0
	w.some(`,"base":`, int64(c.Base))
	w.some(`,"automation":`, int64(c.Automation))
	w.lit(`}`)
}

func (c *AssignJob) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Runner = fleet.RunnerID(s.text(`,"runner":`))
	c.Turn = int(s.number(`,"turn":`))
	c.Attempts = int(s.number(`,"attempts":`))
	c.Slots = int(s.number(`,"slots":`))
	c.Rules = int(s.some(`,"rules":`))
	c.Choice = int(s.some(`,"choice":`))
	c.Reserve = s.some(`,"reserve":`)
	c.Base = int(s.some(`,"base":`))
	c.Automation = int(s.some(`,"automation":`))
	s.lit(`}`)
}

func (c *AcceptAttempt) print(w *printer) {
	w.bad = len(c.Notes) > 0
	w.text(`{"job":`, string(c.Job))
	w.text(`,"fence":`, c.Fence.String())
	w.maybe(`,"permissions":`, string(c.Permissions))
	w.maybe(`,"base_commit":`, c.BaseCommit)
	w.some(`,"rules":`, int64(c.Rules))
	w.lit(`}`)
}

func (c *AcceptAttempt) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Fence = s.fence(`,"fence":`)
	c.Permissions = fleet.Permissions(s.maybe(`,"permissions":`))
	c.BaseCommit = s.maybe(`,"base_commit":`)
	c.Rules = int(s.some(`,"rules":`))
	s.lit(`}`)
}

// The end of a command in no repository, with its verdict; what an agent did says more
// and comes seldom.
func (c *FinishAttempt) print(w *printer) {
	e, v := c.Evidence, c.Verdict
	w.bad = c.ResetAt != nil || c.Usage != nil || e == nil || v == nil || len(v.Reasons) == 0 || !bare(e) ||
		c.RetryAfter != 0 || c.StatedEnd != "" || c.Acted || c.Account != ""
	if w.bad {
		return
	}
	w.text(`{"job":`, string(c.Job))
	w.text(`,"fence":`, c.Fence.String())
	w.number(`,"exit":{"code":`, int64(c.Exit.Code))
	w.maybe(`,"signal":`, c.Exit.Signal)
	w.text(`,"reason":`, c.Exit.Reason)
	w.maybe(`,"detail":`, c.Exit.Detail)
	w.text(`},"class":`, string(c.Class))
	w.maybe(`,"detail":`, c.Detail)
	w.maybe(`,"session_id":`, c.SessionID)
	w.maybe(`,"model":`, c.Model)
	if !c.StartedAt.IsZero() {
		w.moment(`,"started_at":`, c.StartedAt)
	}
	w.moment(`,"finished_at":`, c.FinishedAt)
	w.number(`,"output":`, c.Output)
	w.some(`,"text":`, c.Text)
	w.number(`,"events":`, c.Events)
	w.some(`,"dropped":`, c.Dropped)
	w.lit(bareEvidence)
	if e.NoRepo {
		w.lit(`,"no_repo":true`)
	}
	w.text(`},"verdict":{"decision":`, string(v.Decision))
	w.text(`,"reasons":[`, v.Reasons[0])
	for _, r := range v.Reasons[1:] {
		w.text(`,`, r)
	}
	w.text(`],"by":`, v.By)
	w.lit(`}`)
	w.some(`,"rules":`, int64(c.Rules))
	w.some(`,"footprint":`, c.Footprint)
	w.lit(`}`)
}

const bareEvidence = `,"evidence":{"commit_count":0,"stat":{"files":0,"insertions":0,"deletions":0},"bundle_checked":false`

// bare says whether evidence says nothing, but that there was no repository.
func bare(e *fleet.Evidence) bool {
	return len(e.Base)+len(e.Tip)+len(e.Before)+len(e.Tree)+len(e.RunnerCommit)+len(e.Branch)+len(e.RescueRef)+len(e.Bundle)+len(e.Patch)+
		len(e.BundleError)+len(e.Closure)+len(e.Commits)+len(e.Artifacts)+len(e.Notes) == 0 &&
		!e.Descends && !e.BundleChecked && e.CommitCount == 0 && e.Stat == (fleet.DiffStat{}) && e.BundleSize == 0 && e.PatchSize == 0 && e.Swept == 0
}

func (c *FinishAttempt) scan(s *scanner) {
	c.Job = fleet.JobID(s.text(`{"job":`))
	c.Fence = s.fence(`,"fence":`)
	c.Exit.Code = int(s.number(`,"exit":{"code":`))
	c.Exit.Signal = s.maybe(`,"signal":`)
	c.Exit.Reason = s.text(`,"reason":`)
	c.Exit.Detail = s.maybe(`,"detail":`)
	c.Class = fleet.FailureClass(s.text(`},"class":`))
	c.Detail = s.maybe(`,"detail":`)
	c.SessionID = s.maybe(`,"session_id":`)
	c.Model = s.maybe(`,"model":`)
	if s.next(`,"started_at":`) {
		c.StartedAt = s.moment(`,"started_at":`)
	}
	c.FinishedAt = s.moment(`,"finished_at":`)
	c.Output = s.number(`,"output":`)
	c.Text = s.some(`,"text":`)
	c.Events = s.number(`,"events":`)
	c.Dropped = s.some(`,"dropped":`)
	s.lit(bareEvidence)
	c.Evidence = &fleet.Evidence{NoRepo: s.has(`,"no_repo":true`)}
	v := &fleet.Verdict{Decision: fleet.Decision(s.text(`},"verdict":{"decision":`)), Reasons: []string{s.text(`,"reasons":[`)}}
	for !s.bad && s.has(`,`) {
		v.Reasons = append(v.Reasons, s.quoted())
	}
	v.By = s.text(`],"by":`)
	c.Verdict = v
	s.lit(`}`)
	c.Rules = int(s.some(`,"rules":`))
	c.Footprint = s.some(`,"footprint":`)
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
