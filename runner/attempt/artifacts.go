package attempt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"tugline.dev/tugline/shared/fleet"
)

// Bounds of what an attempt may leave as artifacts. What is beyond is noted and not
// kept; it never makes a run fail.
const (
	maxArtifacts     = 100
	maxArtifactBytes = 2 << 30 // of all together
	maxArtifactName  = 200     // bytes
	maxArtifactLooks = 10_000  // entries of the directory that are looked at
)

func (a *Attempt) artifactsDir() string { return filepath.Join(a.scratchDir(), "artifacts") }

// artifactSet gathers the files of one directory.
type artifactSet struct {
	bytes int64 // that may still be taken
	files []fleet.Artifact
	blobs []deliveredBlob
	names map[string]bool
	looks int
	over  int      // files beyond a bound
	other int      // entries that are no regular files
	notes []string // of single files
}

// artifacts takes in the regular files that the run left in its artifacts directory,
// in the order of their names. Links are not followed.
func (a *Attempt) artifacts(ctx context.Context, m mask) *artifactSet {
	s := &artifactSet{bytes: maxArtifactBytes, names: map[string]bool{}}
	dir := a.artifactsDir()
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		if err == nil {
			s.notes = append(s.notes, "the artifacts directory was replaced by something else; nothing of it is kept")
		}
		return s
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if s.looks++; s.looks > maxArtifactLooks {
			s.notes = append(s.notes, fmt.Sprintf("the artifacts directory has over %d entries; the rest of it was not looked at", maxArtifactLooks))
			return fs.SkipAll
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.notes = append(s.notes, "artifacts could not be read: "+strings.ReplaceAll(err.Error(), dir+"/", ""))
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			s.other++
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return nil
		}
		s.take(path, m.text(filepath.ToSlash(rel)))
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.notes = append(s.notes, "artifacts could not be read: "+err.Error())
	}
	if s.over > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%d files of the artifacts directory are not kept: at most %d files and %d MiB in all are", s.over, maxArtifacts, maxArtifactBytes>>20))
	}
	if s.other > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%d entries of the artifacts directory are links or no files and are not kept", s.other))
	}
	return s
}

// take adds one file, if there is room.
func (s *artifactSet) take(path, rel string) {
	if len(s.files) >= maxArtifacts {
		s.over++
		return
	}
	size, digest, err := sumOf(path, s.bytes)
	switch {
	case errors.Is(err, fleet.TooLarge):
		s.over++
		return
	case err != nil:
		s.notes = append(s.notes, fmt.Sprintf("artifact %s could not be read", safeName(rel)))
		return
	}
	s.bytes -= size
	name := s.name(rel)
	s.files = append(s.files, fleet.Artifact{Name: name, Digest: digest, Size: size, Type: mime.TypeByExtension(filepath.Ext(name))})
	s.blobs = append(s.blobs, deliveredBlob{digest, path})
}

// name gives a safe name that no earlier file has.
func (s *artifactSet) name(rel string) string {
	base := safeName(rel)
	name := base
	for n := 2; s.names[name]; n++ {
		ext := filepath.Ext(base)
		name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(base, ext), n, ext)
	}
	s.names[name] = true
	return name
}

// safeName keeps letters, digits and a few signs of a relative path; anything else
// becomes an underscore. Of a long path the end is kept.
func safeName(rel string) string {
	name := strings.Map(func(r rune) rune {
		if r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+=@,", r)) {
			return r
		}
		return '_'
	}, rel)
	for len(name) > maxArtifactName {
		_, size := utf8.DecodeRuneInString(name)
		name = name[size:]
	}
	return strings.TrimLeft(name, "/")
}

// sumOf reads a regular file of at most limit bytes.
func sumOf(path string, limit int64) (int64, fleet.Digest, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return 0, "", err
	case !st.Mode().IsRegular():
		return 0, "", fs.ErrInvalid
	case st.Size() > limit:
		return 0, "", fleet.TooLarge
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fleet.TooLarge
	}
	return n, fleet.Digest(hex.EncodeToString(sum.Sum(nil))), err
}
