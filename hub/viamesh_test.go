package hub

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/wire"
)

// Inside the tunnel the address is the proof: a runner reaches its own paths, the
// holder of a ticket the enrolment, and nobody what is for people.
func TestWhoReachesWhatInsideTheTunnel(t *testing.T) {
	h := &Hub{id: identity{Cluster: "c-1"}}
	own := mesh.RunnerAddr("c-1", "r-1")
	for _, c := range []struct {
		name, method, path string
		from               netip.Addr
		open               bool
	}{
		{"its own link", "GET", "/v1/runners/r-1/link", own, true},
		{"its own exchange", "POST", "/v1/runners/r-1/exchange", own, true},
		{"its own blobs", "GET", "/v1/runners/r-1/blobs/x", own, true},
		{"enrolling anew", "POST", wire.EnrolPath, own, true},
		{"enrolling by a ticket", "POST", wire.EnrolPath, mesh.RunnerAddr("c-1", "ticket x"), true},
		{"another runner's link", "GET", "/v1/runners/r-2/link", own, false},
		{"a link by a ticket", "GET", "/v1/runners/r-1/link", mesh.RunnerAddr("c-1", "ticket x"), false},
		{"a path that only begins so", "GET", "/v1/runners/r-1x/link", own, false},
		{"the list of runners", "GET", "/v1/runners", own, false},
		{"jobs", "POST", "/v1/jobs", own, false},
		{"a node", "GET", "/v1/jobs", mesh.Addr("c-1", "n-1"), false},
	} {
		reached := false
		runners := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
		r := httptest.NewRequest(c.method, "http://hub"+c.path, nil)
		r.RemoteAddr = netip.AddrPortFrom(c.from, 7).String()
		w := httptest.NewRecorder()
		h.inside(runners).ServeHTTP(w, r)
		if reached != c.open || !reached && w.Code != http.StatusForbidden {
			t.Errorf("%s: reached %v with status %d; want %v", c.name, reached, w.Code, c.open)
		}
	}
}

func TestTheMeshKeyIsReplacedInTwoSteps(t *testing.T) {
	dir := t.TempDir()
	load := func() *selfKeys {
		t.Helper()
		k, err := loadSelf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := load()
	was, none := k.public()
	if len(none) != 0 {
		t.Fatalf("a new node has a next key: %x", none)
	}
	next, err := k.prepare(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A crash between the steps: the same key is announced again, and used by the next change.
	k = load()
	if now, told := k.public(); string(now) != string(was) || string(told) != string(key(next)) {
		t.Errorf("after a crash the keys are %x and %x", now, told)
	}
	if again, err := k.prepare(dir); err != nil || again != next {
		t.Errorf("the change that was begun goes on with another key: %v", err)
	}
	if err := k.adopt(dir); err != nil {
		t.Fatal(err)
	}
	k = load()
	if now, told := k.public(); string(now) != string(key(next)) || len(told) != 0 {
		t.Errorf("after the change the keys are %x and %x", now, told)
	}
}
