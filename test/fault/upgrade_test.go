//go:build linux

package fault

import (
	"encoding/binary"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/consensus"
)

// One hub is of an older release. Commands that it could not read are held back, with
// its name, and work goes on; once it is upgraded they are taken.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	old := c.others(c.leader())[0]
	generation := func(want int) func() bool {
		return func() bool { return c.leader().member(old.id).Kinds == want }
	}
	newest := c.leader().member(old.id).Kinds
	old.p.Stop()
	old.faults.Generation = 1
	old.start()
	c.eventually(30*time.Second, "the members' list tells what the older hub can read", generation(1))
	out, errs, code := c.try("hub", "rotate", "hmac")
	if code == 0 || !strings.Contains(out+errs, old.id) || !strings.Contains(out+errs, "upgrade") {
		t.Errorf("a command that the older hub cannot read ended with %d: %s%s; want it refused, with the hub's name", code, out, errs)
	}
	w.submit("meanwhile", 3)
	w.check("meanwhile", 40*time.Second)
	old.p.Stop()
	old.faults.Generation = 0
	old.start()
	c.eventually(30*time.Second, "the upgraded hub says so", generation(newest))
	c.run("hub", "rotate", "hmac")
	w.submit("after", 3)
	w.check("after", 40*time.Second)
	c.voters(3)
}

// blind is a state machine that knows no entry.
type blind struct{}

func (blind) Apply(uint64, []byte) (any, error) { return nil, nil }
func (blind) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}
func (blind) Restore(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }

// A newer release has left an entry in the log. This one does not start on it, each
// time it is asked, says so in one sentence, and leaves the data as they are.
func TestEntryOfANewerRelease(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1)
	c.found()
	h := c.hubs[0]
	h.p.Stop()
	n, err := consensus.Open(consensus.Config{Dir: filepath.Join(h.dir, "raft"), NodeID: h.id, FSM: blind{}})
	if err != nil {
		t.Fatal(err)
	}
	entry := binary.BigEndian.AppendUint16([]byte{1}, 9000)
	entry = append(binary.BigEndian.AppendUint64(entry, uint64(time.Now().UnixNano())), 0, 0, 0, 0, '{', '}')
	var index uint64
	c.eventually(20*time.Second, "the newer release has written", func() bool {
		_, index, err = n.Propose(t.Context(), entry)
		return err == nil
	})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("entry %d is of a kind that is unknown", index)
	for range 2 {
		h.start()
		h.refuses(78, "newer", "untouched")
		last := strings.Split(strings.TrimSpace(h.p.Said()), "\n")
		if n := strings.Count(h.p.Said(), "tugline: "); n != 1 || !strings.HasPrefix(last[len(last)-1], "tugline: ") {
			t.Errorf("the hub says this of it; want one sentence at the end:\n%s", h.p.Said())
		}
	}
	var then uint64
	err = consensus.Dump(filepath.Join(h.dir, "raft"), func(e consensus.Entry) error {
		if e.Index == index && string(e.Data) == string(entry) {
			then = e.Index
		}
		return nil
	})
	if err != nil || then != index {
		t.Errorf("entry %d is not in the log as it was (%v)", index, err)
	}
}
