package sched

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// flying is a plan that was proposed and of which nothing is known yet.
func flying(p Plan) map[fleet.JobID]Assignment {
	all := map[fleet.JobID]Assignment{}
	for _, a := range p.Assign {
		all[a.Job] = a
	}
	return all
}

func (g *rig) pickBeside(under map[fleet.JobID]Assignment) Plan {
	return g.look(100, under).Pick()
}

// TestFlying: what was proposed takes its slot and its key, and its job is not given away
// again, until the state shows what became of it.
func TestFlying(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.runner("r2", 2)
	g.job("a", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	first := g.pick()
	expect(t, first, "a>r2")
	g.job("b", func(s *fleet.Spec) { s.ConcurrencyKey = "k" })
	g.job("c")
	g.job("d")
	g.job("e")
	second := g.pickBeside(flying(first))
	expect(t, second, "c>r1 d>r2") // not b, which waits for a's key, and not e: no slot is left
	under := flying(first)
	maps.Copy(under, flying(second))
	expect(t, g.pickBeside(under), "")

	g.place(first) // the answer to it is still on its way: its slot counts once
	expect(t, g.pickBeside(flying(first)), "c>r1 d>r2")

	// What was refused is free again as soon as it is no longer taken for granted.
	expect(t, g.pickBeside(flying(Plan{Assign: second.Assign[1:]})), "c>r1")
}

// TestFlyingOfAnEarlierTurn: a proposal that nothing can come of any more takes nothing.
func TestFlyingOfAnEarlierTurn(t *testing.T) {
	g := newRig(t)
	g.runner("r1", 1)
	g.job("a")
	stale := g.pick()
	f := g.place(stale)[0]
	g.do(&state.DeclineAttempt{Job: "a", Fence: f, Code: fleet.Storage, Detail: "full", RetryAfter: time.Second})
	g.now = g.now.Add(time.Hour)
	expect(t, g.pickBeside(flying(stale)), "a>r1")
}

// TestOverlappingLooks: however many looks overlap and in whatever order their proposals
// are applied, none is refused, and all that can run does.
func TestOverlappingLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newRig(t)
		slots := 0
		for n := range rapid.IntRange(1, 4).Draw(t, "runners") {
			k := rapid.IntRange(0, 3).Draw(t, "slots")
			g.runner(fleet.RunnerID(fmt.Sprintf("r%d", n)), k)
			slots += k
		}
		jobs, keyed := rapid.IntRange(0, 12).Draw(t, "jobs"), map[string]int{}
		for n := range jobs {
			g.job(fleet.JobID(fmt.Sprintf("j%02d", n)), func(s *fleet.Spec) {
				s.ConcurrencyKey = rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key")
				keyed[s.ConcurrencyKey]++
			})
		}
		under, applied := map[fleet.JobID]Assignment{}, 0
		for idle := 0; idle < 2; {
			for _, a := range g.pickBeside(under).Assign {
				if _, ok := under[a.Job]; ok {
					t.Fatalf("%s is given away twice", a.Job)
				}
				under[a.Job] = a
				idle = 0
			}
			for _, id := range slices.Sorted(maps.Keys(under)) {
				if rapid.Bool().Draw(t, "applied") {
					g.place(Plan{Assign: []Assignment{under[id]}}) // fails the test if it is refused
					applied++
					if rapid.Bool().Draw(t, "and heard of") {
						delete(under, id)
					} else {
						expectOnce(t, g, under)
						delete(under, id)
					}
				}
			}
			if len(under) == 0 {
				idle++
			}
		}
		can := keyed[""]
		for _, k := range []string{"k", "l"} {
			can += min(keyed[k], 1)
		}
		if want := min(can, slots); applied != want {
			t.Fatalf("%d of %d jobs run in %d slots; want %d", applied, jobs, slots, want)
		}
	})
}

// expectOnce sees that what is applied and also still taken for granted counts once.
func expectOnce(t *rapid.T, g *rig, under map[fleet.JobID]Assignment) {
	for _, a := range g.pickBeside(under).Assign {
		if j := g.get(a.Job); j.State != fleet.Queued {
			t.Fatalf("%s is %s and given away again", a.Job, j.State)
		}
	}
}
