package journal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const childEnv = "TUGLINE_TEST_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

// child writes without end and says after every durable call what is promised.
func child(dir string) {
	j, err := Open(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("open", j.Count())
	start := uint64(len(j.Attempts()))
	for i := start + 1; ; i++ {
		f := fence(i)
		if err := j.Begin(Attempt{Fence: f, Order: f.String(), Assignment: make([]byte, 3000)}); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("begin", i)
		if err := j.Update(f, Durable, func(p *Progress) { p.Finished = true }, Item{Fence: f, Kind: "finished", Body: make([]byte, 20000)}); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("finished", i)
		if p := j.Pending(0, 2); len(p) == 2 {
			if err := j.Ack(p[0].Seq); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			fmt.Println("acked", p[0].Fence.Index, p[0].Seq)
		}
	}
}

func TestKilledAtRandomKeepsEveryPromise(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wait := rapid.IntRange(1, 60)
	var count, lastSeq uint64
	begun, finished, acked := uint64(0), map[uint64]bool{}, map[uint64]bool{}
	for round := range 12 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.Duration(wait.Example(round)) * time.Millisecond
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var n, seq uint64
			switch verb, rest, _ := strings.Cut(lines.Text(), " "); verb {
			case "open":
				fmt.Sscan(rest, &n)
				if n <= count {
					t.Errorf("count %d at open, was %d before", n, count)
				}
				count = n
				time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
			case "begin":
				fmt.Sscan(rest, &begun)
			case "finished":
				fmt.Sscan(rest, &n)
				finished[n] = true
			case "acked":
				fmt.Sscan(rest, &n, &seq)
				acked[n] = true
				if seq <= lastSeq {
					t.Errorf("outbox number %d after %d", seq, lastSeq)
				}
				lastSeq = seq
			case "error":
				t.Errorf("child: %s", rest)
			}
		}
		_ = cmd.Wait()

		j := open(t, dir)
		if got := uint64(len(j.Attempts())); got < begun {
			t.Errorf("round %d: %d attempts, promised %d", round, got, begun)
		}
		pending := map[uint64]bool{}
		for _, it := range j.Pending(0, 1<<20) {
			pending[it.Fence.Index] = true
		}
		for i := range finished {
			a, ok := j.Attempt(fence(i))
			if !ok || !a.Progress.Finished {
				t.Fatalf("round %d: the end of attempt %d is not in the journal", round, i)
			}
			// An acknowledgement is lazy, but survives the death of the process.
			if pending[i] && acked[i] {
				t.Errorf("round %d: attempt %d is pending again after its acknowledgement", round, i)
			}
		}
		count = j.Count()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(finished) == 0 {
		t.Error("no child came as far as one finished attempt")
	}
}
