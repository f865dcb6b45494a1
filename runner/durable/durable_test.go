package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for _, c := range []struct {
		text string
		mode os.FileMode
	}{{"one", 0o600}, {"two", 0o644}, {"", 0o600}} {
		if err := Replace(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		st, err2 := os.Stat(file)
		if err != nil || err2 != nil || string(b) != c.text || st.Mode().Perm() != c.mode {
			t.Errorf("the file is %q, %v, %v; want %q with %v", b, err, st.Mode(), c.text, c.mode)
		}
	}
	// What can't take the place of another leaves that, and nothing beside it.
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "d"), []byte("x"), 0o600); err == nil {
		t.Error("a file took the place of a directory")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("left are %v, %v", all, err)
	}
	if err := Replace(filepath.Join(dir, "none", "f"), nil, 0o600); err == nil {
		t.Error("written to a directory that is not there")
	}
}
