package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

var rewrite = flag.Bool("update", false, "write the golden files anew")

// TestMain serves the words that tugline says to itself, because the test binary
// takes its place where a runner starts a supervisor.
func TestMain(m *testing.M) {
	if code, ok := inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	time.Local = time.UTC // tables show local times
	os.Exit(m.Run())
}

// buffer is what a command writes while others read it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

// shell runs command lines against a scripted hub.
type shell struct {
	*app
	t        *testing.T
	out, err *buffer
	home     string
	signals  chan os.Signal
}

func newShell(t *testing.T, hub string, env ...string) *shell {
	t.Helper()
	s := &shell{t: t, out: &buffer{}, err: &buffer{}, home: t.TempDir(), signals: make(chan os.Signal, 4)}
	s.app = &app{
		in: strings.NewReader(""), out: s.out, err: s.err,
		environ:    append([]string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "TUGLINE_RETRY_FOR=2s"}, env...),
		interrupts: func() (<-chan os.Signal, func()) { return s.signals, func() {} },
	}
	if hub != "" {
		s.environ = append(s.environ, "TUGLINE_HUB="+hub, "TUGLINE_TOKEN=tgl_test")
	}
	return s
}

// retryFor sets how long a submit is tried.
func (s *shell) retryFor(d time.Duration) {
	s.environ = append(s.environ, "TUGLINE_RETRY_FOR="+d.String())
}

// do runs one command line and gives its exit code; what earlier ones wrote is gone.
func (s *shell) do(args ...string) int {
	s.t.Helper()
	s.out.reset()
	s.err.reset()
	fresh := *s.app
	return fresh.run(context.Background(), args)
}

// must runs one command line that has to succeed.
func (s *shell) must(args ...string) string {
	s.t.Helper()
	if code := s.do(args...); code != 0 {
		s.t.Fatalf("tugline %s: exit %d\n%s%s", strings.Join(args, " "), code, s.out, s.err)
	}
	return s.out.String()
}

// script serves fixed answers: method and path → handler.
func script(t *testing.T, routes map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.HandleFunc(pattern, h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s %s", r.Method, r.URL)
		problem(w, http.StatusNotFound, fleet.NotFound, "nothing there")
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(w http.ResponseWriter, status int, code fleet.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Title: string(code), Status: status, Code: code, Detail: detail})
}

// golden compares with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run the test with -update once", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q:\n%s", what, p, text)
		}
	}
}
