package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// wedge appends entries to the log of a closed node, as if a leader had sent them and
// had not come to committing them.
func wedge(t *testing.T, dir string, data ...string) (first uint64) {
	t.Helper()
	o, err := openOffline(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	last, err := o.store.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := o.store.GetLog(last, &l); err != nil {
		t.Fatal(err)
	}
	for i, d := range data {
		l := &raft.Log{Index: last + 1 + uint64(i), Term: l.Term, Type: raft.LogCommand, Data: []byte(d)}
		if err := o.store.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	return last + 1
}

func TestDumpAndReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var live ledger
	n := mustOpen(t, dir, &live, func(c *Config) { c.SnapshotEvery = 16 })
	for i := range 30 {
		mustPropose(t, n, fmt.Sprint("entry ", i))
	}
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		mustPropose(t, n, fmt.Sprint("later ", i))
	}
	if err := Dump(dir, func(Entry) error { return nil }); !errors.Is(err, ErrLocked) {
		t.Errorf("while it runs: %v", err)
	}
	if _, err := Replay(dir, &ledger{}); !errors.Is(err, ErrLocked) {
		t.Errorf("replay while it runs: %v", err)
	}
	status := n.Status()
	mustClose(t, n)
	unknown := wedge(t, dir, "poison")
	before := snapshotOf(t, dir)

	var got []string
	var last Entry
	if err := Dump(dir, func(e Entry) error {
		if e.Kind == "command" {
			got = append(got, fmt.Sprint(e.Index, " ", string(e.Data)))
		}
		if e.Index != last.Index+1 && last.Index > 0 || e.Term == 0 {
			t.Errorf("%+v behind %d", e, last.Index)
		}
		last = e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := append(live.all(), fmt.Sprint(unknown, " poison"))
	if len(got) < 10 || !slices.Equal(got, want[len(want)-len(got):]) {
		t.Errorf("dumped %q, want the end of %q", got, want)
	}
	stop := errors.New("enough")
	if err := Dump(dir, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("fn's error became %v", err)
	}

	var again ledger
	c, err := Replay(dir, &again)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(again.all(), live.all()); d != "" {
		t.Errorf("replayed (-got +want):\n%s", d)
	}
	var fatal *FatalError
	if !errors.As(c.Refused, &fatal) || fatal.Index != unknown || c.Last != unknown || c.Applied != status.AppliedIndex ||
		c.Snapshot != status.SnapshotIndex || c.NodeID != "n1" || c.Term != status.Term || len(c.Members) != 1 ||
		c.Committed != unknown {
		t.Errorf("contents %+v, node was %+v", c, status)
	}
	if d := cmp.Diff(before, snapshotOf(t, dir)); d != "" {
		t.Errorf("looking changed the directory:\n%s", d)
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if err := Dump(dir, func(Entry) error { return nil }); !errors.Is(err, ErrEmpty) {
			t.Errorf("empty: %v", err)
		}
	}
}

// snapshotOf reads all files below dir.
func snapshotOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			out[path] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRecoverAfterALostMajority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		nodes, ledgers := group(t, dir, net)
		leader := leading(nodes, nil)
		for i := range 20 {
			mustPropose(t, leader, fmt.Sprint("entry ", i))
		}
		time.Sleep(time.Second)
		i := slices.IndexFunc(nodes, func(n *Node) bool { return n != leader })
		left, want := nodes[i].cfg.NodeID, ledgers[i].all()
		home := nodes[i].cfg.Dir
		if _, err := Recover(home, left, &ledger{}, true); !errors.Is(err, ErrLocked) {
			t.Errorf("while it runs: %v", err)
		}
		for _, n := range nodes {
			n.Close()
		}
		net.close()
		kept := wedge(t, home, "perhaps", "poison", "behind it")

		// Alone it comes to nothing.
		n, err := Open(Config{Dir: home, NodeID: left, FSM: &ledger{}, Transport: net.listen(left)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := n.Status(); s.State == "leader" {
			t.Errorf("leads alone: %+v", s)
		}
		n.Close()

		if _, err := Recover(home, "other", &ledger{}, true); err == nil || !strings.Contains(err.Error(), "belongs to") {
			t.Errorf("under another id: %v", err)
		}
		if r, err := Recover(home, left, &ledger{}, false); err == nil || !strings.Contains(err.Error(), "kind 99") {
			t.Errorf("dropped unasked: %+v, %v", r, err)
		}
		r, err := Recover(home, left, &ledger{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.MaybeLost) != 2 || slices.Contains(r.MaybeLost, left) || r.Before.Last != kept+2 || r.Before.Committed == 0 ||
			r.KeptTo != kept || r.KeptFrom != r.Before.Committed+1 || r.DroppedFrom != kept+1 || r.DroppedTo != kept+2 {
			t.Errorf("recovery %+v", r)
		}
		l := &ledger{}
		n, err = Open(Config{Dir: home, NodeID: left, FSM: l, Transport: net.listen(left)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if err := n.settle(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(l.all(), append(want, fmt.Sprint(kept, " perhaps"))); d != "" {
			t.Errorf("state after recovery (-got +want):\n%s", d)
		}
		if all, _ := n.Members(); len(all) != 1 || all[0].ID != left || !all[0].Voter {
			t.Errorf("members %+v", all)
		}
		// It grows again.
		m, err := Open(Config{Dir: filepath.Join(dir, "new"), NodeID: "new", Join: true, FSM: &ledger{}, Transport: net.listen("new")})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := errors.Join(n.AddLearner(t.Context(), "new"), n.Promote(t.Context(), "new")); err != nil {
			t.Error(err)
		}
		mustPropose(t, n, "both")
	})
}

func TestRecoverRefusals(t *testing.T) {
	t.Parallel()
	if _, err := Recover(t.TempDir(), "n1", &ledger{}, true); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	dir := t.TempDir()
	n := mustOpen(t, dir, &ledger{})
	mustPropose(t, n, "good")
	n.Propose(t.Context(), []byte("poison")) // committed
	mustClose(t, n)
	n, err := Open(Config{Dir: dir, NodeID: "n1", FSM: &ledger{}})
	if err != nil {
		t.Fatal(err)
	}
	waitDone(t, n)
	mustClose(t, n)
	before, err := Replay(dir, &ledger{})
	if err != nil || before.Committed != before.Last {
		t.Errorf("contents %+v, %v: want all of it committed", before, err)
	}
	if r, err := Recover(dir, "n1", &ledger{}, true); err == nil || !strings.Contains(err.Error(), "kind 99") {
		t.Errorf("a committed entry was dropped: %+v, %v", r, err)
	}
	after, err := Replay(dir, &ledger{})
	if err != nil || after.Last != before.Last || after.Term != before.Term {
		t.Errorf("a refused recovery left %+v of %+v, %v", after, before, err)
	}
}

// An entry that nobody understands and that is not committed harms nothing: the group
// goes on without it.
func TestUncommittedUnknownEntryIsReplaced(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		defer net.close()
		nodes, _ := group(t, dir, net)
		mustPropose(t, leading(nodes, nil), "x")
		time.Sleep(time.Second)
		for _, n := range nodes {
			n.Close()
		}
		odd := wedge(t, nodes[0].cfg.Dir, "poison")
		var others []*Node
		voters := []string{"n0", "n1", "n2"}
		open := func(id string, l *ledger) *Node {
			n, err := Open(Config{Dir: filepath.Join(dir, id), NodeID: id, Voters: voters, FSM: l, Transport: net.listen(id)})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, id := range voters[1:] {
			others = append(others, open(id, &ledger{}))
		}
		leader := leading(others, nil)
		mustPropose(t, leader, "y")
		l := &ledger{}
		n := open("n0", l)
		time.Sleep(10 * time.Second)
		select {
		case <-n.Done():
			t.Errorf("stopped: %v", n.Err())
		default:
		}
		if got := strip(l.all()); !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("applied %q, with an odd entry at %d", got, odd)
		}
		for _, n := range append(others, n) {
			n.Close()
		}
	})
}
