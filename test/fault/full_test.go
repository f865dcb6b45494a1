//go:build linux

package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

// The leader's disk is filled to the last byte at one stroke. The hub stays up, says that
// it is full, also after a new start, and leaves leading to others; once there is room it
// goes on as before, and bears the same again.
func TestDiskFilledAtOneStroke(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	h := c.hubs[0]
	h.faults.MinFree = 16 << 20
	h.small(72)
	c.found()
	c.addRunner(2).start()
	c.online()
	w := c.work()
	w.running("across", 80)
	ballast := func() int64 {
		if st, err := os.Stat(filepath.Join(h.dir, "ballast")); err == nil {
			return st.Size()
		}
		return 0
	}
	for _, when := range []string{"first", "second"} {
		c.eventually(30*time.Second, "some room is held for the log", func() bool { return ballast() == 4<<20 })
		if c.leader() != h {
			c.transfer(h)
		}
		filler := h.fill(0)
		began := time.Now()
		for n := 0; c.leader() == h && n < 100; n++ {
			w.trySubmit(when, 1, 20*time.Second) // what is refused for the disk's sake is no matter
		}
		lead := c.leader(c.others(h)...)
		t.Logf("%s leads %s after the disk was filled", lead.called, time.Since(began).Round(10*time.Millisecond))
		full := func() bool { return lead.member(h.id).Health == "disk_full" }
		c.eventually(20*time.Second, "the members' list tells of the full disk", full)
		w.submit(when+" while it is full", 5)
		w.check(when+" while it is full", 40*time.Second, c.others(h)...)
		h.quit()
		h.restart()
		c.eventually(30*time.Second, "the members' list tells of the full disk after a new start", full)
		w.submit(when+" after its start", 5)
		if !h.p.Runs() {
			t.Fatalf("the hub with the full disk ended:\n%s", mesh.Tail(h.p.Said(), 2000))
		}
		if _, out, code := c.try("hub", "transfer-leader", h.id); code == 0 || !strings.Contains(out, "full disk") {
			t.Errorf("leadership goes to the hub with the full disk: %d, %s", code, out)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c.voters(3)
		c.eventually(60*time.Second, "the hub is well and lacks nothing", func() bool { m := c.leader().member(h.id); return m.Health == "ok" && m.Whole() })
		w.check(when+" after its start", 40*time.Second)
	}
	w.check("across", 40*time.Second)
}
