package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/api"
)

// runHub starts a hub, and gives a shell that speaks to it and what stops it.
func runHub(t *testing.T) (*shell, func()) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "hub")
	h := newShell(t, "")
	end := h.start("hub", "run", "--data-dir", dir, "--listen", "127.0.0.1:0", "--bootstrap")
	eventually(t, "the hub", func() bool { return strings.Contains(h.out.String(), "hub ready at") })
	spot, err := readSpot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return newShell(t, "", "TUGLINE_HUB="+spot.Hub, "TUGLINE_TOKEN="+spot.Token), func() {
		if code := h.stop(end); code != exitOK {
			t.Errorf("the hub ended with %d\n%s", code, h.err)
		}
	}
}

// TestBackupSaysWhatIsInIt: of a backup that was just made, and when it is verified.
func TestBackupSaysWhatIsInIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, stop := runHub(t)
	defer stop()
	dir := t.TempDir()
	plain, whole, pass := filepath.Join(dir, "plain.tar"), filepath.Join(dir, "whole.tar"), filepath.Join(dir, "pass")
	if err := os.WriteFile(pass, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("hub", "backup", plain)
	has(t, "one without keys", s.err.String(), plain, "every runner must enrol anew", "--passphrase-file")
	has(t, "one without keys, verified", s.must("hub", "backup", "verify", plain), "every runner must enrol anew", "without output")
	s.must("hub", "backup", whole, "--passphrase-file", pass, "--with-output")
	for what, text := range map[string]string{"one with all": s.err.String(), "one with all, verified": s.must("hub", "backup", "verify", whole)} {
		if has(t, what, text, "with output", "with the cluster's keys"); strings.Contains(text, "enrol") {
			t.Errorf("%s: %s", what, text)
		}
	}

	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	broken := filepath.Join(dir, "broken.tar")
	if err := os.WriteFile(broken, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.do("hub", "backup", "verify", broken); code != exitFailed || s.out.String() != "" {
		t.Errorf("a damaged backup: exit %d, %s%s", code, s.out, s.err)
	}
	if code := s.do("hub", "backup", filepath.Join(dir, "no", "such")); code == exitOK {
		t.Error("a backup was written where no directory is")
	}
	for _, wrong := range [][]string{
		{}, {"--every", "6h"}, {"--every", "6h", "--to", dir, plain}, {"--every", "1s", "--to", dir}, {"--every", "6h", "--keep", "0", "--to", dir},
		{"--to", dir, plain}, {"--every", "6h", "--to", filepath.Join(dir, "no")},
	} {
		if code := s.do(append([]string{"hub", "backup"}, wrong...)...); code != exitUsage {
			t.Errorf("%v: exit %d; want 2", wrong, code)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("what is no backup was left: %v", left)
	}
}

// TestBackupKeepsTheFileThatIsThere: unless told to replace it, and then only by a whole
// one; whoever may read a backup is who made it.
func TestBackupKeepsTheFileThatIsThere(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, stop := runHub(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "monday.tar")
	refused := func(text string, args ...string) {
		t.Helper()
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if code := s.do(append([]string{"hub", "backup"}, args...)...); code == exitOK {
			t.Errorf("%v: exit 0", args)
		}
		has(t, strings.Join(args, " "), s.err.String(), text)
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%v touched the file that was there: %v", args, err)
		}
		if all, _ := os.ReadDir(dir); len(all) > 2 {
			t.Errorf("%v left %v", args, all)
		}
	}
	if err := os.WriteFile(file, []byte("dear to somebody"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("--force", file)
	refused("no plain file", "--force", filepath.Join(dir, "sub"))
	refused("--every", "--every", "1h", "--to", dir, "--force")
	s.must("hub", "backup", "--force", file)
	s.must("hub", "backup", "verify", file)
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the backup is open to others: %v %v", st.Mode(), err)
	}
	stop()
	refused("hub", "--force", file) // none could be made
	if err := nameFile(file, file, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that came meanwhile: %v", err)
	}
}

// TestBackupsGoOnAndOldOnesGo: with --every the newest are kept, nothing else in the
// directory is touched, and nothing goes while no newer one can be made.
func TestBackupsGoOnAndOldOnesGo(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, stop := runHub(t)
	dir := t.TempDir()
	names := func() (out []string) {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			out = append(out, e.Name())
		}
		return out
	}
	old := []string{"mine.tar", "tugline-20200101-000000.backup.tar", "tugline-20200102-000000.backup.tar", "tugline-20200103-000000.backup.tar"}
	for _, n := range old {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := s.start("hub", "backup", "--every", "1h", "--keep", "2", "--to", dir)
	eventually(t, "a backup, and the oldest to go", func() bool { return len(names()) == 3 && strings.Contains(s.err.String(), "up to entry") })
	if code := s.stop(end); code != exitOK {
		t.Errorf("told to stop it ended with %d: %s", code, s.err)
	}
	got := names()
	if got[0] != old[0] || got[1] != old[3] || slices.Contains(old, got[2]) {
		t.Fatalf("the directory holds %v; want what is not ours, the newest of before and the new one", got)
	}
	s.must("hub", "backup", "verify", filepath.Join(dir, got[2]))

	// It goes on in its time.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.backups(ctx, api.BackupRequest{}, 1100*time.Millisecond, 2, dir) }()
	eventually(t, "two more", func() bool { return !slices.Contains(names(), got[2]) })

	// The hub goes away: what is there stays.
	before := names()
	stop()
	eventually(t, "word of it", func() bool { return strings.Contains(s.err.String(), "no backup was made") })
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if now := names(); len(now) < len(before) {
		t.Errorf("the directory held %v and holds %v", before, now)
	}
}
