package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

// threeHubs starts three nodes and a runner that all of them know.
func threeHubs(t *testing.T, runner ...string) *mesh.Cluster {
	t.Helper()
	c := mesh.NewCluster(t, 3)
	c.Slots, c.Extra = 3, runner
	c.StartRunner()
	c.Online()
	return c
}

// lines is a command that writes n numbered lines, one each tenth of a second, and says
// to a file that it began and that it ended.
func lines(c *mesh.Cluster, name string, n int) (argv []string, ran string) {
	ran = filepath.Join(c.Dir, name+".ran")
	script := c.Write(filepath.Join(c.Dir, "lines.sh"), `echo began >> "$1"
i=0
while [ $i -lt $2 ]; do echo "line $i"; i=$((i+1)); sleep 0.1; done
echo ended >> "$1"
`)
	return []string{"sh", script, ran, itoa(n)}, ran
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("line " + itoa(i) + "\n")
	}
	return b.String()
}

// follower is a client that follows a job.
type follower struct {
	cmd  *exec.Cmd
	out  mesh.Words
	errs mesh.Words
	done chan error
}

func followJob(c *mesh.Cluster, hubs, id string) *follower {
	c.T.Helper()
	f := &follower{cmd: exec.Command(mesh.Binary(), "job", "logs", "-f", id), done: make(chan error, 1)}
	f.cmd.Env = append(c.Env(), "TUGLINE_HUB="+hubs)
	f.cmd.Stdout, f.cmd.Stderr = &f.out, &f.errs
	if err := f.cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	go func() { f.done <- f.cmd.Wait() }()
	c.T.Cleanup(func() { f.cmd.Process.Kill() })
	return f
}

func (f *follower) ends(t *testing.T, want string) {
	t.Helper()
	select {
	case err := <-f.done:
		if err != nil {
			t.Errorf("following ended with %v: %s", err, &f.errs)
		}
	case <-time.After(time.Minute):
		t.Fatal("following does not end")
	}
	if got := f.out.String(); got != want {
		t.Errorf("the client showed %d bytes, want %d:\n%s\n%s", len(got), len(want), got, &f.errs)
	}
}

func ranOnce(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if b, _ := os.ReadFile(f); string(b) != "began\nended\n" {
			t.Errorf("%s: the command ran as %q; want once, whole", filepath.Base(f), b)
		}
	}
}

// hubsFrom lists the nodes' URLs, the given one first.
func hubsFrom(c *mesh.Cluster, first *mesh.Node) string {
	out := first.URL()
	for _, n := range c.Nodes {
		if n != first {
			out += "," + n.URL()
		}
	}
	return out
}

// connections counts how often the runner has said that it is connected.
func connections(c *mesh.Cluster) int { return strings.Count(c.Runner.Said(), "msg=connected") }

// moved waits until the runner has connected again, and gives after which time it did,
// by its own log.
func moved(c *mesh.Cluster, before int, since time.Time) time.Duration {
	c.T.Helper()
	var at time.Time
	c.Eventually(15*time.Second, "the runner finds the new leader", func() bool {
		n := 0
		for l := range strings.Lines(c.Runner.Said()) {
			if !strings.Contains(l, "msg=connected") {
				continue
			}
			if n++; n <= before {
				continue
			}
			text, _, _ := strings.Cut(strings.TrimPrefix(l, "time="), " ")
			var err error
			if at, err = time.Parse(time.RFC3339, text); err != nil {
				c.T.Fatal(err)
			}
			return true
		}
		return false
	})
	return at.Sub(since)
}

func TestLeaderKilledUnderRunningJobs(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			leaderKilled(t, transport)
		})
	}
}

