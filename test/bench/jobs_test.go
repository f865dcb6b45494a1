//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/test/mesh"
)

const (
	slots = 8
	warm  = 40
	jobs  = 200 // for latency, one after the other
	burst = 120 // for throughput, a round
)

// client is a person at the REST interface, over connections that stay open.
type client struct {
	t    *testing.T
	url  string
	auth string
	http *http.Client
}

func newClient(t *testing.T, m *mesh.Mesh) *client {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &client{t, "http://" + m.Listen, "Bearer " + m.Token(), &http.Client{Transport: tr}}
}

func (c *client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, in)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", c.auth)
	r.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(r)
	if err == nil && res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		res.Body.Close()
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, b)
	}
	return res, err
}

func (c *client) call(method, path string, body, into any) {
	res, err := c.do(context.Background(), method, path, body)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		c.t.Error(err)
	}
	io.Copy(io.Discard, res.Body)
}

func (c *client) submit(argv ...string) fleet.JobID {
	var j api.Job
	c.call(http.MethodPost, "/v1/jobs", api.Submit{Kind: fleet.KindExec, Argv: argv}, &j)
	return j.ID
}

func (c *client) job(id fleet.JobID) (j api.Job) {
	c.call(http.MethodGet, "/v1/jobs/"+string(id), nil, &j)
	return j
}

// text gives what a job has written.
func (c *client) text(id fleet.JobID) string {
	res, err := c.do(context.Background(), http.MethodGet, "/v1/jobs/"+string(id)+"/log?follow=true", nil)
	if err != nil {
		c.t.Error(err)
		return ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Error(err)
	}
	return strings.TrimSpace(string(b))
}

// cpu gives the time that a process has spent on a processor, its children not counted.
func cpu(t *testing.T, pid int) time.Duration {
	var sum time.Duration
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

type allocations struct{ count, bytes float64 }

// allocated gives what the hub's process has allocated since its start.
func (c *client) allocated() (a allocations) {
	res, err := c.do(context.Background(), http.MethodGet, "/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_memstats_mallocs_total":
			a.count = v
		case "go_memstats_alloc_bytes_total":
			a.bytes = v
		}
	}
	if a.count == 0 || a.bytes == 0 {
		c.t.Error("the hub does not tell its allocations")
	}
	return a
}

// ends follows every change and tells the jobs that have ended, with their verdicts.
func (c *client) ends() <-chan api.Job {
	ctx, stop := context.WithCancel(context.Background())
	res, err := c.do(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	out := make(chan api.Job, 4096)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer res.Body.Close()
		seen := map[fleet.JobID]bool{}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var e api.Event
			if !ok || json.Unmarshal([]byte(data), &e) != nil {
				continue
			}
			if e.Type == "reset" {
				c.t.Error("the feed was reset: " + e.Detail)
			}
			if e.Job != nil && e.Job.State.Ended() && !seen[e.Job.ID] {
				seen[e.Job.ID] = true
				out <- *e.Job
			}
		}
	})
	c.t.Cleanup(func() { stop(); wg.Wait() })
	return out
}

// next gives the next job that ended, which must have succeeded.
func (c *client) next(ends <-chan api.Job) api.Job {
	select {
	case j := <-ends:
		if j.State != fleet.Succeeded {
			c.t.Errorf("job %s is %s: %+v", j.ID, j.State, j.Reason)
		}
		return j
	case <-time.After(30 * time.Second):
		c.t.Fatal("no job ended within 30 s")
		return api.Job{}
	}
}

// up starts a hub and a runner as processes of their own.
func up(t *testing.T, n int) *mesh.Mesh {
	m := mesh.New(t)
	m.Slots = n
	m.StartHub()
	m.StartRunner()
	m.Online()
	return m
}

// measureJobs takes whole jobs through real processes.
func measureJobs(t *testing.T, s *sheet, mc machine) {
	m := up(t, slots)
	c := newClient(t, m)
	ends := c.ends()
	for range warm {
		c.submit("/bin/true")
		c.next(ends)
	}
	latency(c, s, mc, ends)
	a := c.allocated()
	hub, runner := pidOf(t, m, "hub run"), pidOf(t, m, "runner run")
	hubBefore, runnerBefore := cpu(t, hub), cpu(t, runner)
	throughput(t, c, s, ends)
	s.note("hub process, a job: CPU", "ms", ms(cpu(t, hub)-hubBefore)/(rounds*burst))
	s.note("runner process, a job: CPU", "ms", ms(cpu(t, runner)-runnerBefore)/(rounds*burst))
	b := c.allocated()
	s.note("hub process, a job: allocations", "", (b.count-a.count)/(rounds*burst))
	s.note("hub process, a job: allocated", "KiB", (b.bytes-a.bytes)/(rounds*burst)/1024)
	onDisk(m, s)
}

