package main

import (
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// TestReleaseIsVerifiedBeforeItIsSent: nothing reaches the hub that runners would refuse.
func TestReleaseIsVerifiedBeforeItIsSent(t *testing.T) {
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	sign := func(program, comment string) string {
		return string(minisign.SignWithComments(priv, []byte(program), comment, ""))
	}
	key := "untrusted comment: minisign public key\n" + pub.String() + "\n"
	linux, mac := sign("a", "tugline 1.4.0 linux/amd64"), sign("b", "tugline 1.4.0 darwin/arm64")
	b, files, err := readRelease(fill(map[string]string{"minisign.pub": key, "l": "a", "l.minisig": linux, "m": "b", "m.minisig": mac}), "")
	if err != nil || b.Version != "1.4.0" || b.Key != pub.String() || len(b.Files) != 2 || len(files) != 2 || b.Files[1].OS != "darwin" || b.Files[0].Size != 1 {
		t.Errorf("%+v, %v, %v", b, files, err)
	}
	for says, files := range map[string]map[string]string{
		"public key can't be read":    {"l": "a", "l.minisig": linux},
		"holds no minisign":           {"minisign.pub": "key", "l": "a", "l.minisig": linux},
		"has no *.minisig":            {"minisign.pub": key, "l": "a"},
		"has no program beside":       {"minisign.pub": key, "l.minisig": linux},
		"not that of the program":     {"minisign.pub": key, "l": "c", "l.minisig": linux},
		"a release is one version":    {"minisign.pub": key, "l": "a", "l.minisig": linux, "m": "b", "m.minisig": sign("b", "tugline 1.5.0 darwin/arm64")},
		"a program has up to":         {"minisign.pub": key, "l": "", "l.minisig": linux},
		"sign with -t 'tugline VERSI": {"minisign.pub": key, "l": "a", "l.minisig": sign("a", "timestamp:1")},
	} {
		if _, _, err := readRelease(fill(files), ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to say %q", err, says)
		}
	}
}

func TestReleasesAreListed(t *testing.T) {
	hub := script(t, map[string]http.HandlerFunc{
		"GET /v1/releases": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, api.Releases{Releases: []api.Release{
				{Version: "1.4.0", Ring: fleet.RingCanary, Files: []fleet.ReleaseFile{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}, Waits: "a job that succeeds on studio", Runners: []api.ReleaseRunner{{Name: "studio"}}},
				{Version: "1.3.0", Ring: fleet.RingEarly, Halted: "on studio it came to nothing: 3 starts in all failed", Runners: []api.ReleaseRunner{{Name: "studio", Progress: fleet.Progress{Failed: "x"}}}},
				{Version: "1.2.0", Ring: fleet.RingAll},
			}})
		},
	})
	s := newShell(t, hub.URL)
	has(t, "list", s.must("hub", "release", "list"), "1.4.0", "linux/amd64 darwin/arm64", "waits for a job that succeeds on studio", "0, failed on 1", "halted: on studio it came", "offered")
}

func TestApproveAnUpdateHere(t *testing.T) {
	s := newShell(t, "http://127.0.0.1:1")
	dir := t.TempDir()
	if code := s.do("runner", "update", "--approve", "--data-dir", dir); code != exitFailed {
		t.Errorf("with nothing that waits: exit code %d", code)
	}
	waiting := `{"version":"1.4.0","sha256":"` + strings.Repeat("0", 64) + `"}`
	if err := os.WriteFile(filepath.Join(dir, "update-waiting.json"), []byte(waiting+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, "approve", s.must("runner", "update", "--approve", "--data-dir", dir), "1.4.0 is approved")
	if b, err := os.ReadFile(filepath.Join(dir, "update-approved.json")); err != nil || strings.TrimSpace(string(b)) != waiting {
		t.Errorf("approved: %s, %v", b, err)
	}
	for _, args := range [][]string{{"studio", "--approve"}, {"--approve", "--ring", "early"}, {"studio", "--ring", "early"}, {"--ring", "outer"}, {}, {"--ring", "early", "--downgrade"}, {"studio", "--data-dir", dir}} {
		if code := s.do(append([]string{"runner", "update"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}
