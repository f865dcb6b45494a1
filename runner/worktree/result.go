package worktree

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const maxCommits = 200

// describe proves and writes down the result from base to the job's branch.
func (s *Store) describe(ctx context.Context, rec *record, req HarvestRequest, res *Result) error {
	c := s.cacheAt(rec.Cache, rec.Generation, rec.URL)
	found, err := c.git.lookUp(ctx, c.path, rec.branchRef()+"^{commit}", rec.branchRef()+"^{tree}")
	if err != nil {
		return err
	}
	tip := found[0]
	res.Tip, res.Tree = found[0], found[1]
	if tip == "" {
		res.Descends = rec.Base == ""
		return nil
	}
	res.Descends = rec.Base == ""
	if !res.Descends {
		if res.Descends, err = c.git.isAncestor(ctx, c.path, rec.Base, tip); err != nil {
			return err
		}
	}
	if !res.Descends {
		res.note("%s does not descend from the starting commit: its history was rewritten or replaced", rec.Branch)
	}
	span := []string{tip}
	if rec.Base != "" {
		span = append(span, "^"+rec.Base)
	}
	if res.CommitCount, err = c.git.count(ctx, c.path, append([]string{"rev-list", "--count"}, span...)...); err != nil || res.CommitCount == 0 {
		return err
	}
	if res.Commits, err = c.git.commits(ctx, c.path, span); err != nil {
		return err
	}
	from := rec.Base
	if from == "" {
		if from, err = c.git.emptyTree(ctx, c.path); err != nil {
			return err
		}
	}
	if res.Stat, err = c.git.stat(ctx, c.path, from, tip); err != nil {
		return err
	}
	if err := c.noteLinks(ctx, from, tip, res); err != nil {
		return err
	}
	if isDir(filepath.Join(c.path, "lfs", "objects")) {
		res.note("the repository uses Git LFS; patch and bundle carry pointers, the contents go along with a push only")
	}
	if err := os.MkdirAll(req.Out, 0o700); err != nil {
		return err
	}
	patch, err := writeFile(filepath.Join(req.Out, "result.patch"), func(w io.Writer) error {
		_, err := c.git.run(ctx, call{dir: c.path, stdout: w, args: diffArgs("--patch", "--binary", "--full-index", from, tip)})
		return err
	})
	if err != nil {
		return fmt.Errorf("write patch: %w", err)
	}
	if patch.size > 0 {
		res.PatchPath, res.PatchSHA256, res.PatchSize = patch.path, patch.sha256, patch.size
	}
	var prerequisites []string
	if rec.Base != "" {
		prerequisites = []string{rec.Base}
	}
	bundle, err := c.git.writeBundle(ctx, c.path, filepath.Join(req.Out, "result.bundle"), prerequisites, tip, rec.branchRef())
	if err != nil {
		return err
	}
	res.BundlePath, res.BundleSHA256, res.BundleSize = bundle.path, bundle.sha256, bundle.size
	return nil
}

func diffArgs(more ...string) []string {
	return append([]string{"diff-tree", "-r", "-M", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none",
		"--src-prefix=a/", "--dst-prefix=b/", "--no-relative"}, more...)
}

func (g git) commits(ctx context.Context, dir string, span []string) ([]Commit, error) {
	args := []string{"log", "-z", "--no-show-signature", "--no-notes", "--no-mailmap", "--topo-order", "--max-count=" + strconv.Itoa(maxCommits), "--format=%H%n%ct%n%an <%ae>%n%s"}
	out, err := g.list(ctx, dir, append(append(args, span...), "--")...)
	if err != nil {
		return nil, err
	}
	commits := make([]Commit, len(out))
	for i, entry := range out {
		parts := strings.SplitN(entry, "\n", 4)
		if len(parts) != 4 {
			return nil, fmt.Errorf("read commits: unexpected entry %q", entry)
		}
		at, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read commits: time of %s: %w", parts[0], err)
		}
		commits[len(out)-1-i] = Commit{SHA: parts[0], At: time.Unix(at, 0).UTC(), Author: strings.ToValidUTF8(parts[2], "\uFFFD"), Subject: strings.ToValidUTF8(parts[3], "\uFFFD")}
	}
	return commits, nil
}

var statForm = lazily(`(\d+) (file|insertion|deletion)`)

func (g git) stat(ctx context.Context, dir, from, to string) (Stat, error) {
	out, err := g.line(ctx, dir, diffArgs("--shortstat", from, to)...)
	var st Stat
	for _, m := range statForm().FindAllStringSubmatch(out, -1) {
		n, convErr := strconv.Atoi(m[1])
		err = errors.Join(err, convErr)
		switch m[2] {
		case "file":
			st.Files = n
		case "insertion":
			st.Insertions = n
		default:
			st.Deletions = n
		}
	}
	return st, err
}

// noteLinks says where a result points to commits of other repositories, which no bundle of this one carries.
func (c *cache) noteLinks(ctx context.Context, from, tip string, res *Result) error {
	out, err := c.git.list(ctx, c.path, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none", from, tip)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(out); i += 2 {
		if parts := strings.Fields(out[i]); len(parts) == 5 && parts[1] == "160000" {
			res.note("%q points to commit %.12s of a submodule; the result does not carry that commit, push it where the submodule comes from", out[i+1], parts[3])
		}
	}
	return nil
}

// A written file with its digest.
type written struct {
	path, sha256 string
	size         int64
}

// writeFile lets fill write a file that appears whole or not at all.
func writeFile(path string, fill func(io.Writer) error) (written, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return written{}, err
	}
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(f, sum), 64<<10)
	err = fill(buf)
	if err == nil {
		err = errors.Join(buf.Flush(), f.Sync())
	}
	size, seekErr := f.Seek(0, io.SeekCurrent)
	err = errors.Join(err, seekErr, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return written{}, err
	}
	return written{path: path, sha256: hex.EncodeToString(sum.Sum(nil)), size: size}, nil
}
