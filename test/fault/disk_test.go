//go:build linux

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

// onDisks makes a cluster of which the first hub, which leads, has its data on a disk
// that can be at fault, and that calls it slow after a second or two.
func onDisks(t *testing.T, runners int) (*cluster, *hub, *disk) {
	t.Helper()
	c := prepare(t, 3)
	h := c.hubs[0]
	h.faults.StallP99, h.faults.StallFor = "200ms", "2s"
	d := h.onDisk()
	c.found()
	for range runners {
		c.addRunner(2).start()
	}
	c.online()
	if c.leader() != h {
		c.transfer(h)
	}
	if c.leader() != h {
		t.Fatalf("%s does not lead", h.called)
	}
	return c, h, d
}

// The disk under the leader's log becomes slow: another hub leads, and the slow one is
// told apart until it is fast again.
func TestSlowDiskOfLeader(t *testing.T) {
	t.Parallel()
	c, h, d := onDisks(t, 1)
	w := c.work()
	w.running("across", 80)
	d.set(slow(600 * time.Millisecond))
	began := time.Now()
	for n := 0; c.leader() == h; n++ {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%s still leads with a slow disk", h.called)
		}
		w.submit(fmt.Sprintf("while it is slow %d", n), 1)
	}
	t.Logf("%s leads %s after the disk became slow", c.leader().called, time.Since(began).Round(10*time.Millisecond))
	w.submit("after", 2)
	w.check("after", 40*time.Second)
	w.check("across", 40*time.Second)
	if m := c.leader().member(h.id); m.Health != "slow_disk" && m.Health != "ok" {
		t.Errorf("the hub with the slow disk is %q; want slow_disk", m.Health)
	}
	d.set(nil)
	c.voters(3)
	c.transfer(h)
	w.submit("back", 1)
	w.check("back", 40*time.Second)
}

// The disk under the leader's log hangs altogether.
func TestStuckDiskOfLeader(t *testing.T) {
	t.Parallel()
	c, h, d := onDisks(t, 1)
	w := c.work()
	w.running("across", 100)
	f, release := stuck("raft/")
	d.set(f)
	began := time.Now()
	_, err := w.trySubmit("while it hangs", 1, time.Minute) // also what makes it notice
	if err != nil {
		t.Fatal(err)
	}
	lead := c.leader(c.others(h)...)
	t.Logf("%s leads, and a job was taken, %s after the disk hung", lead.called, time.Since(began).Round(10*time.Millisecond))
	w.check("while it hangs", 60*time.Second, c.others(h)...)
	w.check("across", 60*time.Second, c.others(h)...)
	d.set(nil)
	release()
	c.voters(3)
	w.check("across", 40*time.Second)
	w.submit("after", 2)
	w.check("after", 40*time.Second)
}

// A follower's disk is slow, then hangs: the others do not wait for it.
func TestSlowDiskOfFollower(t *testing.T) {
	t.Parallel()
	c, h, d := onDisks(t, 1)
	c.transfer(c.others(h)[0])
	lead := c.leader()
	w := c.work()
	d.set(slow(time.Second))
	w.submit("slow", 5)
	w.check("slow", 40*time.Second, c.others(h)...)
	f, release := stuck("")
	d.set(f)
	w.submit("stuck", 5)
	w.check("stuck", 40*time.Second, c.others(h)...)
	if now := c.leader(c.others(h)...); now != lead {
		t.Errorf("%s leads; want %s, undisturbed", now.called, lead.called)
	}
	d.set(nil)
	release()
	c.voters(3)
	w.check("stuck", 40*time.Second)
}

// gaveUp waits until the hub has ended because of its disk, with these words.
func (h *hub) gaveUp(words string) {
	h.c.t.Helper()
	select {
	case <-h.p.Ended():
	case <-time.After(20 * time.Second):
		h.c.t.Fatalf("the hub goes on with a broken disk:\n%s", mesh.Tail(h.p.Said(), 3000))
	}
	if code := h.p.ExitCode(); code != 1 || !strings.Contains(h.p.Said(), words) || !strings.Contains(h.p.Said(), "its disk failed") {
		h.c.t.Errorf("the hub with the broken disk ended with %d and these words; want 1, and what the disk said:\n%s", code, mesh.Tail(h.p.Said(), 1000))
	}
}

