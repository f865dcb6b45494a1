package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestJobsGoFirstWhereMemoryIsShort(t *testing.T) {
	own := func() string {
		b, err := os.ReadFile(oomFile)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	child := func() string {
		b, err := exec.Command("cat", oomFile).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	before := own()
	undo := jobsGoFirst()
	n, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := child(), strconv.Itoa(max(n, 0)+100); got != want {
		t.Errorf("a job has %s, want %s", got, want)
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if got := own(); got != before || child() != before {
		t.Errorf("after it this process has %s, and those that it starts %s; want %s", got, child(), before)
	}
}
