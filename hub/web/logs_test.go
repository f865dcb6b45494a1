package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (w *world) text(path string) string {
	w.t.Helper()
	a := w.do(request{method: "GET", path: path, role: fleet.RoleViewer})
	if a.status != 200 {
		w.t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	return string(a.body)
}

func TestLog(t *testing.T) {
	w := newWorld(t)
	r := w.enrolled("lead")
	id := w.submitted("make")
	path := "/v1/jobs/" + string(id) + "/log"
	w.refuses(request{method: "GET", path: path, role: fleet.RoleViewer}, 404, fleet.NotFound)
	f := w.running(id, r)
	if got := w.text(path); got != "" {
		t.Errorf("before the first byte: %q", got)
	}
	frames := []fleet.Frame{out("one\n"), {Kind: fleet.FrameStderr, At: 5, Payload: []byte{0xff, '\n'}}, fleet.MarkAt(6, fleet.Mark{DroppedBytes: 9, Reason: fleet.MarkOutputCap})}
	var raw []byte
	for _, fr := range frames {
		raw = fleet.AppendFrame(raw, fr)
	}
	w.append(id, f, spool.Output, raw)
	w.append(id, f, spool.Events, []byte(`{"type":"agent_message"}`+"\n"))
	want := "one\n\xff\n[tugline: " + string(frames[2].Payload) + "]\n"
	if got := w.text(path); got != want {
		t.Errorf("text: %q; want %q", got, want)
	}
	if got := w.text(path + "?format=frames"); got != string(raw) {
		t.Errorf("frames: %q", got)
	}
	if got := w.text(path + "?format=frames&from=7"); got != string(raw[7:]) {
		t.Errorf("frames from 7: %q", got)
	}
	if got := w.text(path + "?stream=events"); got != `{"type":"agent_message"}`+"\n" {
		t.Errorf("events: %q", got)
	}
	w.refuses(request{method: "GET", path: path + "?from=1", role: fleet.RoleViewer}, 400, fleet.BadRequest)
	w.refuses(request{method: "GET", path: path + "?stream=stdin", role: fleet.RoleViewer}, 400, fleet.BadRequest)
	w.refuses(request{method: "GET", path: path + "?attempt=2", role: fleet.RoleViewer}, 404, fleet.NotFound)
	// Half a frame is on its way: what is whole is shown.
	w.append(id, f, spool.Output, fleet.AppendFrame(nil, out("rest\n"))[:20])
	if got := w.text(path); got != want {
		t.Errorf("with half a frame: %q; want %q", got, want)
	}
	if got := w.text(path + "?format=frames"); got != string(raw) {
		t.Errorf("frames with half a frame behind them: %q; want the whole ones", got)
	}
	w.append(id, f, spool.Output, fleet.AppendFrame(nil, out("rest\n"))[20:])
	w.finished(id, f, 0, true)
	if a := w.do(request{method: "GET", path: path + "?follow=true", role: fleet.RoleViewer}); string(a.body) != want+"rest\n" || a.header.Get("Tugline-Fence") != f.String() || a.header.Get("Tugline-Attempt") != "1" {
		t.Errorf("following a sealed log: %q %v", a.body, a.header)
	}
	if err := w.spool.Delete(id); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"", "?follow=true", "?stream=events"} {
		if p := w.refuses(request{method: "GET", path: path + q, role: fleet.RoleViewer}, 404, fleet.NotFound); !strings.Contains(p.Detail, "keep time") {
			t.Errorf("%s of deleted output: %q", q, p.Detail)
		}
	}
}

// A log that was sealed without its end says so, to all who read its text.
func TestLogThatIsCutSaysSo(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	w.append(id, f, spool.Output, append(fleet.AppendFrame(nil, out("one\n")), fleet.AppendFrame(nil, out("two\n"))[:18]...))
	w.finished(id, f, 0, false)
	follows := w.open("/v1/jobs/"+string(id)+"/log?follow=true", nil)
	note := fleet.LogCut + ": the rest is lost"
	quoted, err := json.Marshal(note)
	if err != nil {
		t.Fatal(err)
	}
	w.must(&state.RecordFacts{Job: id, Fence: f, Facts: []state.Fact{{Kind: "note", Value: quoted}}})
	w.sealed(id, f)
	want := "one\n[tugline: " + note + "]\n"
	if got := w.text("/v1/jobs/" + string(id) + "/log"); got != want {
		t.Errorf("text: %q; want %q", got, want)
	}
	if got, err := io.ReadAll(follows.Body); err != nil || string(got) != want {
		t.Errorf("followed: %q, %v; want %q", got, err, want)
	}
	s := w.events("/v1/jobs/"+string(id)+"/events?until_ended=true", "")
	for {
		e, ok := s.next()
		if !ok {
			t.Fatal("the stream ended without saying so")
		}
		if e.name == "end" {
			if e.Detail != note {
				t.Errorf("the end says %q; want %q", e.Detail, note)
			}
			return
		}
	}
}

