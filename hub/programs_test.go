package hub

import (
	"bytes"
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
	"tugline.dev/tugline/shared/wire"
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

// A ticket says which programs are signed: of a release with the same bytes, or by a file
// beside them; and that none is, where the cluster has no key.
func TestTicketsSayWhichProgramsAreSigned(t *testing.T) {
	dir, own := t.TempDir(), runtime.GOOS+"-"+runtime.GOARCH
	self := filepath.Join(dir, "self")
	if err := os.WriteFile(self, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := programs{self: self, dir: dir}
	_, sum, err := p.of(own)
	if err != nil {
		t.Fatal(err)
	}
	release := func(sum fleet.Digest, system string) []*fleet.Release {
		return []*fleet.Release{{Version: "1.4.0", Files: []fleet.ReleaseFile{{OS: system, Arch: runtime.GOARCH, SHA256: sum, Signature: "of the release"}}}}
	}
	for _, k := range []struct {
		name     string
		key      string
		releases []*fleet.Release
		beside   string // file of a signature
		size     int
		signed   bool
		text     string
		wrong    int
	}{
		{"nothing", "a key", nil, "", 0, false, "", 0},
		{"a release of it", "a key", release(sum, runtime.GOOS), "", 0, true, "of the release", 0},
		{"a release of it, and no key", "", release(sum, runtime.GOOS), "", 0, false, "of the release", 0},
		{"a release of other bytes", "a key", release(fleet.Digest(strings.Repeat("0", 64)), runtime.GOOS), "", 0, false, "", 0},
		{"a release for another platform", "a key", release(sum, "plan9"), "", 0, false, "", 0},
		{"beside it", "a key", nil, "self.minisig", 5, true, "sssss", 0},
		{"beside the others", "a key", nil, "tugline-" + own + ".minisig", 5, true, "sssss", 0},
		{"one that is too long", "a key", nil, "self.minisig", fleet.MaxSignature + 1, false, "", 1},
		{"the release before the file", "a key", release(sum, runtime.GOOS), "self.minisig", 5, true, "of the release", 0},
	} {
		if k.beside != "" {
			if err := os.WriteFile(filepath.Join(dir, k.beside), bytes.Repeat([]byte("s"), k.size), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var ticket wire.Ticket
		wrong := p.describe(&ticket, k.key, k.releases)
		text, _ := p.signature(own, k.releases)
		if signed, told := ticket.Signed[own]; !told || signed != k.signed || text != k.text || len(wrong) != k.wrong || ticket.ReleaseKey != k.key || ticket.Programs[own] != sum {
			t.Errorf("%s: the ticket says %+v, wrong is %v, the signature %q", k.name, ticket, wrong, text)
		}
		if k.beside != "" {
			os.Remove(filepath.Join(dir, k.beside))
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
