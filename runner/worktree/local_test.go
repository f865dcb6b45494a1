package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	src := origin(t)
	run(t, src, "remote", "add", "origin", "https://user:secret@example.com/x.git")
	head, root := run(t, src, "rev-parse", "HEAD"), run(t, src, "rev-list", "--max-parents=0", "HEAD")
	must(os.MkdirAll(filepath.Join(src, "sub/dir"), 0o700))
	want := Local{Top: src, HeadSHA: head, Branch: "main", RootCommit: root, OriginURL: "https://example.com/x.git"}
	check := func(path string, want Local) {
		t.Helper()
		got, err := Inspect(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("inspect %s (-want +got):\n%s", path, diff)
		}
	}
	check(filepath.Join(src, "sub/dir"), want)
	write(t, filepath.Join(src, "new"), "n")
	want.Dirty = true
	check(src, want)
	run(t, src, "checkout", "-q", "--detach")
	want.Branch = ""
	check(src, want)

	shallow := filepath.Join(t.TempDir(), "shallow")
	run(t, "/", "clone", "-q", "--depth=1", "--branch=main", "file://"+src, shallow)
	check(shallow, Local{Top: shallow, HeadSHA: head, Branch: "main", RootCommit: head, OriginURL: "file://" + src, Shallow: true})
	_, err := Bundle(t.Context(), shallow, BundleRequest{Out: filepath.Join(t.TempDir(), "b")})
	wantCode(t, err, fleet.Conflict)
	if !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("the mend is not told: %v", err)
	}

	empty := filepath.Join(t.TempDir(), "empty")
	run(t, "/", "init", "-q", empty)
	check(empty, Local{Top: empty, Branch: "main"})
	_, err = Bundle(t.Context(), empty, BundleRequest{Out: filepath.Join(t.TempDir(), "b")})
	wantCode(t, err, fleet.RefMissing)
	bare := filepath.Join(t.TempDir(), "bare")
	run(t, "/", "clone", "-q", "--bare", "--branch=main", src, bare)
	check(bare, Local{Top: bare, HeadSHA: head, Branch: "main", RootCommit: root, OriginURL: src, Bare: true})
	for _, path := range []string{t.TempDir(), filepath.Join(src, "a.txt"), filepath.Join(src, "none")} {
		_, err := Inspect(t.Context(), path)
		wantCode(t, err, fleet.RepoMissing)
	}
}

// The uncommitted state goes along, and the repository is byte for byte what it was.
func TestBundleOfADirtyRepository(t *testing.T) {
	t.Parallel()
	src := origin(t)
	write(t, filepath.Join(src, "a.txt"), "changed")
	write(t, filepath.Join(src, "new/n\u00fc"), "n")
	write(t, filepath.Join(src, "x.ignored"), "x")
	write(t, filepath.Join(src, "staged"), "s")
	run(t, src, "add", "staged")
	before := everything(t, src)
	out := filepath.Join(t.TempDir(), "b.bundle")
	head := run(t, src, "rev-parse", "HEAD")
	info, err := Bundle(t.Context(), src, BundleRequest{IncludeDirty: true, Haves: []string{head, "junk", strings.Repeat("0f", 20)}, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, everything(t, src)); diff != "" {
		t.Errorf("the repository was changed:\n%s", diff)
	}
	if info.Head == head || len(info.Prerequisites) != 1 || info.Prerequisites[0] != head || info.Size == 0 || len(info.SHA256) != 64 {
		t.Fatalf("got %+v", info)
	}
	back := filepath.Join(t.TempDir(), "back")
	run(t, "/", "clone", "-q", src, back)
	if _, err := FetchBundle(t.Context(), back, out, "", "dirty"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, back, "diff", "--name-only", "-z", "main", "dirty"); got != "a.txt\x00new/n\u00fc\x00staged\x00" {
		t.Errorf("the commit changes %q", got)
	}
	if got := run(t, back, "rev-parse", "dirty^"); got != head {
		t.Errorf("its parent is %s, want %s", got, head)
	}

	// What the target has is not sent.
	info, err = Bundle(t.Context(), src, BundleRequest{Haves: []string{head}, Out: out + "2"})
	if err != nil || info.Path != "" || info.Head != head || exists(out+"2") {
		t.Errorf("got %+v, %v", info, err)
	}
	_, err = Bundle(t.Context(), src, BundleRequest{Ref: "nope", Out: out})
	wantCode(t, err, fleet.RefMissing)
	_, err = Bundle(t.Context(), src, BundleRequest{Ref: "--all", Out: out})
	wantCode(t, err, fleet.BadRequest)
	_, err = Bundle(t.Context(), src, BundleRequest{Ref: "v1", IncludeDirty: true, Out: out})
	wantCode(t, err, fleet.BadRequest)
	info, err = Bundle(t.Context(), src, BundleRequest{Ref: "side", Out: out})
	if err != nil || info.Head != run(t, src, "rev-parse", "side") {
		t.Errorf("got %+v, %v", info, err)
	}
}

func everything(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	must(filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		must(err)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			must(err)
			out[p] = string(data)
		}
		return nil
	}))
	return out
}

