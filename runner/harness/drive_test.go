package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/fleet"
)

// The test binary stands for opencode when it is called as Drive calls that.
const fakeOpencode = "TUGLINE_TEST_OPENCODE"

func TestMain(m *testing.M) {
	if script := os.Getenv(fakeOpencode); script != "" && len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(serveOpencode(script))
	}
	goleak.VerifyTestMain(m)
}

const fakeSession = "ses_fake000001"

// serveOpencode answers as `opencode serve` does, and plays a script once it has a prompt.
func serveOpencode(script string) int {
	if script == "no start" {
		fmt.Fprintln(os.Stderr, "Error: the settings are broken")
		return 1
	}
	cwd, _ := os.Getwd()
	_ = os.WriteFile("server.pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
	stream := make(chan string, 100)
	send := func(kind string, properties any) {
		b, _ := json.Marshal(map[string]any{"id": "evt_x", "type": kind, "properties": properties})
		stream <- string(b)
	}
	type m = map[string]any
	status := func(s m) { send("session.status", m{"sessionID": fakeSession, "status": s}) }
	part := func(p m) {
		p["messageID"] = "msg_a"
		send("message.part.updated", m{"sessionID": fakeSession, "part": p})
	}
	idle := func() {
		status(m{"type": "idle"})
		send("session.idle", m{"sessionID": fakeSession})
	}
	answer := func() {
		part(m{"id": "prt_1", "type": "text", "text": "", "time": m{"start": 1}})
		for _, d := range []string{"All ", "done."} {
			send("message.part.delta", m{"sessionID": fakeSession, "partID": "prt_1", "field": "text", "delta": d})
		}
		part(m{"id": "prt_1", "type": "text", "text": "All done.", "time": m{"start": 1, "end": 2}})
		part(m{"id": "prt_2", "type": "step-finish", "reason": "stop", "tokens": m{"total": 15, "input": 7, "output": 3, "reasoning": 1, "cache": m{"read": 4, "write": 0}}, "cost": 0.5})
		idle()
	}
	bash := func(state m) {
		part(m{"id": "prt_0", "type": "tool", "tool": "bash", "callID": "call_1", "state": state})
	}
	input := m{"command": "make"}
	replied := make(chan string, 1)
	play := func(prompt string) {
		send("message.updated", m{"sessionID": fakeSession, "info": m{"id": "msg_u", "role": "user"}})
		send("message.part.updated", m{"sessionID": fakeSession, "part": m{"id": "prt_u", "messageID": "msg_u", "type": "text", "text": prompt, "time": m{"end": 1}}})
		status(m{"type": "busy"})
		send("message.updated", m{"sessionID": fakeSession, "info": m{"id": "msg_a", "role": "assistant", "providerID": "fake", "modelID": "fake-model"}})
		switch script {
		case "success":
			bash(m{"status": "running", "input": input})
			bash(m{"status": "running", "input": input, "metadata": m{"output": "x"}})
			bash(m{"status": "completed", "input": input, "output": strings.Repeat("o", 3<<20), "metadata": m{"exit": 2, "output": strings.Repeat("o", 3<<20), "diff": strings.Repeat("d", 3<<20)}})
			answer()
		case "quota":
			status(m{"type": "retry", "attempt": 1, "message": "You've hit your usage limit. Upgrade your plan to continue", "next": time.Now().Add(time.Hour).UnixMilli()})
		case "far":
			status(m{"type": "retry", "attempt": 1, "message": "Too Many Requests", "next": time.Now().Add(time.Hour).UnixMilli()})
		case "retry":
			status(m{"type": "retry", "attempt": 1, "message": "Too Many Requests", "next": time.Now().Add(time.Second).UnixMilli()})
			send("message.part.updated", m{"sessionID": "ses_child00001", "part": m{"id": "prt_c", "type": "text"}})
			answer()
		case "refused":
			send("session.error", m{"sessionID": fakeSession, "error": m{"name": "APIError", "data": m{"message": "Incorrect API key", "statusCode": 401}}})
			idle()
		case "permission":
			send("permission.asked", m{"sessionID": "ses_child00001", "id": "per_1", "permission": "external_directory", "patterns": []string{"/etc/*"}})
			bash(m{"status": "error", "input": input, "error": "reply was " + <-replied})
			answer()
		case "question":
			send("question.asked", m{"sessionID": fakeSession, "id": "que_1"})
			<-replied
			answer()
		case "dies":
			bash(m{"status": "running", "input": input})
			time.AfterFunc(300*time.Millisecond, func() { fmt.Fprintln(os.Stderr, "panic: out of memory"); os.Exit(9) })
		case "hang":
			bash(m{"status": "running", "input": input})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /event", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		write := func(s string) {
			fmt.Fprintf(w, "data: %s\n\n", s)
			w.(http.Flusher).Flush()
		}
		write(`{"id":"evt_0","type":"server.connected","properties":{}}`)
		for {
			select {
			case s := <-stream:
				write(s)
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(m{"id": fakeSession, "directory": cwd})
	})
	mux.HandleFunc("GET /session/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("id") {
		case fakeSession:
			json.NewEncoder(w).Encode(m{"id": fakeSession, "directory": cwd})
		case "ses_elsewhere1":
			json.NewEncoder(w).Encode(m{"id": "ses_elsewhere1", "directory": "/elsewhere"})
		default:
			http.Error(w, "{}", 404)
		}
	})
	mux.HandleFunc("POST /session/{id}/prompt_async", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Parts []struct{ Text string }
			Model map[string]string
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		_ = os.WriteFile("prompt.got", []byte(body.Parts[0].Text+"|"+body.Model["providerID"]+"|"+body.Model["modelID"]), 0o600)
		w.WriteHeader(204)
		go play(body.Parts[0].Text)
	})
	mux.HandleFunc("POST /session/{id}/abort", func(w http.ResponseWriter, r *http.Request) {
		_ = os.WriteFile("aborted", nil, 0o600)
		send("session.error", m{"sessionID": fakeSession, "error": m{"name": "MessageAbortedError", "data": m{"message": "Aborted"}}})
		idle()
		bash(m{"status": "completed", "input": input, "output": "started", "metadata": m{"exit": nil, "output": "started"}})
		fmt.Fprintln(w, "true")
	})
	reply := func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Reply string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		replied <- body.Reply
		fmt.Fprintln(w, "true")
	}
	mux.HandleFunc("POST /permission/{id}/reply", reply)
	mux.HandleFunc("POST /question/{id}/reject", reply)
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[5])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("opencode server listening on http://" + l.Addr().String())
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pw, _ := r.BasicAuth(); pw == "" || pw != os.Getenv("OPENCODE_SERVER_PASSWORD") {
			http.Error(w, "no", 401)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// watched is a stdout that a test can wait on.
type watched struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	seen chan struct{} // closed when word was written
	word string
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.buf.String(), w.word)
	w.buf.Write(p)
	if w.word != "" && !before && strings.Contains(w.buf.String(), w.word) {
		close(w.seen)
	}
	return len(p), nil
}

