package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// stage is a job on a scripted hub: its events, of which a connection gives a part
// before it breaks.
type stage struct {
	mu      sync.Mutex
	events  []api.Event
	breaks  []int // how many events a connection gives; the last one gives the rest
	lasts   []string
	queries []string
	job     api.Job
	cancel  chan struct{} // closed by a cancel
	wait    bool          // hold the stream open until the job is cancelled
	cut     bool          // break within an event
}

func (g *stage) serve(t *testing.T) string {
	t.Helper()
	g.cancel = make(chan struct{})
	return script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs":                 func(w http.ResponseWriter, r *http.Request) { answer(w, 201, g.job) },
		"GET /v1/jobs/{id}":             func(w http.ResponseWriter, r *http.Request) { g.mu.Lock(); defer g.mu.Unlock(); answer(w, 200, g.job) },
		"GET /v1/jobs/{id}/events":      g.stream,
		"POST /v1/jobs/{id}/follow-ups": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, g.job) },
		"POST /v1/jobs/{id}/cancel": func(w http.ResponseWriter, r *http.Request) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.job.State, g.wait = fleet.Cancelled, false
			close(g.cancel)
			answer(w, 200, g.job)
		},
	}).URL
}

func (g *stage) stream(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	from, n, wait := 0, len(g.events), g.wait
	last := r.Header.Get("Last-Event-ID")
	g.lasts = append(g.lasts, last)
	g.queries = append(g.queries, r.URL.RawQuery)
	if last != "" {
		from, _ = strconv.Atoi(strings.TrimPrefix(last, "1-"))
	}
	broken := false
	if len(g.breaks) > 0 {
		n, broken = min(from+g.breaks[0], n), true
		g.breaks = g.breaks[1:]
	}
	g.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, ": hello\n\n")
	for i := from; i < n; i++ {
		b, _ := json.Marshal(g.events[i])
		fmt.Fprintf(w, "id: 1-%d\nevent: %s\ndata: %s\n\n", i+1, g.events[i].Type, b)
	}
	if broken && g.cut && n < len(g.events) {
		b, _ := json.Marshal(g.events[n])
		fmt.Fprintf(w, "id: 1-%d\nevent: %s\ndata: %s", n+1, g.events[n].Type, b[:len(b)/2])
	}
	w.(http.Flusher).Flush()
	switch {
	case broken:
		panic(http.ErrAbortHandler)
	case wait:
		select {
		case <-g.cancel:
			fmt.Fprint(w, "event: end\ndata: {\"type\":\"end\"}\n\n")
		case <-r.Context().Done():
		}
	default:
		fmt.Fprint(w, "event: end\ndata: {\"type\":\"end\",\"detail\":\"the turn has ended\"}\n\n")
	}
}

func output(stream, text string) api.Event {
	return api.Event{Type: "output", Output: &api.Output{Turn: 1, Attempt: 1, Stream: stream, Text: text}}
}

func jobIn(s fleet.State, edit ...func(*api.Job)) api.Event {
	j := &api.Job{ID: "01job", Kind: fleet.KindExec, State: s, Reason: fleet.Reason{Code: string(s)}, Runner: "r1", Turn: 1, Attempt: 1}
	for _, e := range edit {
		e(j)
	}
	return api.Event{Type: "job", Job: j}
}

func endedJob(s fleet.State) api.Job {
	return api.Job{ID: "01job", Kind: fleet.KindExec, State: s, Runner: "r1", Turn: 1, Attempt: 1}
}

func TestFollowedJobEndsWithItsExitCode(t *testing.T) {
	for _, s := range fleet.States {
		if !s.Ended() {
			continue
		}
		want := map[fleet.State]int{fleet.Succeeded: 0, fleet.Failed: 1, fleet.NeedsReview: 6, fleet.Cancelled: 3, fleet.Blocked: 7, fleet.Lost: 3}[s]
		g := &stage{job: endedJob(s)}
		sh := newShell(t, g.serve(t))
		if code := sh.do("exec", "--", "true"); code != want {
			t.Errorf("%s: exit %d, want %d\n%s", s, code, want, sh.err)
		}
		has(t, "the summary", sh.err.String(), "job 01job "+words(s))
	}
}

