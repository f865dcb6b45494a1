//go:build linux

package fault

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// disk is a file system in user space under a hub's data: everything is passed on to a
// directory, unless a fault says otherwise.
type disk struct {
	under string
	fault atomic.Pointer[fault]
}

// fault is asked before each operation: create, mkdir, rename, unlink, open, read,
// write, truncate, fsync, on a file by its path from the root. What it returns other
// than 0 is the operation's error; it may take its time.
type fault func(op, path string) syscall.Errno

// set has operations fail from now on, or with nil none.
func (d *disk) set(f fault) {
	if f == nil {
		d.fault.Store(nil)
		return
	}
	d.fault.Store(&f)
}

func (d *disk) ask(op, path string) syscall.Errno {
	if f := d.fault.Load(); f != nil {
		return (*f)(op, path)
	}
	return 0
}

// onDisk puts the hub's data on such a disk; it must not have been started.
func (h *hub) onDisk() *disk {
	t := h.c.t
	t.Helper()
	d := &disk{under: h.dir + ".under"}
	for _, dir := range []string{d.under, h.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	loop, err := fs.NewLoopbackRoot(d.under)
	if err != nil {
		t.Fatal(err)
	}
	second := time.Second
	server, err := fs.Mount(h.dir, &node{loop.(*fs.LoopbackNode), d}, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "fault", Name: "fault", MaxWrite: 1 << 20},
	})
	if err != nil {
		t.Fatalf("mount a file system of user space: %v", err)
	}
	t.Cleanup(func() {
		d.set(nil)
		h.quit()
		syscall.Unmount(h.dir, syscall.MNT_DETACH)
		server.Unmount()
	})
	return d
}

// quit ends the hub at the end of a test, however.
func (h *hub) quit() {
	if h.p.Runs() {
		h.p.Kill()
	}
}

type node struct {
	*fs.LoopbackNode
	d *disk
}

var (
	_ fs.NodeWrapChilder = (*node)(nil)
	_ fs.NodeOpener      = (*node)(nil)
	_ fs.NodeCreater     = (*node)(nil)
	_ fs.FileFsyncer     = (*file)(nil)
	_ fs.FileWriter      = (*file)(nil)
)

func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{ops.(*fs.LoopbackNode), n.d}
}

func (n *node) at(name string) string { return filepath.Join(n.Path(n.Root()), name) }

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if e := n.d.ask("open", n.at("")); e != 0 {
		return nil, 0, e
	}
	h, f, e := n.LoopbackNode.Open(ctx, flags)
	return n.wrap(h, n.at("")), f, e
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if e := n.d.ask("create", n.at(name)); e != 0 {
		return nil, nil, 0, e
	}
	in, h, f, e := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return in, n.wrap(h, n.at(name)), f, e
}

func (n *node) wrap(h fs.FileHandle, path string) fs.FileHandle {
	if l, ok := h.(*fs.LoopbackFile); ok {
		return &file{l, n.d, path}
	}
	return h
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if e := n.d.ask("mkdir", n.at(name)); e != 0 {
		return nil, e
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *node) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if e := n.d.ask("rename", n.at(name)); e != 0 {
		return e
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if e := n.d.ask("unlink", n.at(name)); e != 0 {
		return e
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if _, ok := in.GetSize(); ok {
		if e := n.d.ask("truncate", n.at("")); e != 0 {
			return e
		}
	}
	if f, ok := h.(*file); ok {
		h = f.LoopbackFile
	}
	return n.LoopbackNode.Setattr(ctx, h, in, out)
}

func (n *node) Getattr(ctx context.Context, h fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if f, ok := h.(*file); ok {
		h = f.LoopbackFile
	}
	return n.LoopbackNode.Getattr(ctx, h, out)
}

type file struct {
	*fs.LoopbackFile
	d    *disk
	path string
}

// PassthroughFd keeps the kernel from going around the faults.
func (f *file) PassthroughFd() (int, bool) { return 0, false }

func (f *file) Read(ctx context.Context, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if e := f.d.ask("read", f.path); e != 0 {
		return nil, e
	}
	return f.LoopbackFile.Read(ctx, b, off)
}

func (f *file) Write(ctx context.Context, b []byte, off int64) (uint32, syscall.Errno) {
	if e := f.d.ask("write", f.path); e != 0 {
		return 0, e
	}
	return f.LoopbackFile.Write(ctx, b, off)
}

func (f *file) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if e := f.d.ask("fsync", f.path); e != 0 {
		return e
	}
	return f.LoopbackFile.Fsync(ctx, flags)
}

// slow has fsyncs of the log take so long.
func slow(by time.Duration) fault {
	return func(op, path string) syscall.Errno {
		if op == "fsync" && strings.HasPrefix(path, "raft/") {
			<-time.After(by)
		}
		return 0
	}
}

// stuck has writes and fsyncs below a directory wait until released.
func stuck(dir string) (f fault, release func()) {
	free := make(chan struct{})
	return func(op, path string) syscall.Errno {
		if (op == "fsync" || op == "write") && strings.HasPrefix(path, dir) {
			<-free
		}
		return 0
	}, func() { close(free) }
}

// broken has everything that changes files below a directory fail.
func broken(dir string, errno syscall.Errno) fault {
	return func(op, path string) syscall.Errno {
		if op != "read" && op != "open" && strings.HasPrefix(path, dir) {
			return errno
		}
		return 0
	}
}
