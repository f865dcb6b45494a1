package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestReadBundleHeader(t *testing.T) {
	long := strings.Repeat("c", 64)
	tests := []struct {
		name string
		text string
		want BundleHeader
		err  error
	}{
		{name: "plain", text: "# v2 git bundle\n" + idA + " HEAD\n\nPACK",
			want: BundleHeader{Version: 2, ObjectFormat: "sha1", Refs: map[string]string{"HEAD": idA}}},
		{name: "prerequisites", text: "# v2 git bundle\n-" + idA + " a subject\n-" + idB + "\n" + idB + " refs/heads/ü/x\n\nPACKrest",
			want: BundleHeader{Version: 2, ObjectFormat: "sha1", Prerequisites: []string{idA, idB}, Refs: map[string]string{"refs/heads/ü/x": idB}}},
		{name: "capabilities", text: "# v3 git bundle\n@object-format=sha256\n@filter=blob:none\n" + long + " refs/heads/a\n\nPACK",
			want: BundleHeader{Version: 3, ObjectFormat: "sha256", Filter: "blob:none", Refs: map[string]string{"refs/heads/a": long}}},
		{name: "no references", text: "# v2 git bundle\n\nPACK",
			want: BundleHeader{Version: 2, ObjectFormat: "sha1", Refs: map[string]string{}}},
		{name: "empty", err: fleet.BadRequest},
		{name: "other version", text: "# v4 git bundle\n\nPACK", err: fleet.BadRequest},
		{name: "other file", text: "PK\x03\x04\n\nPACK", err: fleet.BadRequest},
		{name: "no blank line", text: "# v2 git bundle\n" + idA + " HEAD\n", err: fleet.BadRequest},
		{name: "no pack", text: "# v2 git bundle\n" + idA + " HEAD\n\nPAC", err: fleet.BadRequest},
		{name: "other than a pack", text: "# v2 git bundle\n" + idA + " HEAD\n\nKCAP", err: fleet.BadRequest},
		{name: "short id", text: "# v2 git bundle\n" + idA[1:] + " HEAD\n\nPACK", err: fleet.BadRequest},
		{name: "upper-case id", text: "# v2 git bundle\n" + strings.ToUpper(idA) + " HEAD\n\nPACK", err: fleet.BadRequest},
		{name: "no name", text: "# v2 git bundle\n" + idA + "\n\nPACK", err: fleet.BadRequest},
		{name: "name outside refs", text: "# v2 git bundle\n" + idA + " config\n\nPACK", err: fleet.BadRequest},
		{name: "name with a way up", text: "# v2 git bundle\n" + idA + " refs/../config\n\nPACK", err: fleet.BadRequest},
		{name: "name of an option", text: "# v2 git bundle\n" + idA + " --upload-pack=x\n\nPACK", err: fleet.BadRequest},
		{name: "name with a space", text: "# v2 git bundle\n" + idA + " refs/heads/a b\n\nPACK", err: fleet.BadRequest},
		{name: "locked name", text: "# v2 git bundle\n" + idA + " refs/heads/a.lock\n\nPACK", err: fleet.BadRequest},
		{name: "two ids", text: "# v2 git bundle\n" + idA + " HEAD\n" + idB + " HEAD\n\nPACK", err: fleet.BadRequest},
		{name: "late prerequisite", text: "# v2 git bundle\n" + idA + " HEAD\n-" + idB + " x\n\nPACK", err: fleet.BadRequest},
		{name: "capability in version 2", text: "# v2 git bundle\n@object-format=sha1\n\nPACK", err: fleet.BadRequest},
		{name: "unknown capability", text: "# v3 git bundle\n@new=1\n\nPACK", err: fleet.BadRequest},
		{name: "late capability", text: "# v3 git bundle\n" + idA + " HEAD\n@object-format=sha256\n\nPACK", err: fleet.BadRequest},
		{name: "endless line", text: "# v2 git bundle\n-" + idA + strings.Repeat(" ", MaxBundleHeader), err: fleet.TooLarge},
		{name: "too many prerequisites", text: "# v2 git bundle\n" + strings.Repeat("-"+idA+"\n", MaxBundleRefs+1), err: fleet.TooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadBundleHeader(strings.NewReader(tt.text))
			if !errors.Is(err, tt.err) {
				t.Errorf("ReadBundleHeader: %v, want %v", err, tt.err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("ReadBundleHeader (-want +got):\n%s", d)
			}
		})
	}
	broken := errors.New("connection reset")
	if _, err := ReadBundleHeader(io.MultiReader(strings.NewReader("# v2 git bundle\n"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("ReadBundleHeader of a broken reader: %v, want %v", err, broken)
	}
}

// git runs git in dir, apart from the user's settings, and returns what it printed.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestReadBundleHeaderOfGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			git(t, dir, "init", "-q", "-b", "main", "--object-format="+format)
			git(t, dir, "commit", "-q", "--allow-empty", "-m", "first\n\nwith a body")
			base := git(t, dir, "rev-parse", "HEAD")
			git(t, dir, "checkout", "-q", "-b", "tugline/job")
			git(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
			tip := git(t, dir, "rev-parse", "HEAD")

			version := map[string]int{"sha1": 2, "sha256": 3}[format]
			tests := []struct {
				name string
				args []string
				want BundleHeader
			}{
				{"whole", []string{"HEAD", "main", "tugline/job"}, BundleHeader{Version: version,
					Refs: map[string]string{"HEAD": tip, "refs/heads/main": base, "refs/heads/tugline/job": tip}}},
				{"new commits", []string{"main..tugline/job"}, BundleHeader{Version: version,
					Prerequisites: []string{base}, Refs: map[string]string{"refs/heads/tugline/job": tip}}},
				{"version 3", []string{"main..tugline/job"}, BundleHeader{Version: 3,
					Prerequisites: []string{base}, Refs: map[string]string{"refs/heads/tugline/job": tip}}},
			}
			for _, tt := range tests {
				path := filepath.Join(t.TempDir(), "bundle")
				args := []string{"bundle", "create", "-q"}
				if tt.want.Version == 3 {
					args = append(args, "--version=3")
				}
				git(t, dir, append(append(args, path), tt.args...)...)
				tt.want.ObjectFormat = format
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				got, err := ReadBundleHeader(f)
				f.Close()
				if err != nil {
					t.Errorf("%s: ReadBundleHeader: %v", tt.name, err)
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Errorf("%s: ReadBundleHeader (-want +got):\n%s", tt.name, d)
				}
			}
		})
	}
}

