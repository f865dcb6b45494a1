package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is mounted into a workspace is not the workspace's: it does not go along.
func TestWhatIsMountedInAWorkspaceStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("mounts need root: the rest is not shown here")
		return
	}
	src := origin(t)
	k := keeping(t, nil)
	tree := prepare(t, k.Store, Request{URL: src})
	data := t.TempDir()
	write(t, filepath.Join(data, "precious"), "x")
	at := filepath.Join(tree.Path, "build dir", "data.ignored")
	must(os.MkdirAll(at, 0o755))
	if err := syscall.Mount(data, at, "", syscall.MS_BIND, ""); err != nil {
		t.Logf("no mount can be made here, and nothing is shown: %v", err)
		return
	}
	unmount := func() {
		for _, path := range []string{at, strings.Replace(at, tree.Path, tree.Path+goingSuffix, 1)} {
			_ = syscall.Unmount(path, syscall.MNT_DETACH)
		}
	}
	defer unmount()
	k.at = k.at.Add(25 * hour)
	p := k.policy()
	p.Enough = func() bool { return false }
	if _, err := k.Reclaim(t.Context(), p, []string{"data.ignored", "build dir"}); err != nil {
		t.Error(err)
	}
	if w := k.kept(k.pass(time.Hour)); w.Do != Look || !strings.Contains(w.Why, "mounted") {
		t.Errorf("%+v", w)
	}
	if !exists(filepath.Join(data, "precious")) {
		t.Fatal("what was mounted is deleted")
	}
	unmount()
	if out := k.pass(25 * hour); len(out.Deleted) != 1 {
		t.Errorf("it stays without the mount: %+v", out)
	}
}
