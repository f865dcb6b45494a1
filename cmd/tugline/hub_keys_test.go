package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/api"
)

func TestHubKeysAndRotate(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := filepath.Join(t.TempDir(), "hub")
	h := newShell(t, "")
	end := h.start("hub", "run", "--data-dir", dir, "--listen", "127.0.0.1:0", "--bootstrap")
	eventually(t, "the ticket", func() bool { return strings.Contains(h.out.String(), "TUGLINE_TICKET=tug1_") })
	spot, err := readSpot(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t, "", "TUGLINE_HUB="+spot.Hub, "TUGLINE_TOKEN="+spot.Token)
	has(t, "the keys", s.must("hub", "keys"), "KEY", "GEN", "hmac", "signing", "ca", "in use")
	for kind, says := range map[string]string{"hmac": "without a pause", "signing": "nothing to do", "ca": "hub keys --ca"} {
		has(t, "rotate "+kind, s.must("hub", "rotate", kind), "generation 2 of the "+kind+" key is ")
		has(t, "what happens after rotate "+kind, s.err.String(), says)
	}
	var r api.Rotation
	if err := json.Unmarshal([]byte(s.must("hub", "rotate", "ca", "--overlap", "36h", "--json")), &r); err != nil || r.Key.Generation != 3 || !strings.Contains(r.Next, "36h") {
		t.Errorf("rotate --json: %+v, %v", r, err)
	}
	has(t, "the keys", s.must("hub", "keys"), "counts for 29d23h", "counts for 35h59m")
	if pem := s.must("hub", "keys", "--ca"); strings.Count(pem, "BEGIN CERTIFICATE") != 3 || strings.Contains(pem, "PRIVATE") {
		t.Errorf("keys --ca:\n%s", pem)
	}
	for _, wrong := range [][]string{
		{"hub", "rotate"}, {"hub", "rotate", "tls"}, {"hub", "rotate", "hmac", "--overlap", "1h"},
		{"hub", "rotate", "ca", "--overlap", "0s"}, {"hub", "keys", "--ca", "--json"},
	} {
		if code := s.do(wrong...); code != exitUsage {
			t.Errorf("%v: exit %d, want 2", wrong, code)
		}
	}
	if code := h.stop(end); code != exitOK {
		t.Errorf("the hub ended with %d\n%s", code, h.err)
	}
}
