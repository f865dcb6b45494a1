package hub

import (
	"errors"
	"testing"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// While the disk is nearly full nothing new is taken, with a clear refusal, and what
// is there goes on: a log that could not be written would end the hub.
func TestANearlyFullDiskTakesNothingNew(t *testing.T) {
	n := start(t, t.TempDir(), true)
	var j api.Job
	if st := n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j); st != 201 {
		t.Fatalf("with room: status %d", st)
	}
	n.hub.disk.mu.Lock()
	n.hub.disk.stat = func(string) (int64, error) { return 1 << 20, nil }
	n.hub.disk.at = n.hub.disk.at.Add(-2 * lookAgain)
	n.hub.disk.mu.Unlock()
	var p api.Problem
	if st := n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &p); st != 507 || p.Code != fleet.DiskFull {
		t.Errorf("a new job: status %d, %s; want 507 %s", st, p.Code, fleet.DiskFull)
	}
	if st := n.call("GET", "/readyz", "", nil, nil); st != 507 {
		t.Errorf("readyz: status %d; want 507", st)
	}
	if st := n.call("POST", "/v1/jobs/"+string(j.ID)+"/cancel", "", nil, nil); st != 200 {
		t.Errorf("cancel of what is there: status %d", st)
	}
	n.hub.disk.mu.Lock()
	n.hub.disk.stat = func(string) (int64, error) { return 0, errors.New("no answer") }
	n.hub.disk.at = n.hub.disk.at.Add(-2 * lookAgain)
	n.hub.disk.mu.Unlock()
	if st := n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, nil); st != 201 {
		t.Errorf("a disk that cannot be asked: status %d; want it to be tried", st)
	}
}
