package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// git runs git in a directory, by itself and without the user's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	env := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x.test", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@x.test")
	res, err := process.Run(t.Context(), process.Cmd{Argv: append([]string{"git"}, args...), Dir: dir, Env: env, Limit: 1 << 20})
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ein Pröjekt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q", "-b", "main")
	put(t, dir, "a.txt", "one\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "first")
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// depot is a hub's store of uploads, over an unreliable line.
type depot struct {
	t     *testing.T
	held  map[string][]byte
	puts  int
	lose  bool // take the first part, but lose the answer
	tips  []string
	asked string
	got   api.Submit
}

func (d *depot) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"HEAD /v1/blobs/{sha}": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(wire.OffsetHeader, strconv.Itoa(len(d.held[r.PathValue("sha")])))
		},
		"PUT /v1/blobs/{sha}": func(w http.ResponseWriter, r *http.Request) {
			sha, part := r.PathValue("sha"), readAll(d.t, r)
			off, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			if len(part) > wire.MaxPart {
				d.t.Errorf("a part of %d bytes", len(part))
			}
			if off != len(d.held[sha]) {
				problem(w, 416, fleet.SpoolGap, "gap")
				return
			}
			d.held[sha] = append(d.held[sha], part...)
			if d.puts++; d.lose && d.puts == 1 {
				broken(w)
				return
			}
			w.Header().Set(wire.OffsetHeader, strconv.Itoa(len(d.held[sha])))
			w.WriteHeader(http.StatusAccepted)
		},
		"GET /v1/repos/tips": func(w http.ResponseWriter, r *http.Request) {
			d.asked = r.URL.RawQuery
			answer(w, 200, api.Tips{Tips: d.tips})
		},
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if err := json.Unmarshal(readAll(d.t, r), &d.got); err != nil {
				d.t.Error(err)
			}
			answer(w, 201, api.Job{ID: "01j"})
		},
	}
}

// uploaded checks what came of the bundle, and gives it.
func (d *depot) uploaded(t *testing.T) []byte {
	t.Helper()
	if d.got.Repo == nil {
		t.Fatal("the job has no repository")
	}
	b := d.held[string(d.got.Repo.Bundle)]
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != string(d.got.Repo.Bundle) {
		t.Fatalf("the store holds %d bytes with another digest than %s", len(b), d.got.Repo.Bundle)
	}
	return b
}

func TestADirectoryIsHandedOver(t *testing.T) {
	dir := repository(t)
	head := git(t, dir, "rev-parse", "HEAD")
	d := &depot{t: t, held: map[string][]byte{}, lose: true}
	s := newShell(t, script(t, d.routes()).URL)
	put(t, dir, "a.txt", "changed\n")
	s.must("exec", "-d", "--repo", dir, "--", "true")
	d.uploaded(t)
	if r := d.got.Repo; r.BaseCommit != head || r.CacheKey != head || r.URL != "" || r.Upstream != "main" {
		t.Errorf("the repository is %+v, want %s alone", r, head)
	}
	has(t, "standard error", s.err.String(), "uncommitted changes", "--include-dirty", "sending the repository")
	sent := d.puts
	s.must("exec", "-d", "--repo", dir, "--", "true")
	if d.puts != sent {
		t.Error("what the hub had was sent again")
	}
	s.must("exec", "-d", "--repo", dir, "--include-dirty", "--", "true")
	d.uploaded(t)
	if d.got.Repo.BaseCommit == head {
		t.Error("the changes were not sent")
	}
	if now := git(t, dir, "rev-parse", "HEAD"); now != head {
		t.Error("the repository's HEAD moved")
	}
}

func TestOnlyWhatTheRunnerLacksIsSent(t *testing.T) {
	dir := repository(t)
	root := git(t, dir, "rev-parse", "HEAD")
	noise := make([]byte, 600<<10)
	for i := range noise {
		noise[i] = byte(i * i >> 7 * i)
	}
	put(t, dir, "big.bin", string(noise))
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "big")
	tip := git(t, dir, "rev-parse", "HEAD")
	put(t, dir, "a.txt", "two\n")
	git(t, dir, "commit", "-q", "-a", "-m", "small")
	d := &depot{t: t, held: map[string][]byte{}, tips: []string{tip, strings.Repeat("0", 40)}}
	s := newShell(t, script(t, d.routes()).URL)
	s.must("exec", "-d", "--repo", dir, "--on", "studio", "--", "true")
	if want := "key=" + root + "&runner=studio"; d.asked != want {
		t.Errorf("asked for the tips with %q, want %q", d.asked, want)
	}
	if b := d.uploaded(t); len(b) > 4<<10 || !bytes.Contains(b, []byte("-"+tip)) {
		t.Errorf("sent %d bytes, want less than 4 KiB that build on %s", len(b), tip)
	}
	d.tips = []string{git(t, dir, "rev-parse", "HEAD")}
	s.must("exec", "-d", "--repo", dir, "--on", "studio", "--", "true")
	d.uploaded(t) // a job without a URL has to name a bundle, even where nothing is lacking
}

func TestHandOverThatCannotBe(t *testing.T) {
	dir := repository(t)
	s := newShell(t, "http://127.0.0.1:1")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, empty, "init", "-q")
	shallow := filepath.Join(t.TempDir(), "shallow")
	put(t, dir, "a.txt", "two\n")
	git(t, dir, "commit", "-q", "-a", "-m", "second")
	git(t, filepath.Dir(shallow), "clone", "-q", "--depth", "1", "file://"+dir, shallow)
	for want, args := range map[string][]string{
		"no remote named origin": {"--repo", dir, "--push", "p"},
		"--depth is for a URL":   {"--repo", dir, "--depth", "3"},
		"has no commit yet":      {"--repo", empty},
		"--unshallow":            {"--repo", shallow},
		`no commit "nope"`:       {"--repo", dir, "--ref", "nope"},
	} {
		if code := s.do(append(append([]string{"exec", "-d"}, args...), "--", "true")...); code != exitUsage || !strings.Contains(s.err.String(), want) {
			t.Errorf("%v: exit %d, %s; want 2 and %q", args, code, s.err, want)
		}
	}
}

