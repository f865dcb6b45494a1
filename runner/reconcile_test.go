package runner

import "testing"

func TestPlanHasNoEmptyCell(t *testing.T) {
	for w := range wants {
		for h := range haves {
			if plan[w][h] == "" {
				t.Errorf("plan[%d][%d] is empty", w, h)
			}
		}
	}
}

func TestPlanFixedCells(t *testing.T) {
	for _, c := range []struct {
		w    want
		h    have
		do   action
		what string
	}{
		{wantAccepted, haveNone, doReportLost, "accepted, but nothing here: it may have run"},
		{wantAccepted, haveForgotten, doReportLost, "accepted, obeyed once, nothing here"},
		{wantRun, haveNone, doPrepare, "a new assignment"},
		{wantRun, haveForgotten, doNothing, "an order that was obeyed once"},
		{wantNothing, haveRunning, doUnlisted, "unknown to the hub and alive"},
		{wantNothing, havePreparing, doUnlisted, "unknown to the hub and preparing"},
		{wantStop, havePreparing, doStop, "stop of a preparing one"},
		{wantStop, haveRunning, doStop, "stop of a running one"},
		{wantStop, haveNone, doReportGone, "stop of nothing"},
		{wantForget, haveRunning, doUnlisted, "forget never ends a process"},
		{wantForget, haveEnded, doForget, "forget of one whose reports are still under way: it waits for them"},
		{wantForget, haveSettled, doForget, "forget"},
	} {
		if got := plan[c.w][c.h]; got != c.do {
			t.Errorf("%s: plan says %s, want %s", c.what, got, c.do)
		}
	}
	// Only one cell starts anything new, and nothing that may have run is started.
	for w := range wants {
		for h := range haves {
			if do := plan[w][h]; do == doPrepare && (w != wantRun || h != haveNone) {
				t.Errorf("plan[%d][%d] prepares", w, h)
			}
			if w == wantNothing && (plan[w][h] == doStop || plan[w][h] == doForget) {
				t.Errorf("plan[%d][%d] ends something that the set does not name", w, h)
			}
		}
	}
}
