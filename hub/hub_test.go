package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// node is a running hub and a caller with its token.
type node struct {
	t     *testing.T
	hub   *Hub
	token string
	stop  func()
	done  chan error // of a node that joined: how its Run ended
}

func start(t *testing.T, dir string, bootstrap bool) *node {
	t.Helper()
	return startWith(t, Config{Dir: dir, Bootstrap: bootstrap}, time.Now)
}

func startWith(t *testing.T, cfg Config, wall func() time.Time) *node {
	t.Helper()
	cfg.Version = "test"
	orDefault(&cfg.Listen, "127.0.0.1:0")
	h, err := newHub(cfg, wall)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	n := &node{t: t, hub: h}
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		n.stop = func() {}
	}
	t.Cleanup(func() { n.stop() })
	select {
	case <-h.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the hub is not ready after a minute")
	}
	b, err := os.ReadFile(h.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	n.token = strings.TrimSpace(string(b))
	return n
}

func (n *node) call(method, path, key string, in, out any) int {
	n.t.Helper()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			n.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, n.hub.URL()+path, body)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			n.t.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
	n.t.Logf("%s %s → %d %.300s", method, path, res.StatusCode, b)
	return res.StatusCode
}

func TestJobSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, true)
	var j api.Job
	in := api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}
	if st := n.call("POST", "/v1/jobs", "k1", in, &j); st != 201 {
		t.Fatalf("submit: status %d", st)
	}
	var again api.Job
	if st := n.call("POST", "/v1/jobs", "k1", in, &again); st != 201 || again.ID != j.ID {
		t.Errorf("the same key and body gave %d, job %s; want 201, job %s", st, again.ID, j.ID)
	}
	in.Argv = []string{"false"}
	var p api.Problem
	if st := n.call("POST", "/v1/jobs", "k1", in, &p); st != 409 || p.Code != fleet.KeyReused {
		t.Errorf("the same key with another body gave %d %s; want 409 %s", st, p.Code, fleet.KeyReused)
	}
	n.stop()
	n = start(t, dir, false)
	var got api.Job
	if st := n.call("GET", "/v1/jobs/"+string(j.ID), "", nil, &got); st != 200 || got.State != fleet.Queued {
		t.Errorf("after a restart: status %d, state %s; want 200, queued", st, got.State)
	}
	if !strings.Contains(got.Why, "no runner is enrolled") {
		t.Errorf("why = %q; want it to say that no runner is enrolled", got.Why)
	}
	var c api.Job
	if st := n.call("POST", "/v1/jobs/"+string(j.ID)+"/cancel", "", nil, &c); st != 200 || c.State != fleet.Cancelled {
		t.Errorf("cancel: status %d, state %s", st, c.State)
	}
	var tk api.Ticket
	if st := n.call("POST", "/v1/tickets", "", api.TicketRequest{}, &tk); st != 201 || !strings.HasPrefix(tk.Ticket, "tug1_") {
		t.Errorf("ticket: status %d, %q", st, tk.Ticket)
	}
	if st := n.call("GET", "/openapi.json", "", nil, nil); st != 200 {
		t.Errorf("openapi: status %d", st)
	}
	for _, path := range []string{"/v1/status", "/v1/runners", "/v1/tokens", "/v1/audit", "/v1/jobs", "/v1/jobs/" + string(j.ID) + "/explain"} {
		if st := n.call("GET", path, "", nil, nil); st != 200 {
			t.Errorf("%s: status %d", path, st)
		}
	}
}

func TestEmptyDirectoryNeedsBootstrap(t *testing.T) {
	_, err := New(Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if !errors.Is(err, ErrNoCluster) {
		t.Fatalf("New on an empty directory: %v; want ErrNoCluster", err)
	}
}

func TestEventsFollowACancel(t *testing.T) {
	n := start(t, t.TempDir(), true)
	var j api.Job
	n.call("POST", "/v1/jobs", "", api.Submit{Kind: fleet.KindExec, Argv: []string{"true"}}, &j)
	req, _ := http.NewRequest("GET", n.hub.URL()+"/v1/jobs/"+string(j.ID)+"/events?until_ended=true", nil)
	req.Header.Set("Authorization", "Bearer "+n.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for line := ""; !strings.Contains(line, `"state":"queued"`); { // what is now comes first
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatalf("the stream does not begin with the job: %q, %v", line, err)
		}
	}
	n.call("POST", "/v1/jobs/"+string(j.ID)+"/cancel", "", nil, nil)
	b, err := io.ReadAll(in) // ends by itself
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"state":"cancelled"`, "event: end"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the stream lacks %s:\n%s", want, b)
		}
	}
}
