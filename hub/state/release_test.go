package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func releaseRig(t *testing.T) *rig {
	g := newRig(t)
	g.enrol("r1")
	g.do(&UpdateRunner{ID: "r1", Facts: &fleet.RunnerFacts{Version: "1.0.0", OS: "linux", Arch: "amd64"}})
	return g
}

func (g *rig) release(version string) *fleet.Release {
	g.t.Helper()
	rel, ok := g.m.View().Release(version)
	if !ok {
		g.t.Fatalf("there is no release %s", version)
	}
	return rel
}

func TestAddRelease(t *testing.T) {
	g := releaseRig(t)
	g.do(added("1.2.0"))
	if k := g.m.View().Meta().Settings[fleet.SettingReleaseKey]; k != releaseKey {
		t.Errorf("the first release pins %q", k)
	}
	if rel := g.release("1.2.0"); rel.Ring != fleet.RingCanary || rel.AddedBy != "t-person" || !rel.Since.Equal(g.now) {
		t.Errorf("added: %+v", rel)
	}
	g.repeated(added("1.2.0"))
	for name, spoil := range map[string]func(*AddRelease){
		"no version":       func(c *AddRelease) { c.Version = "new" },
		"no files":         func(c *AddRelease) { c.Files = nil },
		"a platform twice": func(c *AddRelease) { c.Files = append(c.Files, c.Files[0]) },
		"too many files": func(c *AddRelease) {
			for i := range fleet.MaxReleaseFiles {
				f := c.Files[0]
				f.Arch = fmt.Sprint(i)
				c.Files = append(c.Files, f)
			}
		},
		"no platform":           func(c *AddRelease) { c.Files[0].OS = "" },
		"no digest":             func(c *AddRelease) { c.Files[0].SHA256 = "abc" },
		"empty":                 func(c *AddRelease) { c.Files[0].Size = 0 },
		"enormous":              func(c *AddRelease) { c.Files[0].Size = fleet.MaxProgram + 1 },
		"no signature":          func(c *AddRelease) { c.Files[0].Signature = "" },
		"a book of a signature": func(c *AddRelease) { c.Files[0].Signature = strings.Repeat("x", fleet.MaxSignature+1) },
		"no key":                func(c *AddRelease) { c.Key = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c := added("1.3.0")
			spoil(c)
			g.refused(fleet.BadRequest, c)
		})
	}
	other := added("1.2.0")
	other.Files[0].Size++
	g.refused(fleet.Conflict, other)
	other = added("1.3.0")
	other.Key = otherReleaseKey
	g.refused(fleet.Conflict, other)
	for i := 1; i < fleet.MaxReleases; i++ {
		g.do(added(fmt.Sprintf("2.%d.0", i)))
	}
	g.refused(fleet.TooLarge, added("3.0.0"))
	all := g.m.View().Releases()
	if len(all) != fleet.MaxReleases || all[0].Version != "2.19.0" || all[len(all)-1].Version != "1.2.0" {
		t.Errorf("%d releases, from %s to %s", len(all), all[0].Version, all[len(all)-1].Version)
	}
	g.do(&RemoveRelease{Version: "2.1.0"})
	g.refused(fleet.NotFound, &RemoveRelease{Version: "2.1.0"})
	g.do(added("3.0.0"))

	b := snapshot(t, g.m)
	m := New()
	if err := m.Restore(bytes.NewReader(b)); err != nil || !bytes.Equal(snapshot(t, m), b) {
		t.Errorf("a snapshot with releases does not come back: %v", err)
	}
}

func TestWantRelease(t *testing.T) {
	g := releaseRig(t)
	g.do(added("1.2.0"))
	g.do(added("0.9.0"))
	g.refused(fleet.NotFound, &WantRelease{Runner: "r1", Version: "7.0.0", Asked: "a"})
	g.refused(fleet.BadRequest, &WantRelease{Runner: "r1", Version: "1.2.0"})
	g.refused(fleet.Conflict, &WantRelease{Runner: "r1", Version: "0.9.0", Asked: "a"})
	g.do(&WantRelease{Runner: "r1", Version: "0.9.0", Asked: "a", Downgrade: true})
	if r, _ := g.m.View().Runner("r1"); r.Wanted == nil || !r.Wanted.Downgrade || r.Wanted.By != "t-person" {
		t.Errorf("wanted: %+v", r.Wanted)
	}
	g.do(&WantRelease{Runner: "r1", Version: "1.2.0", Asked: "b", Downgrade: true})
	if r, _ := g.m.View().Runner("r1"); r.Wanted == nil || r.Wanted.Downgrade {
		t.Errorf("an update that may be a downgrade, and is none: %+v", r.Wanted)
	}
	g.do(&WantRelease{Runner: "r1"})
	g.repeated(&WantRelease{Runner: "r1"})
	for facts, code := range map[*fleet.RunnerFacts]fleet.Code{
		{Version: "1.2.0", OS: "linux", Arch: "amd64"}:    fleet.Conflict,
		{Version: "dev-1234", OS: "linux", Arch: "amd64"}: fleet.Conflict,
		{Version: "1.0.0", OS: "darwin", Arch: "arm64"}:   fleet.Conflict,
	} {
		g.do(&UpdateRunner{ID: "r1", Facts: facts})
		g.refused(code, &WantRelease{Runner: "r1", Version: "1.2.0", Asked: "c"})
	}
}

