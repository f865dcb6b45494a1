package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// world is a rig to which drawn things happen.
type world struct {
	*rig
	t    *rapid.T
	jobs int
	runs int
	open []run
}

// run is an attempt under way.
type run struct {
	job      fleet.JobID
	fence    fleet.Fence
	accepted bool
}

func newWorld(t *rapid.T) *world {
	w := &world{rig: newRig(t), t: t}
	for range rapid.IntRange(1, 4).Draw(t, "runners") {
		w.enrol()
	}
	for range rapid.IntRange(0, 10).Draw(t, "jobs") {
		w.submit()
	}
	return w
}

func (w *world) one(label string, in int) bool { return rapid.IntRange(1, in).Draw(w.t, label) == 1 }

func (w *world) enrol() {
	id := fleet.RunnerID(fmt.Sprintf("r%d", w.runs))
	w.runs++
	w.runner(id, rapid.IntRange(0, 3).Draw(w.t, "slots"), w.drawFacts)
	w.see(id)
	if w.one("automation", 2) {
		n := rapid.IntRange(0, 3).Draw(w.t, "automation slots")
		w.do(&state.SetSlots{ID: id, Automation: &n})
	}
}

func (w *world) drawFacts(f *fleet.RunnerFacts) {
	if w.one("no codex", 5) {
		f.Harnesses = f.Harnesses[1:]
	}
	if w.one("owner's repositories", 6) {
		f.Repos = []string{"https://a/*"}
	}
	if w.one("owner's origins", 6) {
		f.Origins = []string{fleet.Manual}
	}
	f.Harnesses[0].Account = rapid.SampledFrom([]string{"x", "y"}).Draw(w.t, "account")
}

// see draws what the leader sees of a runner.
func (w *world) see(id fleet.RunnerID) {
	p := w.seen[id]
	p.Connected, p.Full = !w.one("away", 6), !w.one("new", 8)
	if w.one("declines", 8) {
		p.Declining = "night"
	}
	h := well()
	h.Workspace.Free = int64(rapid.IntRange(8, 40).Draw(w.t, "GiB free")) << 30
	if w.one("no Docker", 3) {
		h.Docker.State = fleet.DockerDown
	}
	p.Health, p.HealthAt, p.Caches = h, w.now, ""
	if w.one("warm", 2) {
		p.Caches = (&fleet.Repo{URL: "https://a/b"}).CacheOf() + " other"
	}
	w.seen[id] = p
}

func (w *world) submit() {
	w.jobs++
	w.job(fleet.JobID(fmt.Sprintf("j%03d", w.jobs)), func(s *fleet.Spec) {
		s.Harness = rapid.SampledFrom([]string{"codex", "codex", "exec"}).Draw(w.t, "harness")
		s.Origin = rapid.SampledFrom([]fleet.Origin{{Kind: fleet.Manual}, {Kind: fleet.Automation, Name: "a"}, {Kind: fleet.Automation, Name: "b"}}).Draw(w.t, "origin")
		s.Priority = rapid.IntRange(-1, 1).Draw(w.t, "priority")
		s.OnLost = "rerun"
		s.ConcurrencyKey = rapid.SampledFrom([]string{"", "", "", "k", "l"}).Draw(w.t, "key")
		s.On = rapid.SampledFrom([]string{"", "", "", "", "box-r1", "r0"}).Draw(w.t, "on")
		if w.one("repository", 2) {
			s.Repo = &fleet.Repo{URL: rapid.SampledFrom([]string{"https://a/b", "https://c/d"}).Draw(w.t, "url")}
		}
		if w.one("needs", 4) {
			s.Needs = &fleet.Needs{Docker: w.one("Docker", 2), Disk: int64(rapid.IntRange(0, 30).Draw(w.t, "GiB")) << 30}
		}
		if w.one("model", 4) {
			s.Model = "m"
		}
	})
}

// happen has something happen.
func (w *world) happen() {
	any := slices.Sorted(maps.Keys(w.seen))
	id := rapid.SampledFrom(any).Draw(w.t, "runner")
	switch rapid.IntRange(0, 12).Draw(w.t, "event") {
	case 0:
		if w.runs < 6 {
			w.enrol()
		}
	case 1:
		w.facts(id, w.drawFacts)
	case 2, 3:
		w.see(id)
	case 4:
		if w.one("everywhere", 3) {
			id = ""
		}
		w.do(&state.OpenCircuit{Scope: fleet.ScopeProvider, Runner: id, Provider: "openai", For: time.Duration(rapid.IntRange(1, 60).Draw(w.t, "minutes")) * time.Minute, Reason: "r"})
	case 5:
		w.do(&state.SetBudget{Budget: fleet.Budget{Origin: rapid.SampledFrom([]string{"manual", "automation", "automation:a"}).Draw(w.t, "of"), Runs: int64(rapid.IntRange(1, 6).Draw(w.t, "runs")), Window: time.Hour}})
	case 6:
		if r, _ := w.m.View().Runner(id); r.HeldAt(w.now) {
			w.do(&state.HoldRunner{ID: id})
		} else {
			until := w.now.Add(time.Minute)
			w.do(&state.HoldRunner{ID: id, Hold: &fleet.Hold{Until: &until}})
		}
	case 7, 8:
		w.submit()
	case 9:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 50).Draw(w.t, "later")) * time.Minute)
		for _, r := range any {
			w.see(r)
		}
	default:
		w.goOn()
	}
}

