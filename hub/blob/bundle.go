package blob

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

const (
	// MaxBundleHeader is the most bytes that are read for a bundle's header.
	MaxBundleHeader = 4 << 20

	// MaxBundleRefs is the most references, and prerequisites, of a bundle.
	MaxBundleRefs = 20000
)

// BundleHeader is what a git bundle says about itself before its pack.
type BundleHeader struct {
	Version       int               // 2 or 3
	ObjectFormat  string            // sha1 or sha256: how object ids are made
	Filter        string            // what was left out of the pack; empty: nothing
	Prerequisites []string          // ids of commits that the receiver must have
	Refs          map[string]string // reference name → object id
}

// ReadBundleHeader reads the header of a git bundle of version 2 or 3 and checks
// that a pack begins after it; the pack itself is not looked at. Since it does not
// run git, what the header claims is proven only by whoever unpacks the bundle. It
// may read beyond the header. Errors: fleet.BadRequest if it is no such header,
// TooLarge, and what r fails with.
func ReadBundleHeader(r io.Reader) (BundleHeader, error) {
	b := bundleReader{
		in: bufio.NewReader(io.LimitReader(r, MaxBundleHeader+1)),
		h:  BundleHeader{ObjectFormat: "sha1", Refs: map[string]string{}},
	}
	err := b.read()
	if errors.Is(err, io.EOF) {
		err = malformed("it ends within its header")
		if b.taken > MaxBundleHeader {
			err = fmt.Errorf("header of more than %d bytes: %w", MaxBundleHeader, fleet.TooLarge)
		}
	}
	if err != nil {
		return BundleHeader{}, fmt.Errorf("read git bundle: %w", err)
	}
	return b.h, nil
}

type bundleReader struct {
	in    *bufio.Reader
	taken int
	h     BundleHeader
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), fleet.BadRequest)
}

func (b *bundleReader) read() error {
	line, err := b.line()
	switch {
	case err != nil:
		return err
	case line == "# v2 git bundle":
		b.h.Version = 2
	case line == "# v3 git bundle":
		b.h.Version = 3
	default:
		return malformed("the first line %.40q is not that of version 2 or 3", line)
	}
	for {
		line, err = b.line()
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		if err := b.entry(line); err != nil {
			return err
		}
	}
	pack := make([]byte, 4)
	n, err := io.ReadFull(b.in, pack)
	b.taken += n
	if err == nil && string(pack) != "PACK" {
		err = malformed("%q instead of a pack after the header", pack)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return err
}

// line reads a line without its end.
func (b *bundleReader) line() (string, error) {
	line, err := b.in.ReadBytes('\n')
	b.taken += len(line)
	if err != nil {
		return "", err
	}
	return string(line[:len(line)-1]), nil
}

// entry reads a capability, a prerequisite or a reference, which come in this
// order.
func (b *bundleReader) entry(line string) error {
	switch {
	case line[0] == '@':
		return b.capability(line[1:])
	case line[0] == '-':
		id, _, err := b.object(line[1:])
		if err != nil {
			return err
		}
		if len(b.h.Refs) > 0 {
			return malformed("a prerequisite after the references")
		}
		if len(b.h.Prerequisites) == MaxBundleRefs {
			return fmt.Errorf("more than %d prerequisites: %w", MaxBundleRefs, fleet.TooLarge)
		}
		b.h.Prerequisites = append(b.h.Prerequisites, id)
		return nil
	}
	id, name, err := b.object(line)
	if err != nil {
		return err
	}
	if !refName(name) {
		return malformed("reference name %.80q", name)
	}
	if other, ok := b.h.Refs[name]; ok && other != id {
		return malformed("reference %.80q twice", name)
	}
	if len(b.h.Refs) == MaxBundleRefs {
		return fmt.Errorf("more than %d references: %w", MaxBundleRefs, fleet.TooLarge)
	}
	b.h.Refs[name] = id
	return nil
}

func (b *bundleReader) capability(text string) error {
	if b.h.Version < 3 || len(b.h.Prerequisites) > 0 || len(b.h.Refs) > 0 {
		return malformed("capability %.80q where none may be", text)
	}
	key, value, _ := strings.Cut(text, "=")
	switch {
	case key == "object-format" && (value == "sha1" || value == "sha256"):
		b.h.ObjectFormat = value
	case key == "filter" && value != "":
		b.h.Filter = value
	default:
		// A reader must not go on without knowing what one means.
		return malformed("unknown capability %.80q", text)
	}
	return nil
}

// object splits an object id from what follows it after a space, if anything does.
func (b *bundleReader) object(text string) (id, rest string, err error) {
	id, rest, _ = strings.Cut(text, " ")
	digits := 40
	if b.h.ObjectFormat == "sha256" {
		digits = 64
	}
	if len(id) != digits || strings.Trim(id, "0123456789abcdef") != "" {
		return "", "", malformed("%.80q does not begin with an object id of %d digits", text, digits)
	}
	return id, rest, nil
}

// refName says whether name can be used as a reference without being taken for
// something else: HEAD, or a path below refs/ in git's alphabet.
func refName(name string) bool {
	if name == "HEAD" {
		return true
	}
	if !strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return bytes.IndexFunc([]byte(name), func(c rune) bool {
		return c < ' ' || c == 0x7f || strings.ContainsRune(" ~^:?*[\\", c)
	}) < 0
}
