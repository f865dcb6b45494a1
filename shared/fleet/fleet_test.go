package fleet

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestFenceOrder: epoch first, then index, and a total order.
func TestFenceOrder(t *testing.T) {
	inOrder := []Fence{{}, {0, 1}, {0, math.MaxUint64}, {1, 0}, {1, 9}, {1, 10}, {2, 0}, {10, 1}, {math.MaxUint64, math.MaxUint64}}
	for i, a := range inOrder {
		for k, b := range inOrder {
			if a.Less(b) != (i < k) {
				t.Errorf("%s less than %s is %v", a, b, a.Less(b))
			}
		}
		if a.IsZero() != (i == 0) {
			t.Errorf("%s is zero: %v", a, a.IsZero())
		}
		back, err := ParseFence(a.String())
		if err != nil || back != a {
			t.Errorf("%s parsed as %s, %v", a, back, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := Fence{rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "a")}, Fence{rapid.Uint64().Draw(t, "b"), rapid.Uint64().Draw(t, "b")}
		want := cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Index, b.Index)) < 0
		if a.Less(b) != want || a.Less(b) && b.Less(a) {
			t.Fatalf("%s less than %s is %v", a, b, a.Less(b))
		}
	})
}

// TestFenceText is a string in JSON and refuses everything else.
func TestFenceText(t *testing.T) {
	type box struct {
		F Fence            `json:"f"`
		M map[Fence]string `json:"m,omitempty"`
	}
	in := box{Fence{3, 41}, map[Fence]string{{1, 2}: "x"}}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `{"f":"3-41","m":{"1-2":"x"}}` {
		t.Fatalf("%s, %v", b, err)
	}
	var out box
	if err := json.Unmarshal(b, &out); err != nil || out.F != in.F || out.M[Fence{1, 2}] != "x" {
		t.Errorf("%+v, %v", out, err)
	}
	for _, s := range []string{"-", "1", "1-", "-1", "1-2-3", "a-1", "1- 2", "+1-2", "1-18446744073709551616", " 1-2"} {
		if f, err := ParseFence(s); err == nil {
			t.Errorf("%q parsed as %s", s, f)
		}
	}
	var f Fence
	if err := f.UnmarshalText(nil); err != nil || !f.IsZero() {
		t.Errorf("empty text gave %s, %v", f, err)
	}
}

// TestDigest is 64 characters of lower-case hex.
func TestDigest(t *testing.T) {
	good := Digest(strings.Repeat("0123456789abcdef", 4))
	if !good.Valid() {
		t.Errorf("%s is valid", good)
	}
	for _, d := range []Digest{"", good[:63], good + "0", "A" + good[1:], "g" + good[1:], "/" + good[1:], ":" + good[1:], "`" + good[1:], Digest(strings.Repeat("ü", 32))} {
		if d.Valid() {
			t.Errorf("%q is not valid", d)
		}
	}
}

// TestRanks: what is unknown ranks below everything.
func TestRanks(t *testing.T) {
	if !(Role("root").Rank() < RoleViewer.Rank() && RoleViewer.Rank() < RoleOperator.Rank() && RoleOperator.Rank() < RoleAdmin.Rank()) {
		t.Error("roles are out of order")
	}
	if !(Permissions("all").Rank() < PermRead.Rank() && PermRead.Rank() < PermWorkspace.Rank() && PermWorkspace.Rank() < PermFull.Rank()) {
		t.Error("permissions are out of order")
	}
}

// TestClone: what commands change in a copy does not show in the original.
func TestClone(t *testing.T) {
	soon := time.Now()
	j := &Job{ID: "j", State: Running, FollowUps: []FollowUp{{Model: "one"}}, Excluded: []Exclusion{{Runner: "r"}},
		Turns: []*Turn{{N: 1, Current: 1, Attempts: []*Attempt{{N: 1, Fence: Fence{1, 5}, State: AttemptRunning, Notes: []string{"n"}}}}}}
	was, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c := j.Clone()
	c.State, c.CancelRequestedAt = Cancelled, &soon
	c.Turn().State, c.Turn().Current = Cancelled, 0
	a := c.Turns[0].Attempts[0]
	a.State, a.Stop, a.Evidence = AttemptAbandoned, "stop", &Evidence{}
	c.Turns[0].Attempts = append(c.Turns[0].Attempts, &Attempt{N: 2})
	c.Turns = append(c.Turns, &Turn{N: 2})
	c.FollowUps = append(slices.Clip(c.FollowUps), FollowUp{Model: "two"})
	if is, _ := json.Marshal(j); string(is) != string(was) {
		t.Errorf("the original became\n%s\nfrom\n%s", is, was)
	}
}

// TestCurrentAndFind look only where they should.
func TestCurrentAndFind(t *testing.T) {
	old, now := &Attempt{N: 1, Fence: Fence{1, 5}}, &Attempt{N: 1, Fence: Fence{1, 9}}
	j := &Job{Turns: []*Turn{{N: 1, Current: 1, Attempts: []*Attempt{old}}, {N: 2, Attempts: []*Attempt{now}}}}
	for current, want := range map[int]*Attempt{-1: nil, 0: nil, 1: now, 2: nil} {
		j.Turns[1].Current = current
		if got := j.Current(); got != want {
			t.Errorf("current %d is %v, want %v", current, got, want)
		}
	}
	if tu, a := j.Find(Fence{1, 5}); tu != j.Turns[0] || a != old {
		t.Errorf("found %v, %v", tu, a)
	}
	if tu, a := j.Find(Fence{1, 6}); tu != nil || a != nil {
		t.Errorf("found %v, %v", tu, a)
	}
}

// TestHoldsSlot: assigned and running ones do, and a lost one until it is gone.
func TestHoldsSlot(t *testing.T) {
	at := time.Now()
	for s, want := range map[AttemptState][2]bool{ // not gone, gone
		AttemptAssigned: {true, true}, AttemptRunning: {true, true}, AttemptLost: {true, false},
		AttemptFinished: {}, AttemptDeclined: {}, AttemptReturned: {}, AttemptWithdrawn: {}, AttemptAbandoned: {},
	} {
		for i, gone := range []bool{false, true} {
			a := &Attempt{State: s, Gone: gone, AcceptedAt: &at}
			if s == AttemptAssigned || s == AttemptWithdrawn {
				a.AcceptedAt = nil
			}
			if a.HoldsSlot() != want[i] {
				t.Errorf("%s, gone %v: holds %v", s, gone, a.HoldsSlot())
			}
		}
	}
}
