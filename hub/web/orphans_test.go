package web

import (
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// TestOrphans: what a runner reported of lost records is listed, and a person settles it.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	r := w.enrolled("studio")
	was := w.View().Meta().Epoch
	w.must(&state.RaiseEpoch{To: was + 1, Cause: "restore"})
	report := func(job fleet.JobID, index uint64) string {
		return w.must(&state.ReportOrphan{Orphan: fleet.Orphan{
			Job: job, Fence: fleet.Fence{Epoch: was, Index: index}, Runner: r, RunnerName: "studio", Turn: 1, Attempt: 1,
			Spec:      fleet.Spec{Kind: fleet.KindExec, Harness: "exec", Argv: []string{"make"}, Repo: &fleet.Repo{URL: "https://example/x.git"}, OnLost: "hold"},
			CreatedAt: time.Now(), FinishedAt: time.Now(), Failure: fleet.ClassOK, Exit: fleet.Exit{Reason: "exited"},
			Evidence: &fleet.Evidence{CommitCount: 2, Tip: "tip", RescueRef: "refs/tugline/rescue/x"}, Log: fleet.LogState{Bytes: 7, Sealed: true},
		}}).ID
	}
	one, two := report("unknown", 900), report("other", 901)
	known := w.submitted("true")
	three := report(known, 902)

	list := get[api.Orphans](w, request{method: "GET", path: "/v1/orphans", role: fleet.RoleViewer})
	if len(list.Orphans) != 3 || len(list.Epochs) != 1 || list.Epochs[0].Cause != "restore" {
		t.Fatalf("listed %+v", list)
	}
	o := list.Orphans[0]
	if o.ID != one || o.State != "waiting" || o.Job != "unknown" || o.OnRecord || o.Commits != 2 || o.RescueRef == "" || o.Repo != "https://example/x.git" || o.LogBytes != 7 {
		t.Errorf("the first is %+v", o)
	}
	if !list.Orphans[2].OnRecord {
		t.Errorf("the third is %+v; its job is on record", list.Orphans[2])
	}
	w.refuses(request{method: "POST", path: "/v1/orphans/" + one + "/adopt", role: fleet.RoleViewer}, 403, fleet.Forbidden)
	w.refuses(request{method: "POST", path: "/v1/orphans/9-9/adopt", role: fleet.RoleOperator}, 404, fleet.NotFound)
	for range 2 { // again is the same
		if o := get[api.Orphan](w, request{method: "POST", path: "/v1/orphans/" + one + "/adopt", role: fleet.RoleOperator}); o.State != "adopted" || !o.OnRecord {
			t.Errorf("adopted: %+v", o)
		}
		if o := get[api.Orphan](w, request{method: "POST", path: "/v1/orphans/" + two + "/discard", role: fleet.RoleOperator}); o.State != "discarded" || o.OnRecord {
			t.Errorf("discarded: %+v", o)
		}
	}
	w.refuses(request{method: "POST", path: "/v1/orphans/" + one + "/discard", role: fleet.RoleOperator}, 409, fleet.Conflict)
	if j := get[api.Job](w, request{method: "GET", path: "/v1/jobs/unknown", role: fleet.RoleViewer}); j.State != fleet.Verifying {
		t.Errorf("the adopted job is %s", j.State)
	}
	list = get[api.Orphans](w, request{method: "GET", path: "/v1/orphans", role: fleet.RoleViewer})
	if len(list.Orphans) != 1 || list.Orphans[0].ID != three {
		t.Errorf("still waiting: %+v", list.Orphans)
	}
	if list = get[api.Orphans](w, request{method: "GET", path: "/v1/orphans?all=true", role: fleet.RoleViewer}); len(list.Orphans) != 3 {
		t.Errorf("all: %+v", list.Orphans)
	}
}
