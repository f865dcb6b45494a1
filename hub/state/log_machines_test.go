package state

import (
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// writeMachinesLog makes a log about machines: their slots, holds on them with and
// without an end, deadlines that pass over work of every kind, faults that come and go,
// and what people are told of that.
func writeMachinesLog(t *testing.T) []byte {
	g := newRig(t)
	g.do(&InitCluster{Cluster: "cluster", Epoch: 1})
	ofMachines(g)
	return written(g)
}

// ofMachines applies every command about a runner's machine.
func ofMachines(g *rig) {
	for _, id := range []fleet.RunnerID{"m1", "m2"} {
		g.enrol(id)
	}
	three, none, nine := 3, 0, 9
	g.do(&SetSlots{ID: "m1", Automation: &three})
	g.do(&SetSlots{ID: "m2", Automation: &none})
	g.do(&SetSlots{ID: "m1"})
	g.refused(fleet.BadRequest, &SetSlots{ID: "m1", Automation: &nine})
	g.do(&HoldRunner{ID: "m1", Hold: &fleet.Hold{Until: at(g.now.Add(time.Hour)), Reason: "new disk"}})
	yes := true
	g.do(&FlagRunner{ID: "m2", Cordoned: &yes})
	g.do(&HoldRunner{ID: "m2"})
	for _, cancel := range []bool{false, true} {
		suffix := fleet.JobID(map[bool]string{true: "-cancelled", false: "-kept"}[cancel])
		g.submit("accepted" + suffix)
		g.run("accepted"+suffix, "m1")
		g.submit("assigned" + suffix)
		g.assign("assigned"+suffix, "m1")
		g.submit("finished" + suffix)
		g.do(g.finish("finished"+suffix, g.run("finished"+suffix, "m1")))
		g.submit("lost" + suffix)
		g.do(&LoseAttempt{Job: "lost" + suffix, Fence: g.run("lost"+suffix, "m1")})
		g.do(&HoldRunner{ID: "m1", Hold: &fleet.Hold{Drain: true, Deadline: at(g.now.Add(time.Minute)), Cancel: cancel}})
		g.refused(fleet.Conflict, &PassDeadline{Runner: "m1"})
		g.now = g.now.Add(time.Hour)
		g.do(&PassDeadline{Runner: "m1"})
		g.repeated(&PassDeadline{Runner: "m1"})
		g.do(&HoldRunner{ID: "m1"})
	}
	for _, faults := range [][]string{{"+disk", "+docker"}, {"-disk", "+memory"}, {"+disk", "-docker"}, {"-disk", "-memory", "+offline"}, {}} {
		g.do(&RecordHealth{Runners: []HealthReport{saw("m1", faults...), saw("m2"), saw("nobody", "+disk")}})
		g.now = g.now.Add(11 * time.Minute)
	}
	a := alert("pressure-1")
	a.Runner, a.Name = "m1", "m1"
	a.Pressure = &fleet.Pressure{Floor: 10 << 30, Volumes: []fleet.Volume{{Path: "/data", Known: true, Free: 1 << 30, Total: 1 << 40}}, Usage: []fleet.ClassUsage{{Class: "caches", Bytes: 5 << 30, Files: 12}}}
	g.do(&RaiseAlert{Alert: a, Every: fleet.PressureEvery})
	again := alert("pressure-2")
	again.Runner = "m1"
	g.repeated(&RaiseAlert{Alert: again, Every: fleet.PressureEvery})
	g.do(&SettleAlert{ID: "pressure-1"})
	for _, a := range g.m.View().Alerts(2) {
		g.try(&SettleAlert{ID: a.ID, Failed: "the webhook answered 500"})
	}
}
