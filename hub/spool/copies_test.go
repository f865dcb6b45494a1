package spool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func sumOf(s string) fleet.Digest {
	sum := sha256.Sum256([]byte(s))
	return fleet.Digest(hex.EncodeToString(sum[:]))
}

// TestWriteCommit: bytes can be handed on before they are durable, and not once
// others may have taken their place.
func TestWriteCommit(t *testing.T) {
	d := &disk{space: -1}
	s := open(t, Config{Dir: t.TempDir(), Open: d.open})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "abc")
	p, err := s.Write(t.Context(), k, 3, []byte("def"))
	if err != nil || p.Start != 3 || p.End != 6 {
		t.Fatalf("write: %+v, %v", p, err)
	}
	if size, _ := s.Size(k); size != 3 {
		t.Errorf("%d bytes count as durable before the sync", size)
	}
	buf := make([]byte, 6)
	if err := s.ReadWritten(k, buf, 0, p.Losses); err != nil || string(buf) != "abcdef" {
		t.Errorf("what was written is %q, %v", buf, err)
	}
	if err := s.ReadWritten(k, make([]byte, 7), 0, p.Losses); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("more than was written: %v", err)
	}
	if size, err := p.Commit(); size != 6 || err != nil {
		t.Errorf("commit: %d, %v", size, err)
	}

	if p, err = s.Write(t.Context(), k, 6, []byte("lost")); err != nil {
		t.Fatal(err)
	}
	d.set(-1, errors.New("input/output error"), nil)
	if size, err := p.Commit(); size != 6 || err == nil {
		t.Errorf("commit on a failing disk: %d, %v", size, err)
	}
	d.set(-1, nil, nil)
	if s.Losses(k) == p.Losses {
		t.Error("the loss was not counted")
	}
	mustAppend(t, s, k, 6, "kept")
	if err := s.ReadWritten(k, buf[:4], 6, p.Losses); !errors.Is(err, fleet.Conflict) {
		t.Errorf("read in the place of lost bytes: %v", err)
	}
	if _, err := s.Write(t.Context(), k, 100, []byte("x")); !errors.Is(err, fleet.SpoolGap) {
		t.Errorf("write behind the end: %v", err)
	}
	if err := s.ReadWritten(key(9, Output), buf, 0, 0); !errors.Is(err, fleet.NotFound) {
		t.Errorf("read of no stream: %v", err)
	}
}

func TestCut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	if err := s.Cut(k, 0); !errors.Is(err, fleet.NotFound) {
		t.Errorf("cut of no stream: %v", err)
	}
	mustAppend(t, s, k, 0, "abcdef")
	if err := s.Seal(t.Context(), k, 6, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Cut(k, 7); !errors.Is(err, fleet.SpoolGap) {
		t.Errorf("cut behind the end: %v", err)
	}
	if err := s.Cut(k, -1); !errors.Is(err, fleet.BadRequest) {
		t.Errorf("cut before the beginning: %v", err)
	}
	if err := s.Cut(k, 2); err != nil {
		t.Fatalf("cut: %v", err)
	}
	if size, sealed := s.Size(k); size != 2 || sealed {
		t.Errorf("after the cut: %d bytes, sealed %v", size, sealed)
	}
	mustAppend(t, s, k, 2, "XY")
	if got := content(t, s, k); got != "abXY" {
		t.Errorf("content %q", got)
	}
	if bytes, _ := s.Usage(); bytes != 4 {
		t.Errorf("usage %d", bytes)
	}
	s.Close()
	s = open(t, Config{Dir: dir})
	if got := content(t, s, k); got != "abXY" {
		t.Errorf("content %q after a restart", got)
	}
}

