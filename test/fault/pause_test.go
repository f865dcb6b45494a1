//go:build linux

package fault

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// The leader's process is stopped for long enough that another leads, and goes on with
// the view it had, with requests and reports waiting in its sockets. What it answers
// then must be what the cluster knows: nothing is acknowledged, read as consistent or
// assigned by its old view.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("first", 40) // ends while the leader is stopped
	old := c.leader()
	old.p.Pause()
	type asked struct {
		answer
		err error
	}
	var wg sync.WaitGroup
	var submitted, read, members asked
	late := func(a *asked, method, path, key string, body any) {
		wg.Go(func() { a.answer, a.err = old.ask(method, path, key, body, time.Minute) })
	}
	late(&submitted, http.MethodPost, "/v1/jobs", "work-"+filepath.Base(c.dir)+"-late", api.Submit{Kind: fleet.KindExec, Argv: w.argv("late", 1)})
	late(&read, http.MethodGet, "/v1/jobs/"+w.jobs["first"]+"?consistent", "", nil)
	late(&members, http.MethodGet, "/v1/members", "", nil)
	lead := c.succeeded(old)
	w.submit("second", 5)
	w.check("second", 60*time.Second, c.others(old)...)
	w.check("first", 60*time.Second, c.others(old)...)
	old.p.Resume()
	wg.Wait()
	if read.err == nil && read.status == http.StatusOK {
		var j api.Job
		if err := json.Unmarshal(read.body, &j); err != nil || !j.State.Ended() {
			t.Errorf("a consistent read by a leader that was stopped says the job is %s (%v); it had ended", j.State, err)
		}
	}
	t.Logf("the old leader answered the read with %d, the job with %d (%v)", read.status, submitted.status, submitted.err)
	c.voters(3)
	if now := c.leader(); now != lead {
		t.Errorf("%s leads after the old leader went on; want %s, undisturbed", now.called, lead.called)
	}
	if submitted.err == nil && submitted.status/100 == 2 {
		var j api.Job
		if err := json.Unmarshal(submitted.body, &j); err != nil {
			t.Fatal(err)
		}
		w.jobs["late"], w.tenths["late"] = string(j.ID), 1
	} else {
		w.submit("late", 1) // under the same key: once, whatever became of the first
	}
	w.check("late", 40*time.Second)
	w.check("first", time.Second)
	w.check("second", time.Second)
	if got := c.count(); got != 3 {
		t.Errorf("%d jobs on record; want 3", got)
	}
}

// count is how many jobs the cluster has on record.
func (c *cluster) count() int {
	c.t.Helper()
	var s api.Status
	if !c.get("/v1/status?consistent", &s) {
		c.t.Fatal("no hub tells its status")
	}
	n := 0
	for _, of := range s.Jobs {
		n += of
	}
	return n
}

// The leader is stopped for less than an election takes, and for about as long, again
// and again.
func TestLeaderStutters(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	w := c.work()
	w.running("first", 60)
	for i := range 8 {
		lead := c.leader()
		lead.p.Pause()
		<-time.After(time.Duration(200+150*i) * time.Millisecond)
		lead.p.Resume()
	}
	w.submit("second", 5)
	w.check("first", 60*time.Second)
	w.check("second", 60*time.Second)
	c.voters(3)
}

// The leader stands still while a job ends that is to be pushed: its report, and what
// the runner asks next, wait in the old leader's socket. The push is permitted once, by
// the next leader, and happens once; the old one permits nothing when it goes on.
func TestPausedLeaderPermitsNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	seed, bare, pushes, gate := filepath.Join(c.dir, "seed"), filepath.Join(c.dir, "bare.git"), filepath.Join(c.dir, "pushes"), filepath.Join(c.dir, "gate")
	c.write(filepath.Join(seed, "greet.sh"), "echo hello\n")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", seed}, {"-C", seed, "add", "-A"},
		{"-C", seed, "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "begin"}, {"clone", "-q", "--bare", seed, bare},
	} {
		c.git(args...)
	}
	c.write(filepath.Join(bare, "hooks", "post-receive"), "#!/bin/sh\ncat >> "+pushes+"\n")
	id := strings.TrimSpace(c.run("exec", "--detach", "--repo", "file://"+bare, "--push", "work/greeting", "--",
		"sh", "-c", `while [ ! -e "$1" ]; do sleep 0.1; done; echo hi > greet.sh`, "sh", gate))
	c.inState(id, fleet.Running, 60*time.Second)
	old := c.leader()
	old.p.Pause()
	c.write(gate, "")
	c.succeeded(old)
	old.p.Resume()
	j := c.ended(id, 90*time.Second)
	if j.State != fleet.Succeeded {
		t.Fatalf("the job is %s (%s); want succeeded", j.State, j.Reason.Detail)
	}
	var got []byte
	c.eventually(60*time.Second, "the work is pushed", func() bool {
		got, _ = os.ReadFile(pushes)
		return len(got) > 0
	})
	c.voters(3)
	if got, _ = os.ReadFile(pushes); strings.Count(string(got), "\n") != 1 || !strings.Contains(string(got), j.HeadCommit) {
		t.Errorf("pushed were %q; want one commit, %s", got, j.HeadCommit)
	}
}

func (c *cluster) git(args ...string) {
	c.t.Helper()
	x := exec.Command("git", args...)
	x.Env = c.env()
	if out, err := x.CombinedOutput(); err != nil {
		c.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
