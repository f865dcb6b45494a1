package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/wire"
)

func TestATunnelIsKeptInTheRunnersDirectory(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "runner"), slog.New(slog.DiscardHandler)
	if _, err := openTunnel(dir, "", log); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "hub ticket --via-mesh") {
		t.Errorf("without a ticket: %v", err)
	}
	hubKey := mesh.NewKey().Public()
	hubs := []wire.HubAddress{{Node: "n-1", Key: hexKey(hubKey), Endpoints: []string{"127.0.0.1:1"}, URL: "https://one.test"}}
	ticket := wire.Ticket{Hubs: []string{"https://one.test"}, Cluster: "c-1", Trust: wire.TrustSystem, Secret: "s", ExpiresAt: time.Now().Add(time.Hour)}
	if _, err := openTunnel(dir, ticket.String(), log); exitCode(err) != exitUsage {
		t.Errorf("with a ticket that does not lead through the tunnel: %v", err)
	}
	ticket.Mesh = hubs
	first, err := openTunnel(dir, ticket.String(), log)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "mesh.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mesh.json: %v, %v", st, err)
	}
	// Later no ticket is needed, and what was learnt is there.
	moved := []wire.HubAddress{{Node: "n-2", Key: hexKey(mesh.NewKey().Public()), Next: hexKey(mesh.NewKey().Public()), Endpoints: []string{"127.0.0.1:2"}, URL: "http://two.test:7440"}}
	first.learn(moved)
	first.learn(nil)
	first.learn([]wire.HubAddress{{Node: "n-3", Key: "no key", Endpoints: []string{"127.0.0.1:3"}}})
	again, err := openTunnel(dir, "", log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(moved, again.kept.Hubs); diff != "" || again.key != first.key || again.kept.Cluster != "c-1" {
		t.Errorf("what was kept differs (-want +got):\n%s", diff)
	}
	all, err := meshHubs(append(hubs, moved...))
	if err != nil || all[0].Hosts[0] != "one.test:443" || all[1].Hosts[0] != "two.test:7440" || len(all[0].Keys) != 1 || len(all[1].Keys) != 2 {
		t.Errorf("the hubs are %+v, %v", all, err)
	}
}

func hexKey(k mesh.PublicKey) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, x := range k {
		b.WriteByte(digits[x>>4])
		b.WriteByte(digits[x&15])
	}
	return b.String()
}