func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, MaxStream: 100})
	k, text := key(0, Output), "a finished stream"
	put := func(k Key, text string, d fleet.Digest, length int) error {
		c, err := s.Receive(t.Context(), k, int64(length), d, strings.NewReader(text))
		if err != nil {
			return err
		}
		return c.Place()
	}
	for _, tt := range []struct {
		name   string
		text   string
		digest fleet.Digest
		length int
		want   error
	}{
		{"other bytes", "A finished stream", sumOf(text), len(text), fleet.SpoolMismatch},
		{"fewer bytes", text[:5], sumOf(text), len(text), fleet.SpoolMismatch},
		{"more bytes", text + "!", sumOf(text), len(text), fleet.SpoolMismatch},
		{"no digest", text, "", len(text), fleet.BadRequest},
		{"nothing", "", sumOf(""), 0, fleet.BadRequest},
		{"too many", text, sumOf(text), 101, fleet.TooLarge},
	} {
		if err := put(k, tt.text, tt.digest, tt.length); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if _, ok := s.Peek(k); ok {
		t.Error("a refused stream is there")
	}
	if err := put(k, text, sumOf(text), len(text)); err != nil {
		t.Fatalf("put: %v", err)
	}
	// It takes the place of a stream that is in use.
	k2 := key(1, Events)
	mustAppend(t, s, k2, 0, "a finished other")
	p, err := s.Write(t.Context(), k2, 16, []byte(" and more"))
	if err != nil {
		t.Fatal(err)
	}
	if err := put(k2, text, sumOf(text), len(text)); err != nil {
		t.Fatalf("put over a stream: %v", err)
	}
	if _, err := p.Commit(); err == nil {
		t.Error("bytes of a stream that was replaced were acknowledged")
	}
	for range 2 {
		for _, k := range []Key{k, k2} {
			if info, _ := s.Peek(k); !info.Sealed || info.Digest != sumOf(text) || content(t, s, k) != text {
				t.Errorf("%s: %+v, %q", k, info, content(t, s, k))
			}
		}
		if bytes, streams := s.Usage(); bytes != int64(2*len(text)) || streams != 2 {
			t.Errorf("usage %d bytes, %d streams", bytes, streams)
		}
		s.Close()
		s = open(t, Config{Dir: dir})
	}
	c, err := s.Receive(t.Context(), key(2, Output), int64(len(text)), sumOf(text), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c.Discard()
	if _, ok := s.Peek(key(2, Output)); ok {
		t.Error("a discarded stream is there")
	}
}

// TestTakeOverLeftovers: what a crash left of a stream that was taken over goes.
func TestTakeOverLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "abc")
	s.Close()
	left := k.path(dir) + ".X" + copySuffix
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover: %v", err)
	}
	if got := content(t, s, k); got != "abc" {
		t.Errorf("content %q", got)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	k := key(0, Output)
	mustAppend(t, s, k, 0, "finished")
	free := func(int) error { return nil }
	if err := s.Check(t.Context(), k, free); err != nil {
		t.Errorf("a stream that is not sealed: %v", err)
	}
	d, err := s.SealSum(t.Context(), k, 8)
	if d != sumOf("finished") || err != nil {
		t.Fatalf("seal: %s, %v", d, err)
	}
	if again, err := s.SealSum(t.Context(), k, 8); again != d || err != nil {
		t.Errorf("seal again: %s, %v", again, err)
	}
	if _, err := s.SealSum(t.Context(), k, 7); !errors.Is(err, fleet.SpoolMismatch) {
		t.Errorf("seal at another length: %v", err)
	}
	if err := s.Check(t.Context(), k, free); err != nil {
		t.Errorf("an undamaged stream: %v", err)
	}
	if part, err := s.Sum(t.Context(), k, 2, 5); part != sumOf("nis") || err != nil {
		t.Errorf("sum of a part: %s, %v", part, err)
	}
	if _, err := s.Sum(t.Context(), k, 2, 50); !errors.Is(err, fleet.SpoolGap) {
		t.Errorf("sum beyond the end: %v", err)
	}
	if err := os.WriteFile(k.path(dir), []byte("finishEd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), k, free); !errors.Is(err, fleet.SpoolMismatch) {
		t.Errorf("a changed stream: %v", err)
	}
	if err := os.Truncate(k.path(dir), 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), k, free); !errors.Is(err, fleet.SpoolMismatch) {
		t.Errorf("a short stream: %v", err)
	}
	stopped := context.Canceled
	if err := s.Check(t.Context(), k, func(int) error { return stopped }); !errors.Is(err, stopped) {
		t.Errorf("a check that is to stop: %v", err)
	}
	n := 0
	s.Each(func(Info) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d streams", n)
	}
}
