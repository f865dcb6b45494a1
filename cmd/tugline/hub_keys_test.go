package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/api"
)

func TestHubKeysAndRotate(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, stop := runHub(t)
	defer stop()
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
}