func FuzzReadBundleHeader(f *testing.F) {
	for _, seed := range []string{
		"", "# v2 git bundle\n" + idA + " HEAD\n\nPACK", "# v2 git bundle\n-" + idA + " x\n" + idB + " refs/heads/a\n\nPACK",
		"# v3 git bundle\n@object-format=sha256\n@filter=blob:none\n" + idA + idA[:24] + " refs/heads/a\n\nPACK",
		"# v2 git bundle\n\n\nPACK", "# v2 git bundle\n" + idA + " refs/heads/\xff\n\nPACK",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadBundleHeader(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, fleet.BadRequest) && !errors.Is(err, fleet.TooLarge) {
				t.Errorf("ReadBundleHeader(%q): %v, which has no code", data, err)
			}
			return
		}
		digits := map[string]int{"sha1": 40, "sha256": 64}[h.ObjectFormat]
		for name, id := range h.Refs {
			if len(id) != digits || !bytes.Contains(data, []byte("\n"+id+" "+name+"\n")) {
				t.Errorf("ReadBundleHeader(%q) has reference %q with id %q", data, name, id)
			}
		}
		for _, id := range h.Prerequisites {
			if len(id) != digits || !bytes.Contains(data, []byte("\n-"+id)) {
				t.Errorf("ReadBundleHeader(%q) has prerequisite %q", data, id)
			}
		}
	})
}
