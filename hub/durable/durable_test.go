package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "", "three"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatalf("write %q: %v", text, err)
		}
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "d"), []byte("x")); err == nil {
		t.Error("a file took the place of a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%d entries, %v: something was left", len(entries), err)
	}
	f, err := Open(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteAt([]byte("T"), 0); err == nil {
		err = errors.Join(f.Sync(), f.Close(), SyncDir(dir))
	}
	if got, _ := os.ReadFile(path); string(got) != "Three" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
	if err := SyncDir(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was synced")
	}
}

func TestCoded(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false,
		fmt.Errorf("write: %w", syscall.ENOSPC): true,
	} {
		got := Coded(err)
		if errors.Is(got, fleet.DiskFull) != want || !errors.Is(got, err) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
	if Coded(nil) != nil {
		t.Error("no error becomes one")
	}
}
