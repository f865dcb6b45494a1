package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// newer is an entry of a kind that this version does not know.
func newer(t *testing.T) []byte {
	t.Helper()
	entry, err := state.Encode(state.Head{At: time.Now(), Actor: "hub"}, &state.Set{Name: "x", Value: "y"})
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint16(entry[1:], 60_000)
	return entry
}

func TestEntryOfANewerVersionStopsTheNode(t *testing.T) {
	dir := t.TempDir()
	run := func(bootstrap bool, live func(*Hub)) error {
		t.Helper()
		h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Bootstrap: bootstrap})
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- h.Run(context.Background()) }()
		if live != nil {
			<-h.Ready()
			live(h)
		}
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("the node goes on")
			return nil
		}
	}
	err := run(true, func(h *Hub) { h.node.Propose(t.Context(), newer(t)) })
	if !errors.Is(err, state.ErrUnknownEntry) {
		t.Errorf("live: Run gave %v; want %v", err, state.ErrUnknownEntry)
	}
	if err := run(false, nil); !errors.Is(err, state.ErrUnknownEntry) {
		t.Errorf("at the next start: %v; want %v", err, state.ErrUnknownEntry)
	}
}

func TestStopWithOpenStreams(t *testing.T) {
	n := start(t, t.TempDir(), true)
	var j api.Job
	n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j)
	var bodies []io.ReadCloser
	for _, path := range []string{"/v1/events", "/v1/jobs/" + string(j.ID) + "/events", "/v1/jobs/" + string(j.ID) + "/events?until_ended=true"} {
		for range 5 {
			req, err := http.NewRequest("GET", n.hub.URL()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+n.token)
			res, err := http.DefaultClient.Do(req)
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("%s: %v", path, err)
			}
			bodies = append(bodies, res.Body)
		}
	}
	// A runner in the middle of its handshake, and a connection that says nothing.
	addr := strings.TrimPrefix(n.hub.URL(), "http://")
	for _, says := range []string{"GET /v1/runners/r-x/link HTTP/1.1\r\nHost: " + addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", ""} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if says == "" {
			continue
		}
		if _, err := io.WriteString(c, says); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("HTTP/1.1 101"))
		if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 101" {
			t.Fatalf("the link answers %q, %v", line, err)
		}
	}
	began := time.Now()
	n.stop()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the stop took %s", took)
	}
	for _, b := range bodies {
		if _, err := io.Copy(io.Discard, b); err != nil {
			t.Errorf("a stream was cut instead of ended: %v", err)
		}
		b.Close()
	}
	if _, err := http.Get(n.hub.URL() + "/healthz"); err == nil {
		t.Error("the hub still answers")
	}
}

func TestCloseOfANodeThatNeverRan(t *testing.T) {
	dir := t.TempDir()
	h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Bootstrap: true})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	h.Close()
	start(t, dir, true) // everything was given back
}

// put stores a blob on the node.
func (n *node) put(text string) fleet.Digest {
	n.t.Helper()
	d := digestOf(text)
	if err := n.hub.blobs.Put(n.t.Context(), d, int64(len(text)), bytes.NewReader([]byte(text))); err != nil {
		n.t.Fatal(err)
	}
	return d
}

func (n *node) must(cmd state.Command) state.Result {
	n.t.Helper()
	res, err := n.hub.entries.Propose(n.t.Context(), cmd)
	if err = errors.Join(err, res.Err()); err != nil {
		n.t.Fatalf("%T: %v", cmd, err)
	}
	return res
}
