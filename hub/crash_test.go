package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// childEnv makes the test binary a hub on the directory it names, until it is killed.
const (
	childEnv = "TUGLINE_TEST_HUB_DIR"
	diesEnv  = "TUGLINE_TEST_HUB_DIES_AT" // a point of a rotation at which it kills itself
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Bootstrap: true, Version: "test"})
		if err == nil {
			h.points = func(point string) {
				if point == os.Getenv(diesEnv) {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {}
				}
			}
			go func() {
				<-h.Ready()
				fmt.Println(h.URL())
			}()
			err = h.Run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// memberlist does not wait for the probe that is under way when it is closed.
	probe := goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")
	goleak.VerifyTestMain(m, probe, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// child is a hub in a process of its own.
type child struct {
	cmd *exec.Cmd
	url string
}

func spawn(t *testing.T, dir string, env ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(append(os.Environ(), childEnv+"="+dir), env...)
	var stderr bytes.Buffer
	c.cmd.Stderr = &stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		c.kill()
		t.Fatalf("the hub did not get ready: %v %s", err, stderr.String())
	}
	c.url = strings.TrimSpace(string(line[:n]))
	return c
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait() // always an error: it was killed
}

// submitter sends jobs, each under a key of its own, and repeats one whose outcome
// it does not know until it knows it.
type submitter struct {
	url  func() string
	auth string
	mu   sync.Mutex
	ids  map[string]fleet.JobID // by key
}

func (s *submitter) once(key string) (fleet.JobID, bool) {
	body, _ := json.Marshal(api.Submit{Kind: fleet.KindExec, Argv: []string{"echo", key}})
	req, err := http.NewRequest("POST", s.url()+"/v1/jobs", bytes.NewReader(body))
	if err != nil {
		return "", false
	}
	req.Header.Set("Authorization", "Bearer "+s.auth)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", false
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	var j api.Job
	if err != nil || res.StatusCode != http.StatusCreated || json.Unmarshal(b, &j) != nil {
		return "", false
	}
	return j.ID, true
}

func TestAcceptedJobsSurviveKills(t *testing.T) {
	t.Parallel()
	const kills, clients = 10, 8
	dir := t.TempDir()
	c := spawn(t, dir)
	defer func() { c.kill() }()
	b, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil {
		t.Fatal(err)
	}
	var urlMu sync.Mutex
	url := c.url
	s := &submitter{auth: strings.TrimSpace(string(b)), ids: map[string]fleet.JobID{}, url: func() string {
		urlMu.Lock()
		defer urlMu.Unlock()
		return url
	}}
	ctx, stop := context.WithCancel(t.Context())
	progress := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("client %d job %d", client, n)
				id, ok := s.once(key)
				for !ok {
					select { // the hub is being started again
					case <-time.After(5 * time.Millisecond):
					case <-t.Context().Done():
						return
					}
					id, ok = s.once(key)
				}
				s.mu.Lock()
				s.ids[key] = id
				s.mu.Unlock()
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	for round := range kills {
		for range 3 + 7*round { // each time at another moment
			select {
			case <-progress:
			case <-time.After(20 * time.Second):
				t.Fatal("no job was accepted for 20 s")
			}
		}
		c.kill()
		c = spawn(t, dir)
		urlMu.Lock()
		url = c.url
		urlMu.Unlock()
	}
	stop()
	wg.Wait()
	c.kill()

	n := start(t, dir, false)
	seen := map[fleet.JobID]string{}
	for key, id := range s.ids {
		j, ok := n.hub.entries.View().Job(id)
		if !ok {
			t.Errorf("%s was answered with 201 and is gone: %s", key, id)
			continue
		}
		if len(j.Spec.Argv) != 2 || j.Spec.Argv[1] != key {
			t.Errorf("job %s is %q; want %q", id, j.Spec.Argv, key)
		}
		if other, twice := seen[id]; twice {
			t.Errorf("%s and %s share job %s", key, other, id)
		}
		seen[id] = key
	}
	if got := n.hub.entries.View().Count("jobs"); got != len(s.ids) {
		t.Errorf("%d jobs for %d keys: a repeat made a second one", got, len(s.ids))
	}
	t.Logf("%d jobs over %d kills", len(s.ids), kills)
}

func TestTwoHubsOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	c := spawn(t, dir)
	defer c.kill()
	_, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "another hub runs on the data directory") {
		t.Errorf("a second hub on the same directory: %v", err)
	}
	res, err := http.Get(c.url + "/healthz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("the first one suffers from it: %v", err)
	} else {
		res.Body.Close()
	}
}

func TestFilesOfANode(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, true)
	first := n.token
	url, err := os.ReadFile(filepath.Join(dir, "hub.url"))
	if err != nil || strings.TrimSpace(string(url)) != n.hub.URL() {
		t.Errorf("hub.url: %q, %v; want %s", url, err, n.hub.URL())
	}
	for _, name := range []string{"operator.token", "hub.url", "node.json", "hub.lock", "secrets/keys.json"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", name, st.Mode(), err)
		}
	}
	n.stop()
	// Started anew it makes no second token, even where the file was taken away.
	n = start(t, dir, true)
	if n.token != first {
		t.Error("a second start wrote another operator token")
	}
	n.stop()
	if err := os.Remove(filepath.Join(dir, "operator.token")); err != nil {
		t.Fatal(err)
	}
	h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	<-h.Ready()
	if _, err := os.Stat(filepath.Join(dir, "operator.token")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the operator token came back: %v", err)
	}
	if n := len(h.entries.View().Tokens()); n != 1 {
		t.Errorf("%d tokens; want the first alone", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBrokenDirectories(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(dir string) error
		says  string
	}{
		"keys gone":   {func(d string) error { return os.Remove(filepath.Join(d, "secrets/keys.json")) }, "cluster's keys"},
		"keys spoilt": {func(d string) error { return os.WriteFile(filepath.Join(d, "secrets/keys.json"), []byte("{}"), 0o600) }, "cluster's keys"},
		"log gone":    {func(d string) error { return os.RemoveAll(filepath.Join(d, "raft")) }, "log of this node is gone"},
		"a newer node": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "node.json"), []byte(`{"version":2}`), 0o600)
		}, "newer"},
		"identity gone": {func(d string) error { return os.Remove(filepath.Join(d, "node.json")) }, "node.json is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			start(t, dir, true).stop()
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			h, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Bootstrap: true})
			if err == nil {
				h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("New: %v; want it to say %q", err, c.says)
			}
		})
	}
}