func TestProgressOnlyGrows(t *testing.T) {
	g := releaseRig(t)
	g.do(added("1.2.0"))
	note := func(p fleet.Progress) *RecordProgress {
		return &RecordProgress{Version: "1.2.0", Runners: map[fleet.RunnerID]fleet.Progress{"r1": p}}
	}
	g.do(note(fleet.Progress{}))
	first := g.now
	g.repeated(note(fleet.Progress{}))
	g.do(note(fleet.Progress{Healthy: true}))
	g.do(note(fleet.Progress{Job: "j1"}))
	g.repeated(note(fleet.Progress{Job: "j2"}))
	g.do(note(fleet.Progress{Failed: "went back"}))
	want := fleet.Progress{Since: first, Healthy: true, Job: "j1", Failed: "went back"}
	if got := g.release("1.2.0").Runners["r1"]; got != want {
		t.Errorf("progress %+v, want %+v", got, want)
	}
	g.refused(fleet.NotFound, &RecordProgress{Version: "9.9.9"})
}

func TestMoveRelease(t *testing.T) {
	g := releaseRig(t)
	g.do(added("1.2.0"))
	g.refused(fleet.BadRequest, &MoveRelease{Version: "1.2.0"})
	g.refused(fleet.BadRequest, &MoveRelease{Version: "1.2.0", Ring: "outer"})
	g.refused(fleet.BadRequest, &MoveRelease{Version: "1.2.0", Ring: fleet.RingAll, Halt: "both"})
	g.refused(fleet.Conflict, &MoveRelease{Version: "1.2.0", From: fleet.RingEarly, Ring: fleet.RingAll})
	g.do(&MoveRelease{Version: "1.2.0", From: fleet.RingCanary, Ring: fleet.RingEarly})
	g.do(&RecordProgress{Version: "1.2.0", Runners: map[fleet.RunnerID]fleet.Progress{"r1": {Failed: "went back"}, "r2": {Healthy: true}}})
	g.do(&MoveRelease{Version: "1.2.0", Halt: "r1 went back"})
	g.repeated(&MoveRelease{Version: "1.2.0", Halt: "again"})
	if as := g.m.View().Alerts(10); len(as) != 1 || as[0].Kind != AlertRelease || !strings.Contains(as[0].Text, "halted at early: r1 went back") {
		t.Errorf("alerts: %+v", as)
	}
	g.refused(fleet.Conflict, &MoveRelease{Version: "1.2.0", Ring: fleet.RingAll}) // a leader that did not know
	g.do(&MoveRelease{Version: "1.2.0", Ring: fleet.RingEarly, Asked: "a1"})
	rel := g.release("1.2.0")
	if _, failed := rel.Runners["r1"]; rel.Halted != "" || rel.Asked != "a1" || failed || !rel.Runners["r2"].Healthy {
		t.Errorf("asked for anew: %+v", rel)
	}
}

func TestSetRing(t *testing.T) {
	g := releaseRig(t)
	g.repeated(&SetRing{ID: "r1", Ring: fleet.RingAll})
	g.do(&SetRing{ID: "r1", Ring: fleet.RingCanary})
	g.refused(fleet.BadRequest, &SetRing{ID: "r1", Ring: "outer"})
	g.refused(fleet.RunnerUnknown, &SetRing{ID: "r7", Ring: fleet.RingAll})
	if r, _ := g.m.View().Runner("r1"); r.InRing() != fleet.RingCanary {
		t.Errorf("ring %s", r.InRing())
	}
}

// TestUpdatesAreNotToldToOlderNodes: an older node would not keep what a runner says of
// its updates.
func TestUpdatesAreNotToldToOlderNodes(t *testing.T) {
	old, young := hubNode("n-1"), hubNode("n-2")
	old.Kinds = releasesGeneration - 1
	nodes := []*fleet.HubNode{&young, &old}
	full := &UpdateRunner{ID: "r1", Facts: &fleet.RunnerFacts{Version: "1.0.0", Barred: []string{"codex"}, Update: &fleet.RunnerUpdate{Policy: "auto"}}}
	if c := WithRules(full, nodes).(*UpdateRunner); c.Facts.Update != nil || len(c.Facts.Barred) != 1 {
		t.Errorf("with a node of generation %d: %+v", old.Kinds, c.Facts)
	}
	if c := WithRules(full, nodes[:1]).(*UpdateRunner); c.Facts.Update == nil || full.Facts.Update == nil {
		t.Errorf("alone: %+v", c.Facts)
	}
	if node, held := Held(added("1.0.0"), nodes); !held || node != "n-1" {
		t.Errorf("a release is held %v for %q", held, node)
	}
}
