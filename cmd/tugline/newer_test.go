package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/service"
)

// A data directory of a newer version ends the program as one that must not be started
// again, and says what is newer, where it is, and what to do.
func TestDataOfANewerVersionStandsDown(t *testing.T) {
	journal := func(record string) string {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(record)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum([]byte(record), crc32.MakeTable(crc32.Castagnoli)))
		return string(b) + record
	}
	for _, c := range []struct {
		what, file, text string
		args             []string
		known            int // 0: 1
	}{
		{"the runner's data directory", "format.json", `{"format":2,"of":"a newer version"}`, nil, 0},
		{"the runner's journal", "journal.log", journal(`{"n":1,"head":{"version":2,"id":"x","opens":1,"next":0}}`), nil, 0},
		{"the runner's identity", "identity.json", `{"version":3,"keys":"elsewhere"}`, nil, 2},
		{"what is known of the hubs' tunnel", "mesh.json", `{"version":2}`, []string{"--via-mesh"}, 0},
		{"how the runner was installed", "service.json", `{"version":2,"managed_by":"nobody"}`, nil, 0},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		flags := filepath.Join(dir, keptFlagsFile)
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.WriteFile(flags, []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if c.file == "format.json" { // flags of that version are no mistake
			if err := os.WriteFile(flags, []byte(`{"of-a-newer-version":["x"]}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := newShell(t, "")
		if code := s.do(append([]string{"runner", "run", "--data-dir", dir}, c.args...)...); code != exitStandDown {
			t.Errorf("%s: exit %d, want %d\n%s", c.what, code, exitStandDown, s.err)
		}
		text := s.err.String()
		if c.file != "format.json" {
			has(t, c.what, text, path)
		}
		known := max(c.known, 1)
		has(t, c.what, text, c.what, dir, fmt.Sprint("of format ", known+1), fmt.Sprint("knows formats up to ", known), "start the newer version that wrote it")
		if b, err := os.ReadFile(path); err != nil || string(b) != c.text {
			t.Errorf("%s was changed: %q, %v", path, b, err)
		}
		if note := service.Away(dir); !strings.Contains(note, c.what) {
			t.Errorf("%s: the note is %q", c.what, note)
		}
	}
	for name, text := range map[string]string{"node.json": `{"version":2}`, "secrets/keys.json": `{"version":9}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		s := newShell(t, "")
		if code := s.do("hub", "run", "--data-dir", dir, "--listen", "127.0.0.1:0", "--bootstrap"); code != exitStandDown {
			t.Errorf("%s: exit %d, want %d\n%s", name, code, exitStandDown, s.err)
		}
		has(t, name, s.err.String(), path, "use the newer one that wrote it", "its data is untouched")
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%s was changed: %q, %v", path, b, err)
		}
	}
}
