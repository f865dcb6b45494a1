package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// What may be wrong on purpose.
const (
	forgetful = "a runner that loses its journal while its processes go on"
	hasty     = "runners that start without a permit"
	sloppy    = "runners that send other bytes than were written"
	greedy    = "runners that offer one slot more than they have"
	keyless   = "people who repeat a request under another key"
	thinDisks = "hubs that lose recorded output when they are killed"
	oldLogs   = "two hubs that come back with the logs of a minute ago"
)

// TestBroken shows that what the checker looks for is found where it happens.
func TestBroken(t *testing.T) {
	for what, finds := range map[string]string{
		forgetful: "while it runs on",
		hasty:     "was started without a permit",
		sloppy:    "is not as it was written",
		greedy:    "in \\d slots",
		keyless:   "that were submitted once as",
		thinDisks: "were acknowledged, and of",
		oldLogs:   "which was acknowledged at|both led in term|applies another command",
		heedless:  "which is held",
		reckless:  "refuses it",
		blind:     "lacks it",
		crowding:  "slots and \\d for automation",
		hurried:   "which is alive",
	} {
		t.Run(strings.ReplaceAll(what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			var last error
			for seed := uint64(1); seed <= 40; seed++ {
				_, last = simulate(t, options{Seed: seed, For: 3 * time.Minute, Broken: what, Disk: what == oldLogs})
				if last != nil && matches(finds, last.Error()) {
					return
				}
			}
			t.Errorf("%s: not found; the last run ended with: %v", what, last)
		})
	}
}

// oldLogs puts the logs of two hubs back to what they were, while the third is away.
func (n *nemesis) oldLogs(ctx context.Context) {
	w := n.w
	pause := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !pause(20 * time.Second) {
		return
	}
	for _, h := range w.hubs.nodes { // nobody else stops or starts them from now on
		for !n.claim(h) {
			if !pause(100 * time.Millisecond) {
				return
			}
		}
	}
	two := w.hubs.nodes[1:]
	again := func(back bool) {
		for _, h := range w.hubs.nodes {
			h.stop(false)
		}
		for _, h := range two {
			from, to := filepath.Join(h.dir, "raft"), h.dir+".old"
			if back {
				from, to = to, from
			}
			if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
				w.t.Error(err)
			}
			if err := h.start(""); err != nil {
				w.t.Error(err)
			}
		}
	}
	again(false)
	if err := w.hubs.nodes[0].start(""); err != nil {
		w.t.Error(err)
	}
	if pause(time.Minute) {
		again(true)
		pause(5 * time.Second)
		if err := w.hubs.nodes[0].start(""); err != nil {
			w.t.Error(err)
		}
	}
}

func matches(expr, text string) bool { return regexp.MustCompile(expr).MatchString(text) }

// thin has a hub lose what its disk has of recorded output.
func (n *hubNode) thin() {
	streams, _ := filepath.Glob(filepath.Join(n.dir, "spool", "*", "*.output"))
	for _, s := range streams {
		if err := os.Truncate(s, 0); err != nil {
			n.w.t.Error(err)
		}
	}
}