func TestOutputGoesWhereTheJobWroteIt(t *testing.T) {
	g := &stage{job: endedJob(fleet.Succeeded), events: []api.Event{
		jobIn(fleet.Queued, func(j *api.Job) { j.Why = "r1 has no free slot" }),
		jobIn(fleet.Assigned), jobIn(fleet.Preparing), jobIn(fleet.Running),
		output("stdout", "one\n"), output("stderr", "two\n"), {Type: "output", Output: &api.Output{Turn: 1, Attempt: 1, Stream: "stdout", Base64: []byte{0xff, 0, '\n'}}},
		output("mark", `{"dropped_bytes":2048,"reason":"resumed"}`), output("stdout", "\x1b[1mthree"),
		jobIn(fleet.Running, func(j *api.Job) { j.Reason = fleet.Reason{Code: "waiting_on_provider", Detail: "rate limit\x1b[2J"} }),
		jobIn(fleet.Verifying),
	}}
	s := newShell(t, g.serve(t))
	s.must("exec", "--", "true")
	if want := "one\n\xff\x00\n\x1b[1mthree"; s.out.String() != want {
		t.Errorf("standard output is %q, want %q", s.out, want)
	}
	golden(t, "follow-exec.txt", s.err.String())
}

func TestFollowResumesWithoutLossOrRepetition(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		g := &stage{job: endedJob(fleet.Succeeded), breaks: []int{3, 0, 1, 7}, cut: cut}
		var want strings.Builder
		for i := range 40 {
			g.events = append(g.events, output("stdout", fmt.Sprintf("line %d\n", i)))
			fmt.Fprintf(&want, "line %d\n", i)
		}
		s := newShell(t, g.serve(t))
		s.must("exec", "--", "true")
		if s.out.String() != want.String() {
			t.Errorf("cut=%v: the output differs:\n%s", cut, cmp.Diff(want.String(), s.out.String()))
		}
		if diff := cmp.Diff([]string{"", "1-3", "1-3", "1-4", "1-11"}, g.lasts); diff != "" {
			t.Errorf("cut=%v: resumed after (-want +got):\n%s", cut, diff)
		}
		if strings.Contains(s.err.String(), "cannot be reached") {
			t.Errorf("a short outage was told: %s", s.err)
		}
	}
}

// A hub that stops ends its streams in order; that is no end of the job.
func TestEndOfAStreamIsNotTheEndOfTheJob(t *testing.T) {
	t.Parallel()
	g := &stage{job: endedJob(fleet.Failed)}
	url := g.serve(t)
	tries := 0
	front := script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) { answer(w, 201, g.job) },
		"/v1/jobs/": func(w http.ResponseWriter, r *http.Request) {
			if tries++; tries < 3 {
				w.Header().Set("Content-Type", "text/event-stream")
				return
			}
			res, err := http.Get(url + r.URL.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(w, res.Body)
		},
	})
	if code := newShell(t, front.URL).do("exec", "--", "true"); code != exitFailed || tries < 3 {
		t.Errorf("exit %d after %d requests, want 1 after a third", code, tries)
	}
}

func TestFollowAsJSON(t *testing.T) {
	g := &stage{job: endedJob(fleet.Succeeded), events: []api.Event{jobIn(fleet.Running), output("stdout", "x\n")}, breaks: []int{1}}
	g.job.Revision = 9
	s := newShell(t, g.serve(t))
	s.must("exec", "--json", "--", "true")
	var types []string
	for l := range strings.Lines(s.out.String()) {
		var e api.Event
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		types = append(types, e.Type)
	}
	if diff := cmp.Diff([]string{"job", "output", "end", "job"}, types); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s.err.String() != "" {
		t.Errorf("standard error has %q", s.err)
	}
}

