package worktree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestDamagedCache(t *testing.T) {
	t.Parallel()
	objects := func(t *testing.T, cache string, damage func(path string)) {
		t.Helper()
		n := 0
		must(filepath.WalkDir(filepath.Join(cache, "objects"), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				must(os.Chmod(p, 0o600))
				damage(p)
				n++
			}
			return err
		}))
		if n == 0 {
			t.Fatal("the cache has no object to damage")
		}
	}
	src := origin(t)
	base := run(t, src, "rev-parse", "HEAD")
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, cache string)
	}{
		{"objects emptied", func(t *testing.T, cache string) {
			objects(t, cache, func(p string) { must(os.Truncate(p, 0)) })
		}},
		{"objects overwritten", func(t *testing.T, cache string) {
			objects(t, cache, func(p string) { must(os.WriteFile(p, []byte("garbage in place of an object"), 0o600)) })
		}},
		{"objects deleted", func(t *testing.T, cache string) { objects(t, cache, func(p string) { must(os.Remove(p)) }) }},
		{"object directory deleted", func(t *testing.T, cache string) { must(os.RemoveAll(filepath.Join(cache, "objects"))) }},
		{"HEAD deleted", func(t *testing.T, cache string) { must(os.Remove(filepath.Join(cache, "HEAD"))) }},
		{"config overwritten", func(t *testing.T, cache string) { write(t, filepath.Join(cache, "config"), "[not a config\n") }},
		{"refs emptied", func(t *testing.T, cache string) {
			write(t, filepath.Join(cache, "refs/remotes/origin/main"), strings.Repeat("12", 20)+"\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, nil)
			first := prepare(t, s, Request{URL: src})
			cache := s.cacheOf(first).path
			c.damage(t, cache)
			second := prepare(t, s, Request{URL: src, Job: "job2", BaseCommit: base})
			third := prepare(t, s, Request{URL: src, Job: "job3"})
			if second.Base != base || third.Base != base {
				t.Errorf("got bases %s and %s, want %s", second.Base, third.Base, base)
			}
			write(t, filepath.Join(third.Path, "n"), "n")
			if res := harvest(t, third, CommitAuto); res.CommitCount != 1 || !res.Descends {
				t.Errorf("got %+v", res)
			}
			if !exists(cache) || !exists(first.Path) {
				t.Error("the damaged cache or a tree on it was deleted")
			}
			if c.name == "objects deleted" {
				return // a fetch alone mends this one
			}
			use, err := s.Usage()
			if err != nil || len(use.Quarantined) != 1 || use.Quarantined[0].Why == "" || len(use.Caches) != 1 || use.Caches[0].Name != src {
				t.Errorf("got usage %+v, %v", use, err)
			}
			if len(use.Worktrees) != 3 || use.Total() == 0 {
				t.Errorf("got usage %+v", use)
			}
		})
	}
}

// A cache that is sound is kept, whatever else goes wrong.
func TestSoundCacheIsKept(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	prepare(t, s, Request{URL: src})
	must(os.Rename(src, src+".away"))
	_, err := s.Prepare(t.Context(), Request{URL: src, Job: "job2", Fence: fence1})
	wantCode(t, err, fleet.RepoMissing)
	must(os.Rename(src+".away", src))
	prepare(t, s, Request{URL: src, Job: "job2"})
	if all, err := s.generations(cacheID(src)); err != nil || len(all) != 1 {
		t.Errorf("got generations %v, %v, want one", all, err)
	}
}

// What happens to branches at the remote between two jobs.
func TestRemoteBranchesMove(t *testing.T) {
	t.Parallel()
	src := origin(t)
	run(t, src, "branch", "topic")
	s := open(t, nil)
	old := prepare(t, s, Request{URL: src})
	run(t, src, "branch", "-D", "-q", "topic")
	run(t, src, "branch", "topic/deeper", "v1")
	run(t, src, "reset", "-q", "--hard", "v1")
	rewritten := commitFile(t, src, "b.txt", "b")
	run(t, src, "tag", "-f", "-m", "moved", "v1", rewritten)
	tree := prepare(t, s, Request{URL: src, Job: "job2", ExtraRefs: []string{"topic/deeper"}})
	if tree.Base != rewritten {
		t.Errorf("got base %s, want %s", tree.Base, rewritten)
	}
	refs := run(t, tree.Path, "for-each-ref", "--format=%(refname)", "refs/remotes")
	if strings.Contains(refs+"\n", "origin/topic\n") || !strings.Contains(refs, "origin/topic/deeper") {
		t.Errorf("remote branches are\n%s", refs)
	}
	// The base of the first job is still there, though no branch leads to it.
	commitFile(t, old.Path, "c.txt", "c")
	if res := harvest(t, old, CommitAuto); !res.Descends || res.CommitCount != 1 {
		t.Errorf("got %+v", res)
	}
	if again := prepare(t, s, Request{URL: src, Job: "job3", BaseCommit: old.Base}); again.Base != old.Base {
		t.Errorf("got base %s, want %s", again.Base, old.Base)
	}
}

