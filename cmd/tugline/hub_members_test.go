package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/api"
)

func TestWhatIsNotKnownOfANodeIsShownAsSuch(t *testing.T) {
	for want, n := range map[string]api.Member{
		"0 B":          {Replication: true},
		"1 B":          {Replication: true, UnderReplicated: 1},
		"?":            {},
		"over 2.0 KiB": {UnderReplicated: 2000},
	} {
		if got := lacks(&n); got != want {
			t.Errorf("%+v: %q; want %q", n, got, want)
		}
	}
	if (api.Member{}).Whole() || !(api.Member{Replication: true}).Whole() {
		t.Error("a node of which nothing is known counts as whole, or one that lacks nothing does not")
	}
}

func TestMembersTellWhoHoldsNewCommandsBack(t *testing.T) {
	old, late := api.Member{ID: "n-old", Role: "voter", Version: "v1", Kinds: 2}, api.Member{ID: "n-gone", Role: "removed", Kinds: 1}
	one, two := api.Member{ID: "n-1", Role: "voter", Kinds: 3}, api.Member{ID: "n-2", Role: "learner", Kinds: 3}
	s := newShell(t, "")
	if err := s.showMembers(&api.Members{Members: []api.Member{one, old, late, two}}); err != nil {
		t.Fatal(err)
	}
	has(t, "with an old node", s.out.String(), "warning: n-old runs version v1", "until it is upgraded")
	if n := strings.Count(s.out.String(), "warning:"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, s.out)
	}
	if got := heldBack(&api.Members{Members: []api.Member{one, two, late}}); got != nil {
		t.Errorf("without one: %q", got)
	}
}

// The table and the JSON list the same nodes: those that are there, with --all the removed
// ones too. What a newer hub says besides is handed on.
func TestMembersThatWereRemovedAreListedWhenAskedFor(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"members":[{"id":"n-1","role":"voter","leader":true,"health":"ok","mood":"fine"},
			{"id":"n-2","role":"removed","health":"removed","health_detail":"the cluster went on without it"}],"leader":"n-1","warnings":[],"weather":"dry"}`)
	}))
	defer srv.Close()
	s := newShell(t, srv.URL)
	for _, c := range []struct {
		args           []string
		says, saysNone []string
	}{
		{nil, []string{"n-1"}, []string{"n-2", "removed"}},
		{[]string{"--json"}, []string{"n-1", `"mood": "fine"`, `"weather": "dry"`}, []string{"n-2", "removed"}},
		{[]string{"--all"}, []string{"n-1", "n-2   removed", "n-2: the cluster went on without it"}, nil},
		{[]string{"--all", "--json"}, []string{"n-1", `"mood": "fine"`, "n-2", `"role": "removed"`}, nil},
	} {
		text := s.must(append([]string{"hub", "members"}, c.args...)...)
		has(t, strings.Join(c.args, " "), text, c.says...)
		for _, not := range c.saysNone {
			if strings.Contains(text, not) {
				t.Errorf("%q says %q:\n%s", c.args, not, text)
			}
		}
	}
}
