package attempt

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// naive masks the way one would by hand: every occurrence, whole input.
func naive(b []byte, patterns [][]byte) []byte {
	out := bytes.Clone(b)
	for _, p := range patterns {
		for i := 0; i+len(p) <= len(b); i++ {
			if bytes.Equal(b[i:i+len(p)], p) {
				stars(out[i : i+len(p)])
			}
		}
	}
	return out
}

// However a stream is cut into frames and reads, the joined bytes of each kind come
// out as if they had been masked in one piece, and headers and lengths stay.
func TestFramesAreMaskedAcrossBorders(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 2, 6, -1)
		m := newMask(rapid.SliceOfN(word, 1, 4).Draw(rt, "values"))
		var raw []byte
		plain := map[fleet.FrameKind][]byte{}
		for range rapid.IntRange(1, 12).Draw(rt, "frames") {
			k := rapid.SampledFrom([]fleet.FrameKind{fleet.FrameStdout, fleet.FrameStderr}).Draw(rt, "kind")
			p := []byte(rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 0, 8, -1).Draw(rt, "payload"))
			raw = fleet.AppendFrame(raw, fleet.Frame{Kind: k, At: 7, Payload: p})
			plain[k] = append(plain[k], p...)
		}
		f := frameMask{mask: m}
		var got []byte
		for rest := raw; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "read")
			if err := f.write(rest[:n]); err != nil {
				rt.Fatal(err)
			}
			got = append(got, f.take(false)...)
			rest = rest[n:]
		}
		got = append(got, f.take(true)...)
		if len(got) != len(raw) {
			rt.Fatalf("%d bytes came out of %d", len(got), len(raw))
		}
		masked := map[fleet.FrameKind][]byte{}
		for in, out := raw, got; len(in) > 0; {
			a, n, err := fleet.DecodeFrame(in)
			if err != nil {
				rt.Fatal(err)
			}
			b, k, err := fleet.DecodeFrame(out)
			if err != nil || n != k || a.Kind != b.Kind || a.At != b.At {
				rt.Fatalf("frame %+v became %+v (%v)", a, b, err)
			}
			masked[b.Kind] = append(masked[b.Kind], b.Payload...)
			in, out = in[n:], out[k:]
		}
		for k, p := range plain {
			if want := naive(p, m.patterns); !bytes.Equal(masked[k], want) {
				rt.Fatalf("%v: %q became %q, want %q (values %q)", k, p, masked[k], want, m.patterns)
			}
		}
	})
}

func TestNoByteWaitsLongerThanItMust(t *testing.T) {
	f := frameMask{mask: newMask([]string{"hunter22"})}
	raw := fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, Payload: []byte("hello\n")})
	if err := f.write(raw); err != nil {
		t.Fatal(err)
	}
	if got := f.take(false); !bytes.Equal(got, raw) {
		t.Errorf("a frame that begins no value is held back: got %d of %d bytes", len(got), len(raw))
	}
	raw = fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStdout, Payload: []byte("say hunt")})
	_ = f.write(raw)
	if got := len(f.take(false)); got != len(raw)-4 {
		t.Errorf("%d of %d bytes given out, want all but the 4 that may begin a value", got, len(raw))
	}
	_ = f.write(fleet.AppendFrame(nil, fleet.MarkAt(0, fleet.Mark{DroppedBytes: 1, Reason: fleet.MarkOutputCap})))
	if got := f.take(false); !bytes.HasPrefix(got, []byte("hunt")) {
		t.Errorf("after a gap the held bytes come out, got %q", got)
	}
}

func TestEventsAreMaskedAndStayJSON(t *testing.T) {
	secret := "n\"12345<678"
	m := newMask([]string{secret})
	raw, _ := json.Marshal(map[string]any{"k": []any{"x\n12345", "is " + secret}, "n": 12.5})
	e := m.event(fleet.Event{Type: fleet.EventLog, Text: "it is " + secret + "!", Raw: raw,
		Changes: []fleet.FileChange{{Path: "/a/" + secret}}, Items: []fleet.TodoItem{{Text: secret}}})
	line := e.Line()
	if strings.Contains(string(line), "12345<") || strings.Contains(string(line), `12345\u003c`) {
		t.Errorf("the value is still in %s", line)
	}
	var back fleet.Event
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatalf("masked event is no JSON: %v: %s", err, line)
	}
	if want := "it is " + strings.Repeat("*", len(secret)) + "!"; back.Text != want {
		t.Errorf("text %q, want %q", back.Text, want)
	}
	if !strings.Contains(string(back.Raw), `"n":12.5`) {
		t.Errorf("raw part lost what was not secret: %s", back.Raw)
	}
}

func TestWhichNamesLookSecret(t *testing.T) {
	got := map[string]bool{}
	for _, n := range []string{"OPENAI_API_KEY", "gh_token", "MY_SECRETS", "DBPASSWORD", "PATH", "HOME", "KEYBOARD"} {
		got[n] = looksSecret(n)
	}
	want := map[string]bool{"OPENAI_API_KEY": true, "gh_token": true, "MY_SECRETS": true, "DBPASSWORD": true, "PATH": false, "HOME": false, "KEYBOARD": true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzFrameMaskNeverFailsOnFrames(f *testing.F) {
	f.Add([]byte("secret secret"), "secret", 3)
	f.Add([]byte{1, 2, 3}, "", 1)
	f.Fuzz(func(t *testing.T, payload []byte, value string, cut int) {
		m := frameMask{mask: newMask([]string{value})}
		raw := fleet.AppendFrame(nil, fleet.Frame{Kind: fleet.FrameStderr, Payload: payload})
		cut = min(max(cut, 0), len(raw))
		if err := m.write(raw[:cut]); err != nil {
			t.Fatal(err)
		}
		out := m.take(false)
		if err := m.write(raw[cut:]); err != nil {
			t.Fatal(err)
		}
		out = append(out, m.take(true)...)
		if len(out) != len(raw) {
			t.Fatalf("%d bytes became %d", len(raw), len(out))
		}
	})
}
