package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// event is one as read from a stream.
type event struct {
	id, name string
	api.Event
}

// reader reads server-sent events.
type reader struct {
	t   testing.TB
	res *http.Response
	r   *bufio.Reader
}

func (w *world) events(path, last string) *reader {
	w.t.Helper()
	h := map[string]string{}
	if last != "" {
		h["Last-Event-ID"] = last
	}
	res := w.open(path, h)
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		w.t.Fatalf("%s: content type %q", path, ct)
	}
	return &reader{w.t, res, bufio.NewReader(res.Body)}
}

// next gives the next event; false at the end of the stream.
func (r *reader) next() (event, bool) {
	r.t.Helper()
	timer := time.AfterFunc(patience, func() { r.res.Body.Close() })
	defer timer.Stop()
	var e event
	for {
		line, err := r.r.ReadString('\n')
		if err == io.EOF {
			return e, false
		}
		if err != nil {
			r.t.Fatalf("read an event: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.Event); err != nil {
				r.t.Fatalf("event data %q: %v", value, err)
			}
		case "":
			if e.name != "" {
				return e, true
			}
		}
	}
}

// want reads on to an event of a type.
func (r *reader) want(name string) event {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ended before an event %q", name)
		}
		if e.name == name {
			return e
		}
	}
}

func TestFeedResumes(t *testing.T) {
	w := newWorld(t)
	r := w.events("/v1/events", "")
	a := w.submitted("one")
	e := r.want("job")
	if e.Job.ID != a || e.id != fmt.Sprintf("1-%d", w.View().Meta().Index) {
		t.Errorf("event %s of job %s; want 1-%d of %s", e.id, e.Job.ID, w.View().Meta().Index, a)
	}
	r.res.Body.Close()
	b, c := w.submitted("two"), w.submitted("three")
	r = w.events("/v1/events", e.id)
	for _, want := range []fleet.JobID{b, c} {
		if got := r.want("job"); got.Job.ID != want {
			t.Errorf("resumed with %s: job %s; want %s", e.id, got.Job.ID, want)
		}
	}
	r.res.Body.Close()
	r = w.events("/v1/events?after="+e.id, "")
	if got := r.want("job"); got.Job.ID != b {
		t.Errorf("after=%s: job %s; want %s", e.id, got.Job.ID, b)
	}
	runner := w.enrolled("lead")
	if got := r.want("runner"); got.Runner.ID != runner {
		t.Errorf("runner event of %s", got.Runner.ID)
	}
	w.must(&state.Set{Name: "default_harness", Value: "codex"})
	r.want("setting")
}

func TestFeedSaysWhatItMissed(t *testing.T) {
	w := newWorld(t)
	w.submitted("one")
	w.drop()
	for last, why := range map[string]string{"1-1": "no longer held", "2-1": "another epoch", "1-999": "has not seen", "soon": "EPOCH-INDEX"} {
		r := w.events("/v1/events", last)
		e := r.want("reset")
		if !strings.Contains(e.Detail, why) || e.id != fmt.Sprintf("1-%d", w.View().Meta().Index) {
			t.Errorf("resumed with %s: %q at %s; want it to say %q", last, e.Detail, e.id, why)
		}
		// It goes on from the present.
		id := w.submitted("next")
		if got := r.want("job"); got.Job.ID != id {
			t.Errorf("after the reset: job %s; want %s", got.Job.ID, id)
		}
		r.res.Body.Close()
	}
}

func TestSlowReaderOfTheFeedIsDropped(t *testing.T) {
	w := newWorld(t)
	r := w.events("/v1/events", "")
	w.submitted("one")
	r.want("job")
	// It takes nothing while more comes than the connection holds, and the feed moves on.
	big := strings.Repeat("x", 3000)
	for range 3000 {
		w.must(&state.SubmitJob{ID: fleet.JobID(fmt.Sprintf("%026d", w.index)), Spec: fleet.Spec{Kind: fleet.KindExec, Argv: []string{big}}})
	}
	w.drop()
	n := 0
	for {
		e, ok := r.next()
		if !ok {
			t.Fatal("the stream ended without a reset")
		}
		if e.name == "reset" {
			break
		}
		n++
	}
	if n >= 3000 {
		t.Errorf("%d events came; want a reader that slow to miss some", n)
	}
	if _, ok := r.next(); ok {
		t.Error("the stream goes on after it dropped its reader")
	}
}

func TestTooManyStreams(t *testing.T) {
	w := newWorld(t)
	for range maxStreams {
		w.srv.streams.TryAcquire()
	}
	w.refuses(request{method: "GET", path: "/v1/events", role: fleet.RoleViewer}, 503, fleet.Unavailable)
	w.srv.streams.Release()
	w.events("/v1/events", "")
}

func TestStreamsEndWithTheServer(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	a, b := w.events("/v1/events", ""), w.events("/v1/jobs/"+string(id)+"/events", "")
	b.want("job")
	w.srv.Close()
	for _, r := range []*reader{a, b} {
		if e, ok := r.next(); ok {
			t.Errorf("after the end: %+v", e)
		}
	}
}