// TestChecker shows each thing that may be wrong in a look at the hubs to the checker.
func TestChecker(t *testing.T) {
	const id = fleet.JobID("01jz0000000000000000000000")
	fence, next := fleet.Fence{Epoch: 1, Index: 7}, fleet.Fence{Epoch: 1, Index: 9}
	p := &plans{seed: 1}
	plan := p.of(id, fence)
	plan.output = []byte("all that was written")
	job := func(change func(*fleet.Job)) *fleet.Job {
		j := &fleet.Job{
			ID: id, State: fleet.Running, Spec: fleet.Spec{Argv: []string{"/bin/work", "p-00-1"}},
			Turns: []*fleet.Turn{{N: 1, Current: 1, Attempts: []*fleet.Attempt{{N: 1, Fence: fence, Runner: "r", State: fleet.AttemptRunning}}}},
		}
		change(j)
		return j
	}
	sound := func(node string, term uint64) look {
		return look{
			node: node, leader: node == "n-1", term: term, index: 10, jobs: []*fleet.Job{job(func(*fleet.Job) {})}, slots: map[fleet.RunnerID]int{"r": 1},
			streams: []copied{{stream: stream{id, fence, wire.StreamOutput}, size: 8, added: plan.output[:8]}},
			blob:    func(fleet.Digest) bool { return true },
		}
	}
	for name, c := range map[string]struct {
		change func(nodes []look)
		finds  string
	}{
		"nothing":                         {func([]look) {}, ""},
		"two leaders":                     {func(n []look) { n[1].leader = true }, "both led in term 3"},
		"two leaders of two terms":        {func(n []look) { n[1].leader, n[1].term = true, 4 }, ""},
		"a job that is gone":              {func(n []look) { n[2].jobs = nil }, "lacks job"},
		"a job that did not get here yet": {func(n []look) { n[2].jobs, n[2].index = nil, 4 }, ""},
		"a job twice": {func(n []look) {
			n[0].jobs = append(n[0].jobs, job(func(j *fleet.Job) { j.ID = "01jz0000000000000000000001" }))
		}, "two jobs that were submitted once"},
		"two live fences": {func(n []look) {
			n[0].jobs[0] = job(func(j *fleet.Job) {
				j.Turns[0].Attempts = append(j.Turns[0].Attempts, &fleet.Attempt{N: 2, Fence: next, Runner: "q", State: fleet.AttemptAssigned})
			})
			n[0].slots["q"] = 1
		}, "live fences"},
		"a live fence of a queued job": {func(n []look) { n[0].jobs[0] = job(func(j *fleet.Job) { j.State = fleet.Queued }) }, "is queued and has the live fence"},
		"a note twice": {func(n []look) {
			n[0].jobs[0] = job(func(j *fleet.Job) { j.Turns[0].Attempts[0].Notes = []string{"x", "x"} })
		}, "recorded twice"},
		"a fact twice":      {func(n []look) { n[0].jobs[0] = job(func(j *fleet.Job) { j.Turns[0].Attempts[0].Facts = 9 }) }, "counts 9 facts"},
		"too many attempts": {func(n []look) { n[0].slots = nil }, "holds 1 attempts in 0 slots"},
		"other bytes":       {func(n []look) { n[1].streams[0].added = []byte("all thin") }, "is not as it was written"},
		"more bytes":        {func(n []look) { n[1].streams[0].added = append(plan.output[:20:20], '!') }, "is not as it was written"},
		"bytes on one node": {func(n []look) { n[1].streams, n[2].streams[0].size = nil, 3 }, "were acknowledged, and of 3 nodes that run 1 have them"},
		"a blob on one node": {func(n []look) {
			n[1].blob, n[2].blob = func(fleet.Digest) bool { return false }, func(fleet.Digest) bool { return false }
		}, "blob d was acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			w := &world{begun: time.Now()}
			k := newChecker(p, w.wrong)
			nodes := []look{sound("n-1", 3), sound("n-2", 3), sound("n-3", 3)}
			c.change(nodes)
			k.check(nodes, []promise{{id: id, index: 5}})
			k.onMajority(nodes, map[stream]int64{{id, fence, wire.StreamOutput}: 8})
			k.blobsOnMajority(nodes, map[fleet.Digest]bool{"d": true})
			found = w.wrongs
			switch {
			case c.finds == "" && len(found) > 0:
				t.Errorf("found %q where nothing is wrong", found)
			case c.finds != "" && (len(found) == 0 || !matches(c.finds, strings.Join(found, "\n"))):
				t.Errorf("found %q, want %q", found, c.finds)
			}
		})
	}
}

// TestLedger shows what may be wrong with executions to the ledger.
func TestLedger(t *testing.T) {
	now := time.Now()
	m := &machine{name: "one", slots: 1}
	ran := func(f uint64, end time.Duration, killed, rerun bool) execution {
		return execution{job: "j", fence: fleet.Fence{Epoch: 1, Index: f}, machine: m, rerun: rerun, busy: 1, proc: &proc{start: now.Add(-time.Hour), end: now.Add(end), killed: killed}}
	}
	for name, c := range map[string]struct {
		runs  []execution
		finds string
	}{
		"one":                  {[]execution{ran(1, time.Hour, false, false)}, ""},
		"a rerun of a lost":    {[]execution{ran(1, -time.Minute, true, true), ran(2, time.Hour, false, true)}, ""},
		"a rerun of a held":    {[]execution{ran(1, -time.Minute, true, false), ran(2, time.Hour, false, false)}, "to be held"},
		"two at once":          {[]execution{ran(1, time.Hour, false, true), ran(2, time.Hour, false, true)}, "while it runs"},
		"again after its end":  {[]execution{ran(1, -time.Minute, false, true), ran(2, time.Hour, false, true)}, "ended by itself"},
		"the same fence twice": {[]execution{ran(1, -time.Minute, true, true), ran(1, time.Hour, false, true)}, "started twice"},
		"no permit":            {[]execution{ran(1, time.Hour, false, false)}, "without a permit"},
		"too many":             {[]execution{func() execution { x := ran(1, time.Hour, false, false); x.busy = 2; return x }()}, "2 processes in 1 slots"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{begun: now}
			l := newLedger(w.wrong)
			for _, x := range c.runs {
				if name != "no permit" {
					l.permit(x.job, x.fence)
				}
				l.begin(x)
			}
			if got := strings.Join(w.wrongs, "\n"); c.finds == "" && got != "" || !matches(c.finds, got) {
				t.Errorf("found %q, want %q", got, c.finds)
			}
		})
	}
}
