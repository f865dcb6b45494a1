package probe

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"tugline.dev/tugline/shared/fleet"
)

// slowRoot is a file system that does not say what it has left until it is let.
type slowRoot struct {
	fs.Inode
	asked   atomic.Int32
	release chan struct{}
}

func (r *slowRoot) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	r.asked.Add(1)
	<-r.release
	out.Blocks, out.Bfree, out.Bavail, out.Files, out.Ffree, out.Bsize, out.Frsize = 100, 50, 40, 10, 5, 1<<20, 4096 // as of a directory that a virtual machine shares
	return 0
}

// A real file system hangs: its volume is not known, everything else is, and however
// often it is asked, one call waits in it.
func TestHungFileSystem(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only root may mount; the hung call itself is tested elsewhere")
		return
	}
	dir, root := t.TempDir(), &slowRoot{release: make(chan struct{})}
	server, err := fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "slow", Name: "slow"}})
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	s := plain(t)
	s.cfg.Workspace = filepath.Join(dir, "work")
	begun := time.Now()
	h := s.Sample(t.Context())
	if took := time.Since(begun); took > sampleTime {
		t.Errorf("a sample took %v", took)
	}
	if h.Workspace.Known || h.Workspace.Detail != "no answer in time" {
		t.Errorf("the hung volume = %+v, want unknown", h.Workspace)
	}
	if !h.Cache.Known || h.Memory == nil || h.CPU == nil || h.Docker.State != fleet.DockerAbsent {
		t.Errorf("a hung volume hides the rest: %+v", h)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if v := s.Volume(ctx, s.cfg.Workspace); v.Known {
			t.Errorf("the hung volume = %+v, want unknown", v)
		}
		cancel()
	}
	if n := root.asked.Load(); n != 1 {
		t.Errorf("%d calls wait in the hung file system, want 1", n)
	}
	// Counting leaves it out as well.
	if usage, partial := s.Usage(t.Context(), []Tree{{Path: dir, Class: "worktrees"}}, 1000, 50*time.Millisecond); !partial || len(usage) != 0 {
		t.Errorf("usage of a hung file system: %v, partial %v", usage, partial)
	}
	close(root.release)
	waitFor(t, "the volume is known", func() bool { return s.Volume(t.Context(), s.cfg.Workspace).Known })
	if v := s.Volume(t.Context(), s.cfg.Workspace); v.Free != 40*4096 || v.Total != 100*4096 || v.Inodes != 5 || v.Nodes != 10 {
		t.Errorf("volume = %+v", v)
	}
}