// recorded fills an attempt's two streams with what a test can tell apart, and
// gives the concatenation of each.
func (w *world) recorded(id fleet.JobID, f fleet.Fence, n int, seed uint64) (output, events string) {
	w.t.Helper()
	src := rand.New(rand.NewPCG(seed, 1))
	var o, e strings.Builder
	for i := range n {
		text := fmt.Sprintf("%d.%d %s\n", f.Index, i, strings.Repeat("·", src.IntN(60)))
		w.write(id, f, out(text))
		o.WriteString(text)
		if i%3 == 0 {
			line := fmt.Sprintf(`{"type":"agent_message","text":"%d.%d"}`, f.Index, i)
			w.append(id, f, spool.Events, []byte(line+"\n"))
			fmt.Fprintf(&e, "%d.%d ", f.Index, i)
		}
	}
	return o.String(), e.String()
}

// collect reads a job's stream to its end over many connections, each cut after a
// random number of events, and gives what came, joined.
func (w *world) collect(path string, seed uint64, longest int) (output, events string, cuts int) {
	w.t.Helper()
	src := rand.New(rand.NewPCG(seed, 2))
	var o, e strings.Builder
	last := ""
	for {
		r := w.events(path, last)
		for left := 1 + src.IntN(longest); left > 0; left-- {
			ev, ok := r.next()
			if !ok {
				w.t.Fatal("the stream ended without saying so")
			}
			if ev.id != "" {
				last = ev.id
			}
			switch ev.name {
			case "output":
				o.WriteString(ev.Output.Text)
			case "event":
				e.WriteString(ev.Item.Text + " ")
			case "end":
				r.res.Body.Close()
				return o.String(), e.String(), cuts
			case "reset":
				w.t.Fatalf("reset: %s", ev.Detail)
			}
		}
		r.res.Body.Close()
		cuts++
	}
}

func TestJobStreamResumesAtTheExactByte(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	output, events := w.recorded(id, f, 150, 7)
	w.finished(id, f, 0, true)
	cuts := 0
	for seed := range uint64(8) {
		o, e, n := w.collect("/v1/jobs/"+string(id)+"/events?until_ended=true", seed, 25)
		if o != output || e != events {
			t.Errorf("seed %d, %d cuts: %d bytes of output, %d of events; want %d and %d, byte for byte", seed, n, len(o), len(e), len(output), len(events))
		}
		cuts += n
	}
	if cuts < 30 {
		t.Errorf("only %d cuts in all", cuts)
	}
}

func TestJobStreamFollowsWhatGrows(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	type got struct{ output, events string }
	done := make(chan got, 3)
	for seed := range uint64(3) {
		go func() {
			o, e, _ := w.collect("/v1/jobs/"+string(id)+"/events?until_ended=true", seed, 12)
			done <- got{o, e}
		}()
	}
	output, events := w.recorded(id, f, 120, 9)
	w.finished(id, f, 0, false) // recorded, and sealed a little later
	w.sealed(id, f)
	for range 3 {
		if g := <-done; g.output != output || g.events != events {
			t.Errorf("%d bytes of output, %d of events; want %d and %d, byte for byte", len(g.output), len(g.events), len(output), len(events))
		}
	}
}

// TestJobStreamGoesThroughTheAttempts: a rerun and a follow-up come one after the
// other, and a reader that was cut in one of them reads its rest first.
func TestJobStreamGoesThroughTheAttempts(t *testing.T) {
	w := newWorld(t)
	j := get[api.Job](w, request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: "x", OnLost: "rerun"}})
	id, r := j.ID, w.enrolled("lead")
	path := "/v1/jobs/" + string(id) + "/events"

	f1 := w.running(id, r)
	o1, _ := w.recorded(id, f1, 20, 1)
	s := w.events(path, "")
	half := strings.Builder{}
	last := ""
	for half.Len() < len(o1)/2 {
		e := s.want("output")
		half.WriteString(e.Output.Text)
		last = e.id
	}
	s.res.Body.Close()

	w.must(&state.LoseAttempt{Job: id, Fence: f1, Detail: "silent"}) // runs again
	f2 := w.running(id, r)
	o2, _ := w.recorded(id, f2, 20, 2)
	w.finished(id, f2, 0, true)
	w.mustAs("t-operator", &state.FollowUp{Job: id, Prompt: digestOf(nil)})
	f3 := w.running(id, r)
	o3, _ := w.recorded(id, f3, 20, 3)

	s = w.events(path, last)
	rest := strings.Builder{}
	want := (o1 + o2 + o3)[half.Len():]
	for rest.Len() < len(want) {
		rest.WriteString(s.want("output").Output.Text)
	}
	if rest.String() != want {
		t.Errorf("after the cut came\n%q\nwant\n%q", rest.String(), want)
	}
	s.res.Body.Close()

	// One turn alone, and it ends although the job goes on.
	s = w.events(path+"?turn=1&until_ended=true", "")
	var one strings.Builder
	for {
		e, ok := s.next()
		if !ok || e.name == "end" {
			break
		}
		if e.Output != nil {
			one.WriteString(e.Output.Text)
		}
	}
	if one.String() != o2 {
		t.Errorf("turn 1 alone: %q; want the attempt that counts, %q", one.String(), o2)
	}
}

