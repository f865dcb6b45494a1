//go:build linux

// Package fault makes the faults happen that others have reported of systems like this
// one, to real processes of the real binary: three hubs and their runners, each in a
// network namespace of its own, cut off, killed, paused, wiped, filled up, slowed down
// and lied to. README.md lists the faults and what is owed. It needs root; without, the
// whole suite says so and does nothing.
package fault

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tugline.dev/tugline/test/mesh"
)

var program string

// TestMain builds the binary with what lets its clock and bounds be at fault.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Println("SKIPPED: test/fault puts processes into network namespaces and mounts disks, which only root may; run it as root")
		return
	}
	if _, err := exec.LookPath("ip"); err != nil {
		fmt.Fprintln(os.Stderr, "test/fault needs ip of iproute2 (Debian: apt-get install iproute2)")
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "tugline-fault")
	if err != nil {
		panic(err)
	}
	program = mesh.Build(dir, "-tags", "fault")
	sweep()
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// spaces is the beginning of the name of every namespace that this process makes.
var spaces = fmt.Sprintf("tugline-%d-", os.Getpid())

// sweep removes namespaces of runs that were ended before they could.
func sweep() {
	all, _ := filepath.Glob("/run/netns/tugline-*")
	for _, path := range all {
		name := filepath.Base(path)
		var pid int
		fmt.Sscanf(strings.TrimPrefix(name, "tugline-"), "%d", &pid)
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			exec.Command("ip", "netns", "delete", name).Run()
		}
	}
}