func TestFetchBundle(t *testing.T) {
	t.Parallel()
	src := origin(t)
	s := open(t, nil)
	tree := prepare(t, s, Request{URL: src})
	commitFile(t, tree.Path, "one", "1")
	res := harvest(t, tree, CommitAuto)
	back := filepath.Join(t.TempDir(), "back")
	run(t, "/", "clone", "-q", src, back)
	fetch := func(branch string) (Fetched, error) {
		return FetchBundle(t.Context(), back, res.BundlePath, "tugline/job1", branch)
	}
	got, err := fetch("result")
	if diff := cmp.Diff(Fetched{SHA: res.Tip, Branch: "result", Created: true}, got); diff != "" || err != nil {
		t.Fatalf("%v\n%s", err, diff)
	}
	if got := run(t, back, "status", "--porcelain", "--branch", "-uall"); got != "## main...origin/main" {
		t.Errorf("git shows %q", got)
	}
	if exists(filepath.Join(back, ".git/FETCH_HEAD")) {
		t.Error("FETCH_HEAD was written")
	}
	if got, err := fetch("result"); err != nil || got.Created || got.Updated {
		t.Errorf("again: %+v, %v", got, err)
	}
	commitFile(t, tree.Path, "two", "2")
	res = harvest(t, tree, CommitAuto)
	if got, err := fetch("result"); err != nil || !got.Updated || got.SHA != res.Tip {
		t.Errorf("more: %+v, %v", got, err)
	}
	run(t, back, "branch", "mine")
	run(t, back, "checkout", "-q", "mine")
	mine := commitFile(t, back, "mine", "m")
	_, err = fetch("mine")
	wantCode(t, err, fleet.Conflict)
	run(t, back, "checkout", "-q", "main")
	_, err = fetch("mine")
	wantCode(t, err, fleet.Conflict)
	if got := run(t, back, "rev-parse", "mine"); got != mine {
		t.Errorf("the branch was moved to %s", got)
	}
	_, err = fetch("-x")
	wantCode(t, err, fleet.BadRequest)
	_, err = FetchBundle(t.Context(), back, res.BundlePath, "other", "x")
	wantCode(t, err, fleet.RefMissing)
	_, err = FetchBundle(t.Context(), back, filepath.Join(back, "none"), "", "x")
	wantCode(t, err, fleet.InputMissing)
	stranger := t.TempDir()
	run(t, stranger, "init", "-q")
	_, err = FetchBundle(t.Context(), stranger, res.BundlePath, "", "x")
	wantCode(t, err, fleet.InputMissing)
}

// A header comes from elsewhere and may be anything.
func FuzzBundleHeader(f *testing.F) {
	sha := strings.Repeat("ab", 20)
	for _, seed := range []string{
		"", "# v2 git bundle\n", "# v2 git bundle\n-" + sha + " base\n" + sha + " refs/heads/x\n\nPACK", "# v3 git bundle\n@object-format=sha256\n\n",
		"# v3 git bundle\n@filter=blob:none\n" + sha + " HEAD\n\n", "# v2 git bundle\n" + sha + " -x\n\n", "# v2 git bundle\n-short\n\n", "# v2 git bundle\n" + strings.Repeat("x", 70000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "b")
		must(os.WriteFile(path, data, 0o600))
		b, err := openBundle(path)
		if err != nil {
			wantCode(t, err, fleet.BadRequest)
			return
		}
		defer b.close()
		for _, h := range b.heads {
			if !isSHA(h.sha) || strings.HasPrefix(h.ref, "-") {
				t.Errorf("accepted head %+v", h)
			}
		}
		for _, p := range b.prerequisites {
			if !isSHA(p) {
				t.Errorf("accepted prerequisite %q", p)
			}
		}
	})
}
