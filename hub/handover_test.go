package hub

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// TestWhoCannotLeadIsRefused: leadership goes to no node that is away, drained or unknown;
// nothing else is refused meanwhile.
func TestWhoCannotLeadIsRefused(t *testing.T) { // not beside others: it is timed to the second
	a := startWith(t, func() Config { c := meshed(t.TempDir()); c.Bootstrap = true; return c }(), time.Now)
	k := a.ticket(api.TicketRequest{Uses: 2})
	b, c := a.join(t.TempDir(), k), a.join(t.TempDir(), k)
	a.eventually("all vote", func() bool { return a.roles() == "voter voter voter" })
	hand := func(to string) (int, string, time.Duration) {
		var p api.Problem
		began := time.Now()
		code := a.call(http.MethodPost, "/v1/members/transfer", "", api.Transfer{To: to}, &p)
		return code, p.Detail, time.Since(began)
	}
	b.stop()
	a.eventually("it is known to be away", func() bool { return a.hub.node.CanLead(b.hub.id.Node) != nil })
	ended, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for last := time.Now(); ; {
			if _, code := a.submit(); code == http.StatusCreated {
				longest, last = max(longest, time.Since(last)), time.Now()
			}
			select {
			case <-ended:
				worst <- max(longest, time.Since(last))
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	for to, says := range map[string]string{
		b.hub.id.Node: "node " + b.hub.id.Node + " does not answer",
		"n-nobody":    "there is no node n-nobody",
	} {
		if code, detail, took := hand(to); code/100 != 4 || !strings.Contains(detail, says) || took > time.Second {
			t.Errorf("transfer to %s: %d after %v, %q; want %q at once", to, code, took, detail, says)
		}
	}
	close(ended)
	if d := <-worst; d > time.Second {
		t.Errorf("nothing was taken for %v", d)
	}
	if code := a.call(http.MethodPost, "/v1/members/"+c.hub.id.Node+"/drain", "", nil, nil); code != http.StatusOK {
		t.Fatalf("drain: %d", code)
	}
	a.eventually("the drained node is refused", func() bool {
		code, detail, _ := hand(c.hub.id.Node)
		return code == 409 && strings.Contains(detail, "is drained")
	})
	var p api.Problem
	if code := a.call(http.MethodPost, "/v1/members/leader/drain", "", nil, &p); code != 409 || p.Code != fleet.Conflict {
		t.Errorf("drain with nobody to lead: %d %s", code, p.Detail)
	}
	if _, code := a.submit(); code != http.StatusCreated {
		t.Errorf("submit afterwards: %d", code)
	}
}