// An agent has the run of the shared configuration; the next fetch goes where the job says all the same.
func TestChangedOriginAddress(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	config := filepath.Join(s.cacheOf(tree).path, "config")
	private := func(when string) {
		t.Helper()
		if st, err := os.Stat(config); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s the cache's configuration has the mode %v, %v; want its owner's alone", when, st.Mode(), err)
		}
	}
	private("made anew")
	run(t, tree.Path, "config", "--add", "remote.origin.url", "/elsewhere")
	must(os.Chmod(config, 0o644))
	run(t, tree.Path, "remote", "set-url", "--push", "origin", "/elsewhere")
	head := commitFile(t, src, "new.txt", "n")
	if next := prepare(t, s, Request{URL: src, Job: "job2"}); next.Base != head {
		t.Errorf("got base %s, want %s", next.Base, head)
	}
	private("with its address written anew")
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	lib := origin(t)
	src := origin(t)
	run(t, src, "submodule", "--quiet", "add", lib, "libs/in ner")
	run(t, src, "commit", "-q", "-m", "submodule")
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	inner := filepath.Join(tree.Path, "libs/in ner")
	if !exists(filepath.Join(inner, "a.txt")) || len(tree.Notes) != 0 {
		t.Fatalf("the submodule is not there; notes %q", tree.Notes)
	}
	if out, err := removeSaved(t, s, "job1"); err != nil || !out.Removed {
		t.Fatalf("got %+v, %v", out, err)
	}
	tree, err := s.Rebuild(t.Context(), Request{Job: "job1", Fence: fence2})
	if err != nil || !exists(filepath.Join(inner, "a.txt")) {
		t.Fatalf("%+v, %v", tree, err)
	}
	write(t, filepath.Join(inner, "n.txt"), "n")
	if out, err := removeSaved(t, s, "job1"); err != nil || out.Removed || !strings.Contains(out.Why, "has changes") {
		t.Errorf("got %+v, %v", out, err)
	}
	made := commitFile(t, inner, "n.txt", "n")
	res := harvest(t, tree, CommitAuto)
	if res.RunnerCommit == "" || !hasNote(res.Notes, made[:12]) {
		t.Errorf("got %+v", res)
	}
	if out, err := removeSaved(t, s, "job1"); err != nil || out.Removed || !strings.Contains(out.Why, "commits that no remote has") {
		t.Errorf("got %+v, %v", out, err)
	}
	// A submodule's own git directory could have git run something.
	must(os.Remove(filepath.Join(inner, ".git")))
	run(t, inner, "init", "-q")
	run(t, inner, "config", "core.fsmonitor", "touch "+hookMark)
	harvest(t, tree, CommitAuto)
	if out, err := removeSaved(t, s, "job1"); err != nil || out.Removed {
		t.Errorf("got %+v, %v", out, err)
	}

	must(os.Rename(lib, lib+".away"))
	tree = prepare(t, s, Request{URL: src, Job: "job2"})
	if !hasNote(tree.Notes, "submodules could not be fetched") {
		t.Errorf("notes are %q", tree.Notes)
	}
	// The transports of submodules are the owner's too.
	must(os.Rename(lib+".away", lib))
	closed := open(t, func(c *Config) { c.AllowFile = false })
	bundle := filepath.Join(t.TempDir(), "b")
	info, err := Bundle(t.Context(), src, BundleRequest{Out: bundle})
	must(err)
	tree = prepare(t, closed, Request{Key: "k", Bundle: bundle, BaseCommit: info.Head})
	if exists(filepath.Join(tree.Path, "libs/in ner/a.txt")) || !hasNote(tree.Notes, "does not allow") {
		t.Errorf("notes are %q", tree.Notes)
	}
}

func TestLFS(t *testing.T) {
	t.Parallel()
	src := origin(t)
	write(t, filepath.Join(src, "art/.gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	run(t, src, "add", ".")
	run(t, src, "commit", "-q", "-m", "lfs")
	commitFile(t, src, "art/x.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4\n")

	bare := filepath.Join(t.TempDir(), "bin")
	must(os.Mkdir(bare, 0o700))
	for _, tool := range []string{"git", "sh"} {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if exists(filepath.Join(dir, tool)) {
				must(os.Symlink(filepath.Join(dir, tool), filepath.Join(bare, tool)))
				break
			}
		}
	}
	config := filepath.Join(t.TempDir(), "gitconfig")
	write(t, config, "[user]\n\tname = A\n\temail = a@x\n[filter \"lfs\"]\n\tprocess = git-lfs filter-process\n\trequired = true\n")
	without := open(t, func(c *Config) {
		c.Env = []string{"PATH=" + bare, "HOME=" + t.TempDir(), "GIT_CONFIG_GLOBAL=" + config, "GIT_CONFIG_NOSYSTEM=1"}
	})
	tree := prepare(t, without, Request{URL: src})
	if !hasNote(tree.Notes, "git-lfs is not installed") {
		t.Errorf("notes are %q", tree.Notes)
	}
	write(t, filepath.Join(tree.Path, "n"), "n")
	if res := harvest(t, tree, CommitAuto); res.Stat.Files != 1 {
		t.Errorf("got %+v", res)
	}

	// A stand-in for the tool: "pull" puts the content in place.
	fake := filepath.Join(t.TempDir(), "fake")
	must(os.Mkdir(fake, 0o700))
	must(os.WriteFile(filepath.Join(fake, "git-lfs"), []byte("#!/bin/sh\ncase $1 in\npull) printf real > art/x.bin;;\nclean|smudge) cat;;\n*) exit 1;;\nesac\n"), 0o700))
	with := open(t, func(c *Config) {
		c.Env = append(os.Environ(), "PATH="+fake+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL="+config)
	})
	write(t, config, "[user]\n\tname = A\n\temail = a@x\n[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n")
	tree = prepare(t, with, Request{URL: src})
	if data, err := os.ReadFile(filepath.Join(tree.Path, "art/x.bin")); err != nil || string(data) != "real" {
		t.Errorf("the file is %q, %v; notes %q", data, err, tree.Notes)
	}
}
