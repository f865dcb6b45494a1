package update

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"aead.dev/minisign"

	"tugline.dev/tugline/shared/fleet"
)

// killAt has the test binary place a release and end itself at a step: see kill_test.go.
const killAt = "TUGLINE_TEST_KILL_AT"

func TestMain(m *testing.M) {
	if step := os.Getenv(killAt); step != "" {
		os.Exit(placeUntil(step, os.Args[1], os.Args[2]))
	}
	dir, err := os.MkdirTemp("", "update-")
	if err != nil {
		panic(err)
	}
	builds.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var builds = struct {
	dir  string
	lock sync.Mutex
}{}

// build gives the bytes of testdata/app as a version of a kind.
func build(t *testing.T, version, kind string) []byte {
	t.Helper()
	builds.lock.Lock()
	defer builds.lock.Unlock()
	file := filepath.Join(builds.dir, version+kind)
	if _, err := os.Stat(file); err != nil {
		build := exec.Command("go", "build", "-o", file, "-ldflags", "-s -w -X main.version="+version+" -X main.kind="+kind, "./testdata/app")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // under the race detector too: nothing more is compiled for it
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", version, err, out)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rig is a store with one version in it, and a key.
type rig struct {
	*Store
	t    *testing.T
	pub  string
	priv minisign.PrivateKey
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigAt(t, t.TempDir())
}

// rigAt has version 1.0.0 run from a directory.
func rigAt(t *testing.T, prefix string) *rig {
	t.Helper()
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, pub: pub.String(), priv: priv}
	exe := filepath.Join(prefix, "versions", "1.0.0", "tugline")
	g.must(os.MkdirAll(filepath.Dir(exe), 0o755))
	g.must(os.WriteFile(exe, build(t, "1.0.0", "good"), 0o755))
	g.must(os.Symlink("versions/1.0.0", filepath.Join(prefix, "current")))
	if g.Store, err = Open(filepath.Join(prefix, "current", "tugline"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// release gives a signed release of a version and a kind.
func (g *rig) release(version, kind string) (Release, []byte) {
	g.t.Helper()
	b := build(g.t, version, kind)
	return g.sign(version, b), b
}

func (g *rig) sign(version string, b []byte) Release {
	sum := sha256.Sum256(b)
	return Release{
		Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH, SHA256: fleet.Digest(hex.EncodeToString(sum[:])), Size: int64(len(b)),
		Signature: string(minisign.SignWithComments(g.priv, b, Comment(version, runtime.GOOS, runtime.GOARCH), "")),
	}
}

func (g *rig) placeIt(rel Release, b []byte) error {
	return g.Place(context.Background(), rel, g.pub, bytes.NewReader(b))
}

// start runs the present version to its end, as a service would, and gives what it says.
func (g *rig) start() (said string, ok bool) {
	g.t.Helper()
	out, err := exec.Command(g.Program()).Output()
	return strings.TrimSpace(string(out)), err == nil
}

// serves checks that a version is the present one, starts and leaves nothing half made.
func (g *rig) serves(version string) {
	g.t.Helper()
	if v, err := g.Current(); err != nil || v != version {
		g.t.Fatalf("the present version is %q (%v), want %s", v, err, version)
	}
	if said, ok := g.start(); !ok || said != "started "+version {
		g.t.Fatalf("a start of the present version says %q, %v, want version %s", said, ok, version)
	}
}

// tidy checks which versions are there.
func (g *rig) tidy(versions ...string) {
	g.t.Helper()
	all, err := os.ReadDir(filepath.Join(g.prefix, "versions"))
	g.must(err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), strings.Join(versions, " "); got != want {
		g.t.Errorf("versions/ has %q, want %q", got, want)
	}
}

func (g *rig) record() Record {
	g.t.Helper()
	r, err := g.Standing()
	g.must(err)
	return r
}
