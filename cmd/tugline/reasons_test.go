package main

import (
	"context"
	"net/url"
	"strings"
	"testing"
)

// What gave a request up is no reason for people; that nothing came in time is one.
func TestASilentHubIsToldAsSuch(t *testing.T) {
	c, err := newClient(hubSpot{Hub: "http://127.0.0.1:1"}, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		err := c.explain(t.Context(), &url.Error{Op: "Get", URL: "http://127.0.0.1:1/v1/jobs", Err: cause})
		if !strings.Contains(err.Error(), "no answer in time") || strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// Who starts a hub in an emptied directory is first told how a node comes back.
func TestAnEmptiedDataDirectory(t *testing.T) {
	s := newShell(t, "")
	if code := s.do("hub", "run", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	text := s.err.String()
	if back, anew := strings.Index(text, "hub ticket --role hub --replace NODE"), strings.Index(text, "--bootstrap"); back < 0 || anew < back {
		t.Errorf("it says %s", text)
	}
}
