package inventory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// Bounds of one look. What is over them is left out.
const (
	lookTime    = 5 * time.Second
	maxEntries  = 50_000   // of directories
	maxBytes    = 96 << 20 // read
	headBytes   = 512 << 10
	tailBytes   = 128 << 10
	detailBytes = 4 << 20
	maxDocument = 1 << 20 // a JSON value: a file, or a line of one
	maxParts    = 100     // of one message
	minLine     = 16      // bytes of one that says something
	maxDir      = 1 << 10 // bytes of a working directory; a longer one is no session
)

// look is one look at the machine, with what is left of its bounds.
type look struct {
	cfg     Config
	own     []string // the names of cfg.Skip
	ctx     context.Context
	until   time.Time
	entries int
	bytes   int64
}

func newLook(ctx context.Context, cfg Config) *look {
	l := &look{cfg: cfg, ctx: ctx, until: time.Now().Add(lookTime), entries: maxEntries, bytes: maxBytes}
	if cfg.Skip == "" {
		return l
	}
	if own, err := filepath.Abs(cfg.Skip); err == nil {
		l.own = append(l.own, own)
		if real, err := filepath.EvalSymlinks(own); err == nil && real != own {
			l.own = append(l.own, real) // where a CLI says that it is
		}
	}
	return l
}

// spent says whether the look must end.
func (l *look) spent() bool {
	return l.ctx.Err() != nil || l.bytes <= 0 || time.Now().After(l.until)
}

// folder is the folder of an agent. Nothing outside it is reached by its methods,
// whatever links say.
type folder struct {
	l    *look
	root *os.Root
}

func (l *look) open(home string) (folder, error) {
	r, err := os.OpenRoot(home)
	return folder{l, r}, err
}

func (f folder) close() { _ = f.root.Close() }

// found is a regular file.
type found struct {
	name string
	mod  time.Time
}

// files lists the regular files below a directory whose path want takes, down to so
// many levels. Directories are gone through by name, the greatest first: where names
// are dates, what is left out at the bound is the oldest.
func (f folder) files(dir string, depth int, want func(name string) bool) []found {
	if f.l.spent() || f.l.entries <= 0 {
		return nil
	}
	d, err := f.root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	var all []fs.DirEntry
	for f.l.entries > 0 && !f.l.spent() {
		some, err := d.ReadDir(min(f.l.entries, 1024))
		f.l.entries -= len(some)
		all = append(all, some...)
		if err != nil {
			break
		}
	}
	_ = d.Close()
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(b.Name(), a.Name()) })
	var out []found
	for _, e := range all {
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && depth > 0:
			out = append(out, f.files(name, depth-1, want)...)
		case e.Type().IsRegular() && want(name):
			if info, err := e.Info(); err == nil {
				out = append(out, found{name, info.ModTime()})
			}
		}
	}
	return out
}

var errNoFile = errors.New("it is no regular file")

// file opens a regular file. What else has the name, a pipe for example, is not waited for.
func (f folder) file(name string) (*os.File, int64, error) {
	file, err := f.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, st.Size(), nil
}

// part reads at most n bytes of a file from an offset.
func (l *look) part(file *os.File, from, n int64) []byte {
	n = min(n, max(l.bytes, 0))
	b, err := io.ReadAll(io.NewSectionReader(file, from, n))
	l.bytes -= int64(len(b))
	if err != nil {
		return nil
	}
	return b
}

// document reads a file that is one JSON value.
func (f folder) document(name string) []byte {
	file, size, err := f.file(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	if size > maxDocument {
		return nil
	}
	return f.l.part(file, 0, maxDocument)
}

// ends gives the lines at the beginning and at the end of a file; a line is in one of
// the two at most. Those at the borders may be cut, and are then no JSON.
func (f folder) ends(name string) (head, tail [][]byte) {
	file, size, err := f.file(name)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	head = lines(f.l.part(file, 0, headBytes))
	if size > headBytes {
		tail = lines(f.l.part(file, max(size-tailBytes, headBytes), tailBytes))
	}
	return head, tail
}

// last gives the lines at the end of a file, and whether there are more before them.
func (f folder) last(name string, n int64) (all [][]byte, more bool) {
	file, size, err := f.file(name)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	from := max(size-n, 0)
	return lines(f.l.part(file, from, n)), from > 0
}

// lines gives the lines that may say something: no other is worth its place in memory.
func lines(b []byte) (all [][]byte) {
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if len(line) >= minLine && len(line) <= maxDocument {
			all = append(all, line)
		}
	}
	return all
}

// elements gives the first of a JSON array. One of another type than is known is empty.
func elements[T any](raw json.RawMessage) (all []T) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil
	}
	for d.More() && len(all) < maxParts {
		var v T
		var wrong *json.UnmarshalTypeError
		if err := d.Decode(&v); err != nil && !asType(err, &wrong) {
			return all
		}
		all = append(all, v)
	}
	return all
}

func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	uuidForm = lazily(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	sesForm  = lazily(`^ses_[A-Za-z0-9]{1,64}$`)
)

func isUUID(id string) bool { return uuidForm().MatchString(id) }

// known says whether an id has a form that one of the agents gives.
func known(id string) bool {
	return len(id) <= fleet.MaxSessionID && (isUUID(id) || sesForm().MatchString(id))
}

// usable says whether a working directory is one.
func usable(dir string) bool {
	return filepath.IsAbs(dir) && len(dir) <= maxDir && plain(dir) == dir && filepath.Clean(dir) == dir
}
