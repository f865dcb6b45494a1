package attempt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

const (
	minMaskedEnv    = 8        // bytes of an environment value that looks like a key by its name
	minMaskedSecret = 4        // bytes of a secret; a shorter one would mask ordinary words
	maxPattern      = 16 << 10 // bytes of one value; of a longer one its beginning is looked for
)

// keyNames are names of variables whose values are taken for keys.
var keyNames = []string{"*KEY*", "*TOKEN*", "*SECRET*", "*PASSWORD*"}

func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(keyNames, func(p string) bool { ok, _ := path.Match(p, name); return ok })
}

// mask replaces values by asterisks of the same length, so that offsets stay what
// they are. It knows a value as it is, as JSON and as a part of a URL writes it;
// other disguises pass. The zero value masks nothing.
type mask struct {
	patterns [][]byte
	longest  int
}

// Hider gives what masks, in any text, the values that a job's output would be masked
// of: the owner's secrets, and those of variables whose names look like keys.
func Hider(environ []string, secrets map[string]string) func(string) string {
	var values []string
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); looksSecret(name) && len(value) >= minMaskedEnv {
			values = append(values, value)
		}
	}
	for _, value := range secrets {
		if len(value) >= minMaskedSecret {
			values = append(values, value)
		}
	}
	return newMask(values).text
}

// newMask makes a mask of the values to hide; it is the same for the same set.
func newMask(values []string) mask {
	var m mask
	for _, v := range values {
		v = v[:min(len(v), maxPattern)]
		if v == "" {
			continue
		}
		forms := []string{v, url.QueryEscape(v), url.PathEscape(v)}
		if b, err := json.Marshal(v); err == nil {
			forms = append(forms, string(b[1:len(b)-1]))
		}
		var plain strings.Builder
		enc := json.NewEncoder(&plain)
		enc.SetEscapeHTML(false)
		if enc.Encode(v) == nil {
			s := strings.TrimSuffix(plain.String(), "\n")
			forms = append(forms, s[1:len(s)-1])
		}
		for _, f := range forms {
			m.patterns = append(m.patterns, []byte(f))
		}
	}
	slices.SortFunc(m.patterns, func(a, b []byte) int { return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b)) })
	m.patterns = slices.CompactFunc(m.patterns, bytes.Equal)
	if len(m.patterns) > 0 {
		m.longest = len(m.patterns[0])
	}
	return m
}

func (m mask) empty() bool { return len(m.patterns) == 0 }

// spans calls hide for every occurrence of a value in b; they may overlap.
func (m mask) spans(b []byte, hide func(from, to int)) {
	for _, p := range m.patterns {
		for at := 0; ; {
			i := bytes.Index(b[at:], p)
			if i < 0 {
				break
			}
			hide(at+i, at+i+len(p))
			at += i + 1
		}
	}
}

// open gives the earliest position in b from which a value may begin that b does not
// show whole; len(b) if there is none.
func (m mask) open(b []byte) int {
	for s := max(0, len(b)-m.longest+1); s < len(b); s++ {
		for _, p := range m.patterns {
			if len(p) > len(b)-s && bytes.HasPrefix(p, b[s:]) {
				return s
			}
		}
	}
	return len(b)
}

// whole masks b in place and says whether there was anything to hide.
func (m mask) whole(b []byte) bool {
	hit := false
	var spans [][2]int
	m.spans(b, func(from, to int) { spans = append(spans, [2]int{from, to}) })
	for _, s := range spans {
		hit = true
		stars(b[s[0]:s[1]])
	}
	return hit
}

func (m mask) text(s string) string {
	if m.empty() || s == "" {
		return s
	}
	b := []byte(s)
	if !m.whole(b) {
		return s
	}
	return string(b)
}

func stars(b []byte) {
	for i := range b {
		b[i] = '*'
	}
}