func TestDriveOpencode(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "a prompt that nobody prints"
	for _, c := range []struct {
		script  string
		session string
		approve bool
		exit    int
		class   fleet.FailureClass
		want    string // in some event
		aborted bool
	}{
		{script: "success", exit: 0, class: fleet.ClassOK, want: `command_execution failed "make" exit=2`},
		{script: "success", session: fakeSession, exit: 0, class: fleet.ClassOK, want: `agent_message "All done."`},
		{script: "quota", exit: 1, class: fleet.ClassQuotaExhausted, want: "usage limit", aborted: true},
		{script: "far", exit: 1, class: fleet.ClassQuotaExhausted, want: "Too Many Requests", aborted: true},
		{script: "retry", exit: 0, class: fleet.ClassOK, want: "retry 1: Too Many Requests"},
		{script: "refused", exit: 1, class: fleet.ClassAuth, want: "Incorrect API key"},
		{script: "permission", exit: 0, class: fleet.ClassOK, want: "reply was reject"},
		{script: "permission", approve: true, exit: 0, class: fleet.ClassOK, want: "reply was once"},
		{script: "question", exit: 0, class: fleet.ClassOK, want: "nobody is there to answer"},
		{script: "dies", exit: 1, class: fleet.ClassCrashed, want: "out of memory"},
		{script: "no start", exit: 1, class: fleet.ClassHarnessStartup, want: "the settings are broken"},
		{script: "success", session: "ses_unknown001", exit: 1, class: fleet.ClassHarnessStartup, want: "does not exist"},
		{script: "success", session: "ses_elsewhere1", exit: 1, class: fleet.ClassHarnessStartup, want: "belongs to the directory /elsewhere"},
		{script: "hang", exit: 1, class: fleet.ClassCancelled, want: `command_execution failed "make" output="started"`, aborted: true},
	} {
		t.Run(c.script+c.session, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out := &watched{seen: make(chan struct{})}
			if c.script == "hang" {
				out.word = `"running"`
				go func() {
					<-out.seen
					cancel()
				}()
			}
			var stderr watched
			stop := context.AfterFunc(t.Context(), cancel)
			defer stop()
			exit := DriveOpencode(ctx, DriveRequest{Program: self, Dir: dir, Model: "fake/fake/model", Session: c.session, ApproveAll: c.approve},
				append(os.Environ(), fakeOpencode+"="+c.script), strings.NewReader(prompt), out, &stderr)
			text := out.buf.String()
			if exit != c.exit {
				t.Errorf("exit code %d, want %d\n%s", exit, c.exit, text)
			}
			events, o := sample{cli: "opencode", out: []byte(text)}.parse(t, ParseRequest{ResumeID: c.session}, ExitInfo{Code: exit})
			var told []string
			for _, e := range events {
				told = append(told, brief(e))
			}
			if o.Class != c.class || !o.Terminal {
				t.Errorf("outcome %+v, want %s", o, c.class)
			}
			if !strings.Contains(strings.Join(told, "\n"), c.want) {
				t.Errorf("events lack %q:\n%.2000s", c.want, strings.Join(told, "\n"))
			}
			if c.class == fleet.ClassOK && (o.Usage != fleet.Usage{InputTokens: 11, CachedInputTokens: 4, OutputTokens: 4, ReasoningTokens: 1, CostUSD: 0.5} || o.Model != "fake/fake-model") {
				t.Errorf("usage %+v of model %q", o.Usage, o.Model)
			}
			if c.class == fleet.ClassQuotaExhausted && (o.ResetAt == nil || time.Until(*o.ResetAt) < 59*time.Minute) {
				t.Errorf("quota resets at %v, want in an hour", o.ResetAt)
			}
			if strings.Contains(text+stderr.buf.String(), prompt) {
				t.Error("the prompt is told")
			}
			if _, err := os.Stat(filepath.Join(dir, "aborted")); (err == nil) != c.aborted {
				t.Errorf("aborted: %v, want %v", err == nil, c.aborted)
			}
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				if len(line) > maxLine/2 {
					t.Errorf("a line of %d bytes", len(line))
				}
			}
			if pid, err := os.ReadFile(filepath.Join(dir, "server.pid")); err == nil {
				n, _ := strconv.Atoi(string(pid))
				if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("the server is still there: %v", err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "prompt.got")); err == nil && string(got) != prompt+"|fake|fake/model" {
				t.Errorf("opencode was handed %q", got)
			}
		})
	}
}

