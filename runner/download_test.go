package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// spoiled passes a body on until its time has come.
type spoiled struct {
	http.ResponseWriter
	left int // bytes until the connection is cut; negative: it is not
	flip int // the byte that is changed; negative: none
}

func (s *spoiled) Write(p []byte) (int, error) {
	if s.flip >= 0 && s.flip < len(p) {
		p = slices.Clone(p)
		p[s.flip] ^= 1
	}
	s.flip -= len(p)
	if s.left < 0 || len(p) <= s.left {
		s.left -= min(len(p), max(s.left, 0))
		return s.ResponseWriter.Write(p)
	}
	s.ResponseWriter.Write(p[:s.left])
	s.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// The program of an update comes over connections that are cut at any byte, or that change
// what they carry: it goes on from there, begins anew, or is given up, and what is put in
// place is whole.
func TestAnUpdateOverABadConnection(t *testing.T) {
	for _, k := range []struct {
		name  string
		way   func(try, size int) (cut, flip int)
		plain bool // whoever is between knows no ranges
		tries int  // at least
		fails string
	}{
		{"cut at random", func(try, size int) (int, int) {
			if try > 6 {
				return -1, -1
			}
			return rand.IntN(size / 8), -1
		}, false, 7, ""},
		{"cut at random, without ranges", func(try, size int) (int, int) {
			if try > 4 {
				return -1, -1
			}
			return rand.IntN(size / 2), -1
		}, true, 5, ""},
		{"cut after the last byte", func(try, size int) (int, int) {
			if try > 1 {
				return -1, -1
			}
			return size, -1
		}, false, 1, ""},
		{"a byte is changed once", func(try, size int) (int, int) {
			if try > 1 {
				return -1, -1
			}
			return -1, rand.IntN(size)
		}, false, 2, ""},
		{"a byte is changed always", func(_, size int) (int, int) { return -1, rand.IntN(size) }, false, updateAnew, "checksum"},
		{"nothing comes", func(int, int) (int, int) { return 0, -1 }, false, updateIdle, "given up at 0 bytes"},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			g := newUpdateRig(t)
			var tries atomic.Int64
			size := len(g.program)
			g.testHub.front(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/blobs/") {
					return false
				}
				cut, flip := k.way(int(tries.Add(1)), size)
				if k.plain {
					w.Header().Set("Content-Length", fmt.Sprint(size))
					(&spoiled{w, cut, flip}).Write(g.program)
					return true
				}
				g.testHub.pass(&spoiled{w, cut, flip}, r)
				return true
			})
			r := g.runner("updates: auto\n")
			g.release()
			if k.fails == "" {
				g.updates(r)
				b, err := os.ReadFile(filepath.Join(g.prefix, "current", "tugline"))
				if err != nil || string(b) != string(g.program) {
					t.Errorf("what is in place has %d bytes of %d, %v", len(b), size, err)
				}
			} else {
				eventually(t, "its owner to be told", func() bool {
					is, _ := g.View().Runner(r.id)
					return slices.ContainsFunc(is.Facts.Alerts, func(a string) bool { return strings.Contains(a, k.fails) })
				}, func() any { is, _ := g.View().Runner(r.id); return is.Facts.Alerts })
				j, _ := g.run(r.id, "true")
				g.ends(j, "succeeded")
				if g.present() != "1.0.0" {
					t.Errorf("the present version is %s", g.present())
				}
			}
			if n := int(tries.Load()); n < k.tries || k.fails != "" && n != k.tries {
				t.Errorf("it was asked for %d times, want %d", n, k.tries)
			}
			if left, _ := filepath.Glob(filepath.Join(g.prefix, ".get-*")); len(left) > 0 {
				t.Errorf("left is %q", left)
			}
		})
	}
}

// stalling answers each request with some bytes, after which nothing more comes.
type stalling struct{ each time.Duration }

func (s stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	from, to := io.Pipe()
	go func() {
		for range 4 {
			<-time.After(s.each)
			to.Write([]byte("byte"))
		}
		<-r.Context().Done()
		to.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: from, Header: http.Header{}, Request: r}, nil
}

// A transfer on which nothing comes any more is broken off, and one that is slow is not.
func TestATransferThatStallsIsBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = stallTime - time.Second
		l := &link{id: &identity{Runner: "r1"}, net: &network{client: &http.Client{Transport: stalling{slow}}}}
		s := &session{base: "http://hub", id: "s1"}
		var out bytes.Buffer
		begun := time.Now()
		n, err := l.fetchPart(t.Context(), s, fleet.Digest(strings.Repeat("0", 64)), 0, &out)
		if want := 4*slow + stallTime; time.Since(begun) != want || n != 16 || out.Len() != 16 {
			t.Errorf("after %s it has %d bytes; want 16 after %s", time.Since(begun), n, want)
		}
		if !errors.Is(err, errPass) || !errors.Is(err, context.Canceled) || t.Context().Err() != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}
