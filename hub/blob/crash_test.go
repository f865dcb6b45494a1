package blob

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// childEnv makes the test binary store blobs in the directory it names, until it
// is killed.
const childEnv = "TUGLINE_TEST_BLOB_DIR"

const bigSize = 3_000_000

func big() []byte { return noise(500, bigSize) }

// storeForever stores small blobs, and the parts of a big one, and prints what was
// acknowledged.
func storeForever(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	s, err := Open(Config{Dir: dir})
	fail(err)
	ctx := context.Background()
	go func() {
		data := big()
		u, offset, err := s.Upload(ctx, digest(data), bigSize)
		fail(err)
		for offset < bigSize-1 {
			offset, err = u.WriteAt(ctx, data[offset:min(offset+1000, bigSize-1)], offset)
			fail(err)
			fmt.Printf("part %d\n", offset)
		}
	}()
	for seed := uint64(0); ; seed++ {
		data := noise(seed%30_000, 2000)
		fail(s.Put(ctx, digest(data), 2000, bytes.NewReader(data)))
		fmt.Printf("blob %s\n", digest(data))
	}
}

func TestKilledWhileStoring(t *testing.T) {
	dir := t.TempDir()
	acked := map[fleet.Digest]bool{}
	var offset int64
	for round := range 3 {
		killAfter(t, dir, 150+37*round, func(line string) {
			kind, value, _ := strings.Cut(line, " ")
			switch kind {
			case "blob":
				if d := fleet.Digest(value); d.Valid() { // the last line may be cut short
					acked[d] = true
				}
			case "part":
				var n int64
				fmt.Sscan(value, &n)
				offset = max(offset, n)
			}
		})
		s := open(t, Config{Dir: dir})
		for d := range acked {
			if got := digest(content(t, s, d)); got != d {
				t.Errorf("round %d: blob %s was acknowledged and has digest %s", round, d, got)
			}
		}
		_, got, err := s.Upload(t.Context(), digest(big()), bigSize)
		if err != nil || got < offset {
			t.Errorf("round %d: upload goes on at %d, %v, but %d were acknowledged", round, got, err, offset)
		}
		if left := partials(t, s); len(left) != 1 {
			t.Errorf("round %d: %d unfinished uploads, want 1", round, len(left))
		}
	}
	s := open(t, Config{Dir: dir})
	u, from, err := s.Upload(t.Context(), digest(big()), bigSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.WriteAt(t.Context(), big()[from:], from); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("Commit of the upload that was interrupted: %v", err)
	}
}

// killAfter runs the child, kills it after so many acknowledgements, and hands on
// all that it printed.
func killAfter(t *testing.T, dir string, acks int, note func(line string)) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := 0
	for ; lines.Scan(); seen++ {
		note(lines.Text())
		if seen == acks {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	child.Wait() // it was killed
	if seen <= acks {
		t.Fatalf("child ended after %d acknowledgements, want %d", seen, acks)
	}
}