// goOn has an attempt that is under way go on.
func (w *world) goOn() {
	if len(w.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.open)-1).Draw(w.t, "attempt")
	x := w.open[i]
	if !x.accepted && !w.one("declines it", 3) {
		w.do(&state.AcceptAttempt{Job: x.job, Fence: x.fence, Rules: 1})
		w.open[i].accepted = true
		return
	}
	switch {
	case !x.accepted:
		w.do(&state.DeclineAttempt{Job: x.job, Fence: x.fence, Code: fleet.Storage, Detail: "full", RetryAfter: time.Duration(rapid.IntRange(0, 90).Draw(w.t, "after")) * time.Second, Rules: 1})
	case w.one("lost", 3):
		w.do(&state.LoseAttempt{Job: x.job, Fence: x.fence, Rules: 1})
	default:
		w.do(&state.FinishAttempt{Job: x.job, Fence: x.fence, Verdict: &fleet.Verdict{Decision: fleet.Accept}, Rules: 1})
	}
	w.open = slices.Delete(w.open, i, i+1)
}

// apply applies a plan; none of its assignments may be refused.
func (w *world) apply(p Plan) {
	for i, f := range w.place(p) {
		w.open = append(w.open, run{p.Assign[i].Job, f, false})
	}
}

// plainly picks with no speed: one job after the other, each by a look of its own that
// takes those before for granted.
func (w *world) plainly(limit int) (p Plan) {
	taken := map[fleet.JobID]Assignment{}
	for len(p.Assign) < limit {
		b := w.look(0, maps.Clone(taken))
		cs := b.candidates()
		var queue []*fleet.Job
		w.m.View().Queue(func(j *fleet.Job) bool { queue = append(queue, j); return true })
		urgency := func(j *fleet.Job) int {
			return j.Spec.Priority + int(w.now.Sub(j.Turn().QueuedAt)/(30*time.Minute))
		}
		slots := func(j *fleet.Job) int { return *b.slots(j.Spec.Origin.OriginKey()) }
		slices.SortFunc(queue, func(x, y *fleet.Job) int {
			return cmp.Or(cmp.Compare(urgency(y), urgency(x)), cmp.Compare(slots(x), slots(y)), x.Turn().QueuedAt.Compare(y.Turn().QueuedAt), cmp.Compare(x.Seq, y.Seq))
		})
		found := false
		for _, j := range queue {
			if _, gone := taken[j.ID]; gone {
				continue
			}
			if what, _ := b.alone(j); what != nothing {
				continue
			}
			x := b.wanted(j)
			best := -1
			for i := range cs {
				if got, _ := b.first(x, j, &cs[i]); got != open {
					continue
				}
				if best < 0 || boolCompare(cs[i].warm(x.cache), cs[best].warm(x.cache))*1000+cs[i].free(x.automated())-cs[best].free(x.automated()) > 0 {
					best = i
				}
			}
			if best < 0 {
				continue
			}
			_, probes := b.first(x, j, &cs[best])
			a := Assignment{Job: j.ID, Runner: cs[best].r.ID, Turn: j.Turn().N, Attempts: len(j.Turn().Attempts), Reserve: x.reserve, Probes: probes}
			taken[j.ID], found = a, true
			p.Assign = append(p.Assign, a)
			break
		}
		if !found {
			break
		}
	}
	return p
}

