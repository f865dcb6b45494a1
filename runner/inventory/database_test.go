package inventory

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// unpacked gives a file of testdata; see opencode.py there.
func unpacked(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withDatabase gives a machine where opencode keeps its sessions in a database; nil is no log beside it.
func withDatabase(t *testing.T, db, wal []byte) *machine {
	t.Helper()
	m := newMachine(t)
	m.write(".local/share/opencode/"+ocDatabase, string(db))
	if wal != nil {
		m.write(".local/share/opencode/"+ocDatabase+"-wal", string(wal))
	}
	return m
}

func titles(l fleet.CLISessions) (out []string) {
	for _, s := range l.Sessions {
		out = append(out, s.Title)
	}
	return out
}

// What the CLI has committed is told, whether it lies in the file or still in the log beside it.
func TestSessionsInADatabase(t *testing.T) {
	db, wal := unpacked(t, ocDatabase), unpacked(t, ocDatabase+"-wal")
	m := withDatabase(t, db, wal)
	l := m.list()
	if len(l.Sessions) != fleet.MaxSessions || !l.More || len(l.Notes) > 0 {
		t.Fatalf("%d sessions, more %v, notes %q", len(l.Sessions), l.More, l.Notes)
	}
	want := fleet.CLISession{ID: "ses_0231", Harness: Opencode, Dir: "/home/dev/open", Title: "only in the log", Model: "fake-model", Started: moment(1796000000000).UTC(), Used: moment(1796000231000).UTC()}
	if l.Sessions[0] != want {
		t.Errorf("the newest is\n%+v, want\n%+v", l.Sessions[0], want)
	}
	if got := titles(l)[:4]; !slices.Equal(got, []string{"only in the log", "changed in the log", "question 229", "title 228"}) {
		t.Errorf("the newest are %q", got)
	}
	for i, s := range l.Sessions {
		if want := fmt.Sprintf("ses_%04d", 231-i); s.ID != want {
			t.Fatalf("session %d is %s, want %s", i, s.ID, want)
		}
	}
	show := func(id string, n int) fleet.CLITranscript {
		t.Helper()
		tr, err := Show(t.Context(), m.config(), id, n)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	if tr := show("ses_0231", 20); len(tr.Messages) != 1 || tr.Messages[0].Text != "of the log" || tr.Earlier {
		t.Errorf("shown %+v", tr)
	}
	tr := show("ses_0007", 6)
	var got []string
	for _, x := range tr.Messages {
		got = append(got, strings.TrimRight(x.Role+" "+x.Text, "x"))
	}
	// A part that is longer than a document is passed over.
	if w := []string{`tool bash {"command": "ls 147"}`, "assistant word 148 ", `tool bash {"command": "ls 148"}`, "user word 149 ", `tool bash {"command": "ls 149"}`, "user after it"}; !slices.Equal(got, w) || !tr.Earlier {
		t.Errorf("the last messages are %q (earlier: %v), want %q", got, tr.Earlier, w)
	}
	if n := len(tr.Messages[1].Text); n != len("word 148 ")+148*5 {
		t.Errorf("a text that runs over pages has %d bytes", n)
	}
	for _, id := range []string{"ses_0300", "ses_0301", "ses_0302", "ses_0400", "ses_0232"} {
		if s, err := Find(t.Context(), m.config(), "", id); err == nil {
			t.Errorf("%s is found: %+v", id, s)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(m.home, ".local/share/opencode")); len(entries) != 2 {
		t.Errorf("beside the database are %v", entries)
	}
	for name, was := range map[string][]byte{ocDatabase: db, ocDatabase + "-wal": wal} {
		if b, err := os.ReadFile(filepath.Join(m.home, ".local/share/opencode", name)); err != nil || !bytes.Equal(b, was) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
}

// A log that is not of this file's last writer, or is cut, is what the CLI itself takes it for.
func TestLogsThatDoNotCount(t *testing.T) {
	db, wal := unpacked(t, ocDatabase), unpacked(t, ocDatabase+"-wal")
	flip := func(at int) []byte {
		b := slices.Clone(wal)
		b[at] ^= 1
		return b
	}
	for name, log := range map[string][]byte{
		"none": nil, "empty": {}, "cut in its head": wal[:20], "cut in the first frame": wal[:200],
		"its head is damaged": flip(9), "its checksum is damaged": flip(25), "the first frame is of another log": flip(walHead + 8), "the first page is damaged": flip(walHead + frameLen + 5),
	} {
		l := withDatabase(t, db, log).list()
		if len(l.Sessions) != fleet.MaxSessions || l.Sessions[0].Title != "title 230" || len(l.Notes) > 0 {
			t.Errorf("%s: %d sessions, the newest %+v, notes %q", name, len(l.Sessions), l.Sessions[0], l.Notes)
		}
	}
}

// What is no database, or is damaged anywhere, costs itself alone, and no time.
func TestDamagedDatabases(t *testing.T) {
	db, wal := unpacked(t, ocDatabase), unpacked(t, ocDatabase+"-wal")
	text := bytes.Clone(db[:100])
	text[59] = 2 // of another encoding
	for name, b := range map[string][]byte{"empty": {}, "a text": []byte(strings.Repeat("no database ", 100)), "cut": db[:1000], "UTF-16": text, "another": append(bytes.Clone(db[:100]), make([]byte, 5000)...)} {
		m := withDatabase(t, b, nil)
		m.codex(codexID, codexRollout(codexID, "/home/dev/lab", "the good one", "m"))
		if l := m.list(); len(l.Sessions) != 1 || len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "the sessions of opencode can't be read") {
			t.Errorf("%s: %+v", name, l)
		}
	}
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	m := withDatabase(t, db, wal)
	path := filepath.Join(m.home, ".local/share/opencode", ocDatabase)
	for i := range 30 {
		b := bytes.Clone(db)
		for range 1 + rnd.IntN(2000) {
			b[100+rnd.IntN(len(b)-100)] = byte(rnd.IntN(256))
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l := m.list()
		for _, s := range l.Sessions {
			if !known(s.ID) || !usable(s.Dir) {
				t.Errorf("round %d tells %+v", i, s)
			}
		}
		_, _ = Show(t.Context(), m.config(), "ses_0007", 20)
	}
}

// Two trees that lead to each other come to an end.
func TestTreesThatGoRound(t *testing.T) {
	db := unpacked(t, ocDatabase)
	m := withDatabase(t, db, nil)
	l := newLook(t.Context(), m.config())
	f, err := l.open(filepath.Join(m.home, ".local/share/opencode"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.database(ocDatabase)
	if err != nil {
		t.Fatal(err)
	}
	root := d.tables["session"].root
	d.close()
	f.close()
	page := db[(root-1)*512 : root*512]
	if page[0] != innerTable {
		t.Fatalf("the table's root is of kind %d; the tree is not deep", page[0])
	}
	for at := 12; page[at] != 0; at += 2 { // each child is the root itself
		cell := page[int(page[at])<<8|int(page[at+1]):]
		copy(cell, []byte{byte(root >> 24), byte(root >> 16), byte(root >> 8), byte(root)})
		if at+2 >= 512 {
			break
		}
	}
	copy(page[8:], []byte{byte(root >> 24), byte(root >> 16), byte(root >> 8), byte(root)})
	m = withDatabase(t, db, nil)
	if l := m.list(); len(l.Sessions) != 0 || len(l.Notes) != 1 {
		t.Errorf("the list is %+v", l)
	}
}

// A database that is written to while it is read is read again.
func TestADatabaseThatChanges(t *testing.T) {
	db, wal := unpacked(t, ocDatabase), unpacked(t, ocDatabase+"-wal")
	m := withDatabase(t, db, wal)
	home := filepath.Join(m.home, ".local/share/opencode")
	l := newLook(t.Context(), m.config())
	rounds := 0
	err := opencodeDB{home}.read(l, func(d *database) error {
		rounds++
		if rounds == 1 { // the log is put into the file and begun anew
			m.write(".local/share/opencode/"+ocDatabase+"-wal", string(wal[:16])+"anewanew"+string(wal[24:]))
		}
		if rounds == 2 && (bytes.Equal(d.salts[:], wal[16:24]) || len(d.frames) > 0) {
			t.Errorf("the old log counts in round %d", rounds)
		}
		return nil
	})
	if err != nil || rounds != 2 {
		t.Errorf("%d rounds, %v; want 2", rounds, err)
	}
}
