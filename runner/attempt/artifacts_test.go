package attempt

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func artifactsOf(t *testing.T, fill func(dir string)) (*artifactSet, string) {
	t.Helper()
	h := &Host{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	a := h.attempt(Assignment{Job: "j", Fence: fleet.Fence{Epoch: 1, Index: 2}})
	if err := os.MkdirAll(a.artifactsDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(a.artifactsDir())
	return a.artifacts(t.Context(), newMask([]string{"hunter2-and-more"})), a.artifactsDir()
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Regular files are taken under safe names; links, pipes and what they lead to are not.
func TestArtifactsAreRegularFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "not yours")
	s, dir := artifactsOf(t, func(dir string) {
		put(t, filepath.Join(dir, "a b.txt"), "one")
		put(t, filepath.Join(dir, "a?b.txt"), "two")
		put(t, filepath.Join(dir, "sub", "übersicht.html"), "three")
		put(t, filepath.Join(dir, "of hunter2-and-more"), "four")
		if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Dir(secret), filepath.Join(dir, "sub", "dir")); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	var names []string
	for i, f := range s.files {
		names = append(names, fmt.Sprintf("%s %d", f.Name, f.Size))
		b, err := os.ReadFile(s.blobs[i].Path)
		if err != nil || int64(len(b)) != f.Size || !strings.HasPrefix(s.blobs[i].Path, dir+"/") || s.blobs[i].Digest != f.Digest {
			t.Errorf("artifact %+v is at %+v, %v", f, s.blobs[i], err)
		}
	}
	want := []string{"a_b.txt 3", "a_b-2.txt 3", "of_" + strings.Repeat("_", 16) + " 4", "sub/übersicht.html 5"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("names and sizes (-want +got):\n%s", d)
	}
	if len(s.notes) != 1 || !strings.Contains(s.notes[0], "3 entries") {
		t.Errorf("notes %q", s.notes)
	}
}

// A directory that the run replaced by a link leads nowhere.
func TestArtifactsDirectoryIsNoLink(t *testing.T) {
	other := t.TempDir()
	put(t, filepath.Join(other, "x"), "not yours")
	s, _ := artifactsOf(t, func(dir string) {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, dir); err != nil {
			t.Fatal(err)
		}
	})
	if len(s.files) != 0 || len(s.notes) != 1 {
		t.Errorf("took %+v, notes %q", s.files, s.notes)
	}
}

// What is over a bound is counted in a note; smaller files behind it still find room.
func TestArtifactsAreBounded(t *testing.T) {
	s, _ := artifactsOf(t, func(dir string) {
		for n := range maxArtifacts + 7 {
			put(t, filepath.Join(dir, fmt.Sprintf("f%03d", n)), "x")
		}
	})
	if len(s.files) != maxArtifacts || len(s.notes) != 1 || !strings.Contains(s.notes[0], "7 files") {
		t.Errorf("took %d files, notes %q", len(s.files), s.notes)
	}
	s, _ = artifactsOf(t, func(dir string) {
		for name, size := range map[string]int64{"a": maxArtifactBytes + 1, "b": 10} {
			f, err := os.Create(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(size); err != nil { // sparse
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(s.files) != 1 || s.files[0].Name != "b" || len(s.notes) != 1 {
		t.Errorf("took %+v, notes %q", s.files, s.notes)
	}
	if long := safeName(strings.Repeat("ü", 300) + ".txt"); len(long) > maxArtifactName || !strings.HasSuffix(long, ".txt") {
		t.Errorf("long name %q", long)
	}
}
