//go:build installers && linux

// Package installers puts hub nodes in place the way an operator does, and uses them: the
// image and the compose file under a Docker daemon of its own, the service under a systemd
// of its own, and three nodes behind real reverse proxies. It needs root and Debian's
// packages, which packages.sh beside it installs; what it starts lives in namespaces and
// temporary directories and ends with it.
package installers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/test/mesh"
)

// root is where this repository begins.
var root, _ = filepath.Abs(filepath.Join("..", ".."))

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "test/installers starts a Docker daemon and a systemd, which only root may; run it as root")
		os.Exit(1)
	}
	for _, tool := range []string{"dockerd", "nginx", "haproxy", "systemd-nspawn", "unshare", "nsenter", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "test/installers needs %s; on Debian test/installers/packages.sh installs everything\n", tool)
			os.Exit(1)
		}
	}
	mesh.Main(m)
}

// must runs a program that has to succeed and gives what it wrote.
func must(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, tail(string(out)))
	}
	return string(out)
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func tail(s string) string {
	const most = 8000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