// TestPlans: whatever has happened, the plan is what one gets job by job; with what was
// kept from the look before it is the same as without; a look beside the first part of a
// plan gives the rest of it; applied, none of it is refused.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		var memo Memo
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			w.happen()
			limit := rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(t, "limit")
			all := w.look(limit, nil).Pick()
			if want := w.plainly(limit).text(); all.text() != want {
				t.Fatalf("the plan is  %s\njob by job   %s", all.text(), want)
			}
			l := w.look(limit, nil).l
			l.Memo = &memo
			if kept := See(w.m.View(), l).Pick(); kept.text() != all.text() || !kept.Next.Equal(all.Next) {
				t.Fatalf("the plan is              %s, next %s\nwith what is remembered %s, next %s", all.text(), all.Next, kept.text(), kept.Next)
			}
			if n := len(all.Assign); n > 0 {
				first := rapid.IntRange(1, n).Draw(t, "first part")
				rest := w.look(limit-first, flying(Plan{Assign: all.Assign[:first]})).Pick()
				if whole := (Plan{Assign: append(slices.Clone(all.Assign[:first]), rest.Assign...)}).text(); whole != all.text() {
					t.Fatalf("in one look   %s\nin two looks  %s", all.text(), whole)
				}
			}
			for _, a := range all.Assign {
				j := w.get(a.Job)
				if s := j.Spec.On; s != "" && j.Turn().On == "" && s != string(a.Runner) && s != "box-"+string(a.Runner) || j.Turn().On != "" && j.Turn().On != a.Runner {
					t.Fatalf("%s is for %s%s alone, and goes to %s", a.Job, s, j.Turn().On, a.Runner)
				}
			}
			if w.one("applied", 2) {
				w.apply(all)
			}
		}
	})
}

// TestNothingStarves: ten thousand jobs of several origins, priorities and wants find a
// slot, with slots getting free at random, over a day in which more comes than goes. No
// job is passed over by one that came later than all of priority makes up for.
func TestNothingStarves(t *testing.T) {
	const jobs = 10_000
	g := newRig(t)
	for n := range 60 {
		g.runner(fleet.RunnerID(fmt.Sprintf("r%02d", n)), 1+n%4, func(f *fleet.RunnerFacts) {
			if n%3 == 0 {
				f.Origins = []string{fleet.Manual}
			}
			if n%5 == 1 {
				f.Harnesses = f.Harnesses[2:]
			}
		})
	}
	var memo Memo
	chance := uint32(1)
	random := func(n int) int {
		chance = chance*1664525 + 1013904223
		return int(chance>>8) % n
	}
	const most = (2*fleet.MaxPriority + 1) * fleet.PriorityAge // the whole of priority, and a step begun
	var under []run
	var queue []*fleet.Job // in the order in which they came
	could := func(j *fleet.Job, r fleet.RunnerID) bool {
		it, _ := g.m.View().Runner(r)
		w := wantOf(j)
		return w.unable(it) == open
	}
	done, waited := 0, map[int]time.Duration{}
	for n := 0; done < jobs; {
		for range 200 {
			if n < jobs {
				g.job(fleet.JobID(fmt.Sprintf("j%05d", n)), func(s *fleet.Spec) {
					s.Priority = random(21) - 10
					s.Harness = []string{"codex", "exec"}[random(2)]
					if random(2) == 0 {
						s.Origin = fleet.Origin{Kind: fleet.Automation, Name: fmt.Sprint(random(5))}
					}
					if random(20) == 0 {
						s.On = fmt.Sprintf("box-r%02d", []int{0, 2, 4}[random(3)])
						s.Origin = fleet.Origin{}
					}
				})
				queue = append(queue, g.get(fleet.JobID(fmt.Sprintf("j%05d", n))))
				n++
			}
		}
		g.now = g.now.Add(time.Duration(random(30)) * time.Minute)
		for id, p := range g.seen {
			p.HealthAt = g.now
			g.seen[id] = p
		}
		l := g.look(1000, nil).l
		l.Memo = &memo
		p := See(g.m.View(), l).Pick()
		for i, f := range g.place(p) {
			j := g.get(p.Assign[i].Job)
			waited[j.Spec.Priority] = max(waited[j.Spec.Priority], g.now.Sub(j.CreatedAt))
			under = append(under, run{job: j.ID, fence: f})
			done++
		}
		placed := map[fleet.JobID]bool{}
		for _, a := range p.Assign {
			placed[a.Job] = true
		}
		queue = slices.DeleteFunc(queue, func(j *fleet.Job) bool { return placed[j.ID] })
		for _, a := range p.Assign {
			x := g.get(a.Job)
			for _, y := range queue {
				by := x.CreatedAt.Sub(y.CreatedAt)
				if by <= most {
					break
				}
				if y.Spec.Automated() == x.Spec.Automated() && could(y, a.Runner) {
					t.Fatalf("%s went to %s before %s, which is %s older", x.ID, a.Runner, y.ID, by)
				}
			}
		}
		if len(p.Assign) == 0 && len(under) == 0 {
			t.Fatalf("%d of %d jobs found a slot, and no other one does", done, n)
		}
		under = slices.DeleteFunc(under, func(x run) bool {
			if random(2) > 0 {
				return false
			}
			g.do(&state.DeclineAttempt{Job: x.job, Fence: x.fence, Code: fleet.InputMissing, Detail: "over", Block: true, Rules: 1})
			return true
		})
	}
	if waited[-10] < waited[10] || waited[-10] < most {
		t.Errorf("the least urgent waited %s at most, the most urgent %s", waited[-10], waited[10])
	}
}