func TestDeletedJobAndRefusals(t *testing.T) {
	t.Parallel()
	g := &stage{job: endedJob(fleet.Succeeded), events: []api.Event{{Type: "reset", ID: "01job"}}}
	s := newShell(t, g.serve(t))
	if code := s.do("job", "logs", "-f", "01job"); code != exitFailed {
		t.Errorf("deleted: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "was deleted")
	g.events = []api.Event{{Type: "reset", ID: "01job", Detail: "the event id given is of another epoch"}}
	if code := s.do("job", "logs", "-f", "01job"); code != exitFailed {
		t.Errorf("another epoch: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "another epoch", "begins anew")
	srv := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}":        func(w http.ResponseWriter, r *http.Request) { answer(w, 200, g.job) },
		"GET /v1/jobs/{id}/events": func(w http.ResponseWriter, r *http.Request) { problem(w, 403, fleet.Forbidden, "not you") },
	})
	if code := newShell(t, srv.URL).do("job", "logs", "-f", "01job"); code != exitUnauthorised {
		t.Errorf("forbidden: exit %d, want 5", code)
	}
	down := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}":        func(w http.ResponseWriter, r *http.Request) { answer(w, 200, g.job) },
		"GET /v1/jobs/{id}/events": func(w http.ResponseWriter, r *http.Request) { broken(w) },
	})
	s = newShell(t, down.URL)
	s.retryFor(500 * time.Millisecond)
	if code := s.do("job", "logs", "-f", "01job"); code != exitUnreachable {
		t.Errorf("hub gone: exit %d, want 4", code)
	}
	has(t, "the message", s.err.String(), "did not come back", "job logs -f 01job")
}

// A follow-up is followed to its own end, whatever comes after it.
func TestFollowUpFollowsItsOwnTurn(t *testing.T) {
	g := &stage{job: api.Job{ID: "01job", Kind: fleet.KindAgent, State: fleet.Running, Turn: 2, FollowUps: 1,
		Turns: []*fleet.Turn{{N: 1, State: fleet.Failed}, {N: 2, State: fleet.Failed}, {N: 3, State: fleet.Succeeded}}}}
	g.events = []api.Event{jobIn(fleet.Running, func(j *api.Job) { j.Turn = 4 })}
	end := g.job
	end.Turn, end.State = 4, fleet.Queued
	srv := script(t, map[string]http.HandlerFunc{
		"POST /v1/jobs/{id}/follow-ups": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, g.job) },
		"GET /v1/jobs/{id}/events":      g.stream,
		"GET /v1/jobs/{id}":             func(w http.ResponseWriter, r *http.Request) { answer(w, 200, end) },
	})
	s := newShell(t, srv.URL)
	if code := s.do("job", "follow-up", "01job", "more"); code != exitOK {
		t.Errorf("exit %d, want that of turn 3\n%s", code, s.err)
	}
	if want := "turn=3&until_ended=true"; len(g.queries) == 0 || g.queries[0] != want {
		t.Errorf("asked for %q, want %q", g.queries, want)
	}
	has(t, "standard error", s.err.String(), "turn 3 succeeded; turn 4 is queued")
}

func TestFirstInterruptLeavesTheJobAlone(t *testing.T) {
	g := &stage{job: endedJob(fleet.Running), wait: true, events: []api.Event{jobIn(fleet.Running)}}
	s := newShell(t, g.serve(t))
	f := follower(s, "01job")
	f.window = 50 * time.Millisecond
	s.signals <- os.Interrupt
	if code := exitCode(f.run(t.Context(), s.signals)); code != exitInterrupted {
		t.Errorf("exit %d, want 130", code)
	}
	has(t, "standard error", s.err.String(), "goes on by itself", "tugline job logs -f 01job", "tugline job cancel 01job")
	select {
	case <-g.cancel:
		t.Error("the job was cancelled")
	default:
	}
}

func TestSecondInterruptCancels(t *testing.T) {
	g := &stage{job: endedJob(fleet.Running), wait: true, events: []api.Event{jobIn(fleet.Running)}}
	s := newShell(t, g.serve(t))
	f := follower(s, "01job")
	s.signals <- os.Interrupt
	s.signals <- os.Interrupt
	if code := exitCode(f.run(t.Context(), s.signals)); code != exitCancelled {
		t.Errorf("exit %d, want 3\n%s", code, s.err)
	}
	has(t, "standard error", s.err.String(), "asked to cancel job 01job", "job 01job cancelled")
}

func TestThirdInterruptLeaves(t *testing.T) {
	hang := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}/events":  func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
		"POST /v1/jobs/{id}/cancel": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, endedJob(fleet.Running)) },
	})
	s := newShell(t, hang.URL)
	f := follower(s, "01job")
	for range 3 {
		s.signals <- os.Interrupt
	}
	if code := exitCode(f.run(t.Context(), s.signals)); code != exitInterrupted {
		t.Errorf("exit %d, want 130", code)
	}
}

