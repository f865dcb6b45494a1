package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// There is no Keychain here, and nothing is done before that is said.
func TestKeychainIsOfMacs(t *testing.T) {
	s := newShell(t, "http://127.0.0.1:1")
	dir := filepath.Join(t.TempDir(), "runner")
	for _, line := range []string{"runner install --mode agent --keychain", "runner run --keychain --data-dir " + dir} {
		if code := s.do(strings.Fields(line)...); code != exitUsage || !strings.Contains(s.err.String(), "Keychain of a Mac") {
			t.Errorf("tugline %s: exit %d, %s", line, code, s.err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "identity.json")); err == nil {
		t.Error("it made an identity")
	}
}
