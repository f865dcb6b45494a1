package update

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"aead.dev/minisign"
	"github.com/minio/selfupdate"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// selfTestTime bounds the first start of a new program, which only tells its version.
const selfTestTime = 10 * time.Second

// Release is one version of the program for one platform, as it is offered.
type Release struct {
	Version   string
	OS, Arch  string
	SHA256    fleet.Digest
	Size      int64
	Signature string // minisign's, as its file has it; the trusted comment is Comment
	Asked     string // by whom or when it was asked for, where it may be tried again
	Downgrade bool   // it may be older than what runs
}

// Comment is what the trusted comment of a release's signature says: the signature so
// covers for which version and which platform the bytes are.
func Comment(version, os, arch string) string { return "tugline " + version + " " + os + "/" + arch }

// A Refusal says why a release is not for this program. Nothing was done and nothing is
// remembered of it.
type Refusal struct{ why string }

func (r *Refusal) Error() string { return r.why }

func refuse(format string, a ...any) error { return &Refusal{fmt.Sprintf(format, a...)} }

// Admits says whether a release may be placed at all: for this platform, newer than what
// runs, and not tried before. The error is a *Refusal, or one of the disk.
func (s *Store) Admits(rel Release) error {
	rec, err := s.load()
	if err != nil {
		return err
	}
	return s.admits(rel, &rec)
}

func (s *Store) admits(rel Release, rec *Record) error {
	switch {
	case !fleet.IsVersion(rel.Version):
		return refuse("%q names no version", rel.Version)
	case rel.OS != runtime.GOOS || rel.Arch != runtime.GOARCH:
		return refuse("%s is for %s/%s, this machine is %s/%s", rel.Version, rel.OS, rel.Arch, runtime.GOOS, runtime.GOARCH)
	case rel.Size <= 0 || rel.Size > fleet.MaxProgram:
		return refuse("%s has %d bytes; want 1 to %d", rel.Version, rel.Size, fleet.MaxProgram)
	}
	if order, ok := fleet.CompareVersions(rel.Version, s.running); ok && order == 0 {
		return refuse("%s runs already", s.running)
	} else if order < 0 && !rel.Downgrade {
		return refuse("%s is older than %s, which runs; ask for a downgrade to have it", rel.Version, s.running)
	}
	if t, ok := rec.tried(rel); ok {
		return refuse("%s was tried at %s and came to nothing: %s", rel.Version, t.At.Format(time.RFC3339), t.Why)
	}
	return nil
}

// Place verifies a release, puts it into a directory of its own, has it tell its version
// and makes it the present one: the next start takes it. On an error the present version
// is what it was. A *Refusal leaves no trace, nor does an end of ctx or an error of the
// reader; anything else is in the record as failed, and is not tried again.
func (s *Store) Place(ctx context.Context, rel Release, key string, from io.Reader) error {
	return s.locked(func() error {
		rec, err := s.load()
		if err != nil {
			return err
		}
		if err := s.admits(rel, &rec); err != nil {
			return err
		}
		cur, err := s.Current()
		if err != nil {
			return err
		}
		if cur != s.running {
			return refuse("version %s waits for a start already", cur)
		}
		now := rec.begin(s.running, rel, time.Now())
		input := &source{from: from}
		err = s.place(ctx, rel, key, input, now)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(context.Cause(ctx), s.save(rec))
		case input.err != nil:
			return fmt.Errorf("get %s: %w", rel.Version, input.err)
		}
		now.end(Failed, err.Error(), time.Now())
		if rec.State == Trying && rec.To == s.running {
			// The version that runs is itself not known to be good: the one before it still comes back for it.
			rec.Tried = now.Tried
			now = rec
		}
		if kept := s.save(now); kept != nil {
			s.log.Error("a failed update can't be recorded", "version", rel.Version, "err", kept)
		}
		return fmt.Errorf("update to %s failed: %w", rel.Version, err)
	})
}