// open begins a request whose answer is read as it comes.
func (w *world) open(path string, header map[string]string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequest("GET", w.http.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens[fleet.RoleViewer])
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 {
		b, _ := io.ReadAll(res.Body)
		w.t.Fatalf("%s: %d %s", path, res.StatusCode, b)
	}
	return res
}

func TestLogFollows(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	w.write(id, f, out("a\n"))
	res := w.open("/v1/jobs/"+string(id)+"/log?follow=true", nil)
	lines := bufio.NewReader(res.Body)
	for _, want := range []string{"a\n", "b\n", "c\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
		if want != "c\n" {
			w.write(id, f, out(string(want[0]+1)+"\n"))
		}
	}
	w.finished(id, f, 0, true)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the seal: %q, %v; want the end", rest, err)
	}
}

func TestFollowerKnowsACutFromAnEnd(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	w.write(id, f, out("a\n"))
	res := w.open("/v1/jobs/"+string(id)+"/log?follow=true", nil)
	if _, err := io.ReadFull(res.Body, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	w.srv.Close()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("when the hub stops: %v; want %v, or the reader takes it for the end", err, io.ErrUnexpectedEOF)
	}
}

func TestArtifacts(t *testing.T) {
	w := newWorld(t)
	id := w.submitted("make")
	f := w.running(id, w.enrolled("lead"))
	patch := []byte("diff --git a/x b/x\n")
	if err := w.blobs.Put(t.Context(), digestOf(patch), int64(len(patch)), bytes.NewReader(patch)); err != nil {
		t.Fatal(err)
	}
	page := []byte("<script>alert(1)</script>")
	if err := w.blobs.Put(t.Context(), digestOf(page), int64(len(page)), bytes.NewReader(page)); err != nil {
		t.Fatal(err)
	}
	v := fleet.Verdict{Decision: fleet.Accept, By: "gate"}
	w.must(&state.FinishAttempt{Job: id, Fence: f, Exit: fleet.Exit{Reason: "exited"}, FinishedAt: time.Now(), Verdict: &v, Evidence: &fleet.Evidence{
		Patch: digestOf(patch), PatchSize: int64(len(patch)), Bundle: digestOf([]byte("never came")), BundleSize: 10,
		Artifacts: []fleet.Artifact{{Name: "report/index.html", Digest: digestOf(page), Size: int64(len(page)), Type: "text/html\r\nX-Evil: 1"},
			{Name: "patch", Digest: digestOf(page), Size: int64(len(page))}},
	}})
	path := "/v1/jobs/" + string(id) + "/artifacts"
	got := get[api.Artifacts](w, request{method: "GET", path: path, role: fleet.RoleViewer}).Artifacts
	stored := map[string]bool{}
	for _, a := range got {
		stored[a.Name] = a.Stored
	}
	if len(got) != 4 || !stored["patch"] || !stored["artifacts/patch"] || stored["bundle"] || !stored["report/index.html"] {
		t.Errorf("artifacts: %+v", got)
	}
	if a := w.do(request{method: "GET", path: path + "/patch", role: fleet.RoleViewer}); !bytes.Equal(a.body, patch) || a.header.Get("Content-Type") != "text/x-diff" {
		t.Errorf("patch: %d %q %v", a.status, a.body, a.header)
	}
	a := w.do(request{method: "GET", path: path + "/report%2Findex.html", role: fleet.RoleViewer})
	if !bytes.Equal(a.body, page) || a.header.Get("Content-Disposition") != "attachment" || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") || a.header.Get("X-Evil") != "" {
		t.Errorf("a page that a run made: %d %q %v", a.status, a.body, a.header)
	}
	w.refuses(request{method: "GET", path: path + "/bundle", role: fleet.RoleViewer}, 404, fleet.BlobMissing)
	w.refuses(request{method: "GET", path: path + "/other", role: fleet.RoleViewer}, 404, fleet.NotFound)
	w.refuses(request{method: "GET", path: path + "/patch?turn=2", role: fleet.RoleViewer}, 404, fleet.NotFound)
}
