package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestCarriesCredentials(t *testing.T) {
	for _, c := range []struct {
		key, value string
		yes        bool
	}{
		{"http.extraheader", "Authorization: Basic eA==", true},
		{"http.https://example.com/.extraheader", "AUTHORIZATION: bearer x", true},
		{"http.https://example.com/.proxy", "http://me:pass@proxy:3128", true},
		{"http.proxy", "http://proxy:3128", false},
		{"http.cookiefile", "/tmp/c", true},
		{"http.sslverify", "true", false},
		{"remote.origin.url", "https://token@example.com/a.git", true},
		{"remote.origin.url", "https://me:token@example.com/a.git", true},
		{"remote.origin.url", "https://example.com/a@b.git", false},
		{"remote.origin.pushurl", "https://x:y@example.com/a", true},
		{"remote.origin.url", "ssh://git@example.com/a", false},
		{"remote.origin.url", "ssh://git:pass@example.com/a", true},
		{"remote.origin.url", "git@example.com:a/b", false},
		{"remote.origin.url", "/srv/a", false},
		{"url.https://x:token@example.com/.insteadof", "https://example.com/", true},
		{"url.git@example.com:.insteadof", "https://example.com/", false},
		{"submodule.lib.url", "https://token:x-oauth-basic@example.com/l", true},
		{"credential.helper", `!f() { echo password=x; }; f`, true},
		{"credential.https://example.com.helper", `!echo "password=$T"`, true},
		{"credential.helper", "store", false},
		{"credential.https://example.com.username", "me", false},
		{"credential.https://me:pass@example.com.username", "me", true},
		{"github.token", "x", true},
		{"github.user", "x", false},
		{"hub.oauthtoken", "x", true},
		{"core.bare", "true", false},
		{"branch.main.remote", "https://t@example.com/x", true},
		{"sendemail.smtppassword", "", false},
		{"core", "", false},
	} {
		if got := carriesCredentials(c.key, c.value); got != c.yes {
			t.Errorf("%s = %s: %v", c.key, c.value, got)
		}
	}
	if got := redactKey("url.https://x:token@example.com/.insteadof"); got != "url.https://example.com/.insteadof" {
		t.Errorf("shown as %s", got)
	}
}

// What an agent has put into the shared configuration is gone before the next use of the cache, and only its name is
// told.
func TestCredentialsAreScrubbedBeforeEveryUse(t *testing.T) {
	t.Parallel()
	src := origin(t)
	var told []string
	s := open(t, func(c *Config) {
		c.Scrubbed = func(repository string, names []string) {
			told = append(told, repository+": "+strings.Join(names, ", "))
		}
	})
	tree := prepare(t, s, Request{URL: src})
	tip := run(t, tree.Path, "rev-parse", "HEAD")
	config := filepath.Join(s.cacheOf(tree).path, "config")
	for _, use := range []struct {
		name string
		do   func() error
	}{
		{"prepare", func() error { prepare(t, s, Request{URL: src, Job: "job2"}); return nil }},
		{"push", func() error {
			return s.Push(t.Context(), "job1", PushRequest{Remote: src, Branch: "pushed", SHA: tip})
		}},
		{"rebuild", func() error {
			must(os.RemoveAll(tree.Path))
			_, err := s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2})
			return err
		}},
		{"packing", func() error {
			must(os.RemoveAll(filepath.Join(s.dir, "work")))
			must(os.Mkdir(filepath.Join(s.dir, "work"), 0o700))
			out, err := s.Retain(t.Context(), Policy{Keeps: testKeeps, Busy: func(fleet.JobID) bool { return false }})
			if err == nil && out.Packed != 1 {
				t.Errorf("packed are %d caches", out.Packed)
			}
			return err
		}},
	} {
		told = nil
		run(t, tree.Path, "config", "http.https://example.com/.extraheader", "Authorization: Basic c2VjcmV0")
		run(t, tree.Path, "config", "--add", "http.extraheader", "X: secret")
		run(t, tree.Path, "config", "--add", "http.extraheader", "Y: secret")
		run(t, tree.Path, "config", "url.https://me:secret@example.com/.insteadOf", "https://example.org/")
		run(t, tree.Path, "config", "user.name", "stays")
		if err := use.do(); err != nil {
			t.Fatal(use.name, err)
		}
		b, err := os.ReadFile(config)
		if err != nil || strings.Contains(string(b), "secret") || strings.Contains(string(b), "c2VjcmV0") || !strings.Contains(string(b), "stays") {
			t.Errorf("%s: the configuration is\n%s", use.name, b)
		}
		if len(told) != 1 || strings.Contains(told[0], "secret") || !strings.Contains(told[0], "http.extraheader") || !strings.Contains(told[0], "url.https://example.com/.insteadof") {
			t.Errorf("%s: told %q", use.name, told)
		}
	}
}

// What a configuration includes counts as its own, under whatever condition. A file of the cache is scrubbed itself; one
// elsewhere is somebody's, and is only not included any more.
func TestCredentialsInIncludedFilesAreScrubbed(t *testing.T) {
	t.Parallel()
	src := origin(t)
	var told []string
	s := open(t, func(c *Config) { c.Scrubbed = func(_ string, names []string) { told = append(told, names...) } })
	tree := prepare(t, s, Request{URL: src})
	cache := s.cacheOf(tree).path
	elsewhere := t.TempDir()
	const secret = "[user]\n\tname = B\n[http]\n\textraheader = \"X: secret\"\n"
	write(t, elsewhere+"/deep", secret)
	write(t, elsewhere+"/top", "[include]\n\tpath = deep\n")
	write(t, elsewhere+"/when", secret)
	write(t, elsewhere+"/harmless", "[user]\n\temail = b@example.com\n")
	write(t, cache+"/more", secret)
	must(os.Symlink(elsewhere+"/deep", cache+"/linked"))
	for _, kv := range [][2]string{
		{"include.path", elsewhere + "/top"}, {"include.path", elsewhere + "/harmless"}, {"include.path", "more"}, {"include.path", "linked"}, {"include.path", elsewhere + "/none"},
		{"includeIf.gitdir:/somewhere/.path", elsewhere + "/when"},
	} {
		run(t, cache, "config", "--file", "config", "--add", kv[0], kv[1])
	}
	prepare(t, s, Request{URL: src, Job: "job2"})
	if got := run(t, cache, "config", "--file", "config", "--get-regexp", "^include"); got != "include.path "+elsewhere+"/harmless\ninclude.path more\ninclude.path "+elsewhere+"/none" {
		t.Errorf("included are\n%s", got)
	}
	if b, err := os.ReadFile(cache + "/more"); err != nil || strings.Contains(string(b), "secret") || !strings.Contains(string(b), "name = B") {
		t.Errorf("the cache's own file is %s, %v", b, err)
	}
	if b, err := os.ReadFile(elsewhere + "/deep"); err != nil || string(b) != secret {
		t.Errorf("somebody's file is %s, %v", b, err)
	}
	if want := []string{"http.extraheader", "include.path of http.extraheader", "includeif.gitdir:/somewhere/.path of http.extraheader"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
