package hub

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// other is a platform that is not this one.
func other() string {
	if runtime.GOOS == "linux" {
		return "darwin-arm64"
	}
	return "linux-amd64"
}

func TestProgramsForRunners(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	if err := os.WriteFile(self, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := programs{self: self, dir: dir}
	own := runtime.GOOS + "-" + runtime.GOARCH
	all, wrong := p.sums()
	if len(all) != 1 || len(wrong) != 0 || !all[own].Valid() {
		t.Errorf("the node alone offers %v, %v", all, wrong)
	}
	if err := os.WriteFile(self, []byte("two!"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, sum, err := p.of(own); err != nil || sum == all[own] {
		t.Errorf("of a file that has changed the sum stays %s, %v", sum, err)
	}
	// Neither what is no program nor one of another platform is given to anybody.
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(test)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"a text": []byte("#!/bin/sh\n"), "another platform's": b} {
		at := filepath.Join(dir, "tugline-"+other())
		os.Remove(at)
		if err := os.WriteFile(at, text, 0o755); err != nil {
			t.Fatal(err)
		}
		if all, wrong := p.sums(); len(all) != 1 || len(wrong) != 1 {
			t.Errorf("%s: it offers %v, %v", what, all, wrong)
		}
	}
	for _, platform := range []string{"plan9-386", "../self-", other() + "/../self"} {
		if path, _, err := p.of(platform); path != "" || !errors.Is(err, fleet.NotFound) {
			t.Errorf("for %q it gives %s, %v", platform, path, err)
		}
	}
}

// The pin of an install line is that of every certificate that the CA gives out.
func TestTheKeyOfALeafIsTheCAs(t *testing.T) {
	s, err := loadSecrets(t.TempDir(), "c-test", true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadSecrets(t.TempDir(), "c-test", true)
	if err != nil {
		t.Fatal(err)
	}
	pin := func(s *secrets) string {
		c, err := s.use.Load().leaf("192.0.2.1:443", "https://hub.example.org")
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
		return "sha256//" + base64.StdEncoding.EncodeToString(sum[:])
	}
	if a, b := pin(s), pin(s); a != b {
		t.Errorf("two certificates of one CA have the pins %s and %s", a, b)
	}
	if pin(s) == pin(again) {
		t.Error("two clusters have one key")
	}
	h := &Hub{secrets: s, url: "https://it's:7440"}
	if got := h.curlPin(); got != pin(s) {
		t.Errorf("the line pins %s, the certificate has %s", got, pin(s))
	}
	if text := h.installScript(); !strings.HasSuffix(text, "\nmain 'https://it'\\''s:7440' '"+pin(s)+"' \"$@\"\n") {
		t.Errorf("the script ends with %q", text[len(text)-200:])
	}
	if h.InstallLine("tug1_x") != "" {
		t.Error("a hub without a program prints a line")
	}
	h.cfg.Program = "tugline"
	if got := h.InstallLine("tug1_x"); got != "curl -fsSk --pinnedpubkey '"+pin(s)+"' 'https://it'\\''s:7440/install.sh' | sh -s -- tug1_x" {
		t.Errorf("the line is %s", got)
	}
	h.url = "http://127.0.0.1:7440"
	if got := h.InstallLine("tug1_x"); got != "curl -fsS 'http://127.0.0.1:7440/install.sh' | sh -s -- tug1_x" {
		t.Errorf("without TLS the line is %s", got)
	}
}
