package runner

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// A CLI that does not answer and a repository that hangs hold up no heartbeat: the
// runner is there at once, shows what it is at, and beats when it is asked to.
func TestHeartbeatsWaitForNothing(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	called := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			called <- c
		}
	}()
	dir, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	cli := filepath.Join(dir, "codex")
	if err := os.WriteFile(cli, []byte("#!/bin/sh\n: > "+asked+"\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(OwnerFile(dir), []byte("harnesses: {exec: {}, codex: {path: "+strconv.Quote(cli)+"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHub(t)
	r := h.newRunner(func(c *Config) { c.Dir = dir }) // and it is connected
	eventually(t, "the CLI to be asked", func() bool { _, err := os.Stat(asked); return err == nil })
	j := h.submit(fleet.Spec{Argv: []string{"/bin/true"}, Repo: &fleet.Repo{URL: "https://" + server.Addr().String() + "/x.git"}})
	f := h.assign(j, r.id)
	var held net.Conn
	select {
	case held = <-called:
		defer held.Close()
	case <-time.After(patience):
		t.Fatalf("git did not ask the server\n%+v", h.attempt(j, f))
	}
	eventually(t, "the hub to see that it is being prepared", func() bool { return h.job(j).Turn().State == fleet.Preparing })
	for range 3 {
		p, _ := h.srv.PresenceOf(r.id)
		start := time.Now()
		h.srv.Nudge(r.id)
		eventually(t, "a heartbeat while both hang", func() bool { q, _ := h.srv.PresenceOf(r.id); return q.LastBeat.After(p.LastBeat) })
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("a heartbeat took %s", d)
		}
	}
}