func TestDriveWords(t *testing.T) {
	r := DriveRequest{Program: "/opt/oc", Dir: "/a b", Model: "p/m", Session: fakeSession, ApproveAll: true}
	if args := r.Args(); args[0] != "drive" || args[1] != "opencode" {
		t.Errorf("args %v", args)
	}
	for _, args := range [][]string{nil, {"codex"}, {"opencode"}, {"opencode", "--program", "oc", "--dir", "/x"},
		{"opencode", "--program", "/oc", "--dir", "/x", "--session", "last"}, {"opencode", "--nope"}, {"opencode", "--program", "/oc", "--dir", "/x", "more"}} {
		if code := Drive(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); code != 2 {
			t.Errorf("drive %v: exit code %d, want 2", args, code)
		}
	}
	var out bytes.Buffer
	if code := Drive(t.Context(), DriveRequest{Program: "/nonexistent/oc", Dir: t.TempDir()}.Args()[1:], strings.NewReader("x"), &out, io.Discard); code != 1 {
		t.Errorf("a program that is missing: exit code %d, want 1", code)
	}
	if _, o := (sample{cli: "opencode", out: out.Bytes()}).parse(t, ParseRequest{}, ExitInfo{Code: 1}); o.Class != fleet.ClassHarnessStartup {
		t.Errorf("a program that is missing: %+v", o)
	}
}

// The recorded streams of a real server, as the driver would see them.
func TestDriverOnRecordedEvents(t *testing.T) {
	for name, want := range map[string]string{
		"serve-events-usage_limit": "model;retry;END quota: You've hit your usage limit. Upgrade your plan to continue",
		"serve-events-abort":       "model;delta;part;part;error;END idle",
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", "opencode", name+".sse"))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &driver{out: &out, user: map[string]bool{}, kinds: map[string]string{}, running: map[string]bool{}}
		end := ""
		for _, line := range strings.Split(string(raw), "\n") {
			data, ok := strings.CutPrefix(line, "data: ")
			var e serverEvent
			if !ok || json.Unmarshal([]byte(data), &e) != nil {
				continue
			}
			if e.Type == "session.created" {
				var p struct {
					SessionID string `json:"sessionID"`
				}
				_ = json.Unmarshal(e.Properties, &p)
				d.session = p.SessionID
			}
			var over *errEnd
			if errors.As(d.event(t.Context(), e), &over) {
				end = strings.TrimSuffix(over.Error(), ": ")
				break
			}
		}
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var l opencodeLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			if l.Part != nil && l.Part.Type == "text" && l.Part.Text == "go" {
				t.Errorf("%s: the prompt is told", name)
			}
			got = append(got, l.Event)
		}
		if s := strings.Join(append(got, "END "+end), ";"); s != want {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
	}
}
