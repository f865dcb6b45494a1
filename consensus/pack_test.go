package consensus

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// TestPackForm pins the bytes of a pack and of what a snapshot begins with: logs out there
// have them.
func TestPackForm(t *testing.T) {
	got := appendPack(nil, [][]byte{[]byte("ab"), nil, []byte("c")})
	if want := "\xf0\x03\x02ab\x00\x01c"; string(got) != want {
		t.Errorf("a pack is %q, want %q", got, want)
	}
	all, err := Commands(got)
	if err != nil || len(all) != 3 || string(all[0]) != "ab" || len(all[1]) != 0 || string(all[2]) != "c" {
		t.Errorf("unpacked %q, %v", all, err)
	}
	if all, err := Commands([]byte("plain")); err != nil || len(all) != 1 || string(all[0]) != "plain" {
		t.Errorf("an entry that is no pack: %q, %v", all, err)
	}
	for n := 1; n < len(got); n++ {
		if _, err := Commands(got[:n]); err == nil {
			t.Errorf("a pack cut after %d bytes was taken", n)
		}
	}
	for _, bad := range []string{"\xf0\x00", "\xf0\x01\x01a", "\xf0\x02\x01a\x01bX", "\xf0\x81\x02" + strings.Repeat("\x00", 257)} {
		if _, err := Commands([]byte(bad)); err == nil {
			t.Errorf("%.10q was taken", bad)
		}
	}
	for _, c := range []struct {
		number uint64
		want   string
	}{{258, "TGS1" + "0000000000000102"}, {260, "TGS2" + "0000000000000102" + "0000000000000104"}} {
		b := appendHead(nil, 258, c.number)
		if got := string(b[:4]) + hex.EncodeToString(b[4:]); got != c.want {
			t.Errorf("a snapshot at number %d begins with %s, want %s", c.number, got, c.want)
		}
		index, number, err := readHead(bytes.NewReader(b))
		if err != nil || index != 258 || number != c.number {
			t.Errorf("read %d, %d, %v", index, number, err)
		}
		for n := range b {
			if _, _, err := readHead(bytes.NewReader(b[:n])); err == nil {
				t.Errorf("a head cut after %d bytes was taken", n)
			}
		}
	}
}

// TestOldPacks applies entries that were written before, with gaps where raft has entries
// of its own, to the numbers that they had then.
func TestOldPacks(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "packs-v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	m := &machine{fsm: &l, fail: func(*FatalError) {}, setBack: func() bool { return false }}
	var want []string
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if text, ok := strings.CutPrefix(line, "is "); ok {
			want = append(want, text)
			continue
		}
		var index uint64
		var data string
		if _, err := fmt.Sscanf(line, "entry %d %s", &index, &data); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		entry, err := hex.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Index: index, Type: raft.LogCommand, Data: entry})
	}
	if got := strings.Join(l.all(), "\n"); got != strings.Join(want, "\n") || len(want) == 0 {
		t.Errorf("applied\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func FuzzCommands(f *testing.F) {
	f.Add([]byte("plain"))
	f.Add(appendPack(nil, [][]byte{[]byte("a"), []byte("b")}))
	f.Add([]byte{packMark, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := Commands(b)
		if err != nil {
			return
		}
		if !isPack(b) {
			if len(all) != 1 || !bytes.Equal(all[0], b) {
				t.Errorf("%q became %q", b, all)
			}
			return
		}
		again, err := Commands(appendPack(nil, all))
		if err != nil || len(again) != len(all) || len(all) < 2 || len(all) > maxPack {
			t.Fatalf("%d commands, then %d, %v", len(all), len(again), err)
		}
		for i := range all {
			if !bytes.Equal(all[i], again[i]) {
				t.Errorf("command %d: %q, then %q", i, all[i], again[i])
			}
		}
	})
}
