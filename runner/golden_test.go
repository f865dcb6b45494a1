package runner

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hubsession "tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/runner/format"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// record names an absolute folder in which a golden data directory of the present format is
// made, in the place where testdata has none of it:
//
//	go test ./runner -run TestGoldenDataDirs -record /srv/golden
//
// One that is there is of versions that people run, and is never made anew.
var record = flag.String("record", "", "make a golden data directory in this `FOLDER`")

// goldenRoot is how long the path of a golden data directory's parent is: its files name it,
// and a longer or shorter one would not fit in its place.
const goldenRoot = 160

// golden says what is in an archive beside the data directory.
type golden struct {
	Root    string                 `json:"root"`
	At      time.Time              `json:"at"`
	Keys    *hubsession.Keys       `json:"keys"`
	Entries [][]byte               `json:"entries"` // of the hub's log
	Jobs    map[string]fleet.JobID `json:"jobs"`    // by what became of them
}

// rootIn gives a folder with a path of the right length.
func rootIn(t *testing.T, parent string) string {
	t.Helper()
	n := goldenRoot - len(parent) - 1
	if n < 1 || n > 200 {
		t.Fatalf("%s is not of the right length for a golden data directory", parent)
	}
	root := filepath.Join(parent, strings.Repeat("g", n))
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func goldenFile(n int) string {
	return filepath.Join("testdata", fmt.Sprintf("datadir-format-%d.tar.gz", n))
}

// TestGoldenDataDirs: a directory of every format that is read, as a real runner left it, is
// taken up, and all that it owes the hub is told.
func TestGoldenDataDirs(t *testing.T) {
	if *record != "" {
		recordGolden(t)
	}
	newest := format.Steps.Current()
	for n := max(1, newest-2); n <= newest; n++ {
		t.Run(fmt.Sprint("format ", n), func(t *testing.T) { takeUp(t, n) })
	}
}

func takeUp(t *testing.T, n int) {
	root := rootIn(t, t.TempDir())
	g := unpack(t, goldenFile(n), root)
	dir := filepath.Join(root, "runner")
	h := newHub(t)
	h.keys.Store(g.Keys)
	h.mu.Lock()
	h.machine, h.index = state.New(), 0
	for _, e := range g.Entries {
		h.index++
		if res, _, err := h.machine.Apply(h.index, e); err != nil || res.Err() != nil {
			t.Fatalf("entry %d of the hub's log: %v, %v", h.index, err, res.Err())
		}
	}
	h.mu.Unlock()
	before := mustIdentity(t, dir)
	if err := (&keyring{dir: dir, id: before}).change(func(id *identity) { id.Hubs, id.Known = []string{h.url}, nil }); err != nil {
		t.Fatal(err)
	}

	if l, err := readLimits(filepath.Join(dir, "limits.json")); err != nil || l.Automation != fleet.DefaultAutomation {
		t.Errorf("the hub's limits are %+v, %v", l, err)
	}
	if f, err := openFootprints(dir); err != nil || len(f.repos) != 1 {
		t.Errorf("what repositories take: %+v, %v", f.repos, err)
	}
	kept, err := InspectKept(t.Context(), dir)
	if err != nil || len(kept.Workspaces) != 2 || len(kept.Caches) != 1 {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	for _, w := range kept.Workspaces {
		if want := map[fleet.JobID]bool{g.Jobs["done"]: true, g.Jobs["finished"]: true}; !want[w.Job] || w.Path != filepath.Join(dir, "trees", "work", string(w.Job), "r") || w.Gone || w.Half || w.Unclear != "" {
			t.Errorf("the workspace %+v", w)
		}
	}
	made, err := New(Config{Dir: dir, Slots: 4, Self: self(t), Version: "test", Logger: testLogger("RUNNER_LOG")})
	if err != nil {
		t.Fatal(err)
	}
	made.now = func() time.Time { return g.At.Add(time.Hour) } // or what is old would go
	r := h.connected(made)
	if r.journal.Note() != "" || r.id != before.Runner || before.Name != "box" {
		t.Errorf("runner %s with the name %q, the journal says %q", r.id, before.Name, r.journal.Note())
	}
	attempt := func(what string) *fleet.Attempt { a := h.job(g.Jobs[what]).Turn().Attempts; return a[len(a)-1] }
	h.ends(g.Jobs["finished"], fleet.Succeeded)
	if a := attempt("finished"); a.Evidence == nil || a.Evidence.CommitCount != 1 {
		t.Errorf("the finished attempt has the evidence %+v", a.Evidence)
	} else {
		eventually(t, "its bundle to arrive", func() bool { _, err := h.blobs.Stat(a.Evidence.Bundle); return err == nil })
	}
	for what, says := range map[string]string{"finished": "it is finished\n", "running": "it runs\n", "unknown": "nobody knows\n"} {
		a := attempt(what)
		if what != "finished" {
			h.ends(g.Jobs[what], fleet.Lost)
		}
		h.sealed(g.Jobs[what], a.Fence)
		if got := h.text(g.Jobs[what], a.Fence, fleet.FrameStdout); got != says {
			t.Errorf("the %s attempt said %q, want %q", what, got, says)
		}
		r.forgets(a.Fence)
	}
	r.end()
	if now, err := InspectKept(t.Context(), dir); err != nil || len(now.Workspaces) != 2 || len(now.Caches) != 1 {
		t.Errorf("kept afterwards: %+v, %v", now, err)
	}
}

// recordGolden has a runner do jobs and packs its directory in the middle of them.
func recordGolden(t *testing.T) {
	file := goldenFile(format.Steps.Current())
	if _, err := os.Stat(file); err == nil {
		t.Fatalf("%s is there, and is not made anew", file)
	}
	root := rootIn(t, *record)
	g := golden{Root: root, At: time.Now().UTC(), Jobs: map[string]fleet.JobID{}}
	dir, gate := filepath.Join(root, "runner"), filepath.Join(root, "gate")
	work, bare := filepath.Join(root, "work"), filepath.Join(root, "r.git")
	for _, d := range []string{dir, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	git(t, work, "init", "-q", "-b", "main")
	git(t, work, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, work, "clone", "-q", "--bare", work, bare)
	if err := os.WriteFile(OwnerFile(dir), []byte("allow_file: true\ngit: {name: R, email: r@x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHub(t)
	g.Keys = h.keys.Load()
	r := h.newRunner(func(c *Config) { c.Dir = dir })
	eventually(t, "the limits to be told", func() bool { _, ok := r.limits(); return ok })

	repo := &fleet.Repo{URL: bare}
	j := h.submit(fleet.Spec{Argv: []string{"sh", "-c", "echo by the first turn > made"}, Repo: repo})
	f := h.assign(j, r.id)
	h.ends(j, fleet.Succeeded)
	h.sealed(j, f)
	r.forgets(f)
	g.Jobs["done"] = j

	h.mu.Lock()
	h.refuse = func(c state.Command) error {
		if _, ok := c.(*state.FinishAttempt); ok {
			return fleet.Unavailable
		}
		return nil
	}
	h.mu.Unlock()
	j = h.submit(fleet.Spec{Argv: []string{"sh", "-c", "echo it is finished; echo more > made"}, Repo: repo})
	f = h.assign(j, r.id)
	eventually(t, "the result to be in the outbox", func() bool { a, ok := r.journal.Attempt(f); return ok && a.Progress.Finished })
	g.Jobs["finished"] = j
	waits := func(what, says string) process.Started {
		j, f := h.run(r.id, "sh", "-c", "echo "+says+"; until [ -e "+gate+" ]; do sleep 0.1; done")
		eventually(t, "the job to run", func() bool { return h.attempt(j, f).StartedAt != nil && h.text(j, f, fleet.FrameStdout) != "" })
		g.Jobs[what] = j
		a, _ := r.journal.Attempt(f)
		st, err := process.Attach(filepath.Join(a.Dir, "process"))
		if err != nil || st.State != process.Running {
			t.Fatal(st, err)
		}
		return st.Started
	}
	waits("running", "it runs")
	unknown := waits("unknown", "nobody knows")
	r.end()
	for _, id := range []process.Identity{unknown.Supervisor, unknown.Child} {
		if p, err := os.FindProcess(id.PID); err != nil || p.Kill() != nil {
			t.Fatal("it can't be killed")
		}
	}
	g.Entries = h.entries
	pack(t, file, root, g)
	if err := os.WriteFile(gate, nil, 0o600); err != nil { // what runs comes to its end
		t.Fatal(err)
	}
}

// pack writes the data directory below a root.
func pack(t *testing.T, file, root string, g golden) {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	about, err := json.Marshal(g)
	if err == nil {
		err = errors.Join(w.WriteHeader(&tar.Header{Name: "golden.json", Mode: 0o600, Size: int64(len(about))}))
	}
	if err == nil {
		_, err = w.Write(about)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		if name != "r.git" && name != "runner" && !strings.HasPrefix(name, "r.git/") && !strings.HasPrefix(name, "runner/") {
			return nil
		}
		if strings.HasSuffix(name, ".sample") { // git's own
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		if e.Type()&fs.ModeSymlink != 0 {
			link, err = os.Readlink(path)
		}
		head, err2 := tar.FileInfoHeader(info, link)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		head.Name, head.Uid, head.Gid, head.Uname, head.Gname = name, 0, 0, "", ""
		if err := w.WriteHeader(head); err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close(), os.WriteFile(file, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// unpack puts it below another root, whose name takes the place of the old one.
func unpack(t *testing.T, file, root string) (g golden) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return g
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Name == "golden.json" {
			if err := json.Unmarshal(b, &g); err != nil || len(g.Root) != goldenRoot {
				t.Fatal(err)
			}
			continue
		}
		path := filepath.Join(root, filepath.FromSlash(head.Name))
		b = bytes.ReplaceAll(b, []byte(g.Root), []byte(root))
		if head.Name == "runner/journal.log" {
			resum(b)
		}
		switch head.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeSymlink:
			err = os.Symlink(strings.ReplaceAll(head.Linkname, g.Root, root), path)
		default:
			err = errors.Join(os.WriteFile(path, b, head.FileInfo().Mode().Perm()), os.Chtimes(path, head.ModTime, head.ModTime))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// resum gives the records of a journal the checksums of what they say now.
func resum(b []byte) {
	for len(b) >= 8 {
		n := int(binary.LittleEndian.Uint32(b))
		if n == 0 || len(b) < 8+n {
			return
		}
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:8+n], crc32.MakeTable(crc32.Castagnoli)))
		b = b[8+n:]
	}
}