// event masks every text of an event. Raw parts are masked inside their strings, so
// that they stay JSON.
func (m mask) event(e fleet.Event) fleet.Event {
	if m.empty() {
		return e
	}
	for _, s := range []*string{&e.ID, &e.Turn, &e.Text, &e.Command, &e.Output, &e.Server, &e.Tool, &e.Query} {
		*s = m.text(*s)
	}
	e.Changes = slices.Clone(e.Changes)
	for i := range e.Changes {
		e.Changes[i].Path = m.text(e.Changes[i].Path)
	}
	e.Items = slices.Clone(e.Items)
	for i := range e.Items {
		e.Items[i].Text = m.text(e.Items[i].Text)
	}
	e.Arguments, e.Result, e.Raw = m.raw(e.Arguments), m.raw(e.Result), m.raw(e.Raw)
	return e
}

func (m mask) raw(r json.RawMessage) json.RawMessage {
	if len(r) == 0 {
		return r
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(r))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	hit := false
	v = m.walk(v, &hit)
	if !hit {
		return r
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

func (m mask) walk(v any, hit *bool) any {
	switch v := v.(type) {
	case string:
		s := m.text(v)
		*hit = *hit || s != v
		return s
	case []any:
		for i := range v {
			v[i] = m.walk(v[i], hit)
		}
	case map[string]any:
		for k, x := range v {
			x = m.walk(x, hit)
			if masked := m.text(k); masked != k {
				*hit = true
				delete(v, k)
				k = masked
			}
			v[k] = x
		}
	}
	return v
}

// frameMask masks a stream of frames. Values are found across the borders of frames
// of the same kind. What it gives out has the length of what it took; a byte that
// may belong to the beginning of a value waits for the ones after it.
type frameMask struct {
	mask mask
	buf  []byte // frames taken and not given out; base is the offset of its first byte
	base int64
	part int                         // bytes at the end of buf that are no whole frame yet
	tail [fleet.FrameMark]unfinished // by kind
}

// unfinished is the end of a kind's bytes, as they were, that may begin a value.
type unfinished struct {
	bytes []byte
	pos   []int64 // of each byte in the stream
}

// write takes bytes of the stream. The error wraps fleet.ErrBadFrame.
func (f *frameMask) write(p []byte) error {
	f.buf = append(f.buf, p...)
	f.part += len(p)
	for f.part > 0 {
		at := len(f.buf) - f.part
		fr, n, err := fleet.DecodeFrame(f.buf[at:])
		if err == fleet.ErrShort {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mask output at byte %d: %w", f.base+int64(at), err)
		}
		f.part -= n
		f.frame(fr, at+n-len(fr.Payload))
	}
	return nil
}

func (f *frameMask) frame(fr fleet.Frame, at int) {
	if f.mask.empty() {
		return
	}
	if fr.Kind == fleet.FrameMark { // bytes are missing here: nothing goes on over the gap
		f.tail = [fleet.FrameMark]unfinished{}
		return
	}
	t := &f.tail[fr.Kind]
	old := len(t.pos)
	t.bytes = append(t.bytes, fr.Payload...)
	place := func(i int) int64 { // of the i-th of t.bytes in the stream
		if i < old {
			return t.pos[i]
		}
		return f.base + int64(at+i-old)
	}
	f.mask.spans(t.bytes, func(from, to int) {
		for i := from; i < to; i++ {
			f.buf[place(i)-f.base] = '*'
		}
	})
	keep := f.mask.open(t.bytes)
	pos := make([]int64, 0, len(t.bytes)-keep)
	for i := keep; i < len(t.bytes); i++ {
		pos = append(pos, place(i))
	}
	t.bytes, t.pos = append([]byte(nil), t.bytes[keep:]...), pos
}

// take gives what is ready, in order. end says that nothing more comes: then
// everything is.
func (f *frameMask) take(end bool) []byte {
	ready := len(f.buf)
	if !end {
		ready -= f.part
		for _, t := range f.tail {
			if len(t.pos) > 0 {
				ready = min(ready, int(t.pos[0]-f.base))
			}
		}
	}
	out := f.buf[:ready:ready]
	f.buf = append([]byte(nil), f.buf[ready:]...)
	f.base += int64(ready)
	return out
}
