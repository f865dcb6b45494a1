package runner

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/shared/fleet"
)

func TestPressureFloor(t *testing.T) {
	limits := func(n int, floor int64) *fleet.Limits {
		return &fleet.Limits{Automation: n, Floors: fleet.Floors{Select: floor}}
	}
	for _, c := range []struct {
		name, rules string
		told        *fleet.Limits
		want        int64
	}{
		{"never told", "", nil, 1 << 30},
		{"no automation", "", limits(0, 10<<30), 1 << 30},
		{"automation", "", limits(1, 10<<30), 10 << 30},
		{"the owner wants more left for it", "floors: {select: 30GiB}", limits(1, 10<<30), 30 << 30},
		{"the owner wants more left for all", "min_free_bytes: 40GiB", limits(1, 10<<30), 40 << 30},
		{"the owner takes people's jobs alone", "origins: [manual]", limits(1, 10<<30), 1 << 30},
		{"the owner takes automation alone", "origins: [automation]", limits(1, 10<<30), 10 << 30},
	} {
		r := bare(t, c.rules)
		r.told = c.told
		if got := r.pressureFloor(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestIsLow(t *testing.T) {
	for _, c := range []struct {
		v    fleet.Volume
		want bool
	}{
		{fleet.Volume{}, false},
		{fleet.Volume{Known: true, Free: 99, Inodes: -1}, true},
		{fleet.Volume{Known: true, Free: 100, Inodes: -1}, false},
		{fleet.Volume{Known: true, Free: 100, Inodes: 0, Nodes: 0}, false},
		{fleet.Volume{Known: true, Free: 100, Inodes: 99, Nodes: 10000}, true},
		{fleet.Volume{Known: true, Free: 100, Inodes: 100, Nodes: 10000}, false},
	} {
		if got := isLow(c.v, 100); got != c.want {
			t.Errorf("%+v: %v, want %v", c.v, got, c.want)
		}
	}
}

// What fills a disk is asked once in five minutes, however often the disk falls below
// its floor, and a disk with room again ends it.
func TestPressureIsLookedIntoSeldom(t *testing.T) {
	r := bare(t, "")
	volume := func(free int64) fleet.Volume { return fleet.Volume{Known: true, Free: free, Inodes: -1} }
	full := fleet.Health{Workspace: volume(1 << 40), Cache: volume(1 << 20)}
	room := fleet.Health{Workspace: volume(1 << 40), Cache: volume(1 << 40)}
	hung := fleet.Health{Workspace: volume(1 << 40)}
	start := time.Now()
	for _, step := range []struct {
		at   time.Duration
		h    fleet.Health
		look bool
		on   bool
	}{
		{0, room, false, false},
		{20 * time.Second, full, true, true},
		{40 * time.Second, full, false, true},
		{60 * time.Second, hung, false, true}, // what is not known is no end
		{80 * time.Second, room, false, false},
		{100 * time.Second, full, false, true},
		{20*time.Second + fleet.PressureEvery, full, true, true},
		{time.Hour, room, false, false},
		{2 * time.Hour, full, true, true},
	} {
		r.presses(step.h, start.Add(step.at))
		look := false
		select {
		case <-r.pressure.look:
			look = true
		default:
		}
		if look != step.look || r.pressure.on != step.on {
			t.Errorf("at %v: asked %v and on %v, want %v and %v", step.at, look, r.pressure.on, step.look, step.on)
		}
	}
	r.pressure.report = &fleet.Pressure{}
	if r.presses(room, start.Add(3*time.Hour)); r.pressure.ride() != nil {
		t.Error("a report goes out although the disks have room again")
	}
}

// engine is the daemon of Docker, as far as it is asked here.
func engine(t *testing.T) (host string, prunes func() int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/version"):
			fmt.Fprint(w, `{"Version":"27.0"}`)
		case strings.HasSuffix(r.URL.Path, "/system/df"):
			fmt.Fprint(w, `{"LayersSize":1099511627776}`)
		case strings.HasSuffix(r.URL.Path, "/prune"):
			mu.Lock()
			n++
			mu.Unlock()
			fmt.Fprint(w, `{"SpaceReclaimed":7}`)
		case strings.HasSuffix(r.URL.Path, "/images/json"), strings.HasSuffix(r.URL.Path, "/containers/json"):
			fmt.Fprint(w, `[]`)
		}
	}))
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	return "unix://" + l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func TestWhatFillsTheDisk(t *testing.T) {
	for _, variable := range []string{"CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	r := bare(t, "")
	r.host = &attempt.Host{Dir: r.cfg.Dir}
	host, prunes := engine(t)
	r.sampler = probe.New(probe.Config{Workspace: r.cfg.workspace(), Cache: r.cfg.cache(), Env: []string{"DOCKER_HOST=" + host}})
	for path, n := range map[string]int{
		"trees/work/j/repo/a.go": 1 << 20, "trees/work/j/repo/node_modules/b.js": 2 << 20, "scratch/k/work/target/c": 2 << 20,
		"trees/repos/0/g1.git/pack": 3 << 20, "attempts/j/1-1/stdout": 5 << 20, "journal/x": 6 << 20,
	} {
		path = filepath.Join(r.cfg.Dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("x", n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("CODEX_HOME"), "session"), []byte(strings.Repeat("x", 7<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	h := r.sampler.Sample(t.Context())
	h.Cache.Free = 1
	r.presses(h, time.Now())
	r.findOut(t.Context(), <-r.pressure.look)
	got := r.pressure.ride()
	if got == nil || got.Partial || got.Floor != 1<<30 || len(got.Volumes) != 1 || got.Volumes[0].Path != r.cfg.cache() || got.Volumes[0].Free != 1 {
		t.Fatalf("report = %+v", got)
	}
	var classes []string
	for _, u := range got.Usage {
		classes = append(classes, u.Class)
	}
	if diff := cmp.Diff([]string{"docker", "harness", "other", "logs", "build", "caches", "worktrees"}, classes); diff != "" {
		t.Errorf("classes, the largest first (-want +got):\n%s", diff)
	}
	if got := r.pressure.ride(); got != nil {
		t.Errorf("told twice: %+v", got)
	}
	if r.pressure.missed(got); r.pressure.ride() != got {
		t.Error("a report that did not leave is not told again")
	}
	if prunes() != 0 {
		t.Errorf("%d prunes without the owner's word", prunes())
	}
}

// Docker is relieved only where the owner says so, while no job is here, and not again
// at once.
func TestDockerIsPrunedWhenIdle(t *testing.T) {
	r := bare(t, "docker: {prune: true}")
	host, prunes := engine(t)
	r.sampler = probe.New(probe.Config{Workspace: r.cfg.workspace(), Cache: r.cfg.cache(), Env: []string{"DOCKER_HOST=" + host}})
	ready := fleet.Health{Docker: fleet.Docker{State: fleet.DockerReady}}
	job := fleet.Fence{Epoch: 1, Index: 1}
	a := (&attempt.Host{Dir: r.cfg.Dir, Logger: r.log}).Resume(journal.Attempt{Job: "j", Fence: job, Dir: r.cfg.Dir}, attempt.Assignment{Job: "j", Fence: job, Spec: fleet.Spec{Kind: fleet.KindExec}})
	r.attempts[job] = &held{attempt: a}
	r.pruneDocker(t.Context(), ready)
	if prunes() != 0 {
		t.Error("pruned beside a job")
	}
	delete(r.attempts, job)
	r.pruneDocker(t.Context(), fleet.Health{})
	if prunes() != 0 {
		t.Error("pruned without a daemon")
	}
	for range 2 {
		r.pruneDocker(t.Context(), ready)
		if prunes() != 1 {
			t.Errorf("%d prunes, want one", prunes())
		}
	}
	if d := lastRelief(r.cfg.Dir); d == nil || d.Cache != 7 || !strings.Contains(r.alerts["docker"], d.String()) {
		t.Errorf("noted is %+v, told %q", d, r.alerts["docker"])
	}
	now := r.now
	r.now = func() time.Time { return now().Add(25 * time.Hour) }
	if r.tellRelief(); r.alerts["docker"] != "" {
		t.Errorf("told for ever: %q", r.alerts["docker"])
	}
}
