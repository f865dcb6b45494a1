package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

var testKey = SessionKey{1, 2, 3}

func TestFrames(t *testing.T) {
	s, o := NewSealer(testKey, LinkUp), NewOpener(testKey, LinkUp)
	for _, body := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("x"), MaxBody)} {
		f, err := o.Open(s.Seal(TypeReport, body))
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != TypeReport || f.Seq != o.Seq() || !bytes.Equal(f.Body, body) || f.Version != Version {
			t.Errorf("opened type %d, sequence %d, %d bytes", f.Type, f.Seq, len(f.Body))
		}
	}
	row := append(s.Seal(TypeHeartbeat, []byte("a")), s.Seal(TypeLive, []byte("b"))...)
	frames, err := o.OpenAll(row)
	if err != nil || len(frames) != 2 || frames[1].Seq != 5 || string(frames[1].Body) != "b" {
		t.Errorf("a row of frames gave %+v, %v", frames, err)
	}
}

// TestOpenerFailsClosed changes every bit of a frame and every place of its
// sequence; nothing is opened, and nothing after it either.
func TestOpenerFailsClosed(t *testing.T) {
	good := Seal(testKey, LinkUp, TypeReport, 1, []byte("body"))
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		o := NewOpener(testKey, LinkUp)
		_, err := o.Open(bad)
		if err == nil {
			t.Fatalf("bit %d changed, and the frame was opened", i)
		}
		if _, again := o.Open(good); again == nil || again.Error() != err.Error() {
			t.Fatalf("after %v came %v", err, again)
		}
	}
	for _, c := range []struct {
		name  string
		frame []byte
		code  fleet.Code
	}{
		{"a repeat", good, fleet.BadSequence},
		{"a gap", Seal(testKey, LinkUp, TypeReport, 3, nil), fleet.BadSequence},
		{"another direction", Seal(testKey, LinkDown, TypeReport, 2, nil), fleet.BadSignature},
		{"another key", Seal(SessionKey{9}, LinkUp, TypeReport, 2, nil), fleet.BadSignature},
		{"plain", Plain(TypeReport, nil), fleet.BadSignature},
		{"two frames", append(Seal(testKey, LinkUp, TypeReport, 2, nil), good...), fleet.BadRequest},
		{"nothing", nil, fleet.BadRequest},
		{"too large", oversized(), fleet.TooLarge},
		{"of a later version", append([]byte{Version + 1}, good[1:]...), fleet.ProtocolVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := NewOpener(testKey, LinkUp)
			if _, err := o.Open(good); err != nil {
				t.Fatal(err)
			}
			if _, err := o.Open(c.frame); !errors.Is(err, c.code) {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if _, err := o.OpenAll(Seal(testKey, LinkUp, TypeReport, 2, nil)); !errors.Is(err, c.code) {
				t.Errorf("afterwards got %v, want %s again", err, c.code)
			}
		})
	}
}

func oversized() []byte {
	b := Plain(TypeReport, nil)
	binary.BigEndian.PutUint32(b[10:14], MaxBody+1)
	return b
}

func TestOpenPlain(t *testing.T) {
	for _, typ := range []Type{TypeChallenge, TypeGoodbye} {
		f, err := OpenPlain(Plain(typ, []byte("x")))
		if err != nil || f.Type != typ || string(f.Body) != "x" {
			t.Errorf("type %d: %+v, %v", typ, f, err)
		}
	}
	for name, b := range map[string][]byte{
		"a sealed goodbye":  Seal(testKey, LinkDown, TypeGoodbye, 1, nil),
		"a plain heartbeat": Plain(TypeHeartbeat, nil),
		"a tail":            append(Plain(TypeChallenge, nil), 0),
	} {
		if _, err := OpenPlain(b); err == nil {
			t.Errorf("%s was taken for a plain frame", name)
		}
	}
}

func TestOutput(t *testing.T) {
	in := Output{Job: "j", Fence: fleet.Fence{Epoch: 1, Index: 2}, Stream: StreamEvents, Offset: 9, Data: []byte("a\x00b")}
	b, err := EncodeOutput(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := DecodeOutput(b)
	if err != nil || out.Job != in.Job || out.Fence != in.Fence || out.Stream != in.Stream || out.Offset != 9 || !bytes.Equal(out.Data, in.Data) {
		t.Errorf("got %+v, %v", out, err)
	}
	if _, err := EncodeOutput(Output{Data: make([]byte, MaxChunk+1)}); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("a large chunk gave %v", err)
	}
	for name, body := range map[string][]byte{
		"no zero byte":     []byte(`{"stream":"output"}`),
		"no header":        {0},
		"another stream":   []byte("{\"stream\":\"stdin\"}\x00"),
		"negative offset":  []byte("{\"stream\":\"output\",\"offset\":-1}\x00"),
		"a large chunk":    append([]byte("{\"stream\":\"output\"}\x00"), make([]byte, MaxChunk+1)...),
		"header is a list": []byte("[]\x00"),
	} {
		if _, err := DecodeOutput(body); !errors.Is(err, fleet.BadRequest) && !errors.Is(err, fleet.TooLarge) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

func TestDecode(t *testing.T) {
	deep := func(n int) []byte { return append(bytes.Repeat([]byte("["), n), bytes.Repeat([]byte("]"), n)...) }
	for _, c := range []struct {
		name string
		in   []byte
		code fleet.Code
	}{
		{"unknown fields", []byte(`{"newer":{"a":[1]},"slots":3}`), ""},
		{"brackets in a string", []byte(`{"declining":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[[["}`), ""},
		{"nothing", nil, fleet.BadRequest},
		{"a tail", []byte(`{} {}`), fleet.BadRequest},
		{"another type", []byte(`{"slots":"three"}`), fleet.BadRequest},
		{"as deep as allowed, but a list", deep(MaxDepth), fleet.BadRequest},
		{"deep in an unknown field", append(append([]byte(`{"x":`), deep(MaxDepth)...), '}'), fleet.BadRequest},
		{"too large", make([]byte, MaxBody+1), fleet.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hb Heartbeat
			err := Decode(c.in, &hb)
			if c.code == "" && err != nil || c.code != "" && !errors.Is(err, c.code) {
				t.Errorf("got %v, want %q", err, c.code)
			}
		})
	}
	if _, err := Encode(make([]byte, MaxBody)); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("a large message gave %v", err)
	}
}

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		theirs []int
		want   int
		ok     bool
	}{{[]int{1}, 1, true}, {[]int{7, 1, 0}, 1, true}, {[]int{2, 3}, 0, false}, {nil, 0, false}} {
		if got, ok := Negotiate(c.theirs); got != c.want || ok != c.ok {
			t.Errorf("with %v: %d, %v", c.theirs, got, ok)
		}
	}
}
