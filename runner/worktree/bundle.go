package worktree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// A bundleFile is an open bundle behind its header, at the pack.
type bundleFile struct {
	heads         []bundleHead
	prerequisites []string
	pack          io.Reader
	file          *os.File
}

// A bundleHead is one ref of a bundle.
type bundleHead struct{ sha, ref string }

const maxHeader = 1 << 20

// openBundle reads the header. git's own check walks the HEADs of all worktrees and fails while one is being made.
func openBundle(path string) (*bundleFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault(fleet.InputMissing, err, "the bundle %s is not there", path)
	}
	if err != nil {
		return nil, err
	}
	b := &bundleFile{file: f}
	if err := b.readHeader(); err != nil {
		_ = f.Close()
		return nil, fault(fleet.BadRequest, err, "%s is no git bundle (%v); make it again", path, err)
	}
	return b, nil
}

func (b *bundleFile) close() { _ = b.file.Close() }

func (b *bundleFile) readHeader() error {
	r := bufio.NewReaderSize(b.file, 64<<10)
	b.pack = r
	version, err := r.ReadSlice('\n')
	if err != nil || string(version) != "# v2 git bundle\n" && string(version) != "# v3 git bundle\n" {
		return errors.New("it does not begin like one")
	}
	for read := 0; ; {
		line, err := r.ReadSlice('\n')
		if read += len(line); err != nil || read > maxHeader {
			return errors.New("its header is cut off or too long")
		}
		text := string(line[:len(line)-1])
		switch {
		case text == "":
			if len(b.heads) == 0 {
				return errors.New("it names no ref")
			}
			return nil
		case text[0] == '@':
			if strings.HasPrefix(text, "@filter=") {
				return errors.New("it is a partial one")
			}
		case text[0] == '-':
			sha, _, _ := strings.Cut(text[1:], " ")
			if !isSHA(sha) {
				return errors.New("its header is damaged")
			}
			b.prerequisites = append(b.prerequisites, sha)
		default:
			sha, ref, ok := strings.Cut(text, " ")
			if !ok || !isSHA(sha) || strings.HasPrefix(ref, "-") {
				return errors.New("its header is damaged")
			}
			b.heads = append(b.heads, bundleHead{sha, ref})
		}
	}
}

// pick chooses the ref of a bundle: the one at want, else HEAD, else the only one.
func (b *bundleFile) pick(want string) (bundleHead, error) {
	for _, h := range b.heads {
		if want != "" && h.sha == want {
			return h, nil
		}
	}
	for _, h := range b.heads {
		if h.ref == "HEAD" || len(b.heads) == 1 {
			return h, nil
		}
	}
	return bundleHead{}, fault(fleet.BadRequest, nil, "the bundle %s names %d refs and none of them is HEAD; a bundle of one ref is wanted", b.file.Name(), len(b.heads))
}

// find gives a ref by its full or short name; "" is pick.
func (b *bundleFile) find(name string) (bundleHead, error) {
	if name == "" {
		return b.pick("")
	}
	for _, h := range b.heads {
		if h.ref == name || h.ref == "refs/heads/"+name {
			return h, nil
		}
	}
	return bundleHead{}, fault(fleet.RefMissing, nil, "the bundle %s does not hold %s", b.file.Name(), name)
}

// checkPrerequisites fails with input_missing if the bundle builds on commits that a repository does not have.
func (b *bundleFile) checkPrerequisites(ctx context.Context, g git, dir string) error {
	var lacks []string
	for _, sha := range b.prerequisites {
		has, err := g.commit(ctx, dir, sha)
		if err != nil {
			return err
		}
		if has == "" && len(lacks) < 3 {
			lacks = append(lacks, sha)
		}
	}
	if len(lacks) > 0 {
		return fault(fleet.InputMissing, nil, "the bundle builds on commits that are not here (%s); fetch them first, or make a bundle without prerequisites", strings.Join(lacks, ", "))
	}
	return nil
}

// writeBundle packs what tip has beyond the prerequisites into a bundle with one ref, and verifies it. git itself would
// name every commit at the border as a prerequisite; here it is exactly those given, which must together reach all of
// them.
func (g git) writeBundle(ctx context.Context, dir, path string, prerequisites []string, tip, ref string) (written, error) {
	var revs, header strings.Builder
	header.WriteString("# v2 git bundle\n")
	if len(tip) == 64 {
		header.Reset()
		header.WriteString("# v3 git bundle\n@object-format=sha256\n")
	}
	revs.WriteString(tip + "\n")
	for _, p := range prerequisites {
		revs.WriteString("^" + p + "\n")
		header.WriteString("-" + p + " \n")
	}
	header.WriteString(tip + " " + ref + "\n\n")
	out, err := writeFile(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, header.String()); err != nil {
			return err
		}
		_, err := g.run(ctx, call{dir: dir, stdout: w, stdin: strings.NewReader(revs.String()),
			args: []string{"pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"}})
		return err
	})
	if err != nil {
		return out, fmt.Errorf("write bundle: %w", err)
	}
	if err := g.verifyBundle(ctx, dir, path, bundleHead{tip, ref}); err != nil {
		return out, fmt.Errorf("verify bundle: %w", err)
	}
	return out, nil
}

// verifyBundle reads a bundle back: its header, and with git every object of its pack.
func (g git) verifyBundle(ctx context.Context, dir, path string, want bundleHead) error {
	b, err := openBundle(path)
	if err != nil {
		return err
	}
	defer b.close()
	if len(b.heads) != 1 || b.heads[0] != want {
		return fault(fleet.Internal, nil, "the bundle that was just written names %v instead of %v", b.heads, want)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	inner, err := g.aside(ctx, dir, tmp)
	if err != nil {
		return err
	}
	_, err = inner.run(ctx, call{dir: dir, stdin: b.pack, args: []string{"index-pack", "--stdin", "--fix-thin"}})
	return err
}

// aside gives a git that reads the repository's objects and writes new ones below tmp.
func (g git) aside(ctx context.Context, dir, tmp string) (git, error) {
	objects, err := g.line(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return g, err
	}
	own := filepath.Join(tmp, "objects")
	if err := os.MkdirAll(filepath.Join(own, "info"), 0o700); err != nil {
		return g, err
	}
	if err := os.WriteFile(filepath.Join(own, "info", "alternates"), []byte(objects+"\n"), 0o600); err != nil {
		return g, err
	}
	return g.with("GIT_OBJECT_DIRECTORY=" + own), nil
}