// A stream on which nothing comes, not even a sign of life, is left, and the user is not
// told of what was done to leave it.
func TestSilentStreamIsLeft(t *testing.T) {
	hang := script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}/events": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
	})
	f := follower(newShell(t, hang.URL), "01job")
	f.quiet = 20 * time.Millisecond
	_, err := f.stream(t.Context(), func() {})
	if err == nil || !repeatable(err, false) {
		t.Fatalf("it ended with %v; want a try again", err)
	}
	if text := sentence(f.c.explain(t.Context(), err)); !strings.Contains(text, "fell silent") || strings.Contains(text, "context") {
		t.Errorf("the user is told %q", text)
	}
}

func follower(s *shell, id fleet.JobID) *follow {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.close)
	return s.newFollow(c, id, followOptions{})
}

func TestEventsOfTheStreamFormat(t *testing.T) {
	text := ": comment\n\nid: 7\nevent: job\ndata: a\ndata: b\n\r\nretry: 5\n\ndata\n\nid:8\ndata: live\r\n\r\nevent: only\n\n"
	want := []sseEvent{{"7", "job", []byte("a\nb")}, {"7", "", []byte{}}, {"8", "", []byte("live")}}
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte a time": iotest.OneByteReader(strings.NewReader(text))} {
		var got []sseEvent
		s := newSSE(r, func() {})
		for {
			e, err := s.next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v", name, err)
				}
				break
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sseEvent{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, cut := range []string{"data: x", "data: x\n", "id: 3\nda"} {
		if _, err := newSSE(strings.NewReader(cut), func() {}).next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q ended with %v, want an unexpected end", cut, err)
		}
	}
}

func FuzzEventStream(f *testing.F) {
	f.Add([]byte("id: 1\nevent: job\ndata: {}\n\n"))
	f.Add([]byte(":\n\ndata\r\n\r\nid: 1\x00\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSSE(bytes.NewReader(b), func() {})
		total := 0
		for {
			e, err := s.next()
			if err != nil {
				return
			}
			if total += len(e.data); total > len(b) {
				t.Fatalf("%d bytes of data out of %d", total, len(b))
			}
		}
	})
}

// TestStalledIsToldApart: a run that was ended because nothing was heard of it is shown as
// stalled wherever its state is.
func TestStalledIsToldApart(t *testing.T) {
	j := api.Job{ID: "01jstalled", Kind: fleet.KindAgent, Harness: "codex", State: fleet.Failed, FailureClass: fleet.ClassStalled, Reason: fleet.Reason{Code: "stalled", Detail: "idle limit: no output for too long"},
		Verdict: &fleet.Verdict{Decision: fleet.Reject, Reasons: []string{"idle limit: no output for too long"}}, CreatedAt: noon, Turn: 1, Attempt: 1}
	s := newShell(t, "")
	if err := s.jobTable(api.Jobs{Jobs: []api.Job{j}}, noon); err != nil {
		t.Fatal(err)
	}
	s.summary(s.out, false, &j)
	for _, l := range []string{"01jstalled  stalled  codex", "job 01jstalled stalled (codex)"} {
		if !strings.Contains(s.out.String(), l) {
			t.Errorf("shown as\n%s\nwithout %q", s.out.String(), l)
		}
	}
}

// TestWhatRunsIsToldWithItsAge: what an agent was last heard to do is shown with since when,
// so that one which does nothing for two days is not taken for one at work.
func TestWhatRunsIsToldWithItsAge(t *testing.T) {
	j := api.Job{ID: "01jold", Kind: fleet.KindAgent, Harness: "codex", State: fleet.Running, Reason: fleet.Reason{Code: "running", Detail: "reads the code", Since: noon.Add(-49 * time.Hour)}, Turn: 1, Attempt: 1}
	why := ""
	for _, f := range facts(&j, noon) {
		if f.name == "why" {
			why = f.value
		}
	}
	if why != "reads the code (for 2d)" {
		t.Errorf("told as %q", why)
	}
}
