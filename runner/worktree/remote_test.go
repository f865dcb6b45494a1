package worktree

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// Real answers of a server, over the one transport that needs no certificate.
func TestRemoteFailures(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/locked"):
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/forbidden"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/broken"):
			w.WriteHeader(http.StatusBadGateway)
		case strings.HasPrefix(r.URL.Path, "/hang"):
			<-hang
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	nobody := "http://" + gone.Addr().String() + "/x"
	must(gone.Close())

	s := open(t, func(c *Config) { c.StallTimeout = time.Second })
	s.protocols = append(s.protocols, "http")
	for url, code := range map[string]fleet.Code{
		server.URL + "/locked/x.git": fleet.RepoAuth, server.URL + "/forbidden/x.git": fleet.RepoAuth,
		server.URL + "/none/x.git": fleet.RepoMissing, server.URL + "/broken/x.git": fleet.RepoUnreachable,
		server.URL + "/hang/x.git": fleet.RepoUnreachable, nobody: fleet.RepoUnreachable,
	} {
		t.Run(string(code)+strings.ReplaceAll(url[7:], "/", "_"), func(t *testing.T) {
			t.Parallel()
			_, err := s.Prepare(deadline(t, 20*time.Second), Request{URL: url, Job: fleet.JobID("j" + cacheID(url)), Fence: fence1})
			wantCode(t, err, code)
			if !strings.Contains(err.Error(), url) {
				t.Errorf("the error does not name the repository: %v", err)
			}
			if exists(filepath.Join(s.dir, "work", "j"+cacheID(url))) {
				t.Error("a directory was left")
			}
		})
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for said, code := range map[string]fleet.Code{
		"fatal: could not read Username for 'https://x': terminal prompts disabled":                                                                 fleet.RepoAuth,
		"remote: Invalid username or password.\nfatal: Authentication failed for 'https://x/'":                                                      fleet.RepoAuth,
		"git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.":                                                   fleet.RepoAuth,
		"Host key verification failed.\nfatal: Could not read from remote repository.":                                                              fleet.RepoAuth,
		"fatal: detected dubious ownership in repository at '/x'\nfatal: Could not read from remote repository.":                                    fleet.RepoAuth,
		"fatal: unable to access 'https://x/': The requested URL returned error: 403":                                                               fleet.RepoAuth,
		"ERROR: Repository not found.\nfatal: Could not read from remote repository.":                                                               fleet.RepoMissing,
		"remote: Repository not found.\nfatal: repository 'https://x/' not found":                                                                   fleet.RepoMissing,
		"fatal: '/x' does not appear to be a git repository\nfatal: Could not read from remote repository.":                                         fleet.RepoMissing,
		"remote: The project you were looking for could not be found.\nfatal: repository 'https://x/' not found":                                    fleet.RepoMissing,
		"fatal: couldn't find remote ref refs/heads/x":                                                                                              fleet.RefMissing,
		"fatal: remote error: upload-pack: not our ref abc":                                                                                         fleet.RefMissing,
		"ssh: Could not resolve hostname x: Name or service not known\nfatal: Could not read from remote repository.":                               fleet.RepoUnreachable,
		"ssh: connect to host x port 22: Connection timed out\nfatal: Could not read from remote repository.":                                       fleet.RepoUnreachable,
		"fatal: unable to access 'https://x/': server certificate verification failed":                                                              fleet.RepoUnreachable,
		"error: RPC failed; curl 56 GnuTLS recv error\nfatal: early EOF":                                                                            fleet.RepoUnreachable,
		"fatal: unable to access 'https://x/': Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds":                           fleet.RepoUnreachable,
		"fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output":                                                 fleet.Storage,
		"fatal: transport 'file' not allowed\nfatal: clone of '/x' into submodule path 'y' failed":                                                  fleet.OwnerPolicy,
		"fatal: unable to access 'https://x/': Could not resolve proxy: p":                                                                          fleet.RepoUnreachable,
		"fatal: unable to access 'https://x/': CONNECT tunnel failed, response 407\nfatal: unable to access: The requested URL returned error: 407": fleet.RepoAuth,
	} {
		err := classify("https://x/", &gitError{verb: "fetch", exit: 128, stderr: said, err: errors.New("exit status 128")})
		if !errors.Is(err, code) {
			t.Errorf("%q: got %v, want %s", said, err, code)
		}
		var failed *gitError
		if !errors.As(err, &failed) {
			t.Errorf("%q: the cause is lost", said)
		}
	}
	stalled := classify("https://x/", &gitError{verb: "fetch", exit: -1, err: process.ErrStalled})
	if !errors.Is(stalled, fleet.RepoUnreachable) || !errors.Is(stalled, process.ErrStalled) {
		t.Errorf("a stall is %v", stalled)
	}
	own := &gitError{verb: "fetch", exit: 128, stderr: "fatal: bad object HEAD", err: errors.New("exit status 128")}
	if err := classify("https://x/", own); err != own {
		t.Errorf("a local failure became %v", err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://user:pw@host/x.git": "https://host/x.git", "https://token@host/x": "https://host/x", "ssh://git:pw@host/x": "ssh://git@host/x",
		"git@host:x/y.git": "git@host:x/y.git", "/a/b": "/a/b", "https://host/x": "https://host/x", "https://us er:p%zz@host/x": "host/x",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
	for raw, want := range map[string]string{
		"https://host/team/app.git": "app", "git@host:app.git": "app", "/srv/my repo/": "my repo", "/srv/app/.git": "app", "": "repo", "/": "repo",
		"https://host/..": "repo", "https://host/.hidden": "hidden", "https://host/\u00fcber": "\u00fcber",
	} {
		if got := baseName(raw); got != want {
			t.Errorf("baseName(%q) = %q, want %q", raw, got, want)
		}
	}
	if a, b := canonical("https://HOST/x/"), canonical("https://host/x"); a != b {
		t.Errorf("%s and %s are not the same cache", a, b)
	}
	s := open(t, func(c *Config) { c.AllowFile = false })
	for _, url := range []string{"git@github.com:team/app.git", "ssh://git@host:2222/x", "https://host/x.git", "host.example:path/x"} {
		if err := s.checkURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What git is run with.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	g := newGit([]string{"PATH=/bin", "GIT_DIR=/x", "GIT_INDEX_FILE=/x", "GIT_SSH_COMMAND=ssh -i key", "HTTPS_PROXY=http://p", "NO_PROXY=x",
		"SSL_CERT_FILE=/ca.pem", "SSH_ASKPASS=/ask", "GIT_ASKPASS=/ask", "LC_ALL=de_DE", "SSH_AUTH_SOCK=/agent"}, time.Minute)
	env := make(map[string]string)
	for _, kv := range g.env {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := env[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		env[name] = value
	}
	got := make(map[string]string)
	for _, name := range []string{"GIT_DIR", "GIT_INDEX_FILE", "GIT_ASKPASS", "SSH_ASKPASS", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "GIT_SSL_CAINFO",
		"GIT_TERMINAL_PROMPT", "GIT_ALLOW_PROTOCOL", "LC_ALL", "SSH_AUTH_SOCK", "GIT_HTTP_LOW_SPEED_TIME"} {
		got[name] = env[name]
	}
	want := map[string]string{"GIT_DIR": "", "GIT_INDEX_FILE": "", "GIT_ASKPASS": "", "SSH_ASKPASS": "", "HTTPS_PROXY": "http://p", "NO_PROXY": "x",
		"SSL_CERT_FILE": "/ca.pem", "GIT_SSL_CAINFO": "/ca.pem", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh", "LC_ALL": "C",
		"SSH_AUTH_SOCK": "/agent", "GIT_HTTP_LOW_SPEED_TIME": "60"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if ssh := env["GIT_SSH_COMMAND"]; !strings.HasPrefix(ssh, "ssh -i key ") || !strings.Contains(ssh, "BatchMode=yes") {
		t.Errorf("ssh is %q", ssh)
	}
	if !strings.Contains(strings.Join(g.flags, " "), "core.hooksPath=/dev/null") {
		t.Error("hooks are not off")
	}
	for _, cfg := range []Config{{}, {Dir: "relative"}, {Dir: t.TempDir(), StallTimeout: -1}, {Dir: t.TempDir(), UntrackedLimit: -1}, {Dir: t.TempDir(), Env: []string{"PATH=/nowhere"}}} {
		if _, err := Open(cfg); err == nil {
			t.Errorf("opened with %+v", cfg)
		}
	}
	if _, err := os.Stat(hookMark); err == nil {
		t.Error("a hook was run")
	}
}

func TestCancelledPrepare(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	h, err := s.lock(t.Context(), cacheID(src))
	must(err)
	ctx := deadline(t, 100*time.Millisecond)
	if _, err := s.Prepare(ctx, Request{URL: src, Job: "job1", Fence: fence1}); !errors.Is(err, ctx.Err()) {
		t.Errorf("got %v, want %v", err, ctx.Err())
	}
	h.release()
	var told []string
	prepare(t, s, Request{URL: src, Progress: func(d string) { told = append(told, d) }})
	if !hasNote(told, "fetching") || !hasNote(told, "checking out") {
		t.Errorf("progress was %q", told)
	}
}
