package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestReport: a disk that fails is told of, one that is full is not.
func TestReport(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true, syscall.EROFS: true, syscall.ENOSPC: false, os.ErrNotExist: false,
		&os.PathError{Op: "sync", Path: "f", Err: syscall.EIO}: true,
	} {
		told := false
		got := Report(err, func(error) { told = true })
		if told != want || !errors.Is(got, err) {
			t.Errorf("%v: told %v, want %v; becomes %v", err, told, want, got)
		}
	}
	if Report(nil, func(error) { t.Error("told of no error") }) != nil {
		t.Error("no error becomes one")
	}
}

// TestFill: only the bytes that were promised are taken.
func TestFill(t *testing.T) {
	const text = "just these"
	sum := sha256.Sum256([]byte(text))
	for came, want := range map[string]error{text: nil, text[1:]: fleet.BlobDigest, text + "!": fleet.BlobDigest, "other byte": fleet.BlobDigest} {
		f, err := Open(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		err = Fill(t.Context(), f, fleet.Digest(hex.EncodeToString(sum[:])), int64(len(text)), strings.NewReader(came), fleet.BlobDigest)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", came, err, want)
		}
		got := make([]byte, len(text))
		if _, err := f.ReadAt(got, 0); want == nil && (err != nil || string(got) != text) {
			t.Errorf("the file has %q, %v", got, err)
		}
		f.Close()
	}
}
