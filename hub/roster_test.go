package hub

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
)

// reader is a node that reads the log of its cluster and hears nobody.
type reader struct {
	*Hub
	t     *testing.T
	m     machine
	index uint64
}

// newReader opens node n-2 in dir, which may hold the roster of its join or of before.
func newReader(t *testing.T, dir string) *reader {
	t.Helper()
	var err error
	m := newMachine()
	t.Cleanup(m.feed.Close)
	r := &reader{t: t, m: m, Hub: &Hub{
		cfg: Config{Dir: dir, MeshListen: "127.0.0.1:0"}, id: identity{Cluster: "c-1", Node: "n-2"},
		log: slog.New(slog.DiscardHandler), entries: &log{state: m.state, clock: newTimekeeper(dir, time.Now, nil, slog.New(slog.DiscardHandler)), leads: func() bool { return false }},
		rosterPokes: make(chan struct{}, 1),
	}}
	r.disk = &reserve{dir: dir, stat: statFree}
	if r.keys, err = loadSelf(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.openNetwork(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.mesh.Close() })
	if err := r.openGossip(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.gossip.Close() })
	return r
}

// read applies one more entry, and acts on the record as it is then.
func (r *reader) read(cmd state.Command) {
	r.t.Helper()
	r.index += 10
	b, err := state.Encode(state.Head{At: time.Unix(1_700_000_000, 0).Add(time.Duration(r.index) * time.Second), Actor: "hub"}, cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.Begin()
	res, err := r.m.Apply(r.index, b)
	r.m.End()
	if err == nil {
		err = res.(state.Result).Err()
	}
	if err != nil {
		r.t.Fatalf("%T: %v", cmd, err)
	}
	r.follows()
}

func (r *reader) follows() {
	r.t.Helper()
	if err := r.followRoster(); err != nil {
		r.t.Fatal(err)
	}
}

// takes gives which of the named keys of node n-1 its mesh takes, in order.
func (r *reader) takes(keys ...mesh.PrivateKey) string {
	for _, p := range r.told {
		if p.ID == "n-1" {
			var out []string
			for i, k := range keys {
				if slices.Contains(p.Keys, k.Public()) {
					out = append(out, string(rune('a'+i)))
				}
			}
			return strings.Join(out, " ")
		}
	}
	return "none"
}

// row is a node's record.
func row(id string, k mesh.PrivateKey, next ...mesh.PrivateKey) fleet.HubNode {
	n := fleet.HubNode{ID: id, MeshKey: key(k), SealKey: bytes.Repeat([]byte{7}, 32), Endpoints: []string{"127.0.0.1:9"}, Kinds: 1}
	if len(next) > 0 {
		n.NextMeshKey = key(next[0])
	}
	return n
}

// TestOldEntriesDoNotCutOff: who joined by an answer with the present keys, or who was
// here when they were replaced, reads of older ones in the log first. It keeps to what it
// knows, across restarts, until the log has come so far; from then on it follows the log.
func TestOldEntriesDoNotCutOff(t *testing.T) {
	a, b, c, d := mesh.NewKey(), mesh.NewKey(), mesh.NewKey(), mesh.NewKey()
	dir := t.TempDir()
	one, me := row("n-1", c), row("n-2", mesh.NewKey())
	if err := (roster{Version: 1, Epoch: 1, Index: 70, Nodes: []*fleet.HubNode{&one, &me}}).save(dir); err != nil {
		t.Fatal(err)
	}
	steps := []state.Command{
		&state.InitCluster{Cluster: "c-1", Epoch: 1}, // 10
		&state.UpdateNode{Node: row("n-1", a)},
		&state.UpdateNode{Node: row("n-1", a, b)},
		&state.UpdateNode{Node: row("n-1", b)},
		&state.UpdateNode{Node: row("n-1", b, c)},
		&state.UpdateNode{Node: row("n-1", c)}, // 60
		&state.Set{Name: "x", Value: "y"},
		&state.UpdateNode{Node: row("n-1", c, d)}, // 80
		&state.UpdateNode{Node: row("n-1", d)},
	}
	want := []string{"c", "c", "c", "c", "c", "c", "c", "c d", "d"}
	r := newReader(t, dir)
	if r.follows(); r.takes(a, b, c, d) != "c" {
		t.Errorf("before anything is read its mesh takes the keys %s", r.takes(a, b, c, d))
	}
	for i, cmd := range steps {
		if i == 4 { // it is killed and starts again, with a log that ends sooner
			r = newReader(t, dir)
			for _, again := range steps[:3] {
				r.read(again)
			}
			if got := r.takes(a, b, c, d); got != "c" {
				t.Errorf("after a restart it takes the keys %s, want c", got)
			}
			r.read(steps[3])
		}
		if r.read(cmd); r.takes(a, b, c, d) != want[i] {
			t.Errorf("after entry %d it takes the keys %s of n-1, want %s", r.index, r.takes(a, b, c, d), want[i])
		}
	}
	// The next start reads everything again.
	r = newReader(t, dir)
	for _, cmd := range steps {
		if r.read(cmd); r.takes(a, b, c, d) != "d" {
			t.Errorf("entry %d, read again, has it take the keys %s of n-1, want d", r.index, r.takes(a, b, c, d))
		}
	}
	r.read(&state.RaiseEpoch{To: 2, Cause: "test", Nodes: []fleet.HubNode{row("n-1", d), row("n-3", mesh.NewKey())}})
	r.read(&state.RemoveNode{ID: "n-1", Why: "test"})
	if got := r.takes(a, b, c, d); got != "none" {
		t.Errorf("of a removed node it takes the keys %s", got)
	}
}

// TestARemovalThatIsReadIsOneAtOnce: nothing that a node remembers keeps one let in whose
// removal it has read, or heard of when it joined.
func TestARemovalThatIsReadIsOneAtOnce(t *testing.T) {
	a, b := mesh.NewKey(), mesh.NewKey()
	dir := t.TempDir()
	gone, me := row("n-1", a), row("n-2", mesh.NewKey())
	if err := (roster{Version: 1, Epoch: 1, Index: 30, Nodes: []*fleet.HubNode{&gone, &me}}).save(dir); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, dir)
	r.read(&state.InitCluster{Cluster: "c-1", Epoch: 1})
	r.read(&state.UpdateNode{Node: row("n-1", a)})
	r.read(&state.RaiseEpoch{To: 2, Cause: "restore", Nodes: []fleet.HubNode{row("n-1", b), row("n-3", mesh.NewKey())}})
	if got := r.takes(a, b); got != "b" {
		t.Errorf("in a raised epoch it takes the keys %s, want b", got)
	}
	r.read(&state.RemoveNode{ID: "n-1", Why: "test"})
	if got := r.takes(a, b); got != "none" {
		t.Errorf("of a removed node it takes the keys %s", got)
	}
	// It joined after a removal, and reads of the time before.
	dir = t.TempDir()
	three := row("n-3", mesh.NewKey())
	if err := (roster{Version: 1, Epoch: 1, Index: 40, Nodes: []*fleet.HubNode{&three, &me}}).save(dir); err != nil {
		t.Fatal(err)
	}
	r = newReader(t, dir)
	r.read(&state.InitCluster{Cluster: "c-1", Epoch: 1})
	r.read(&state.UpdateNode{Node: row("n-1", a)})
	if got := r.takes(a, b); got != "none" {
		t.Errorf("of a node that was removed before it joined it takes the keys %s", got)
	}
}

