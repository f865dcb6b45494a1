package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// engine is a daemon at a socket that speaks the few routes that are asked.
type engine struct {
	host string

	mu    sync.Mutex
	asked []string
}

func (e *engine) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.asked...)
}

// daemon starts one of an API version; answers replace what it says on a route.
func daemon(t *testing.T, api string, answers map[string]http.HandlerFunc) *engine {
	t.Helper()
	path := filepath.Join(short(t), "d.sock")
	week := time.Now().Add(-7 * 24 * time.Hour).Unix()
	e := &engine{host: "unix://" + path}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	say := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	routes := map[string]http.HandlerFunc{
		"/_ping":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", api); fmt.Fprint(w, "OK") },
		"/version": say(map[string]any{"Version": "27.5.1", "ApiVersion": api, "MinAPIVersion": "1.24", "Os": "linux"}),
		"/system/df": say(map[string]any{
			"LayersSize": 1000, "Images": []any{}, "Containers": []any{map[string]any{"SizeRw": 20, "State": "exited"}},
			"Volumes":    []any{map[string]any{"UsageData": map[string]any{"Size": 300, "RefCount": 0}}},
			"BuildCache": []any{map[string]any{"Size": 4000}},
		}),
		"/build/prune": say(map[string]any{"CachesDeleted": []string{"a"}, "SpaceReclaimed": 4000}),
		"/images/json": say([]any{
			map[string]any{"Id": "sha256:old", "Created": week, "Size": 1000, "Labels": map[string]string{DockerLabel: "j"}, "RepoTags": []string{"<none>:<none>"}},
			map[string]any{"Id": "sha256:young", "Created": week + 100, "Labels": map[string]string{DockerLabel: "j"}},
			map[string]any{"Id": "sha256:plain", "Created": week, "Labels": map[string]string{"other": "j"}},
			map[string]any{"Id": "sha256:named", "Created": week, "Labels": map[string]string{DockerLabel: "j"}, "RepoTags": []string{"a:latest"}},
			map[string]any{"Id": "sha256:used", "Created": week, "Labels": map[string]string{DockerLabel: "j"}},
		}),
		"/containers/json":   say([]any{map[string]any{"Id": "c", "ImageID": "sha256:used"}}),
		"/images/sha256:old": say([]any{map[string]any{"Deleted": "sha256:old"}}),
	}
	for route, h := range answers {
		routes[route] = h
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := strings.TrimPrefix(r.URL.Path, "/v"+api)
		e.mu.Lock()
		e.asked = append(e.asked, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("filters")+r.URL.Query().Get("keep-storage")+r.URL.Query().Get("noprune"))
		e.mu.Unlock()
		if h := routes[route]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	return e
}

// short makes a directory whose name leaves room for that of a socket.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// programs makes a directory of shell scripts by name, for PATH.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + dir + ":/usr/bin:/bin"
}

const (
	plugin     = `[ "$1 $2" = "compose version" ] && echo "Docker Compose version v2.32.4"`
	standalone = `[ "$1" = version ] && echo "docker-compose version 1.29.2, build 5becea4c
docker-py version: 5.0.0"`
)

