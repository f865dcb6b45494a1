package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

const (
	runnersTold = 1000 // reasons in an explanation: more are only counted
	reasonsTold = 20   // runners whose reasons a blocked job names
	notesTold   = 20
	aheadTold   = 1000
)

// verdict is what a look says of one runner.
type verdict struct {
	bar bar
	at  int // among the candidates
}

// verdicts gives what stands against each runner, the nearest to taking the job first.
// Among those that would take it that is the one that Pick would choose.
func (b *Board) verdicts(w *wanted, j *fleet.Job) []verdict {
	cs := b.candidates()
	vs := make([]verdict, len(cs))
	for i := range cs {
		got, _ := b.first(w, j, &cs[i])
		vs[i] = verdict{got, i}
	}
	auto := w.automated()
	slices.SortStableFunc(vs, func(x, y verdict) int {
		if c := cmp.Compare(y.bar-1, x.bar-1); c != 0 { // nothing is nearest
			return c
		}
		if x.bar != open {
			return 0
		}
		p, q := &cs[x.at], &cs[y.at]
		return cmp.Or(boolCompare(q.warm(w.cache), p.warm(w.cache)), cmp.Compare(q.free(auto), p.free(auto)))
	})
	return vs
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// warm says whether the runner has a cache of the name.
func (c *candidate) warm(cache string) bool {
	if cache == "" {
		return false
	}
	for name := range strings.FieldsSeq(c.caches) {
		if name == cache {
			return true
		}
	}
	return false
}

// Explain says of a queued job exactly why it is not running, runner by runner; of any
// other job, the reason that is recorded.
func (b *Board) Explain(j *fleet.Job) Explanation {
	e := Explanation{Index: b.v.Meta().Index, At: b.l.Now.UTC()}
	if j.State != fleet.Queued {
		e.Summary = recorded(j)
		return e
	}
	w := b.wanted(j)
	vs := b.verdicts(w, j)
	e.take(b.sum(w, j, vs))
	e.Ahead = b.before(j)
	for n, x := range vs {
		if n == runnersTold {
			e.More = len(vs) - n
			break
		}
		r := b.tell(x.bar, w, j, &b.m.candidates[x.at])
		if x.bar == open && (n > 0 || e.Code != "") {
			r.Detail = "could take it" + strings.TrimPrefix(r.Detail, "takes it next")
		}
		e.Runners = append(e.Runners, r)
	}
	e.Notes = b.notes(w, vs)
	return e
}

// Why says the same in one sentence, the summary of Explain.
func (b *Board) Why(j *fleet.Job) Reason {
	if j.State != fleet.Queued {
		return Reason{Detail: recorded(j)}
	}
	w := b.wanted(j)
	return b.sum(w, j, b.verdicts(w, j))
}

func recorded(j *fleet.Job) string {
	return strings.TrimSuffix(string(j.State)+": "+j.Reason.Detail, ": ")
}

func (e *Explanation) take(r Reason) {
	e.Summary, e.Code, e.Until, e.Change = r.Detail, r.Code, r.Until, r.Change
}

// sum gives the one reason that says most: what keeps the job waiting whatever runners
// there are, or else the runner that is nearest to taking it.
func (b *Board) sum(w *wanted, j *fleet.Job, vs []verdict) Reason {
	if r := b.tellAlone(j); r.Code != "" {
		return r
	}
	if len(vs) == 0 {
		return Reason{Code: fleet.NotFound, Detail: "no runner is enrolled; make a ticket with `tugline hub ticket` and start one", Change: "`tugline hub ticket`, and `tugline runner run` with it"}
	}
	if w.bound != "" {
		if r, ok := b.v.Runner(w.bound); ok && r.Removed {
			return Reason{
				Code: fleet.SessionGone, Change: "cancel it and ask again with --fresh",
				Detail: fmt.Sprintf("the runner %s, which holds %s, was removed; cancel it and ask again with --fresh", r.Name, boundBy(j)),
			}
		}
	}
	near := vs[0]
	r := b.tell(near.bar, w, j, &b.m.candidates[near.at])
	name := r.Runner
	r.Runner = ""
	switch {
	case near.bar == open:
		r.Detail = name + " can take it and is being asked"
	case !near.bar.lasts():
		r.Detail = fmt.Sprintf("waits for a runner: %s %s", name, r.Detail)
	case len(vs) == 1:
		r.Detail = fmt.Sprintf("no runner can take it: %s %s", name, r.Detail)
	default:
		r.Detail = fmt.Sprintf("none of the %d runners can take it: %s %s", len(vs), name, r.Detail)
	}
	return r
}

// before counts the jobs that are at least as urgent and, if no more so, older.
func (b *Board) before(j *fleet.Job) (n int) {
	at := func(j *fleet.Job) (row, int) {
		r := row{seq: j.Seq, queued: j.Turn().QueuedAt.UnixNano()}
		return r, (&lane{laneKey: laneKey{priority: j.Spec.Priority}}).urgency(&r, b.l.Now)
	}
	mine, urgent := at(j)
	b.v.Queue(func(q *fleet.Job) bool {
		if r, u := at(q); u > urgent || u == urgent && r.before(&mine) {
			n++
		}
		return n < aheadTold
	})
	return n
}

// notes warns of what keeps no runner from a person's job, and may spoil it.
func (b *Board) notes(w *wanted, vs []verdict) (notes []string) {
	if w.automated() {
		return nil
	}
	for _, x := range vs {
		if x.bar.lasts() || x.bar >= held && x.bar <= fresh {
			continue
		}
		if len(notes) == notesTold {
			return append(notes, "and more")
		}
		switch c := &b.m.candidates[x.at]; {
		case !c.recent:
			notes = append(notes, fmt.Sprintf("%s %s", c.r.Name, c.unknown(diskUnknown)))
		case c.avail < w.reserve:
			notes = append(notes, fmt.Sprintf("%s has %s free at %s%s, and the repository's jobs are expected to take %s", c.r.Name, size(c.health.Workspace.Free), pathOf(c.health.Workspace), c.promised(), size(w.reserve)))
		case c.lowDisk(true, b.floor, 0) != open:
			notes = append(notes, fmt.Sprintf("%s %s", c.r.Name, b.tell(c.lowDisk(true, b.floor, 0), &wanted{want: want{origin: fleet.Automation}}, nil, c).Detail))
		}
	}
	return notes
}

// obstacle says what kept a job in the queue, with the reason of each runner.
func (b *Board) obstacle(j *fleet.Job) string {
	if r := b.tellAlone(j); r.Code != "" {
		return r.Detail
	}
	w := b.wanted(j)
	vs := b.verdicts(w, j)
	if len(vs) == 0 || vs[0].bar.lasts() && (len(vs) == 1 || w.bound != "") {
		return b.sum(w, j, vs).Detail
	}
	could := !vs[0].bar.lasts()
	slices.SortFunc(vs, func(x, y verdict) int { return cmp.Compare(x.at, y.at) })
	var whys []string
	for _, x := range vs[:min(len(vs), reasonsTold)] {
		r := b.tell(x.bar, w, j, &b.m.candidates[x.at])
		if x.bar == open {
			r.Detail = "could take it only now"
		}
		whys = append(whys, r.Runner+" "+r.Detail)
	}
	rest := ifAny(fmt.Sprintf("; and %d more", len(vs)-reasonsTold), len(vs) > reasonsTold)
	if !could {
		return fmt.Sprintf("none of the %d runners can take it: %s%s", len(vs), strings.Join(whys, "; "), rest)
	}
	return "no runner that can take it became free: " + strings.Join(whys, "; ") + rest
}
