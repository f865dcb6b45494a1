//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// copied makes a copy of a directory, which nothing must write to.
func (c *cluster) copied(dir, name string) string {
	c.t.Helper()
	to := filepath.Join(c.dir, name)
	if out, err := c.person.command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		c.t.Fatalf("cp: %v: %s", err, out)
	}
	return to
}

// A voter's directory is an old copy of it: a machine was restored, or somebody copied it
// back. It lacks jobs that were acknowledged because it had them, while another hub was off.
// It refuses to run, and says why; the newer directory is taken; and without that it is
// replaced. The hub that knows better was killed meanwhile, and knows by its disk.
func TestCopyOfVoterPutBack(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.submit("before", 3)
	w.check("before", 60*time.Second)
	lead := c.leader()
	voter, off := c.others(lead)[0], c.others(lead)[1]
	voter.p.Stop()
	dir := voter.dir
	copied := c.copied(dir, "copy")
	voter.restart()
	c.voters(3)
	lead = c.leader()
	off.unplug()
	for i := range 5 {
		w.submit(fmt.Sprintf("acknowledged %d", i), 5)
	}
	for i := range 5 {
		w.check(fmt.Sprintf("acknowledged %d", i), 60*time.Second, lead, voter)
	}
	voter.p.Stop()
	lead.p.Kill()
	lead.start()
	voter.dir = copied
	voter.start()
	voter.refuses(78, "old copy", "which is committed", "node "+lead.id+" knows", "if the newer directory still exists", "hub ticket --role hub --replace "+voter.id)
	if w.acknowledges(lead, "without a majority") {
		t.Error("a hub without a majority took a job")
	}

	off.plug()
	c.leader(lead, off)
	for i := range 5 {
		w.check(fmt.Sprintf("acknowledged %d", i), 60*time.Second)
	}
	voter.start()
	voter.refuses(78, "old copy")
	if m := c.leader(lead, off).member(voter.id); m.Health != "set_back" || !strings.Contains(m.Detail, "old copy") {
		t.Errorf("the leader calls it %q (%s); want set_back", m.Health, m.Detail)
	}
	voter.dir = dir
	voter.restart()
	c.voters(3)

	w.submit("since", 3)
	w.check("since", 60*time.Second)
	voter.p.Stop()
	voter.dir = copied
	voter.start()
	voter.refuses(78, "old copy")
	voter.replace(3)
	for i := range 5 {
		w.check(fmt.Sprintf("acknowledged %d", i), 60*time.Second)
	}
	w.kept("before", voter)
	w.kept("since", voter)
	w.submit("new", 3)
	w.check("new", 60*time.Second)
}

// A copy of a voter's directory is started on another machine, while the voter runs. One of
// the two ends: the copy where it lacks something, else the one that was started first. The
// other one goes on, and nothing is lost.
func TestCopyBesideItsOriginal(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.submit("before", 3)
	w.check("before", 60*time.Second)
	first := c.others(c.leader())[0]
	first.p.Stop()
	dir := c.copied(first.dir, "copy")
	first.restart()
	c.voters(3)
	second := &hub{machine: c.lan.machine("copy", "10.77.0.30"), c: c, called: "copy", dir: dir, faults: first.faults, id: first.id}
	beside := func() {
		t.Helper()
		second.start()
		var ended *hub
		c.eventually(90*time.Second, "one of the two ends", func() bool {
			for _, h := range []*hub{first, second} {
				if !h.p.Runs() {
					ended = h
				}
			}
			return ended != nil
		})
		goes := first
		if ended == first {
			goes = second
		}
		t.Logf("%s ended, %s goes on", ended.called, goes.called)
		ended.refuses(78, "copy")
		for i, h := range c.hubs {
			if h == first {
				c.hubs[i] = goes
			}
		}
		c.voters(3)
		if !goes.p.Runs() {
			t.Errorf("both have ended:\n%s", goes.p.Said())
		}
	}
	defer func() {
		for _, h := range []*hub{first, second} {
			if h.p.Runs() {
				h.p.Kill()
			}
		}
	}()
	w.submit("since", 3) // which the copy lacks
	w.check("since", 60*time.Second)
	beside()
	if first.p.Runs() == false {
		t.Fatal("the original has ended, and the copy lacks a job")
	}

	// Both have all.
	first.p.Stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second.dir = c.copied(first.dir, "copy2")
	first.restart()
	beside()
	for _, name := range []string{"before", "since"} {
		w.check(name, 60*time.Second)
	}
	w.submit("new", 3)
	w.check("new", 60*time.Second)
}

// A bit flips in the log on a hub's disk. It refuses to start, and names the file and what
// to do; the others go on, and it is replaced.
func TestFlippedBitInTheLog(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.submit("before", 3)
	w.check("before", 60*time.Second)
	h := c.others(c.leader())[0]
	h.p.Stop()
	path := filepath.Join(h.dir, "raft", "raft.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(b, []byte("work.sh")) // of the job's command line
	if at < 0 {
		t.Fatal("the log has no entry with the job")
	}
	for ; at >= 0; at = bytes.LastIndex(b[:at], []byte("work.sh")) { // pages are written anew at another place
		b[at] ^= 1
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.refuses(78, "entry", path, "checksum", "hub ticket --role hub --replace "+h.id)
	w.submit("without it", 3)
	w.check("without it", 60*time.Second)
	h.replace(3)
	w.kept("before", h)
	w.check("before", time.Second)
}
