package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// gitIn runs git as a person would.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	res, err := process.Run(t.Context(), process.Cmd{
		Argv: append([]string{"git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false", "-c", "init.defaultBranch=main"}, args...),
		Dir:  dir, Env: os.Environ(), Limit: 1 << 20,
	})
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

func gitRepo(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "init", "-q")
	put(t, dir+"/.gitignore", "node_modules\n")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-q", "-m", "first")
	return dir
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// aged is a runner without a hub whose time is set by the test.
type aged struct {
	*Runner
	t  *testing.T
	at time.Time
	n  uint64
}

func ageing(t *testing.T, rules string) *aged {
	t.Helper()
	r := &aged{Runner: bare(t, "allow_file: true\n"+rules), t: t, at: time.Now()}
	r.now = func() time.Time { return r.at }
	j, err := journal.Open(r.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	r.journal = j
	r.host = &attempt.Host{Dir: r.cfg.Dir, Journal: j, Logger: r.log}
	return r
}

func (r *aged) store() *worktree.Store {
	r.t.Helper()
	s, err := r.trees()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// begin makes the workspace of a job that the journal knows.
func (r *aged) begin(job fleet.JobID, src string) (*worktree.Tree, fleet.Fence) {
	r.t.Helper()
	r.n++
	f := fleet.Fence{Epoch: 1, Index: r.n}
	if err := r.journal.Begin(journal.Attempt{Job: job, Fence: f, Dir: filepath.Join(r.cfg.Dir, "attempts", string(job))}); err != nil {
		r.t.Fatal(err)
	}
	tree, err := r.store().Prepare(r.t.Context(), worktree.Request{Job: job, Fence: f, URL: src})
	if err != nil {
		r.t.Fatal(err)
	}
	return tree, f
}

// end takes a job's result in, and with hub the hub has it.
func (r *aged) end(tree *worktree.Tree, f fleet.Fence, hub bool) {
	r.t.Helper()
	_, err := tree.Harvest(r.t.Context(), worktree.HarvestRequest{Fence: f})
	if hub {
		err = errors.Join(err, r.store().Delivered(tree.Job, f))
	}
	if err = errors.Join(err, r.journal.Forget(f)); err != nil {
		r.t.Fatal(err)
	}
}

// Two weeks of jobs: what is published goes after a day, what is saved after a week more, what is nowhere else stays and
// is told; the disk holds no more than that, and any job can go on at any time.
func TestTwoWeeksOfRetention(t *testing.T) {
	t.Parallel()
	r := ageing(t, "")
	busy, quiet := gitRepo(t), gitRepo(t)
	type job struct {
		tree *worktree.Tree
		kind string
		at   time.Time
	}
	var jobs []job
	start := r.at
	most, own := 0, 0
	running, f := r.begin("runs-on", busy)
	jobs = append(jobs, job{running, "runs", r.at})
	once, f2 := r.begin("only-one", quiet)
	r.end(once, f2, true)
	every := 8 * time.Hour
	if testing.Short() {
		every = 16 * time.Hour
	}
	for n := 0; r.at.Sub(start) < 14*24*time.Hour; n++ {
		tree, f := r.begin(fleet.JobID(fmt.Sprintf("job-%d", n)), busy)
		put(t, tree.Path+"/done", fmt.Sprint(n))
		kind := "published"
		switch {
		case n%10 == 5:
			kind = "unpublished"
			own++
		case n%5 == 2:
			kind = "dirty"
		}
		r.end(tree, f, kind != "unpublished")
		if kind == "dirty" {
			put(t, tree.Path+"/by hand", fmt.Sprint(n))
		}
		jobs = append(jobs, job{tree, kind, r.at})
		if n%8 == 6 { // a follow-up of a job that ended long ago
			old := jobs[len(jobs)/2]
			if old.kind == "published" {
				again, err := r.store().Rebuild(t.Context(), worktree.Request{Job: old.tree.Job, Fence: fleet.Fence{Epoch: 1, Index: r.n}, URL: busy})
				if err != nil || again.Path != old.tree.Path || !there(again.Path+"/done") {
					t.Fatalf("follow-up of %s: %+v, %v", old.tree.Job, again, err)
				}
			}
		}
		r.at = r.at.Add(every)
		if wait := r.retain(t.Context()); wait <= 0 || wait > retainEvery {
			t.Fatalf("the next pass is due in %v", wait)
		}
		left, err := os.ReadDir(r.cfg.workspace())
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(left))
		for _, j := range jobs {
			age, is := r.at.Sub(j.at), there(j.tree.Path)
			switch j.kind {
			case "runs", "unpublished":
				if !is {
					t.Fatalf("%s of %v ago (%s) is gone", j.tree.Job, age, j.kind)
				}
			case "dirty":
				if is != (age < 9*24*time.Hour) && (age < 8*24*time.Hour || age > 9*24*time.Hour) {
					t.Fatalf("%s of %v ago (dirty): there %v", j.tree.Job, age, is)
				}
			case "published":
				if age < 24*time.Hour && !is {
					t.Fatalf("%s of %v ago is gone", j.tree.Job, age)
				}
			}
		}
	}
	// A day of jobs, nine days of files that were saved, what is nowhere else, follow-ups, the one that runs.
	if bound := 4 + 6 + own + 4 + 1; most > bound {
		t.Errorf("%d workspaces at once, want at most %d", most, bound)
	}
	for range 8 { // the quiet repository's cache goes in its time, the busy one's stays
		r.at = r.at.Add(every)
		r.retain(t.Context())
	}
	want := fmt.Sprintf("kept until somebody sees to it: %d workspaces hold what is nowhere else", own)
	if got := r.alerts["retention"]; !strings.HasPrefix(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	all, err := r.store().AllCaches(t.Context(), worktree.Policy{Keeps: r.owner.keeps(), Busy: r.working()})
	if err != nil || len(all) != 1 || all[0].Repository != busy || !all[0].Busy {
		t.Errorf("caches %+v, %v", all, err)
	}
	r.end(running, f, true)
	r.at = r.at.Add(25 * time.Hour)
	if r.retain(t.Context()); there(running.Path) {
		t.Error("the job that ran for two weeks has ended, and its workspace stays")
	}
}

func TestUnfinishedWorkspacesAreReapedAtTheStart(t *testing.T) {
	t.Parallel()
	r := ageing(t, "")
	src := gitRepo(t)
	half := func(job fleet.JobID, change func(*journal.Progress)) string {
		t.Helper()
		tree, f := r.begin(job, src)
		record := filepath.Join(r.cfg.Dir, "trees", "jobs", string(job)+".json")
		b, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		put(t, record, strings.Replace(string(b), `"ready"`, `"preparing"`, 1))
		if change == nil {
			err = r.journal.Forget(f)
		} else {
			err = r.journal.Update(f, journal.Durable, change)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tree.Path
	}
	declined := half("declined", func(p *journal.Progress) { p.Ended = true })
	again := half("again", func(*journal.Progress) {})
	unknown := half("unknown", nil)
	r.reapUnfinished(t.Context())
	if there(declined) || !there(again) || !there(unknown) {
		t.Errorf("there are: declined %v, prepared again %v, unknown to the journal %v", there(declined), there(again), there(unknown))
	}
}

// The owner's limit of disk space: what may go goes, and while that is not enough nothing new is taken.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	r := ageing(t, "disk_limit: 4MiB\nmin_free_bytes: 0\n")
	src := gitRepo(t)
	tree, f := r.begin("job", src)
	put(t, tree.Path+"/node_modules/a.js", strings.Repeat("x", 8<<20))
	r.retain(t.Context())
	if o := r.offer(); o.base != 0 || !strings.Contains(o.declining, "disk_limit") {
		t.Errorf("with a job above the limit the offer is %+v", o)
	}
	if !there(tree.Path + "/node_modules") {
		t.Fatal("taken from a job that runs")
	}
	r.end(tree, f, true)
	r.retain(t.Context())
	if o := r.offer(); o.base != 1 || o.declining != "" {
		t.Errorf("below the limit the offer is %+v", o)
	}
	if there(tree.Path+"/node_modules") || !there(tree.Path+"/.gitignore") {
		t.Error("not what builds make again has gone")
	}
}

// A disk below its floor: build output of ended jobs goes, and only what may go at any time beside it.
func TestPressureGivesSpaceBack(t *testing.T) {
	r := ageing(t, "min_free_bytes: 900TiB\n")
	src := gitRepo(t)
	var paths []string
	for _, job := range []fleet.JobID{"ended", "runs"} {
		tree, f := r.begin(job, src)
		put(t, tree.Path+"/node_modules/a.js", "x")
		put(t, tree.Path+"/dist/mine", "not ignored")
		if job == "ended" {
			r.end(tree, f, true)
		}
		paths = append(paths, tree.Path)
	}
	put(t, r.cfg.Dir+"/scratch/without/work/node_modules/a.js", "x")
	put(t, r.cfg.Dir+"/scratch/without/work/made", "x")
	for _, note := range []string{"fence", "done"} {
		put(t, r.cfg.Dir+"/scratch/without/"+note, "1-9")
	}
	r.presses(r.sampler.Sample(t.Context()), time.Now())
	r.findOut(t.Context(), <-r.pressure.look)
	if there(paths[0]+"/node_modules") || !there(paths[0]+"/dist/mine") || !there(paths[1]+"/node_modules") {
		t.Errorf("of the job that ended: build output %v, files %v; of the one that runs: %v", there(paths[0]+"/node_modules"), there(paths[0]+"/dist/mine"), there(paths[1]+"/node_modules"))
	}
	if work := r.cfg.Dir + "/scratch/without/work"; there(work+"/node_modules") || !there(work+"/made") {
		t.Errorf("of the job without repository: build output %v, file %v", there(work+"/node_modules"), there(work+"/made"))
	}
}

func TestScrubbedSettingsAreTold(t *testing.T) {
	t.Parallel()
	r := ageing(t, "")
	src := gitRepo(t)
	tree, f := r.begin("one", src)
	gitIn(t, tree.Path, "config", "http.extraheader", "Authorization: secret")
	r.end(tree, f, true)
	r.begin("two", src)
	if got := r.alerts["credentials"]; !strings.Contains(got, src+" (http.extraheader)") || strings.Contains(got, "secret") {
		t.Errorf("told %q", got)
	}
	r.at = r.at.Add(25 * time.Hour)
	if r.retain(t.Context()); r.alerts["credentials"] != "" {
		t.Errorf("told for ever: %q", r.alerts["credentials"])
	}
}

// What the runner takes of the disk rides with the samples, and is counted anew when something went.
func TestUsageRidesWithSamples(t *testing.T) {
	t.Parallel()
	r := ageing(t, "")
	tree, f := r.begin("job", gitRepo(t))
	put(t, tree.Path+"/node_modules/big.js", strings.Repeat("x", 3<<20))
	r.end(tree, f, true)
	r.health.last, r.health.at = fleet.Health{}, time.Now()
	build := func() (bytes int64) {
		t.Helper()
		r.retain(t.Context())
		hb := wire.Heartbeat{Full: true}
		r.health.ride(&hb, time.Now())
		if hb.Health == nil || len(hb.Health.Usage) == 0 {
			t.Fatalf("nothing rides: %+v", hb.Health)
		}
		for _, u := range hb.Health.Usage {
			if u.Class == "build" {
				bytes = u.Bytes
			}
		}
		return bytes
	}
	if got := build(); got < 3<<20 {
		t.Errorf("builds take %d bytes", got)
	}
	put(t, tree.Path+"/node_modules/more.js", strings.Repeat("x", 3<<20))
	if got := build(); got > 4<<20 {
		t.Errorf("counted at every pass: %d bytes", got)
	}
	r.at = r.at.Add(25 * time.Hour)
	if got := build(); got != 0 || there(tree.Path) {
		t.Errorf("builds take %d bytes when the workspace is gone", got)
	}
}

func TestNextPass(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ until, want time.Duration }{{time.Hour, retainEvery}, {time.Minute, time.Minute}, {-time.Minute, retainSoon}} {
		w := worktree.Workspace{Decision: worktree.Decision{Do: worktree.Keep, Until: now.Add(c.until)}}
		if got := nextPass(worktree.Retained{Kept: []worktree.Workspace{{}, w}}, now); got != c.want {
			t.Errorf("until %v: %v, want %v", c.until, got, c.want)
		}
	}
	if got := nextPass(worktree.Retained{}, now); got != retainEvery {
		t.Errorf("with nothing there: %v", got)
	}
}
