//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// The leader's disk lies: it says that it has synced and has not, and then its power
// fails. It comes back with what it had a while ago, and what was acknowledged since
// is with the others. They tell it so; it does not run with that, and is replaced.
func TestDiskThatDropsSyncs(t *testing.T) {
	t.Parallel()
	c, h, d := onDisks(t, 1)
	w := c.work()
	w.submit("before", 3)
	w.check("before", 40*time.Second)
	w.running("across", 60)
	h.p.Pause() // between two operations of the disk, as it were
	was := filepath.Join(c.dir, "was")
	if out, err := c.person.command("cp", "-a", d.under, was).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	h.p.Resume()
	for i := range 5 {
		w.submit(fmt.Sprintf("acknowledged %d", i), 2)
	}
	w.check("acknowledged 0", 40*time.Second)
	h.p.Kill()
	empty(t, d.under)
	if out, err := c.person.command("cp", "-a", was+"/.", d.under).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	c.succeeded(h)
	h.start()
	h.refuses(78, "old copy", "which is committed", "hub ticket --role hub --replace "+h.id)
	old := h.id
	empty(t, h.dir)
	h.start("--ticket", c.hubTicket("--replace", old))
	c.voters(3)
	w.check("across", 60*time.Second)
	for i := range 5 {
		w.check(fmt.Sprintf("acknowledged %d", i), 60*time.Second)
	}
	w.check("before", time.Second)
	if got := c.count(); got != 7 {
		t.Errorf("%d jobs on record; want 7", got)
	}
}

// empty takes all that a directory holds.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// Bits flip in what lies finished on a hub's disk, output and files. The hub finds them
// by reading all again, and takes the others' copies.
func TestDiskThatFlipsBits(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	h := c.hubs[1]
	h.faults.Scrub = "2s"
	c.found()
	c.addRunner(2).start()
	c.online()
	w := c.work()
	w.submit("output", 5)
	w.check("output", 40*time.Second)
	file := strings.TrimSpace(c.run("exec", "--detach", "--", "sh", "-c", `head -c 300000 /dev/urandom > "$TUGLINE_ARTIFACTS/noise"`))
	c.inState(file, fleet.Succeeded, 40*time.Second)
	var blobs []string
	c.eventually(30*time.Second, "the hub has the file", func() bool {
		blobs = files(filepath.Join(h.dir, "blobs"), 200000)
		return len(blobs) > 0 && c.leader().member(h.id).Whole()
	})
	streams := files(filepath.Join(h.dir, "spool", w.jobs["output"]), len(w.output("output", 5)))
	if len(streams) == 0 {
		t.Fatalf("the hub holds no output of job %s", w.jobs["output"])
	}
	for _, path := range append(streams, blobs...) {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 4
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(bad, 0)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.eventually(40*time.Second, "the flipped bit in "+filepath.Base(path)+" is mended", func() bool {
			now, err := os.ReadFile(path)
			return err == nil && bytes.Equal(now, good)
		})
	}
	w.kept("output")
	if !strings.Contains(h.p.Said(), "it was mended from another node") {
		t.Error("the hub does not say that its disk damages what it holds")
	}
}

// files finds files of at least some size, and none that is still being stored.
func files(dir string, size int) (out []string) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "/partial/") {
			return nil
		}
		if i, err := e.Info(); err == nil && i.Size() >= int64(size) {
			out = append(out, path)
		}
		return nil
	})
	return out
}
