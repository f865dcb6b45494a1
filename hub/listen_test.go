package hub

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingIsMadeWithoutAPort: a hub that could not serve makes no cluster, and says
// which address it is and what to do; one that exists is opened no further.
func TestNothingIsMadeWithoutAPort(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, c := range []struct{ listen, mesh, says string }{
		{tcp.Addr().String(), "", "stop what listens there, or name another one with --listen"},
		{"127.0.0.1:0", udp.LocalAddr().String(), "stop what listens there, or name another one with --mesh-listen"},
		{"192.0.2.1:0", "", "this machine has no such address"},
		{":99999", "", "\":99999\" has no port from 0 to 65535"},
		{"127.0.0.1:0", ":99999", "--mesh-listen \":99999\" has no port"},
		{"127.0.0.1:nowhere", "", "has no port"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		h, err := New(Config{Dir: dir, Bootstrap: true, Listen: c.listen, MeshListen: c.mesh})
		if err == nil {
			h.Close()
			t.Fatalf("a hub at %s and %s was opened", c.listen, c.mesh)
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s and %s: %v; want %q", c.listen, c.mesh, err, c.says)
		}
		left, _ := os.ReadDir(dir)
		for _, e := range left {
			if e.Name() != "hub.lock" {
				t.Errorf("%s and %s: %s was made", c.listen, c.mesh, e.Name())
			}
		}
	}
}
