package web

import (
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// A query parameter that an operation does not have is refused by its name.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	w := newWorld(t)
	for path, says := range map[string]string{
		"/v1/jobs?limits=3":                     `no query parameter "limits"`,
		"/v1/jobs?state=queued&sate=queued":     `no query parameter "sate"; it has `,
		"/v1/jobs?limit=3&consistent=1":         "",
		"/v1/members?x=1&y=2":                   `no query parameter "x", "y"; it has "consistent"`,
		"/v1/audit?" + strings.Repeat("a", 200): "(200 bytes)",
	} {
		r := request{method: "GET", path: path, role: fleet.RoleAdmin}
		if says == "" {
			if a := w.do(r); a.status != 200 {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		} else if p := w.refuses(r, 400, fleet.BadRequest); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %s; want %q", path, p.Detail, says)
		}
	}
	if a := w.do(request{method: "GET", path: "/v1/jobs?limits=3"}); a.status != 401 {
		t.Errorf("without a token: %d", a.status)
	}
}
