package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tugline.dev/tugline/test/mesh"
)

// twoPorts sees that each node listens at one TCP port, for people and runners, and at
// one UDP port, for the other nodes, whatever they say to each other.
func twoPorts(t *testing.T, c *mesh.Cluster) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // nothing here tells
	}
	for _, n := range c.Nodes {
		got, want := listens(t, n.Dir), []string{"tcp " + n.Listen, "udp " + n.UDP}
		if !slices.Equal(got, want) {
			t.Errorf("node %d listens at %q; want %q", n.N, got, want)
		}
	}
}

// listens lists where the hub process with a data directory can be spoken to.
func listens(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	i := slices.IndexFunc(files, func(f string) bool {
		b, _ := os.ReadFile(f)
		return bytes.Contains(b, []byte("\x00hub\x00run\x00")) && bytes.Contains(b, []byte("\x00"+dir+"\x00"))
	})
	if i < 0 {
		t.Fatalf("no hub runs in %s", dir)
	}
	process := filepath.Dir(files[i])
	sockets := map[string]bool{} // by inode
	fds, _ := filepath.Glob(process + "/fd/*")
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "socket:[") {
			sockets[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile(process + "/net/" + kind)
		if err != nil {
			continue // a machine without IPv6
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			// A TCP socket that listens is in state 0A; a UDP socket that is not connected in 07.
			if len(f) < 10 || !sockets[f[9]] || strings.HasPrefix(kind, "tcp") && f[3] != "0A" || strings.HasPrefix(kind, "udp") && f[3] != "07" {
				continue
			}
			out = append(out, kind+" "+address(t, f[1]))
		}
	}
	slices.Sort(out)
	return out
}

// address reads one as the kernel writes it, of IPv4; one of IPv6 is left as it is.
func address(t *testing.T, text string) string {
	t.Helper()
	ip, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	if len(ip) != 8 {
		return ip + ":" + strconv.FormatUint(n, 10)
	}
	var parts []string
	for i := 6; i >= 0; i -= 2 {
		b, err := strconv.ParseUint(ip[i:i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, strconv.FormatUint(b, 10))
	}
	return strings.Join(parts, ".") + ":" + strconv.FormatUint(n, 10)
}
