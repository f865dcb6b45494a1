package attempt

import (
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestChangedFilesAreNamedFromTheWorktree(t *testing.T) {
	r := roots{"/data/trees/job", "/private/data/trees/job"}
	for path, want := range map[string]string{
		"/data/trees/job/a/b.go":           "a/b.go",
		"/private/data/trees/job/b.go":     "b.go",
		"/data/trees/job/a/../b.go":        "b.go",
		"/data/trees/job/../other/b.go":    "/data/trees/job/../other/b.go",
		"/data/trees/job-2/b.go":           "/data/trees/job-2/b.go",
		"/data/trees/job":                  "/data/trees/job",
		"/etc/passwd":                      "/etc/passwd",
		"a/b.go":                           "a/b.go",
		"../b.go":                          "../b.go",
		"":                                 "",
		"/elsewhere/data/trees/job/x/b.go": "/elsewhere/data/trees/job/x/b.go",
	} {
		e := fleet.Event{Changes: []fleet.FileChange{{Path: path, Kind: "add"}}}
		if got := r.event(e).Changes[0]; got.Path != want || got.Kind != "add" {
			t.Errorf("%q became %+v, want %q", path, got, want)
		}
		if e.Changes[0].Path != path {
			t.Errorf("the event that was given changed: %+v", e)
		}
		if got := roots(nil).event(e).Changes[0].Path; got != path {
			t.Errorf("without a directory %q became %q", path, got)
		}
	}
}
