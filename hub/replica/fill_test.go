package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/shared/fleet"
)

func digestOf(s string) fleet.Digest {
	sum := sha256.Sum256([]byte(s))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

func reader4(s string) io.Reader { return strings.NewReader(s) }

func (n *node) blob(t testing.TB, d fleet.Digest) string {
	t.Helper()
	f, _, err := n.Blobs().Open(context.Background(), d)
	if err != nil {
		t.Fatalf("open blob on %s: %v", n.id, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (n *node) put(t testing.TB, s string) fleet.Digest {
	t.Helper()
	if err := n.Blobs().Put(context.Background(), digestOf(s), int64(len(s)), strings.NewReader(s)); err != nil {
		t.Fatalf("put a blob of %d bytes: %v", len(s), err)
	}
	return digestOf(s)
}

func TestBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		small, big := "a prompt", strings.Repeat("artifact ", 200_000)
		for _, s := range []string{small, big, ""} {
			d := a.put(t, s)
			a.put(t, s) // again
			for _, id := range []string{"b", "c"} {
				eventually(t, id+" has the blob", func() bool { _, err := c.nodes[id].blobs.Stat(d); return err == nil })
				if got := c.nodes[id].blob(t, d); got != s {
					t.Errorf("%s has %d bytes of it, want %d", id, len(got), len(s))
				}
			}
		}
		if err := a.Blobs().Put(t.Context(), digestOf("x"), 1, strings.NewReader("y")); !errors.Is(err, fleet.BlobDigest) {
			t.Errorf("other bytes: %v", err)
		}
		if _, _, err := c.nodes["b"].Blobs().Open(t.Context(), digestOf("nowhere")); !errors.Is(err, fleet.BlobMissing) {
			t.Errorf("a blob that is nowhere: %v", err)
		}
		// One node lost a blob: it reads another's, and has its own again.
		b := c.nodes["b"]
		if err := b.blobs.Delete(digestOf(big)); err != nil {
			t.Fatal(err)
		}
		if info, err := b.Blobs().Stat(t.Context(), digestOf(big)); err != nil || info.Size != int64(len(big)) {
			t.Errorf("stat of a blob on another node: %+v, %v", info, err)
		}
		if got := b.blob(t, digestOf(big)); got != big {
			t.Errorf("%d bytes from another node, want %d", len(got), len(big))
		}
		if _, err := b.blobs.Stat(digestOf(big)); err != nil {
			t.Errorf("it was not stored on the way: %v", err)
		}
	})
}

// TestUploadOverAChange: the parts of an upload are lost with their leader; the
// sender goes on where the next one says.
func TestUploadOverAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		d, half := digestOf(string(data)), len(data)/2
		size := int64(len(data))
		a := c.lead("a", 1, 50)
		if end, whole, err := a.Blobs().Add(t.Context(), d, size, data[:half], 0); end != int64(half) || whole || err != nil {
			t.Fatalf("first part: %d, %v, %v", end, whole, err)
		}
		if off, err := a.Blobs().Offset(t.Context(), d, size); off != int64(half) || err != nil {
			t.Errorf("offset after a part: %d, %v", off, err)
		}
		c.stop("a")
		b := c.lead("b", 2, 200)
		_, _, err := b.Blobs().Add(t.Context(), d, size, data[half:], int64(half))
		var gap *blob.GapError
		if !errors.As(err, &gap) || gap.Want != 0 {
			t.Fatalf("second part on another leader: %v, want a gap from 0", err)
		}
		for _, off := range []int{0, half} {
			end, whole, err := b.Blobs().Add(t.Context(), d, size, data[off:off+half], int64(off))
			if end != int64(off+half) || whole != (off > 0) || err != nil {
				t.Fatalf("part at %d: %d, %v, %v", off, end, whole, err)
			}
		}
		if _, err := c.nodes["c"].blobs.Stat(d); err != nil {
			t.Errorf("acknowledged, and not on the only other node: %v", err)
		}
		c.stop("b")
		c.start("a")
		n := c.lead("a", 3, 300)
		if end, whole, err := n.Blobs().Add(t.Context(), d, size, data[half:], int64(half)); end != size || !whole || err != nil {
			t.Errorf("a part of what another leader has finished: %d, %v, %v", end, whole, err)
		}
		if off, err := n.Blobs().Offset(t.Context(), d, size); off != size || err != nil {
			t.Errorf("offset of a finished upload: %d, %v", off, err)
		}
	})
}

func TestRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		for i := range 20 {
			a.must(t, key(i), 0, strings.Repeat("x", 1+i*1000))
			if i%2 == 0 {
				if err := a.Seal(t.Context(), key(i), int64(1+i*1000), ""); err != nil {
					t.Fatal(err)
				}
			}
			a.put(t, strings.Repeat("b", 1+i*700))
		}
		eventually(t, "all is copied", func() bool { d := a.Debt()["c"]; return d.Known && d.Bytes == 0 })
		// A replaced node has nothing.
		c.stop("c")
		if err := os.RemoveAll(filepath.Join(c.dir, "c")); err != nil {
			t.Fatal(err)
		}
		n := c.start("c")
		eventually(t, "it has everything again", func() bool { d := a.Debt()["c"]; return d.Known && d.Bytes == 0 })
		for i := range 20 {
			if got := n.local(t, key(i)); len(got) != 1+i*1000 {
				t.Errorf("stream %d has %d bytes", i, len(got))
			}
			if _, err := n.blobs.Stat(digestOf(strings.Repeat("b", 1+i*700))); err != nil {
				t.Errorf("blob %d: %v", i, err)
			}
		}
		// One file was lost while the node was down, one cut short.
		c.stop("c")
		path := func(i int) string {
			return filepath.Join(c.dir, "c", "spool", string(key(i).Job), key(i).Fence.String()+".output")
		}
		if err := errors.Join(os.Remove(path(4)), os.Truncate(path(6), 10), os.Truncate(path(7), 10)); err != nil {
			t.Fatal(err)
		}
		n = c.start("c")
		eventually(t, "what was lost is back", func() bool {
			return len(n.local(t, key(4))) == 4001 && len(n.local(t, key(6))) == 6001 && len(n.local(t, key(7))) == 7001
		})
	})
}