func TestJobStreamEnds(t *testing.T) {
	w := newWorld(t)
	r := w.enrolled("lead")
	end := func(id fleet.JobID) (detail string, types []string) {
		t.Helper()
		s := w.events("/v1/jobs/"+string(id)+"/events?until_ended=true", "")
		for {
			e, ok := s.next()
			if !ok {
				t.Fatalf("the stream ended without saying so after %v", types)
			}
			if e.name == "end" {
				if _, more := s.next(); more {
					t.Error("the stream goes on after its end")
				}
				return e.Detail, types
			}
			types = append(types, e.name)
		}
	}
	cancelled := w.submitted("true")
	w.must(&state.CancelJob{Job: cancelled})
	if d, _ := end(cancelled); d != jobEnded {
		t.Errorf("a job cancelled in the queue: %q", d)
	}
	lost := w.submitted("true")
	f := w.running(lost, r)
	w.write(lost, f, out("so far\n"))
	w.must(&state.LoseAttempt{Job: lost, Fence: f, Detail: "silent"})
	if _, types := end(lost); len(types) != 2 || types[1] != "output" {
		t.Errorf("a lost job told %v; want the job and what is recorded", types)
	}
	silent := w.submitted("true") // a run that wrote nothing
	f = w.running(silent, r)
	w.finished(silent, f, 0, true)
	if d, _ := end(silent); d != jobEnded {
		t.Errorf("a job without output: %q", d)
	}
	expired := w.submitted("true")
	f = w.running(expired, r)
	w.write(expired, f, out("x"))
	w.finished(expired, f, 0, true)
	if err := w.spool.Delete(expired); err != nil {
		t.Fatal(err)
	}
	if d, _ := end(expired); d != jobEnded {
		t.Errorf("a job whose output was deleted: %q", d)
	}
	removed := w.submitted("true") // its runner was removed before the rest came
	f = w.running(removed, r)
	w.write(removed, f, out("x"))
	w.finished(removed, f, 0, false)
	w.must(&state.RemoveRunner{ID: r, AbandonJobs: true})
	if d, types := end(removed); d != jobEnded || len(types) != 2 {
		t.Errorf("a job whose runner was removed: %q after %v", d, types)
	}
}

func TestJobStreamTellsADeletedRecord(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	w.must(&state.CancelJob{Job: id})
	s := w.events("/v1/jobs/"+string(id)+"/events", "")
	s.want("job")
	w.must(&state.Expire{Jobs: []fleet.JobID{id}, AuditAge: time.Hour, Limit: 10})
	if e := s.want("reset"); e.ID != string(id) {
		t.Errorf("reset of %q; want of %s", e.ID, id)
	}
}

// A place that is ahead of the record, whoever made it up, hides no later change.
func TestJobStreamOfTheFuture(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	s := w.events("/v1/jobs/"+string(id)+"/events", "1-999999-1-0-0-0")
	w.must(&state.CancelJob{Job: id})
	if e := s.want("job"); e.Job.State != fleet.Cancelled {
		t.Errorf("the job is %s; want the cancel told", e.Job.State)
	}
}

func TestJobStreamRefusesAPlaceInAFrame(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	f := w.running(id, w.enrolled("lead"))
	w.write(id, f, out("some text that is no header"))
	s := w.events("/v1/jobs/"+string(id)+"/events", fmt.Sprintf("1-0-1-%d-19-0", f.Index))
	s.want("reset")
	s.res.Body.Close()
	s = w.events("/v1/jobs/"+string(id)+"/events", fmt.Sprintf("2-0-1-%d-19-0", f.Index))
	s.want("reset")
	if e := s.want("output"); e.Output.Text != "some text that is no header" {
		t.Errorf("of another epoch: %q; want all from the beginning", e.Output.Text)
	}
}

func TestLiveEvents(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("true")
	s := w.events("/v1/jobs/"+string(id)+"/events", "")
	s.want("job")
	w.srv.Live(id, []fleet.Event{{Type: fleet.EventAgentMessage, Text: "half a sen"}})
	w.srv.Live("another", []fleet.Event{{Type: fleet.EventAgentMessage, Text: "not this"}})
	if e := s.want("live"); e.Item.Text != "half a sen" || e.id != "" {
		t.Errorf("live event %+v with id %q; want one that is never replayed", e.Item, e.id)
	}
}

func TestReadLinePassesOverWhatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", maxLine+5)
	br := bufio.NewReaderSize(strings.NewReader("a\n"+long+"\nb\nrest"), 16)
	for _, want := range []struct {
		line string
		n    int64
	}{{"a\n", 2}, {"", int64(len(long)) + 1}, {"b\n", 2}} {
		line, n, err := readLine(br)
		if err != nil || string(line) != want.line || n != want.n {
			t.Errorf("line of %d bytes, took %d, %v; want %d, took %d", len(line), n, err, len(want.line), want.n)
		}
	}
	if _, _, err := readLine(br); err != io.EOF {
		t.Errorf("half a line: %v; want io.EOF", err)
	}
}