// The disk under the leader's log fails: the node stops, says of what, and the others
// go on; with the disk whole again it comes back.
func TestBrokenDiskOfLeader(t *testing.T) {
	t.Parallel()
	c, h, d := onDisks(t, 1)
	w := c.work()
	w.running("across", 60)
	d.set(broken("raft/", syscall.EIO))
	w.submit("while it is broken", 5)
	h.gaveUp("input/output error")
	w.check("while it is broken", 60*time.Second, c.others(h)...)
	w.check("across", 60*time.Second, c.others(h)...)
	d.set(nil)
	h.restart()
	c.voters(3)
	w.check("across", 40*time.Second)
}

// The part of the leader's disk fails that holds output, or what it remembers of the
// output's copies, and its log's part does not. It stops all the same, since nobody's
// output could be kept by it; nothing of it is lost.
func TestBrokenSpoolOfLeader(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"spool/", "replica/"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			c, h, d := onDisks(t, 1)
			w := c.work()
			w.running("across", 60)
			d.set(broken(dir, syscall.EIO))
			w.submit("while it is broken", 5)
			w.check("while it is broken", 60*time.Second, c.others(h)...)
			w.check("across", 60*time.Second, c.others(h)...)
			h.gaveUp("input/output error")
			d.set(nil)
			h.restart()
			c.voters(3)
			w.check("across", 60*time.Second)
			w.check("while it is broken", 60*time.Second)
		})
	}
}

// small puts the hub's data on a file system of so many MiB; it must not have been
// started.
func (h *hub) small(mib int) {
	t := h.c.t
	t.Helper()
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", h.dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		h.quit()
		if err := syscall.Unmount(h.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// fill takes what is free on the hub's disk but for so many KiB, and gives the file.
func (h *hub) fill(but int) string {
	t := h.c.t
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(h.dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4096)
	for left := int64(st.Bavail)*st.Bsize - int64(but)<<10; left > 0; left -= int64(len(b)) {
		if _, err := f.Write(b); err != nil {
			break
		}
	}
	return path
}

// The leader's disk fills up. It stops leading and takes no new output, says so, and the
// others go on; with no byte left it lives on what was held back for its log, or stops with
// the disk's words once that is used up; once there is room it gets what it lacks.
func TestFullDiskOfLeader(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	h := c.hubs[0]
	h.faults.MinFree = 8 << 20
	h.small(48)
	c.found()
	c.addRunner(2).start()
	c.online()
	if c.leader() != h {
		c.transfer(h)
	}
	w := c.work()
	w.running("across", 80)
	filler := h.fill(4 << 10)
	c.eventually(30*time.Second, "the hub with the full disk does not lead", func() bool { return c.leader() != h })
	lead := c.leader()
	c.eventually(20*time.Second, "the members' list tells of the full disk", func() bool { return lead.member(h.id).Health == "disk_full" })
	w.submit("while it is full", 5)
	w.check("while it is full", 40*time.Second) // it asks the others for what it lacks
	w.check("across", 60*time.Second)
	if out, _, code := c.try("hub", "transfer-leader", h.id); code == 0 && c.leader() == h {
		c.eventually(20*time.Second, "the hub with the full disk gives leadership away again", func() bool { return c.leader() != h })
		t.Logf("leadership was given to the hub with the full disk, which gave it away: %s", out)
	}
	h.fill(0)
	for n := 0; h.p.Runs() && n < 200; n++ { // until its log needs another page
		w.submit(fmt.Sprintf("more %d", n), 1)
	}
	if !h.p.Runs() && !strings.Contains(h.p.Said(), "no space left") {
		t.Errorf("the hub without a byte ended with these words; want what the disk said:\n%s", mesh.Tail(h.p.Said(), 1000))
	}
	t.Logf("the hub without a byte left runs: %v", h.p.Runs())
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if !h.p.Runs() {
		h.restart()
	}
	c.voters(3)
	c.eventually(60*time.Second, "the hub lacks nothing", func() bool { return c.leader().member(h.id).Whole() })
	w.check("while it is full", 40*time.Second)
	w.check("across", 40*time.Second)
}
