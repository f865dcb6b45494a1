package keychain

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/keychain/keychaintest"
)

func TestSecretsComeBackAndAreOnNoCommandLine(t *testing.T) {
	fake := keychaintest.New(t)
	s := Security{Program: fake.Program}
	secret := []byte("\x00\xff a secret \n\"'")
	if _, err := s.Get(t.Context(), "runner-1"); !errors.Is(err, ErrMissing) {
		t.Errorf("before anything was put: %v", err)
	}
	for _, want := range [][]byte{secret, []byte("another")} {
		if err := s.Put(t.Context(), "runner-1", want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), "runner-1"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	for range 2 {
		if err := s.Delete(t.Context(), "runner-1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Get(t.Context(), "runner-1"); !errors.Is(err, ErrMissing) {
		t.Errorf("after it was deleted: %v", err)
	}
	lines := fake.CommandLines()
	if !strings.Contains(lines, "-i\n") || strings.Contains(lines, "add-generic-password") || !strings.Contains(lines, "find-generic-password -s dev.tugline.runner -a runner-1 -w\n") {
		t.Errorf("the command lines were\n%s", lines)
	}
}

func TestWhatTheKeychainRefusesIsSaid(t *testing.T) {
	fake := keychaintest.New(t)
	s := Security{Program: fake.Program}
	fake.Lock()
	if err := s.Put(t.Context(), "runner-1", []byte("x")); !errors.Is(err, ErrLocked) {
		t.Errorf("put into one that is locked: %v", err)
	}
	if _, err := s.Get(t.Context(), "runner-1"); !errors.Is(err, ErrLocked) {
		t.Errorf("got from one that is locked: %v", err)
	}
	fake.Unlock()
	for _, account := range []string{"", "a b", "-a", "a\nb", `a"`} {
		if err := s.Put(t.Context(), account, []byte("x")); err == nil {
			t.Errorf("the account %q was taken", account)
		}
	}
	if fake.CommandLines() != "-i\nfind-generic-password -s dev.tugline.runner -a runner-1 -w\nfind-generic-password -s dev.tugline.runner -a runner-1 -w\n" {
		t.Errorf("the command lines were\n%s", fake.CommandLines())
	}
	// One that takes a secret and does not keep it.
	deaf := filepath.Join(t.TempDir(), "security")
	if err := os.WriteFile(deaf, []byte("#!/bin/sh\ncat >/dev/null\n[ \"$1\" = -i ] || echo 616263\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Security{Program: deaf}).Put(t.Context(), "runner-1", []byte("x")); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("what was not kept: %v", err)
	}
	if _, err := (Security{Program: filepath.Join(t.TempDir(), "none")}).Get(t.Context(), "runner-1"); err == nil || errors.Is(err, ErrMissing) {
		t.Errorf("without the program: %v", err)
	}
}