func leaderKilled(t *testing.T, transport string) {
	c := threeHubs(t, "--transport", transport)
	lead := c.Leader()
	argv, ran := lines(c, "long", 80)
	id := c.Detach(append([]string{"exec", "--"}, argv...)...)
	c.Eventually(20*time.Second, "it runs", func() bool {
		out, _, _ := c.Try("job", "logs", id)
		return strings.Contains(out, "line 5\n")
	})
	watching := followJob(c, hubsFrom(c, lead), id)
	before := connections(c)
	lead.Kill()
	at := time.Now()

	// In the gap: the client tries until somebody leads again, and it happens once.
	short, ranShort := lines(c, "gap", 3)
	second := c.Detach(append([]string{"exec", "--idempotency-key", "in-the-gap", "--"}, short...)...)
	again := c.Detach(append([]string{"exec", "--idempotency-key", "in-the-gap", "--"}, short...)...)
	if second != again {
		t.Errorf("the same key gave the jobs %s and %s", second, again)
	}
	seen := map[string]bool{}
	c.Eventually(20*time.Second, "the runner is shown as online again", func() bool {
		var r api.Runner
		out, _, code := c.Try("runner", "get", "r1", "--json")
		if code == 0 && json.Unmarshal([]byte(out), &r) == nil {
			seen[r.State] = true
		}
		return r.State == "online" && connections(c) > before
	})
	if seen["offline"] {
		t.Errorf("over the election the runner was shown as %v; it never was offline", seen)
	}
	took := moved(c, before, at)
	t.Logf("the runner was with the new leader %s after the end of the old one", took.Round(time.Millisecond))
	if limit := 8 * time.Second; took > limit {
		t.Errorf("it took %s; want at most %s for the election and the runner", took, limit)
	}

	c.Ended(second, 30*time.Second)
	c.Ended(id, 60*time.Second)
	watching.ends(t, numbered(80))
	ranOnce(t, ran, ranShort)
	var jobs api.Jobs
	c.JSON(&jobs, "job", "list", "--json")
	if len(jobs.Jobs) != 2 {
		t.Errorf("there are %d jobs; want 2", len(jobs.Jobs))
	}
	for _, j := range jobs.Jobs {
		if full := c.Job(string(j.ID)); full.State != fleet.Succeeded || full.Attempt != 1 {
			t.Errorf("job %s is %s at attempt %d; want succeeded at 1", j.ID, full.State, full.Attempt)
		}
	}

	// The one that was killed comes back and serves what it missed.
	lead.Start()
	c.Voters(3)
	if out := lead.CLI().Run("job", "logs", id); out != numbered(80) {
		t.Errorf("the node that came back serves %d bytes of the log", len(out))
	}
}

func TestFollowerKilledChangesNothing(t *testing.T) {
	t.Parallel()
	c := threeHubs(t)
	argv, ran := lines(c, "long", 50)
	id := c.Detach(append([]string{"exec", "--"}, argv...)...)
	c.State(id, fleet.Running, 20*time.Second)
	down := c.Followers()[0]
	watching := followJob(c, hubsFrom(c, down), id)
	before := connections(c)
	c.Eventually(10*time.Second, "a client follows", func() bool { return strings.Contains(watching.out.String(), "line 5\n") })
	down.Kill()
	c.Ended(id, 60*time.Second)
	watching.ends(t, numbered(50))
	ranOnce(t, ran)
	if n := connections(c); n != before {
		t.Errorf("the runner connected %d times more", n-before)
	}
	down.Start()
	c.Voters(3)
}

func TestLeadershipIsHandedOverUnderRunningJobs(t *testing.T) {
	t.Parallel()
	c := threeHubs(t)
	argv, ran := lines(c, "long", 150)
	id := c.Detach(append([]string{"exec", "--"}, argv...)...)
	c.State(id, fleet.Running, 20*time.Second)
	watching := followJob(c, c.Hubs, id)
	var drained, stopped *mesh.Node
	steps := []struct {
		name string
		do   func(lead *mesh.Node)
	}{
		{"transferred", func(*mesh.Node) { c.Run("hub", "transfer-leader") }},
		{"drained", func(lead *mesh.Node) { lead.CLI().Run("hub", "drain", lead.ID); drained = lead }},
		{"stopped", func(lead *mesh.Node) { lead.Stop() }},
	}
	for _, s := range steps {
		lead, before, at := c.Leader(), connections(c), time.Now()
		s.do(lead)
		took := moved(c, before, at)
		t.Logf("%s: the runner was with the next leader after %s", s.name, took.Round(time.Millisecond))
		if took > 6*time.Second {
			t.Errorf("%s: it took the runner %s to find the next leader", s.name, took)
		}
		if now := c.Leader(); now == lead {
			t.Errorf("%s: node %d leads still", s.name, lead.N)
		}
		stopped = lead
	}
	if n := warnings(c.Runner.Said()); n > 0 {
		t.Errorf("the runner raised %d alarms over changes that were announced:\n%s", n, c.Runner.Said())
	}
	c.Ended(id, 60*time.Second)
	watching.ends(t, numbered(150))
	ranOnce(t, ran)
	if j := c.Job(id); j.State != fleet.Succeeded || j.Attempt != 1 {
		t.Errorf("the job is %s at attempt %d; want succeeded at 1", j.State, j.Attempt)
	}
	c.Run("hub", "drain", "--back", drained.ID)
	stopped.Start()
	c.Voters(3)
}

// warnings counts the lines of a log that ask for attention.
func warnings(log string) (n int) {
	lines := bufio.NewScanner(strings.NewReader(log))
	for lines.Scan() {
		if l := lines.Text(); strings.Contains(l, "level=WARN") || strings.Contains(l, "level=ERROR") {
			n++
		}
	}
	return n
}
