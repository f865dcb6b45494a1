package state

import (
	"bytes"
	"testing"
)

// The audit record has the address of whoever asked, and entries carry one only once
// every node of the cluster reads that.
func TestAddressesAreRecordedOnceAllCanReadThem(t *testing.T) {
	g := newRig(t)
	if !g.m.View().MayTellFrom() {
		t.Error("a node that is alone asks somebody")
	}
	g.apply(Head{Actor: "t-1", From: "192.0.2.7"}, &Set{Name: "default_harness", Value: "codex"})
	g.apply(Head{Actor: "t-1"}, &Set{Name: "default_harness", Value: "claude"})
	if all := g.m.View().Audit(0, 2); len(all) != 2 || all[0].From != "" || all[1].From != "192.0.2.7" {
		t.Errorf("on record: %+v", all)
	}
	again := New()
	if err := again.Restore(bytes.NewReader(snapshot(t, g.m))); err != nil || again.View().Audit(0, 2)[1].From != "192.0.2.7" {
		t.Errorf("after a snapshot it is gone (%v)", err)
	}
	n := hubNode("n-1")
	g.do(&UpdateNode{Node: n})
	if !g.m.View().MayTellFrom() {
		t.Error("a node of this version cannot read it")
	}
	n.Kinds = fromGeneration - 1
	g.do(&UpdateNode{Node: n})
	if g.m.View().MayTellFrom() {
		t.Error("an older node would have to read it")
	}
}