// TestAStateThatWasSetBackCutsNobodyOff: an archive holds the keys of its time. Until the
// record is mended in a raised epoch the nodes speak to each other by their present ones.
func TestAStateThatWasSetBackCutsNobodyOff(t *testing.T) {
	a, b := mesh.NewKey(), mesh.NewKey()
	r := newReader(t, t.TempDir())
	r.read(&state.InitCluster{Cluster: "c-1", Epoch: 1})
	r.read(&state.UpdateNode{Node: row("n-1", a)})
	var archive bytes.Buffer
	if err := r.m.state.Snapshot()(&archive); err != nil {
		t.Fatal(err)
	}
	r.read(&state.UpdateNode{Node: row("n-1", a, b)})
	r.read(&state.UpdateNode{Node: row("n-1", b)})
	r.read(&state.RaiseEpoch{To: 2, Cause: "before a restore"})
	living := r.livingNodes()
	if err := r.m.Restore(&archive); err != nil {
		t.Fatal(err)
	}
	r.follows()
	r.read(&state.Set{Name: "x", Value: "y"}) // whatever comes between
	if got := r.takes(a, b); got != "b" {
		t.Errorf("after the state was set back it takes the keys %s, want b", got)
	}
	r.read(&state.RaiseEpoch{To: 3, Cause: "restore", Nodes: living})
	if got := r.takes(a, b); got != "b" {
		t.Errorf("after the epoch was raised it takes the keys %s, want b", got)
	}
}

// TestAKeyThatIsNotOnDiskIsNotKnown: the node whose key it is would use it while this one
// is away.
func TestAKeyThatIsNotOnDiskIsNotKnown(t *testing.T) {
	a, b := mesh.NewKey(), mesh.NewKey()
	dir := t.TempDir()
	r := newReader(t, dir)
	r.read(&state.InitCluster{Cluster: "c-1", Epoch: 1})
	r.read(&state.UpdateNode{Node: row("n-1", a)})
	r.cfg.Dir = filepath.Join(dir, "not", "there")
	r.read(&state.UpdateNode{Node: row("n-1", a, b)})
	knows := func() bool {
		return slices.ContainsFunc(r.livingNodes(), func(n fleet.HubNode) bool { return bytes.Equal(n.NextMeshKey, key(b)) })
	}
	if knows() {
		t.Error("a key counts as known that is not on disk")
	}
	r.cfg.Dir = dir
	if r.follows(); !knows() {
		t.Error("it was not written once it could be")
	}
}
