package worktree

import (
	"strings"
	"testing"
	"time"
)

var decideAt = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

var testKeeps = Keeps{Workspace: 24 * time.Hour, Rescue: 7 * 24 * time.Hour, Cache: 14 * 24 * time.Hour}

func TestDecide(t *testing.T) {
	old := decideAt.Add(-30 * time.Hour)
	for _, c := range []struct {
		name  string
		e     Evidence
		keeps func(*Keeps)
		do    Action
		until time.Time
		why   string
	}{
		{"clean and published", Evidence{LastUse: old}, nil, Delete, time.Time{}, "published"},
		{"to the minute", Evidence{LastUse: decideAt.Add(-24 * time.Hour)}, nil, Delete, time.Time{}, ""},
		{"young", Evidence{LastUse: decideAt.Add(-time.Hour)}, nil, Keep, decideAt.Add(23 * time.Hour), "last use"},
		{"young and unclear", Evidence{LastUse: decideAt, Unclear: "x"}, nil, Keep, decideAt.Add(24 * time.Hour), ""},
		{"busy", Evidence{Busy: true, LastUse: old}, nil, Keep, time.Time{}, "a job works"},
		{"busy and half made", Evidence{Busy: true, Half: true, LastUse: old}, nil, Keep, time.Time{}, ""},
		{"half made", Evidence{Half: true, LastUse: old}, nil, Delete, time.Time{}, "no agent"},
		{"half made a moment ago", Evidence{Half: true, LastUse: decideAt}, nil, Keep, decideAt.Add(24 * time.Hour), ""},
		{"gone", Evidence{Gone: true, LastUse: decideAt}, nil, Delete, time.Time{}, "gone"},
		{"commits of its own", Evidence{LastUse: old, Own: 2}, nil, Keep, time.Time{}, "2 commits"},
		{"a repository inside", Evidence{LastUse: old, Inner: "it holds a repository"}, nil, Keep, time.Time{}, "holds"},
		{"unclear", Evidence{LastUse: old, Unclear: "git says no"}, nil, Look, time.Time{}, "git says no"},
		{"unclear and dirty", Evidence{LastUse: old, Unclear: "git says no", Dirty: true}, nil, Look, time.Time{}, ""},
		{"dirty", Evidence{LastUse: old, Dirty: true}, nil, Save, time.Time{}, ""},
		{"dirty, with commits", Evidence{LastUse: old, Dirty: true, Own: 1}, nil, Save, time.Time{}, ""},
		{"dirty, with a repository inside", Evidence{LastUse: old, Dirty: true, Inner: "x"}, nil, Save, time.Time{}, ""},
		{"dirty and too large", Evidence{LastUse: old, Dirty: true, Unsaved: 1, UnsavedOf: 9}, nil, Keep, time.Time{}, "too large"},
		{"rescued", Evidence{LastUse: old, Dirty: true, Rescue: "r", RescuedAt: old}, nil, Keep, old.Add(7 * 24 * time.Hour), "saved as r"},
		{"rescued, with commits", Evidence{LastUse: old, Dirty: true, Rescue: "r", RescuedAt: old.Add(-8 * 24 * time.Hour), Own: 1}, nil, Keep, time.Time{}, "1 commits"},
		{"rescued long ago", Evidence{LastUse: old, Dirty: true, Rescue: "r", RescuedAt: decideAt.Add(-7 * 24 * time.Hour)}, nil, Delete, time.Time{}, "saved as r"},
		{"rescued for ever", Evidence{LastUse: old, Dirty: true, Rescue: "r"}, func(k *Keeps) { k.Rescue = -1 }, Keep, time.Time{}, ""},
		{"kept for ever", Evidence{LastUse: old}, func(k *Keeps) { k.Workspace = -1 }, Keep, time.Time{}, "without limit"},
		{"not kept", Evidence{LastUse: decideAt}, func(k *Keeps) { k.Workspace = 0 }, Delete, time.Time{}, ""},
	} {
		k := testKeeps
		if c.keeps != nil {
			c.keeps(&k)
		}
		got := Decide(c.e, k, decideAt)
		if got.Do != c.do || !got.Until.Equal(c.until) || !strings.Contains(got.Why, c.why) || got.Why == "" {
			t.Errorf("%s: %+v; want %s until %s", c.name, got, c.do, c.until)
		}
	}
}

// Whatever is said of a workspace, it is deleted only where everything in it is proved to be elsewhere.
func TestDecideDeletesOnProofAlone(t *testing.T) {
	times := []time.Time{{}, decideAt.Add(-400 * time.Hour), decideAt.Add(-25 * time.Hour), decideAt, decideAt.Add(time.Hour)}
	yes := []bool{false, true}
	texts := []string{"", "x"}
	n := 0
	for _, busy := range yes {
		for _, half := range yes {
			for _, dirty := range yes {
				for _, unclear := range texts {
					for _, inner := range texts {
						for _, rescue := range texts {
							for _, own := range []int{0, 1} {
								for _, unsaved := range []int{0, 1} {
									for _, used := range times {
										for _, rescued := range times {
											e := Evidence{Busy: busy, Half: half, LastUse: used, Unclear: unclear, Inner: inner, Own: own, Dirty: dirty, Unsaved: unsaved, Rescue: rescue, RescuedAt: rescued}
											d := Decide(e, testKeeps, decideAt)
											n++
											safe := half || unclear == "" && inner == "" && own == 0 && unsaved == 0 && (!dirty || rescue != "" && decideAt.Sub(rescued) >= testKeeps.Rescue)
											old := decideAt.Sub(used) >= testKeeps.Workspace
											if d.Do == Delete && (busy || !old || !safe) {
												t.Fatalf("deleted without proof: %+v", e)
											}
											if d.Do != Delete && !busy && old && safe {
												t.Fatalf("kept although all of it is elsewhere: %+v: %+v", e, d)
											}
											if d.Do == Save && (busy || !dirty || rescue != "" || unclear != "") {
												t.Fatalf("saved without need: %+v", e)
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if n != 2*2*2*2*2*2*2*2*5*5 {
		t.Fatalf("%d cases", n)
	}
}