// source tells a failed read from anything else, and counts.
type source struct {
	from io.Reader
	n    int64
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// place does one step after the other; each is durable before the next.
func (s *Store) place(ctx context.Context, rel Release, key string, from *source, rec Record) error {
	stage := s.versionDir(newPrefix + rel.Version)
	if err := errors.Join(os.RemoveAll(stage), os.Mkdir(stage, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(stage) // by then under its own name, if all went well
	s.step("begun", rel)
	file := filepath.Join(stage, program)
	if err := fetch(file, rel, key, from); err != nil {
		return err
	}
	s.step("verified", rel)

	// What is run may take the machine down: it is remembered first, so that it is
	// not run again.
	if err := s.save(rec); err != nil {
		return err
	}
	s.step("remembered", rel)
	if err := selfTest(ctx, file, rel); err != nil {
		return err
	}
	s.step("tested", rel)
	dir := s.versionDir(rel.Version)
	if err := errors.Join(os.RemoveAll(dir), os.Rename(stage, dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
		return err
	}
	s.step("placed", rel)

	// The record comes first: a version that starts and finds none would count as good.
	rec.State, rec.At = Trying, time.Now().UTC()
	if err := s.save(rec); err != nil {
		return err
	}
	s.step("recorded", rel)
	if err := s.point(rel.Version); err != nil {
		return err
	}
	s.step("switched", rel)
	return nil
}

func (s *Store) step(what string, rel Release) {
	s.log.Debug("update: "+what, "version", rel.Version)
}

// fetch reads the program into a file beside its signature, and gives it its name only
// when length, digest, signature and what was signed are right.
func fetch(file string, rel Release, key string, from *source) error {
	sum, err := hex.DecodeString(string(rel.SHA256))
	if err != nil || len(sum) != 32 {
		return fmt.Errorf("%q is no SHA-256", rel.SHA256)
	}
	if key == "" {
		return errors.New("no key of releases is pinned here")
	}
	var sig minisign.Signature
	if err := sig.UnmarshalText([]byte(rel.Signature)); err != nil {
		return fmt.Errorf("the signature can't be read: %w", err)
	}
	minisig := file + ".minisig"
	if err := os.WriteFile(minisig, []byte(rel.Signature), 0o644); err != nil {
		return err
	}
	v := selfupdate.NewVerifier()
	if err := v.LoadFromFile(minisig, key); err != nil {
		return fmt.Errorf("the pinned key or the signature can't be read: %w", err)
	}
	err = selfupdate.PrepareAndCheckBinary(io.LimitReader(from, rel.Size+1), selfupdate.Options{
		TargetPath: file, TargetMode: 0o755, Checksum: sum, Verifier: v,
	})
	switch {
	case from.n != rel.Size:
		return fmt.Errorf("%d bytes came of %d", from.n, rel.Size)
	case err != nil:
		return err
	case sig.TrustedComment != Comment(rel.Version, rel.OS, rel.Arch):
		return fmt.Errorf("what was signed is %q, not %q", sig.TrustedComment, Comment(rel.Version, rel.OS, rel.Arch))
	}
	made := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new") // by the library
	st, err := os.Stat(made)
	if err != nil {
		return err
	}
	if st.Size() != rel.Size {
		return fmt.Errorf("%d bytes of %d were written", st.Size(), rel.Size)
	}
	return errors.Join(syncFile(made), syncFile(minisig), os.Rename(made, file), durable.SyncDir(filepath.Dir(file)))
}

// selfTest has the new program tell what it is.
func selfTest(ctx context.Context, file string, rel Release) error {
	ctx, cancel := context.WithTimeout(ctx, selfTestTime)
	defer cancel()
	res, err := process.Run(ctx, process.Cmd{Argv: []string{file, "version", "--json"}, Dir: filepath.Dir(file), Env: []string{"PATH=/usr/bin:/bin"}, Limit: 64 << 10})
	if err != nil {
		return fmt.Errorf("the new program does not start: %w", err)
	}
	var is struct {
		Version string `json:"version"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}
	if err := json.Unmarshal(res.Stdout, &is); err != nil {
		return fmt.Errorf("the new program does not tell its version: %w", err)
	}
	if order, ok := fleet.CompareVersions(is.Version, rel.Version); !ok || order != 0 || is.OS != rel.OS || is.Arch != rel.Arch {
		return fmt.Errorf("the new program is %s for %s/%s, declared is %s for %s/%s", is.Version, is.OS, is.Arch, rel.Version, rel.OS, rel.Arch)
	}
	return nil
}
