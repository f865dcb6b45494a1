package runner

import (
	"os"
	"path/filepath"
	"testing"

	"tugline.dev/tugline/runner/journal"
)

// A job that goes on with a session in the workspace of another works there: it does not go under it.
func TestAWorkspaceIsBusyByWhoeverWorksInIt(t *testing.T) {
	t.Parallel()
	real := filepath.Join(t.TempDir(), "real")
	if err := os.MkdirAll(filepath.Join(real, "work", "job1", "repo"), 0o700); err != nil {
		t.Fatal(err)
	}
	trees := filepath.Join(t.TempDir(), "trees")
	if err := os.Symlink(real, trees); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		a    journal.Attempt
		busy bool
	}{
		{"its own", journal.Attempt{Job: "job1"}, true},
		{"another's session in it", journal.Attempt{Job: "job2", Progress: journal.Progress{Dir: filepath.Join(trees, "work", "job1", "repo", "sub")}}, true},
		{"the same, by the real path", journal.Attempt{Job: "job2", Progress: journal.Progress{Dir: "/x", RealDir: filepath.Join(real, "work", "job1", "repo")}}, true},
		{"beside it", journal.Attempt{Job: "job2", Progress: journal.Progress{Dir: filepath.Join(trees, "work", "job11", "repo")}}, false},
		{"not begun", journal.Attempt{Job: "job2"}, false},
	} {
		if got := works([]journal.Attempt{c.a}, trees, "job1"); got != c.busy {
			t.Errorf("%s: busy is %v", c.name, got)
		}
	}
}
