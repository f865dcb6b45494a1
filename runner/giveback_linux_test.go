package runner

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestUnmapProgram: less of the program's file is mapped afterwards, and the program
// goes on.
func TestUnmapProgram(t *testing.T) {
	before := fileKiB(t)
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileKiB(t); after >= before {
		t.Errorf("%d KiB of files are mapped, %d before", after, before)
	}
}

func fileKiB(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "RssFile:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel tells no RssFile")
	return 0
}
