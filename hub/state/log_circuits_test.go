package state

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/circuit"
	"tugline.dev/tugline/shared/fleet"
)

// writeCircuitsLog makes a log in which circuits of every class open, are tried, close,
// are reset, opened and given back, and go.
func writeCircuitsLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	g.enrol("r1")
	g.enrol("r2")
	ofCircuits(g)
	return written(g)
}

// ofCircuits applies every command that circuits have to do with. It needs two runners.
func ofCircuits(g *rig) {
	n := 0
	job := func() fleet.JobID { n++; return jobID(5000 + n) }
	half := func(r fleet.RunnerID) (ids []string) {
		for _, c := range g.m.View().Circuits() {
			if (c.Runner == "" || c.Runner == r) && circuit.At(c, g.now.Add(time.Second)) == fleet.CircuitHalf {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	for _, class := range fleet.Classes() {
		for _, r := range []fleet.RunnerID{"r1", "r2"} {
			id := job()
			g.fails(id, g.start(id, r, half(r)...), class, func(c *FinishAttempt) {
				c.StatedEnd = "at some time"
				if class == fleet.ClassRateLimited || r == "r2" {
					c.RetryAfter = 90 * time.Minute
				}
			})
			for _, c := range g.m.View().Circuits() {
				if c.State == fleet.CircuitBlocked {
					g.do(&ResetCircuit{ID: c.ID, Reason: "again", Repaired: "all of it"})
				}
			}
			g.wait(5 * time.Hour)
		}
	}
	for range 2 { // beside the one above
		id := job()
		g.fails(id, g.start(id, "r2", half("r2")...), fleet.ClassProviderUnavailable)
		g.wait(time.Minute)
	}
	g.wait(time.Hour)
	for range 3 {
		id := job()
		f := g.start(id, "r2", half("r2")...)
		g.answers(id, f)
		g.fails(id, f, fleet.ClassOK)
		g.wait(time.Minute)
	}
	for _, code := range []fleet.Code{fleet.Storage, fleet.MemoryLow, fleet.DockerMissing} {
		id := job()
		g.do(&DeclineAttempt{Job: id, Fence: g.given(g.submit(id), "r2", half("r2")...), Code: code, Detail: "too little", Rules: 1})
		g.wait(time.Hour)
		id = job()
		g.fails(id, g.start(id, "r2", half("r2")...), fleet.ClassTaskFailed)
	}
	id := job()
	g.do(&LoseAttempt{Job: id, Fence: g.start(id, "r1", half("r1")...), Detail: "silent", Rules: 1})
	g.wait(time.Hour)
	id = job()
	f := g.given(g.submit(id), "r1", half("r1")...)
	for _, c := range g.attempt(id, f).Probes {
		g.do(&ReleaseProbe{ID: c, Fence: f})
	}
	g.do(&OpenCircuit{Scope: fleet.ScopeHost, Runner: "r2", For: time.Hour, Reason: "a new disk"})
	g.do(&OpenCircuit{Scope: fleet.ScopeModel, Provider: "openai", Model: "gpt/x", Reason: "too dear"})
	g.do(&OpenCircuit{Scope: fleet.ScopeProvider, Runner: "r1", Provider: "openai", Account: "a"})
	id = job()
	g.wait(2 * time.Hour)
	g.fails(id, g.start(id, "r2", half("r2")...), fleet.ClassAuth)
	g.do(&UpdateRunner{ID: "r2", Facts: &fleet.RunnerFacts{Slots: 2, Harnesses: []fleet.HarnessInfo{{Name: "codex", SignedIn: "yes", Account: "b"}}}})
	g.wait(20 * 24 * time.Hour)
	g.do(&Expire{Limit: 3, AuditAge: time.Hour})
}