func TestPushPassesOriginOn(t *testing.T) {
	dir := repository(t)
	git(t, dir, "remote", "add", "origin", "https://user:secret@x.test/app.git")
	d := &depot{t: t, held: map[string][]byte{}}
	newShell(t, script(t, d.routes()).URL).must("exec", "-d", "--repo", dir, "--push", "p", "--", "true")
	if u := d.got.Repo.URL; !strings.Contains(u, "x.test/app.git") || strings.Contains(u, "secret") {
		t.Errorf("the URL is %q, want origin without credentials", u)
	}
	d.uploaded(t)
}

func TestPullFetchesTheBranch(t *testing.T) {
	ours := repository(t)
	base := git(t, ours, "rev-parse", "HEAD")
	theirs := filepath.Join(t.TempDir(), "theirs")
	git(t, filepath.Dir(theirs), "clone", "-q", ours, theirs)
	put(t, theirs, "b.txt", "new\n")
	git(t, theirs, "add", ".")
	git(t, theirs, "commit", "-q", "-m", "work")
	b, err := worktree.Bundle(t.Context(), theirs, worktree.BundleRequest{Haves: []string{base}, Out: filepath.Join(t.TempDir(), "b")})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(b.Path)
	if err != nil {
		t.Fatal(err)
	}
	pulled := 0
	job := api.Job{ID: "01j", State: fleet.Succeeded, BaseCommit: base, Branch: "tugline/01j", Spec: fleet.Spec{Repo: &fleet.Repo{URL: "x"}}}
	files := api.Artifacts{Artifacts: []api.Artifact{{Name: "bundle", SHA256: "old", Stored: true, Turn: 1, Attempt: 1}, {Name: "bundle", SHA256: fleet.Digest(b.SHA256), Stored: true, Turn: 2, Attempt: 1}}}
	s := newShell(t, script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}":           func(w http.ResponseWriter, r *http.Request) { answer(w, 200, job) },
		"GET /v1/jobs/{id}/artifacts": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, files) },
		"GET /v1/jobs/{id}/artifacts/bundle": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("turn") != "2" {
				t.Errorf("asked for %s, want the newest", r.URL)
			}
			_, _ = w.Write(bundle)
		},
		"POST /v1/jobs/{id}/pulled": func(w http.ResponseWriter, r *http.Request) { pulled++; answer(w, 200, job) },
	}).URL)
	has(t, "the answer", s.must("job", "pull", "01j", "--into", ours), "branch tugline/01j is new here", "git merge tugline/01j")
	if got := git(t, ours, "rev-parse", "tugline/01j"); got != b.Head {
		t.Errorf("the branch is at %s, want %s", got, b.Head)
	}
	has(t, "the second answer", s.must("job", "pull", "01j", "--into", ours), "is already here")
	if pulled != 2 {
		t.Errorf("the hub was told %d times, want 2", pulled)
	}
	if code := s.do("job", "pull", "01j", "--into", repository2(t)); code != exitFailed {
		t.Errorf("another repository: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "does not have the commit "+base[:10])
	if pulled != 2 {
		t.Error("the hub was told of a pull that failed")
	}
	bundle = append(bundle, 'x')
	if code := s.do("job", "pull", "01j", "--into", ours); code != exitFailed {
		t.Errorf("damaged on the way: exit %d, want 1", code)
	}
	files.Artifacts = nil
	if code := s.do("job", "pull", "01j", "--into", ours); code != exitFailed {
		t.Errorf("no bundle: exit %d, want 1", code)
	}
	has(t, "the message", s.err.String(), "changed nothing")
}

// repository2 is one with another history.
func repository2(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "other")
	return dir
}

func TestArtifacts(t *testing.T) {
	sum := sha256.Sum256([]byte("hello"))
	files := api.Artifacts{Artifacts: []api.Artifact{{Name: "note.txt", SHA256: fleet.Digest(hex.EncodeToString(sum[:])), Size: 5, Type: "text/plain", Stored: true, Turn: 1, Attempt: 1}, {Name: "gone", Turn: 1, Attempt: 1}}}
	s := newShell(t, script(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/{id}/artifacts":          func(w http.ResponseWriter, r *http.Request) { answer(w, 200, files) },
		"GET /v1/jobs/{id}/artifacts/note.txt": func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("hello")) },
	}).URL)
	has(t, "the list", s.must("job", "artifacts", "01j"), "note.txt", "5 B")
	if got := s.must("job", "artifacts", "01j", "note.txt"); got != "hello" {
		t.Errorf("got %q", got)
	}
	file := filepath.Join(t.TempDir(), "out")
	s.must("job", "artifacts", "01j", "note.txt", "-o", file)
	if b, err := os.ReadFile(file); err != nil || string(b) != "hello" {
		t.Errorf("the file has %q, %v", b, err)
	}
	for _, c := range []struct {
		name, want string
		code       int
	}{{"nope", "has no artifact", exitUsage}, {"gone", "not on the hub", exitFailed}} {
		if code := s.do("job", "artifacts", "01j", c.name); code != c.code || !strings.Contains(s.err.String(), c.want) {
			t.Errorf("%s: exit %d, want %d and %q: %s", c.name, code, c.code, c.want, s.err)
		}
	}
}
