package consensus

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const childEnv = "CONSENSUS_TEST_CHILD"

// proposeForever is the child: it opens the node and prints each entry once it
// is acknowledged, until it is killed.
func proposeForever(dir string) {
	n, err := Open(Config{Dir: dir, NodeID: "n1", Bootstrap: true, FSM: &ledger{}, SnapshotEvery: 64})
	if err == nil {
		err = n.settle(context.Background())
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var out sync.Mutex
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ; i++ {
				entry := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				_, index, err := n.Propose(context.Background(), []byte(entry))
				out.Lock()
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				fmt.Printf("ack %d %s\n", index, entry)
				out.Unlock()
			}
		})
	}
	go func() {
		for {
			if err := n.Snapshot(); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
		}
	}()
	writers.Wait()
}

func TestKillLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var acked []string
	for round := range 4 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
			Env:   append(os.Environ(), childEnv+"="+dir),
			Files: []*os.File{nil, w, os.Stderr},
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(r)
		for n := 0; lines.Scan(); {
			entry, ok := strings.CutPrefix(lines.Text(), "ack ")
			if !ok {
				t.Errorf("child: %s", lines.Text())
				break
			}
			acked = append(acked, entry)
			// What was printed before the kill still counts, so go on to read.
			if n++; n == 150+70*round {
				child.Signal(syscall.SIGKILL)
			}
		}
		child.Kill()
		child.Wait()
		r.Close()
	}
	var l ledger
	n := mustOpen(t, dir, &l)
	kept := l.all()
	if len(acked) < 4*150 {
		t.Errorf("only %d entries were acknowledged", len(acked))
	}
	have := make(map[string]bool, len(kept))
	for _, e := range kept {
		have[e] = true
	}
	for _, e := range acked {
		if !have[e] {
			t.Errorf("acknowledged entry %q is gone", e)
		}
	}
	if !slices.IsSortedFunc(kept, func(a, b string) int {
		var x, y int
		fmt.Sscan(a, &x)
		fmt.Sscan(b, &y)
		if x == y {
			t.Errorf("index %d twice", x)
		}
		return x - y
	}) {
		t.Error("entries out of order")
	}
	t.Logf("%d acknowledged, %d kept, %+v", len(acked), len(kept), n.Status())
	// A kill between a new snapshot and the removal of the oldest leaves one more;
	// the next snapshot mends that.
	if _, _, err := n.Propose(t.Context(), []byte("one more")); err != nil {
		t.Fatal(err)
	}
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir + "/" + snapshotDir)
	if len(left) > n.cfg.SnapshotKeep {
		t.Errorf("%d snapshot directories left, want at most %d", len(left), n.cfg.SnapshotKeep)
	}
}
