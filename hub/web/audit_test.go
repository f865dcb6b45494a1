package web

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func TestAuditPagesAndFilters(t *testing.T) {
	w := newWorld(t)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(24 * 365 * time.Hour)
	w.must(&state.CreateToken{Token: fleet.Token{ID: "t-ida", Name: "ida", Role: fleet.RoleAdmin, Hash: HashSecret("ida")}})
	for i := range 9 {
		w.at = start.Add(time.Duration(i) * time.Minute)
		actor, cmd := "t-ida", state.Command(&state.Set{Name: fmt.Sprint("setting", i), Value: "x"})
		if i%3 == 0 {
			actor, cmd = "t-admin", &state.SubmitJob{ID: fleet.JobID(fmt.Sprint("job", i)), Spec: fleet.Spec{Kind: fleet.KindExec, OnLost: "hold"}}
		}
		if i == 6 {
			cmd = &state.CancelJob{Job: "job0"}
		}
		w.mustAs(actor, cmd)
	}
	w.at = time.Time{}
	list := func(query string) (subjects []string, next uint64) {
		t.Helper()
		got := get[api.AuditRecords](w, request{method: "GET", path: "/v1/audit?" + query, role: fleet.RoleAdmin})
		for _, r := range got.Records {
			subjects = append(subjects, r.Subject)
		}
		return subjects, got.Next
	}
	at := func(i int) string {
		return url.QueryEscape(start.Add(time.Duration(i) * time.Minute).Format(time.RFC3339))
	}
	for query, want := range map[string][]string{
		"actor=ida":                         {"setting8", "setting7", "setting5", "setting4", "setting2", "setting1"},
		"actor=t-admin":                     {"job0", "job3", "job0"},
		"actor=nobody":                      nil,
		"command=job.":                      {"job0", "job3", "job0"},
		"command=job.cancel":                {"job0"},
		"command=job":                       nil,
		"subject=job3":                      {"job3"},
		"since=" + at(7):                    {"setting8", "setting7"},
		"until=" + at(2) + "&actor=ida":     {"setting1"},
		"since=" + at(9):                    nil,
		"command=job.&subject=job0&limit=1": {"job0"},
	} {
		if got, _ := list(query); !cmp.Equal(got, want) {
			t.Errorf("%s: %v; want %v", query, got, want)
		}
	}
	// Page by page it is the same as at once.
	all, next := list("limit=500")
	if next != 0 {
		t.Errorf("the only page names a next one, %d", next)
	}
	var paged []string
	for before := uint64(0); ; {
		page, next := list(fmt.Sprintf("limit=2&before=%d", before))
		paged = append(paged, page...)
		if before = next; next == 0 {
			break
		}
	}
	if !cmp.Equal(paged, all) {
		t.Errorf("by pages %v; at once %v", paged, all)
	}
	w.refuses(request{method: "GET", path: "/v1/audit?since=yesterday", role: fleet.RoleAdmin}, 400, fleet.BadRequest)
}
