package fleet

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func genFrame() *rapid.Generator[Frame] {
	return rapid.Custom(func(t *rapid.T) Frame {
		return Frame{
			Kind:    rapid.SampledFrom([]FrameKind{FrameStdout, FrameStderr, FrameMark}).Draw(t, "kind"),
			At:      rapid.Int64Min(0).Draw(t, "at"),
			Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
		}
	})
}

func TestFramesSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(genFrame(), 0, 8).Draw(t, "frames")
		var stream []byte
		for _, f := range want {
			stream = AppendFrame(stream, f)
		}
		readers := map[string]io.Reader{
			"whole":       bytes.NewReader(stream),
			"byte a time": iotest.OneByteReader(bytes.NewReader(stream)),
			"eof at once": iotest.DataErrReader(bytes.NewReader(stream)),
		}
		for name, r := range readers {
			fr := NewFrameReader(r)
			for i, w := range want {
				got, err := fr.Next()
				if err != nil {
					t.Fatalf("%s: frame %d: %v", name, i, err)
				}
				if got.Kind != w.Kind || got.At != w.At || !bytes.Equal(got.Payload, w.Payload) {
					t.Fatalf("%s: frame %d: got %+v, want %+v", name, i, got, w)
				}
			}
			if _, err := fr.Next(); err != io.EOF {
				t.Fatalf("%s: after the last frame: got %v, want io.EOF", name, err)
			}
			if fr.Offset() != int64(len(stream)) {
				t.Fatalf("%s: offset: got %d, want %d", name, fr.Offset(), len(stream))
			}
		}
	})
}

func TestEveryPrefixOfAFrameIsShort(t *testing.T) {
	whole := AppendFrame(nil, Frame{Kind: FrameStderr, At: 1_700_000_000_123, Payload: []byte("hello")})
	for i := range whole {
		if _, n, err := DecodeFrame(whole[:i]); !errors.Is(err, ErrShort) || n != 0 {
			t.Errorf("first %d bytes: got n=%d %v, want ErrShort", i, n, err)
		}
		want := io.ErrUnexpectedEOF
		if i == 0 {
			want = io.EOF
		}
		if _, err := NewFrameReader(bytes.NewReader(whole[:i])).Next(); err != want {
			t.Errorf("reader of the first %d bytes: got %v, want %v", i, err, want)
		}
	}
}

func TestFrameLayoutIsFixed(t *testing.T) {
	got := AppendFrame([]byte("x"), Frame{Kind: FrameStderr, At: 0x0102030405, Payload: []byte("ab")})
	want := []byte("x\x02\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01\x02\x03\x04\x05ab")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("encoded frame (-want +got):\n%s", diff)
	}
}

func TestLongPayloadIsSplit(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789"), 20_000)
	fr := NewFrameReader(bytes.NewReader(AppendFrame(nil, Frame{Kind: FrameStdout, At: 7, Payload: payload})))
	var joined []byte
	frames := 0
	for {
		f, err := fr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind != FrameStdout || f.At != 7 || len(f.Payload) > MaxFramePayload {
			t.Fatalf("frame %d: kind %v at %d of %d bytes", frames, f.Kind, f.At, len(f.Payload))
		}
		joined = append(joined, f.Payload...)
		frames++
	}
	if frames != 4 || !bytes.Equal(joined, payload) {
		t.Errorf("got %d frames of %d bytes together, want 4 of %d", frames, len(joined), len(payload))
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	good := AppendFrame(nil, Frame{Kind: FrameStdout, At: 1, Payload: []byte("ok")})
	for name, spoil := range map[string]func(b []byte){
		"kind 0":        func(b []byte) { b[0] = 0 },
		"kind 4":        func(b []byte) { b[0] = 4 },
		"reserved":      func(b []byte) { b[2] = 1 },
		"too long":      func(b []byte) { b[5], b[7] = 1, 1 },
		"negative time": func(b []byte) { b[8] = 0x80 },
	} {
		b := bytes.Clone(good)
		spoil(b)
		if _, n, err := DecodeFrame(b); !errors.Is(err, ErrBadFrame) || n != 0 {
			t.Errorf("%s: got n=%d %v, want ErrBadFrame", name, n, err)
		}
		fr := NewFrameReader(io.MultiReader(bytes.NewReader(b), bytes.NewReader(good)))
		for range 2 {
			if _, err := fr.Next(); !errors.Is(err, ErrBadFrame) {
				t.Errorf("%s: reader: got %v, want ErrBadFrame", name, err)
			}
		}
	}
}

func TestMarks(t *testing.T) {
	for _, want := range []Mark{
		{DroppedBytes: 0, Reason: MarkOutputCap},
		{DroppedBytes: 1 << 40, Reason: MarkEnd},
	} {
		f, _, err := DecodeFrame(AppendFrame(nil, MarkAt(5, want)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Mark(); err != nil || got != want {
			t.Errorf("got %+v %v, want %+v", got, err, want)
		}
	}
	if f := MarkAt(1, Mark{Reason: strings.Repeat("\x00", 1<<20)}); len(f.Payload) > MaxFramePayload {
		t.Errorf("a mark of %d bytes does not fit a frame", len(f.Payload))
	}
	for name, f := range map[string]Frame{
		"output":   {Kind: FrameStdout, Payload: []byte(`{}`)},
		"not JSON": {Kind: FrameMark, Payload: []byte("dropped")},
	} {
		if _, err := f.Mark(); !errors.Is(err, ErrBadFrame) {
			t.Errorf("%s: got %v, want ErrBadFrame", name, err)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendFrame(nil, Frame{Kind: FrameStdout, At: 1, Payload: []byte("seed")}))
	f.Add(AppendFrame(AppendFrame(nil, MarkAt(2, Mark{DroppedBytes: 3, Reason: MarkDiskLow})), Frame{Kind: FrameStderr}))
	f.Add([]byte("\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := NewFrameReader(bytes.NewReader(b))
		rest := b
		for {
			want, n, err := DecodeFrame(rest)
			got, rerr := fr.Next()
			if err != nil {
				if rerr == nil {
					t.Fatalf("the reader gave a frame where DecodeFrame says %v", err)
				}
				if errors.Is(err, ErrBadFrame) != errors.Is(rerr, ErrBadFrame) {
					t.Fatalf("DecodeFrame says %v, the reader %v", err, rerr)
				}
				break
			}
			if rerr != nil || got.Kind != want.Kind || got.At != want.At || !bytes.Equal(got.Payload, want.Payload) {
				t.Fatalf("reader: got %+v %v, want %+v", got, rerr, want)
			}
			if again := AppendFrame(nil, want); !bytes.Equal(again, rest[:n]) {
				t.Fatalf("encoding again: got %x, want %x", again, rest[:n])
			}
			_, _ = want.Mark()
			rest = rest[n:]
		}
		if fr.Offset() != int64(len(b)-len(rest)) {
			t.Fatalf("offset: got %d, want %d", fr.Offset(), len(b)-len(rest))
		}
	})
}
