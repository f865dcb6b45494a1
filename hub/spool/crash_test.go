package spool

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// childEnv makes the test binary append to the store in the directory it names,
// until it is killed.
const childEnv = "TUGLINE_TEST_SPOOL_DIR"

const childStreams = 4

// childByte is what the child writes to a stream at an offset.
func childByte(stream int, offset int64) byte { return byte(offset*31 + offset>>8 + int64(stream)) }

func childData(stream int, offset, n int64) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = childByte(stream, offset+int64(i))
	}
	return data
}

// appendForever appends to some streams at once and prints each acknowledgement
// after it got it.
func appendForever(dir string) {
	s, err := Open(Config{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for stream := range childStreams {
		go func() {
			k := key(stream, Output)
			end, _ := s.Size(k)
			for size := int64(1); ; size = size*7%5003 + 1 {
				end, err = s.Append(context.Background(), k, end, childData(stream, end, size))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Printf("%d %d\n", stream, end)
			}
		}()
	}
	select {}
}

func TestKilledWhileAppending(t *testing.T) {
	dir := t.TempDir()
	acked := make([]int64, childStreams)
	for round := range 4 {
		killAfter(t, dir, 100+round*37, acked)
		s := open(t, Config{Dir: dir})
		for stream := range childStreams {
			k := key(stream, Output)
			size, _ := s.Size(k)
			if size < acked[stream] {
				t.Errorf("round %d: stream %d has %d bytes, but %d were acknowledged", round, stream, size, acked[stream])
			}
			if got, want := content(t, s, k), string(childData(stream, 0, size)); digest(got) != digest(want) {
				t.Errorf("round %d: stream %d differs from what was written", round, stream)
			}
		}
		s.Close()
	}
}

// killAfter runs the child, kills it after so many acknowledgements, and notes
// all that it printed.
func killAfter(t *testing.T, dir string, acks int, acked []int64) {
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
		var stream int
		var end int64
		if n, _ := fmt.Sscanf(lines.Text(), "%d %d", &stream, &end); n == 2 {
			acked[stream] = max(acked[stream], end)
		}
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
