package blob

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestMend(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	text := "an artifact"
	d := hexSum(sum(text))
	free := func(int) error { return nil }
	if err := s.Check(t.Context(), d, free); !errors.Is(err, fleet.BlobMissing) {
		t.Errorf("check of a blob that is not there: %v", err)
	}
	if err := s.Mend(t.Context(), d, 11, strings.NewReader(text)); err != nil {
		t.Errorf("mend of a blob that is not there: %v", err)
	}
	path := filepath.Join(dir, string(d[:2]), string(d))
	for _, damage := range []string{"an Artifact", "an", ""} {
		if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context(), d, free); !errors.Is(err, fleet.BlobDigest) {
			t.Errorf("check of %q: %v", damage, err)
		}
		if err := s.Mend(t.Context(), d, 11, strings.NewReader("other bytes")); !errors.Is(err, fleet.BlobDigest) {
			t.Errorf("mend with other bytes: %v", err)
		}
		if err := s.Mend(t.Context(), d, 11, strings.NewReader(text)); err != nil {
			t.Errorf("mend: %v", err)
		}
		if err := s.Check(t.Context(), d, free); err != nil {
			t.Errorf("check of what was mended: %v", err)
		}
		if _, blobs := s.Usage(); blobs != 1 {
			t.Errorf("%d blobs", blobs)
		}
	}
	n := 0
	if err := s.EachIn(0, func(Info) bool { n++; return true }); err != nil || n > 1 {
		t.Errorf("%d blobs, %v", n, err)
	}
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}