// TestScrub: what a disk changed without a word is found and mended.
func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		a.must(t, key(1), 0, "finished output")
		if err := a.Seal(t.Context(), key(1), 15, ""); err != nil {
			t.Fatal(err)
		}
		d := a.put(t, "an artifact")
		b := c.nodes["b"]
		eventually(t, "b has both", func() bool {
			_, sealed := b.store.Size(key(1))
			_, err := b.blobs.Stat(d)
			return sealed && err == nil
		})
		stream := filepath.Join(c.dir, "b", "spool", string(key(1).Job), key(1).Fence.String()+".output")
		stored := filepath.Join(c.dir, "b", "blobs", string(d[:2]), string(d))
		for _, path := range []string{stream, stored} {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("#"), 3)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if damaged, mended := b.Scrub(t.Context()); damaged != 2 || mended != 2 {
			t.Errorf("scrub found %d, mended %d", damaged, mended)
		}
		if got := b.local(t, key(1)); got != "finished output" {
			t.Errorf("stream is %q", got)
		}
		if got := b.blob(t, d); got != "an artifact" {
			t.Errorf("blob is %q", got)
		}
		if damaged, _ := b.Scrub(t.Context()); damaged != 0 {
			t.Errorf("a second scrub found %d", damaged)
		}
	})
}

// TestNotWanted: what retention deletes here does not come back from there.
func TestNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(c *Config) {
			c.Wanted = func() Wanted {
				return Wanted{
					Job:  func(j fleet.JobID) bool { return j != key(1).Job },
					Blob: func(d fleet.Digest) bool { return d != digestOf("old") },
				}
			}
		}, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		for i := range 3 {
			a.must(t, key(i), 0, "output")
			if err := a.Seal(t.Context(), key(i), 6, ""); err != nil {
				t.Fatal(err)
			}
		}
		a.put(t, "old")
		a.put(t, "new")
		a.put(t, "dropped")
		eventually(t, "all is copied", func() bool { d := a.Debt()["b"]; return d.Known && d.Bytes == 0 })
		b := c.nodes["b"]
		for _, err := range []error{b.store.Delete(key(1).Job), b.Delete(key(2).Job), b.blobs.Delete(digestOf("old"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		// The times of files are the disk's, not the bubble's.
		if freed, err := b.Blobs().DeleteUnused(digestOf("dropped"), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); freed != 7 || err != nil {
			t.Fatalf("delete a blob: %d, %v", freed, err)
		}
		time.Sleep(20 * time.Minute)
		if got := b.local(t, key(1)) + b.local(t, key(2)); got != "" {
			t.Errorf("deleted output came back: %q", got)
		}
		for _, s := range []string{"old", "dropped"} {
			if _, err := b.blobs.Stat(digestOf(s)); err == nil {
				t.Errorf("the deleted blob %q came back", s)
			}
		}
		if _, err := b.blobs.Stat(digestOf("new")); err != nil {
			t.Errorf("a blob that is wanted: %v", err)
		}
		if d := b.Debt()["b"]; !d.Known || d.Bytes != 0 {
			t.Errorf("what is not wanted is a debt: %+v", d)
		}
	})
}

// TestReadElsewhere: any node gives any stream, whatever it lacks itself.
func TestReadElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(c *Config) {
			c.Wanted = func() Wanted { return Wanted{Job: func(fleet.JobID) bool { return false }} }
		}, "a", "b", "c")
		defer c.close()
		a := c.lead("a", 1, 50)
		long := strings.Repeat("0123456789", 100_000)
		a.must(t, key(1), 0, long)
		if err := a.Seal(t.Context(), key(1), int64(len(long)), ""); err != nil {
			t.Fatal(err)
		}
		b := c.nodes["b"]
		eventually(t, "b has it", func() bool { _, sealed := b.store.Size(key(1)); return sealed })
		if err := b.store.Delete(key(1).Job); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t, key(1)); got != long {
			t.Errorf("%d bytes from elsewhere, want %d", len(got), len(long))
		}
		if n := b.Longest(t.Context(), key(1)); n != int64(len(long)) {
			t.Errorf("longest %d", n)
		}
		// One that follows sees what is added, and the end.
		a.must(t, key(2), 0, "one ")
		r, err := b.Reader(t.Context(), key(2), 0, true)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got := make(chan string, 1)
		go func() {
			all, err := io.ReadAll(r)
			if err != nil {
				t.Errorf("follow: %v", err)
			}
			got <- string(all)
		}()
		time.Sleep(3 * time.Second)
		a.must(t, key(2), 4, "two ")
		c.net.part("a", "b", true) // from now on only through c
		a.must(t, key(2), 8, "three")
		if err := a.Seal(t.Context(), key(2), 13, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		c.net.part("a", "b", false)
		if all := <-got; all != "one two three" {
			t.Errorf("followed %q", all)
		}
	})
}