// latency submits one job after the other, each of which prints the time at which its
// own process looked at the clock. All clocks are the same one. The yardsticks are
// measured between the jobs, so that both see the same machine.
func latency(c *client, s *sheet, mc machine, ends <-chan api.Job) {
	parts := make([][]float64, 6)
	var first, start, a, f, st []float64
	for n := range jobs {
		if n%4 == 0 {
			a, f, st = append(a, timed(mc.apply)), append(f, timed(mc.fsync)), append(st, timed(mc.start))
		}
		begin := time.Now()
		id := c.submit("/bin/date", "+%s%N")
		c.next(ends)
		ns, err := strconv.ParseInt(c.text(id), 10, 64)
		if err != nil {
			c.t.Fatalf("job %s printed no time: %v", id, err)
		}
		wrote := time.Unix(0, ns)
		j := c.job(id)
		try := j.Turns[0].Attempts[0]
		if try.AcceptedAt == nil || try.StartedAt == nil {
			c.t.Fatalf("job %s has no times: %+v", id, try)
		}
		at := []time.Time{begin, j.CreatedAt, try.AssignedAt, *try.AcceptedAt, *try.StartedAt, wrote}
		for i := 1; i < len(at); i++ {
			parts[i] = append(parts[i], ms(at[i].Sub(at[i-1])))
		}
		first = append(first, ms(wrote.Sub(begin)))
		start = append(start, ms(try.StartedAt.Sub(begin)))
	}
	for i, name := range []string{
		1: "HTTP in → submit proposed",
		2: "submit applied → assignment proposed",
		3: "assignment applied → order → fence fsync → accept proposed",
		4: "accept applied → intent fsync → supervisor → fork",
		5: "fork → first look at the clock",
	} {
		if name != "" {
			s.note("   part: "+name+", p50", "ms", median(parts[i]))
		}
	}
	bound := 3*median(a) + 2*median(f) + 2*median(st) + 3
	s.note("   A between the jobs, p50", "ms", median(a))
	s.note("   F between the jobs, p50", "ms", median(f))
	s.note("   S between the jobs, p50", "ms", median(st))
	s.most("submit → first byte of the process, p50", "ms", bound, fmt.Sprintf("≤ 3A + 2F + 2S + 3 ms = %.1f ms", bound), median(first))
	s.note("submit → first byte of the process, p99", "ms", quantile(first, 0.99))
	s.most("submit → start, p50", "ms", 25, "≤ 25 ms", median(start))
	s.most("submit → start, p99", "ms", 60, "≤ 60 ms", quantile(start, 0.99))
}

// throughput has eight submitters push jobs that do nothing, and waits for the last.
// The machine's limit is pairs of a start of the binary and of /bin/true, by eight at
// a time.
func throughput(t *testing.T, c *client, s *sheet, ends <-chan api.Job) {
	var ours, pairs, bare, ratio []float64
	for range rounds {
		bare = append(bare, rate(slots, span, func(int) { run(t, "/bin/true") }))
		p := rate(slots, span, func(int) { run(t, mesh.Binary(), "supervise"); run(t, "/bin/true") })
		begin := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range burst / 8 {
					c.submit("/bin/true")
				}
			})
		}
		for range burst {
			c.next(ends)
		}
		wg.Wait()
		r := burst / time.Since(begin).Seconds()
		ours, pairs, ratio = append(ours, r), append(pairs, p), append(ratio, r/p)
	}
	s.note("exec limit: /bin/true alone, 8 at a time", "/s", bare...)
	s.note("exec limit: pairs of tugline and /bin/true, 8 at a time", "/s", pairs...)
	s.note("trivial jobs, 8 submitters, 8 slots", "/s", ours...)
	s.least("trivial jobs ÷ exec limit in pairs", "", 0.6, "≥ 0.60", ratio...)
}

// onDisk says what a job has left on disk by now.
func onDisk(m *mesh.Mesh, s *sheet) {
	n := float64(warm + jobs + rounds*burst)
	for _, part := range []string{"raft", "spool", "blobs"} { // raft's file grows by 16 MiB at a time
		s.note("disk a job: hub's "+part, "B", float64(size(filepath.Join(m.Dir, "hub", part)))/n)
	}
	s.note("disk a job: runner", "B", float64(size(filepath.Join(m.Dir, "runner")))/n)
}

func size(dir string) (n int64) {
	filepath.Walk(dir, func(_ string, i os.FileInfo, err error) error {
		if err == nil && i.Mode().IsRegular() {
			n += i.Size()
		}
		return nil
	})
	return n
}
