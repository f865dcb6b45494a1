package spool

import (
	"container/list"
	"os"
	"sync"

	"tugline.dev/tugline/hub/durable"
)

// file is what the store asks of an open stream file.
type file = durable.File

// files keeps at most limit stream files open, closing the longest idle one
// first. A file in use is never closed, so that for a moment more than limit are
// open when more than limit are in use at once.
type files struct {
	limit int
	open  func(path string, flag int) (file, error)

	mu     sync.Mutex
	byPath map[string]*handle
	idle   list.List // of *handle, longest idle first
}

// handle is one open file, shared by all who use it at the same time.
type handle struct {
	file
	path    string
	users   int
	idle    *list.Element // while it has no user
	dropped bool          // the last user closes it
}

func newFiles(limit int, open func(path string, flag int) (file, error)) *files {
	return &files{limit: limit, open: open, byPath: map[string]*handle{}}
}

// acquire opens path, with O_CREATE if create is set, or shares it if it is open
// already. Whoever acquires releases.
func (fs *files) acquire(path string, create bool) (*handle, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if h := fs.byPath[path]; h != nil {
		if h.idle != nil {
			fs.idle.Remove(h.idle)
			h.idle = nil
		}
		h.users++
		return h, nil
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := fs.open(path, flag)
	if err != nil {
		return nil, err
	}
	h := &handle{file: f, path: path, users: 1}
	fs.byPath[path] = h
	fs.trim()
	return h, nil
}

func (fs *files) release(h *handle) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	h.users--
	switch {
	case h.users > 0:
	case h.dropped:
		h.Close() // what was acknowledged is synced
	default:
		h.idle = fs.idle.PushBack(h)
		fs.trim()
	}
}

// drop forgets path, whose file was removed or renamed; it is closed as soon as
// nobody uses it.
func (fs *files) drop(path string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if h := fs.byPath[path]; h != nil {
		fs.forget(h)
	}
}

// close drops every file.
func (fs *files) close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, h := range fs.byPath {
		fs.forget(h)
	}
}

func (fs *files) trim() {
	for len(fs.byPath) > fs.limit && fs.idle.Len() > 0 {
		fs.forget(fs.idle.Front().Value.(*handle))
	}
}

func (fs *files) forget(h *handle) {
	delete(fs.byPath, h.path)
	h.dropped = true
	if h.idle != nil {
		fs.idle.Remove(h.idle)
		h.idle = nil
		h.Close() // what was acknowledged is synced
	}
}
