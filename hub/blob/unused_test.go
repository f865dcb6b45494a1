package blob

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

func keepText(t *testing.T, s *Store, text string) fleet.Digest {
	t.Helper()
	d := digest([]byte(text))
	if err := s.Put(t.Context(), d, int64(len(text)), bytes.NewReader([]byte(text))); err != nil {
		t.Fatal(err)
	}
	return d
}

// age sets when a blob counts as stored.
func age(t *testing.T, s *Store, d fleet.Digest, at time.Time) {
	t.Helper()
	if err := os.Chtimes(s.path(d), at, at); err != nil {
		t.Fatal(err)
	}
}

func TestEachGivesEveryBlob(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var want []fleet.Digest
	for _, text := range []string{"", "a", "bb", "ccc"} {
		want = append(want, keepText(t, s, text))
	}
	var got []fleet.Digest
	var bytes int64
	if err := s.Each(func(i Info) bool { got = append(got, i.Digest); bytes += i.Size; return true }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || bytes != 6 {
		t.Errorf("walk gave %d bytes in %v; want 6 in %v", bytes, got, want)
	}
	n := 0
	if err := s.Each(func(Info) bool { n++; return false }); err != nil || n != 1 {
		t.Errorf("a walk that was told to stop at the first gave %d, %v", n, err)
	}
}

func TestDeleteUnusedSparesWhatWasRenewed(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	old, since := time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	for name, renew := range map[string]func(fleet.Digest, string) error{
		"renew": func(d fleet.Digest, _ string) error { _, err := s.Renew(d); return err },
		"put": func(d fleet.Digest, text string) error {
			return s.Put(t.Context(), d, int64(len(text)), bytes.NewReader([]byte(text)))
		},
		"upload": func(d fleet.Digest, text string) error {
			_, _, err := s.Upload(t.Context(), d, int64(len(text)))
			return err
		},
	} {
		d := keepText(t, s, name)
		age(t, s, d, old)
		if err := renew(d, name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if freed, err := s.DeleteUnused(d, since); err != nil || freed != 0 {
			t.Errorf("after %s: freed %d, %v; want it kept", name, freed, err)
		}
		age(t, s, d, old)
		if freed, err := s.DeleteUnused(d, since); err != nil || freed != int64(len(name)) {
			t.Errorf("two days after %s: freed %d, %v; want %d", name, freed, err, len(name))
		}
		if _, err := s.Renew(d); !errors.Is(err, fleet.BlobMissing) {
			t.Errorf("renewing a deleted blob: %v; want %s", err, fleet.BlobMissing)
		}
		if freed, err := s.DeleteUnused(d, since); err != nil || freed != 0 {
			t.Errorf("deleting it again: %d, %v", freed, err)
		}
	}
	if b, n := s.Usage(); b != 0 || n != 0 {
		t.Errorf("the empty store counts %d bytes in %d blobs", b, n)
	}
}
