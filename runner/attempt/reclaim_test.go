package attempt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
)

// Of jobs without repository goes what tools make again, once the job has ended and owes nothing; whatever might be
// somebody's work stays, and so does all of a job that runs or of which the hub lacks something.
func TestReclaimScratch(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	h := &Host{Dir: dir, Journal: j}
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, "scratch", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(path string) bool {
		_, err := os.Lstat(filepath.Join(dir, "scratch", path))
		return err == nil
	}
	files := []string{
		"work/node_modules/a/b.js", "work/web/.next/c", "work/rust/target/CACHEDIR.TAG", "work/rust/target/debug/x", "work/env/venv/pyvenv.cfg", // go
		"work/dist/result", "work/target/of-the-job", "work/made", "work/node_modules.md", "work/repo/.git/node_modules/x", "work/own/node_modules/lib/.git/HEAD", "before-1-2/node_modules/y",
	}
	for n, job := range []fleet.JobID{"old", "late", "owes", "again", "runs"} {
		for _, f := range files {
			put(string(job)+"/"+f, "0123456789")
		}
		put(string(job)+"/fence", "1-9")
		if job != "owes" {
			put(string(job)+"/done", map[bool]string{true: "1-8", false: "1-9"}[job == "again"])
			at := time.Now().Add(time.Duration(n) * time.Hour)
			_ = os.Chtimes(filepath.Join(dir, "scratch", string(job), "done"), at, at)
		}
	}
	if err := j.Begin(journal.Attempt{Job: "runs", Fence: fleet.Fence{Epoch: 1, Index: 9}, Dir: filepath.Join(dir, "attempts", "runs")}); err != nil {
		t.Fatal(err)
	}
	names := []string{"node_modules", ".next", "target", "venv", "dist"}
	asked := 0
	n, bytes, err := h.ReclaimScratch(t.Context(), names, func() bool { asked++; return asked > 1 })
	if err != nil || n != 4 || bytes != 50 || is("old/work/node_modules") || !is("late/work/node_modules") {
		t.Errorf("%d directories, %d bytes, %v; not those of the job that ended first alone", n, bytes, err)
	}
	if n, _, err := h.ReclaimScratch(t.Context(), names, func() bool { return false }); err != nil || n != 4 {
		t.Errorf("%d directories, %v", n, err)
	}
	for _, job := range []string{"old", "late", "owes", "again", "runs"} {
		for at, f := range files {
			if goes := at < 5 && (job == "old" || job == "late"); is(job+"/"+f) == goes {
				t.Errorf("%s of %s is there: %v", f, job, !goes)
			}
		}
	}
}
