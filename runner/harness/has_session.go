package harness

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// What can be said of a CLI's session on this machine.
const (
	SessionThere   = "yes"
	SessionGone    = "no"
	SessionUnknown = "unknown"
)

// HasSession says whether a session can still be taken up on this machine, by a run
// in dir with the environment env. It looks at the CLI's own files and starts nothing.
// A form of storage that it does not know, or can't read, is unknown: then the CLI
// itself has to say it.
func (h *Harness) HasSession(env []string, dir, id string) string {
	if h.hasSession == nil || !h.resumeID(id) {
		return SessionUnknown
	}
	return h.hasSession(env, dir, id)
}

// folderOf gives the folder that a variable names, or the one under the user's home.
func folderOf(env []string, name, under string) (string, bool) {
	if v, _ := envValue(env, name); v != "" {
		return v, filepath.IsAbs(v)
	}
	home, _ := envValue(env, "HOME")
	return filepath.Join(home, under), filepath.IsAbs(home)
}

// matching lists the files that a pattern below a folder names. A folder that is not
// there has none; one that can't be read is an error.
func matching(folder string, pattern ...string) ([]string, error) {
	if _, err := os.ReadDir(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(append([]string{globQuote(folder)}, pattern...)...))
}

// codexHasSession looks for the session's rollout file. One that was archived, or has
// another ending, is the CLI's to judge.
func codexHasSession(env []string, _, id string) string {
	home, ok := folderOf(env, "CODEX_HOME", ".codex")
	if !ok {
		return SessionUnknown
	}
	id = strings.ToLower(id)
	found, err := matching(filepath.Join(home, "sessions"), "*", "*", "*", "rollout-*-"+id+".jsonl")
	switch {
	case err != nil:
		return SessionUnknown
	case len(found) > 0:
		return SessionThere
	}
	for _, pattern := range [][]string{{"sessions", "*", "*", "*"}, {"archived_sessions"}} {
		found, err := matching(home, append(pattern, "rollout-*-"+id+".*")...)
		if err != nil || len(found) > 0 {
			return SessionUnknown
		}
	}
	return SessionGone
}

// claudeHasSession looks into the folder of the working directory, the only one where
// the CLI looks. How that folder is named may differ (long paths, links): a session
// that lies in another one is the CLI's to judge.
func claudeHasSession(env []string, dir, id string) string {
	home, ok := folderOf(env, "CLAUDE_CONFIG_DIR", ".claude")
	if !ok {
		return SessionUnknown
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, dir)
	if st, err := os.Stat(filepath.Join(home, "projects", name, id+".jsonl")); err == nil && st.Mode().IsRegular() {
		return SessionThere
	}
	found, err := matching(filepath.Join(home, "projects"), "*", id+".jsonl")
	if err != nil || len(found) > 0 {
		return SessionUnknown
	}
	return SessionGone
}

// maxDatabase bounds the bytes of opencode's database that are looked through.
const maxDatabase = 2 << 30

// opencodeHasSession looks for the session's id in the bytes of the database: a row
// holds its key whole. Asking the CLI would take many seconds and half a GiB. An id
// that is only left over in a free page counts as there, and the CLI says that it is not.
func opencodeHasSession(env []string, _, id string) string {
	data, ok := folderOf(env, "XDG_DATA_HOME", filepath.Join(".local", "share"))
	if _, own := envValue(env, "OPENCODE_DB"); !ok || own {
		return SessionUnknown
	}
	folder := filepath.Join(data, "opencode")
	if found, err := matching(folder, "storage", "session", "*", id+".json"); err != nil || len(found) > 0 {
		return SessionUnknown // of an older version
	}
	files, err := matching(folder, "opencode*.db*")
	if err != nil {
		return SessionUnknown
	}
	left := int64(maxDatabase)
	for _, f := range files {
		has, err := contains(f, []byte(id), &left)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return SessionUnknown
		case has:
			return SessionThere
		}
	}
	return SessionGone
}

var errTooLong = errors.New("too many bytes to look through")

// contains looks for a word in a file, of which left bytes may be read.
func contains(file string, word []byte, left *int64) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false, errors.Join(err, fs.ErrNotExist)
	}
	buf := make([]byte, 1<<20)
	kept := 0 // bytes of the block before, in which the word may begin
	for {
		n, err := f.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], word) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if *left -= int64(n); *left < 0 {
			return false, errTooLong
		}
		kept = copy(buf, buf[max(0, kept+n-len(word)+1):kept+n])
	}
}
