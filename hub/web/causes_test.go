package web

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// What a failure was is told to an admin who has its reference, and to nobody else.
func TestCausesOfFailures(t *testing.T) {
	w := newWorld(t)
	fail := func(err error) { w.mu.Lock(); w.fail = err; w.mu.Unlock() }
	for _, c := range []struct {
		err    error
		status int
		code   fleet.Code
	}{
		{errors.New("the secret of a disk: " + strings.Repeat("x", 2*maxCause)), 500, fleet.Internal},
		{fmt.Errorf("no quorum among the secret nodes: %w", fleet.Unavailable), 503, fleet.Unavailable},
		{fmt.Errorf("the secret leader left: %w", fleet.OutcomeUnknown), 503, fleet.OutcomeUnknown},
	} {
		fail(c.err)
		p := w.refuses(request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}}, c.status, c.code)
		fail(nil)
		ref, ok := strings.CutPrefix(p.Instance, "urn:tugline:")
		if !ok || strings.Contains(p.Detail+p.Title, "secret") {
			t.Fatalf("told as %+v", p)
		}
		got := get[api.Cause](w, request{method: "GET", path: "/v1/errors/" + ref, role: fleet.RoleAdmin})
		if got.Ref != ref || got.Node != "n-test" || got.Code != c.code || !strings.Contains(got.Cause, "secret") || len(got.Cause) > maxCause || got.At.IsZero() {
			t.Errorf("%s: %+v", ref, got)
		}
		w.refuses(request{method: "GET", path: "/v1/errors/" + ref, role: fleet.RoleOperator}, 403, fleet.Forbidden)
	}
	if p := w.refuses(request{method: "GET", path: "/v1/errors/n-other/x", role: fleet.RoleAdmin}, 404, fleet.NotFound); !strings.Contains(p.Detail, "n-other") {
		t.Errorf("of another node: %s", p.Detail)
	}
	if p := w.refuses(request{method: "GET", path: "/v1/jobs/none", role: fleet.RoleAdmin}, 404, fleet.NotFound); p.Instance != "" {
		t.Errorf("a refusal that says all by itself has the reference %s", p.Instance)
	}
	var c causes
	first := strings.TrimPrefix(c.note("n", fleet.Internal, errors.New("a fault")), causeName)
	for range 3 * maxCauses {
		c.note("n", fleet.Unavailable, errors.New("no leader"))
	}
	if _, ok := c.find(first); !ok || len(c.passes) != maxCauses {
		t.Errorf("a fault was driven out by what passes (%t), of which %d are remembered", !ok, len(c.passes))
	}
}