func TestDocker(t *testing.T) {
	old := daemon(t, "1.41", nil)
	recent := daemon(t, "1.52", nil)
	broken := daemon(t, "1.47", map[string]http.HandlerFunc{
		"/version": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"storage is gone"}`, 500) },
	})
	gone := filepath.Join(short(t), "gone.sock")
	if l, err := net.Listen("unix", gone); err != nil {
		t.Fatal(err)
	} else { // the socket of a daemon that was killed
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	home := short(t)
	if err := os.MkdirAll(filepath.Join(home, ".docker"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		env     []string
		scripts map[string]string
		want    fleet.Docker
		detail  string
	}{
		{"absent", []string{"DOCKER_HOST=unix:///no/such/docker.sock"}, nil, fleet.Docker{State: fleet.DockerAbsent}, "there is no socket at /no/such/docker.sock"},
		{"nobody listens", []string{"DOCKER_HOST=unix://" + gone}, nil, fleet.Docker{State: fleet.DockerDown}, "does not answer"},
		{"an error", []string{"DOCKER_HOST=" + broken.host}, nil, fleet.Docker{State: fleet.DockerDown}, "storage is gone"},
		{"ssh", []string{"DOCKER_HOST=ssh://build@host"}, nil, fleet.Docker{State: fleet.DockerUnknown}, "behind ssh"},
		{"no address", []string{"DOCKER_HOST=what"}, nil, fleet.Docker{State: fleet.DockerUnknown}, "no use"},
		{"no Compose", []string{"DOCKER_HOST=" + old.host}, map[string]string{"docker": "echo unknown command >&2; exit 1", "docker-compose": "exit 1"},
			fleet.Docker{State: fleet.DockerReady, Version: "27.5.1"}, "unknown command"},
		{"Compose of docker", []string{"DOCKER_HOST=" + old.host}, map[string]string{"docker": plugin, "docker-compose": standalone},
			fleet.Docker{State: fleet.DockerReady, Version: "27.5.1", Compose: "2.32.4", ComposeBy: "docker compose", Verified: true}, ""},
		{"Compose by itself", []string{"DOCKER_HOST=" + recent.host}, map[string]string{"docker": "echo usage: docker COMMAND", "docker-compose": standalone},
			fleet.Docker{State: fleet.DockerReady, Version: "27.5.1", Compose: "1.29.2", ComposeBy: "docker-compose", Verified: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Config{Env: append(c.env, programs(t, c.scripts), "HOME="+home)})
			got := s.Docker(t.Context(), 0)
			if !strings.Contains(got.Detail, c.detail) || (got.Detail == "") != (c.detail == "") {
				t.Errorf("detail %q, want one with %q", got.Detail, c.detail)
			}
			if got.Verified && got.VerifiedAge > 5*time.Second {
				t.Errorf("verified %v ago", got.VerifiedAge)
			}
			got.Detail, got.VerifiedAge = "", 0
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("docker (-want +got):\n%s", diff)
			}
		})
	}
}

// What was verified stays so with its age when the daemon goes, and is verified anew
// when it comes back.
func TestDockerComesAndGoes(t *testing.T) {
	e := daemon(t, "1.47", nil)
	calls := filepath.Join(t.TempDir(), "calls")
	s := New(Config{Env: []string{"DOCKER_HOST=" + e.host, programs(t, map[string]string{"docker": "echo x >>" + calls + "\n" + plugin})}})
	asked := func() int { b, _ := os.ReadFile(calls); return len(b) / 2 }
	for range 2 {
		if d := s.Docker(t.Context(), time.Hour); d.Compose != "2.32.4" || !d.Verified {
			t.Fatalf("docker = %+v", d)
		}
	}
	if asked() != 1 {
		t.Errorf("Compose was asked %d times, want once", asked())
	}
	s.cfg.Env[0] = "DOCKER_HOST=unix:///no/such/docker.sock"
	if d := s.Docker(t.Context(), time.Hour); d.State != fleet.DockerAbsent || !d.Verified || d.VerifiedAge <= 0 || d.Compose != "" || d.Version != "27.5.1" {
		t.Errorf("without the daemon: %+v, want the version that answered last", d)
	}
	s.cfg.Env[0] = "DOCKER_HOST=" + e.host
	if d := s.Docker(t.Context(), time.Hour); d.State != fleet.DockerReady || asked() != 2 {
		t.Errorf("back again: %+v, and Compose was asked %d times, want twice", d, asked())
	}
	if s.Docker(t.Context(), 0); asked() != 3 {
		t.Errorf("on demand Compose was not asked")
	}
}

// A daemon that takes connections and never answers, and a command that never ends,
// cost their own part, and leave nothing behind.
func TestHungDockerAndCompose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(short(t), "d.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	open, most := 0, 0
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open++
			most = max(most, open)
			mu.Unlock()
			conns.Go(func() {
				defer c.Close()
				for b := make([]byte, 512); ; {
					if _, err := c.Read(b); err != nil {
						mu.Lock()
						open--
						mu.Unlock()
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	s := plain(t)
	s.cfg.Env = []string{"DOCKER_HOST=unix://" + path}
	begun := time.Now()
	h := s.Sample(t.Context())
	if took := time.Since(begun); took > sampleTime {
		t.Errorf("a sample took %v", took)
	}
	if h.Docker.State != fleet.DockerUnknown || !strings.Contains(h.Docker.Detail, "does not answer in time") {
		t.Errorf("a hung daemon is %+v, want unknown", h.Docker)
	}
	if !h.Workspace.Known || h.Memory == nil || h.CPU == nil {
		t.Errorf("a hung daemon hides the rest: %+v", h)
	}
	none := func() bool { mu.Lock(); defer mu.Unlock(); return open == 0 }
	waitFor(t, "nothing is left of the look", none)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		var asks sync.WaitGroup
		for range 3 { // at the same time
			asks.Go(func() {
				if d := s.Docker(ctx, 0); d.State != fleet.DockerUnknown {
					t.Errorf("a hung daemon is %+v, want unknown", d)
				}
			})
		}
		asks.Wait()
		cancel()
		waitFor(t, "nothing is left of the look", none)
	}
	if most > 1 {
		t.Errorf("%d connections at a time to a hung daemon, want 1", most)
	}
}

func TestHungCommands(t *testing.T) {
	t.Parallel()
	pids := t.TempDir()
	hang := func(name string) string {
		return "echo $$ >" + filepath.Join(pids, name) + "; trap '' TERM; while :; do sleep 1; done"
	}
	e := daemon(t, "1.47", nil)
	s := plain(t)
	s.goos = "darwin" // its battery and its owner are asked by commands
	s.cfg.Env = []string{"DOCKER_HOST=" + e.host, programs(t, map[string]string{
		"docker": hang("docker"), "docker-compose": standalone, "pmset": hang("pmset"),
		"ioreg": `echo '    | |   "HIDIdleTime" = 61000000000'`,
	})}
	begun := time.Now()
	h := s.Sample(t.Context())
	if took := time.Since(begun); took > sampleTime {
		t.Errorf("a sample took %v", took)
	}
	if h.Docker.State != fleet.DockerReady || h.Docker.ComposeBy != "docker-compose" {
		t.Errorf("with a docker command that hangs: %+v, want the other Compose", h.Docker)
	}
	if h.Power != nil || h.UserIdle != 61*time.Second || !h.Workspace.Known {
		t.Errorf("power %+v, idle %v, workspace %+v", h.Power, h.UserIdle, h.Workspace)
	}
	waitFor(t, "the commands are gone", func() bool {
		for _, name := range []string{"docker", "pmset"} {
			b, _ := os.ReadFile(filepath.Join(pids, name))
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); err == nil {
				return false
			}
		}
		return true
	})
}

func TestDockerDisk(t *testing.T) {
	e := daemon(t, "1.47", nil)
	s := New(Config{Env: []string{"DOCKER_HOST=" + e.host}})
	if n, err := s.DockerUsage(t.Context()); err != nil || n != 5320 {
		t.Errorf("usage = %d, %v, want 5320", n, err)
	}
	before := len(e.requests())
	freed, err := s.DockerPrune(t.Context(), 7*24*time.Hour, func() bool { return true })
	if want := (Pruned{Bytes: 5000, Cache: 4000, Images: 1}); err != nil || freed != want {
		t.Errorf("prune = %+v, %v, want %+v", freed, err, want)
	}
	var prunes []string
	for _, r := range e.requests()[before:] {
		if !strings.HasPrefix(r, "GET ") && !strings.HasPrefix(r, "HEAD ") {
			prunes = append(prunes, r)
		}
	}
	want := []string{
		`POST /v1.47/build/prune {"until":{"168h0m0s":true}}20000000000`,
		`DELETE /v1.47/images/sha256:old 1`,
	}
	if diff := cmp.Diff(want, prunes); diff != "" {
		t.Errorf("what is removed (-want +got):\n%s", diff)
	}
	before = len(e.requests())
	asked := 0
	freed, err = s.DockerPrune(t.Context(), 7*24*time.Hour, func() bool { asked++; return asked == 1 })
	if want := (Pruned{Bytes: 4000, Cache: 4000}); err != nil || freed != want {
		t.Errorf("a prune that may not go on = %+v, %v, want %+v", freed, err, want)
	}
	if freed, err := s.DockerPrune(t.Context(), 7*24*time.Hour, func() bool { return false }); err != nil || freed != (Pruned{}) {
		t.Errorf("a prune that may not begin = %+v, %v", freed, err)
	}
	for _, r := range e.requests()[before:] {
		if strings.HasPrefix(r, "DELETE ") {
			t.Errorf("images were removed although it might not go on")
		}
	}
	s.cfg.Env[0] = "DOCKER_HOST=unix:///no/such/docker.sock"
	if _, err := s.DockerUsage(t.Context()); err == nil {
		t.Error("usage without a daemon gave no error")
	}
	if _, err := s.DockerPrune(t.Context(), time.Hour, func() bool { return true }); err == nil {
		t.Error("prune without a daemon gave no error")
	}
}

func TestEndpoints(t *testing.T) {
	home := short(t)
	write := func(path, text string) string {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	orb := write(".orbstack/run/docker.sock", "")
	system := write("root/var/run/docker.sock", "")
	// The directory of a context is the SHA-256 of its name.
	write("ctx/contexts/meta/fe9c6bd7a66301f49ca9b6a70b217107cd1284598bfc254700c989b916da791e/meta.json",
		`{"Name":"desktop-linux","Metadata":{},"Endpoints":{"docker":{"Host":"unix:///elsewhere.sock","SkipTLSVerify":false}}}`)
	write("ctx/config.json", `{"currentContext":"desktop-linux"}`)
	for _, c := range []struct {
		name string
		env  []string
		want []endpoint
	}{
		{"by the environment", []string{"DOCKER_HOST=unix:///x.sock", "HOME=" + home}, []endpoint{{host: "unix:///x.sock"}}},
		{"with certificates", []string{"DOCKER_HOST=tcp://x:2376", "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=/certs"}, []endpoint{{host: "tcp://x:2376", certs: "/certs"}}},
		{"usual sockets", []string{"HOME=" + home}, []endpoint{{host: "unix://" + system}, {host: "unix://" + orb}}},
		{"its context", []string{"HOME=" + home, "DOCKER_CONFIG=" + home + "/ctx"}, []endpoint{{host: "unix:///elsewhere.sock"}}},
		{"another context", []string{"HOME=" + home, "DOCKER_CONFIG=" + home + "/ctx", "DOCKER_CONTEXT=default"}, []endpoint{{host: "unix://" + system}, {host: "unix://" + orb}}},
		{"nothing", nil, []endpoint{{host: "unix://" + system}}},
	} {
		s := New(Config{Env: append([]string{"X=1"}, c.env...)})
		s.root = filepath.Join(home, "root")
		got, err := s.endpoints(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(endpoint{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
