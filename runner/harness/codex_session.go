package harness

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"tugline.dev/tugline/shared/fleet"
)

// SessionModel gives the model that the CLI's own record of a session names last, "" if there is none to be read.
// It is for the CLIs whose stream does not report a model; env is the environment of the run. What it finds is a
// fact of this machine, not of the recorded frames.
func (h *Harness) SessionModel(env []string, session string) string {
	if h.sessionModel == nil || !h.resumeID(session) {
		return ""
	}
	return h.sessionModel(env, session)
}

// maxSessionFile bounds how much of the end of a session's file is read, in bytes.
const maxSessionFile = 32 << 20

func codexSessionModel(env []string, session string) string {
	home, ok := folderOf(env, "CODEX_HOME", ".codex")
	if !ok {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(globQuote(home), "sessions", "*", "*", "*", "rollout-*-"+session+".jsonl"))
	if err != nil || len(files) == 0 {
		return ""
	}
	f, err := os.Open(slices.Max(files))
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	} else if st.Size() > maxSessionFile {
		if _, err := f.Seek(st.Size()-maxSessionFile, io.SeekStart); err != nil {
			return ""
		}
	}
	model := ""
	lines := lineBuffer{}
	take := func(l []byte, _ int64) {
		if !bytes.Contains(l, []byte(`"turn_context"`)) {
			return
		}
		var c struct {
			Type    string `json:"type"`
			Payload struct {
				Model string `json:"model"`
			} `json:"payload"`
		}
		if json.Unmarshal(l, &c) == nil && c.Type == "turn_context" && c.Payload.Model != "" {
			model = fleet.CutText(c.Payload.Model, fleet.MaxEventWord)
		}
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		lines.feed(buf[:n], take)
		if err != nil {
			return model
		}
	}
}

// globQuote makes a path that stands for itself in a pattern.
func globQuote(path string) string {
	var b bytes.Buffer
	for _, c := range []byte(path) {
		if bytes.IndexByte([]byte(`*?[\`), c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
