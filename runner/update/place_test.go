package update

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"aead.dev/minisign"

	"tugline.dev/tugline/shared/fleet"
)

func TestAnUpdateIsTakenByTheNextStart(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "good")
	g.must(g.placeIt(rel, b))
	if r := g.record(); r.State != Trying || r.From != "1.0.0" || r.To != "2.0.0" || r.Starts != 0 || r.Confirmed {
		t.Errorf("after the switch the record is %+v", r)
	}
	var no *Refusal
	if other, c := g.release("2.1.0", "good"); !errors.As(g.placeIt(other, c), &no) {
		t.Error("a second update was placed before the first one was started")
	}
	g.serves("2.0.0") // and ends in order, which is no failed start
	g.serves("2.0.0")
	if r := g.record(); r.State != Trying || r.Starts != 0 {
		t.Errorf("after two good starts the record is %+v", r)
	}
	two, err := Open(g.Program(), g.log)
	g.must(err)
	g.must(two.Confirm())
	if r := g.record(); r.State != Confirmed || !r.Confirmed {
		t.Errorf("once confirmed the record is %+v", r)
	}

	// The next one leaves that and the one before alone, and Prune the rest.
	rel, b = g.release("2.1.0", "good")
	g.must(two.Place(context.Background(), rel, g.pub, bytes.NewReader(b)))
	g.serves("2.1.0")
	g.tidy("1.0.0", "2.0.0", "2.1.0")
	three, err := Open(g.Program(), g.log)
	g.must(err)
	g.must(three.Confirm())
	g.must(three.Prune())
	g.tidy("2.0.0", "2.1.0")
	g.serves("2.1.0")
}

func TestAFailedUpdateLeavesThePresentVersion(t *testing.T) {
	_, foreign, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind  string
		spoil func(*rig, *Release, *[]byte)
		why   string
	}{
		"signed by another key": {"good", func(g *rig, r *Release, b *[]byte) {
			r.Signature = string(minisign.SignWithComments(foreign, *b, Comment(r.Version, r.OS, r.Arch), ""))
		}, "signature"},
		"signature of other bytes": {"good", func(g *rig, r *Release, b *[]byte) {
			r.Signature = g.sign(r.Version, []byte("something else")).Signature
		}, "signature"},
		"signature cut":  {"good", func(_ *rig, r *Release, _ *[]byte) { r.Signature = r.Signature[:40] }, "signature"},
		"no signature":   {"good", func(_ *rig, r *Release, _ *[]byte) { r.Signature = "" }, "signature"},
		"a byte changed": {"good", func(_ *rig, _ *Release, b *[]byte) { c := bytes.Clone(*b); c[len(c)/2] ^= 1; *b = c }, "checksum"},
		"truncated":      {"good", func(_ *rig, _ *Release, b *[]byte) { *b = (*b)[:len(*b)/3] }, "bytes came of"},
		"nothing came":   {"good", func(_ *rig, _ *Release, b *[]byte) { *b = nil }, "0 bytes came of"},
		"more than said": {"good", func(_ *rig, _ *Release, b *[]byte) { *b = append(bytes.Clone(*b), "more"...) }, "bytes came of"},
		"digest is none": {"good", func(_ *rig, r *Release, _ *[]byte) { r.SHA256 = "abc" }, "SHA-256"},
		"other platform was signed": {"good", func(g *rig, r *Release, b *[]byte) {
			r.Signature = string(minisign.SignWithComments(g.priv, *b, Comment(r.Version, "plan9", r.Arch), ""))
		}, "what was signed"},
		"an old build under a new name": {"good", func(g *rig, r *Release, b *[]byte) {
			old := g.sign("1.5.0", *b)
			r.Signature = old.Signature
		}, "what was signed"},
		"signed for what it is not": {"lies", func(*rig, *Release, *[]byte) {}, "9.9.9"},
		"does not start":            {"mute", func(*rig, *Release, *[]byte) {}, "does not start"},
		"never answers":             {"hangs", func(*rig, *Release, *[]byte) {}, "does not start"},
		"is no program": {"good", func(g *rig, r *Release, b *[]byte) {
			*b = []byte("#!/nonexistent\n")
			*r = g.sign(r.Version, *b)
		}, "does not start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			rel, b := g.release("2.0.0", c.kind)
			whole := bytes.Clone(b)
			c.spoil(g, &rel, &b)
			err := g.placeIt(rel, b)
			if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "update to 2.0.0 failed") {
				t.Fatalf("placed: %v, want a failure that says %q", err, c.why)
			}
			g.serves("1.0.0")
			g.tidy("1.0.0")
			if r := g.record(); r.State != Failed || r.To != "2.0.0" || !strings.Contains(r.Why, c.why) {
				t.Errorf("the record is %+v, want failed with %q", r, c.why)
			}

			// One try, also with other bytes; asked for anew it is another.
			var no *Refusal
			if err := g.placeIt(rel, whole); !errors.As(err, &no) || !strings.Contains(err.Error(), "was tried") {
				t.Errorf("tried again: %v", err)
			}
			good := g.sign("2.0.0", build(t, "2.0.0", "good"))
			good.Asked = "again"
			g.must(g.placeIt(good, build(t, "2.0.0", "good")))
			g.serves("2.0.0")
		})
	}
}

func TestWhatIsNotForThisProgramLeavesNoTrace(t *testing.T) {
	g := newRig(t)
	for name, change := range map[string]func(*Release){
		"another system":     func(r *Release) { r.OS = "plan9" },
		"another processor":  func(r *Release) { r.Arch = "mips" },
		"an older version":   func(r *Release) { r.Version = "0.9.0" },
		"the same version":   func(r *Release) { r.Version = "v1.0.0" },
		"the same, as older": func(r *Release) { r.Version, r.Downgrade = "1.0.0", true },
		"a path for a name":  func(r *Release) { r.Version = "../../etc" },
		"empty":              func(r *Release) { r.Size = 0 },
		"enormous":           func(r *Release) { r.Size = fleet.MaxProgram + 1 },
	} {
		rel, b := g.release("2.0.0", "good")
		change(&rel)
		var no *Refusal
		if err := g.placeIt(rel, b); !errors.As(err, &no) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		if err := g.Admits(rel); !errors.As(err, &no) {
			t.Errorf("%s: admitted: %v", name, err)
		}
		if r := g.record(); r.State != "" || len(r.Tried) > 0 {
			t.Errorf("%s: the record is %+v", name, r)
		}
	}
	g.tidy("1.0.0")

	// A downgrade that is asked for goes.
	rel, b := g.release("0.9.0", "good")
	rel.Downgrade = true
	g.must(g.placeIt(rel, b))
	g.serves("0.9.0")
}

// A connection that breaks and a runner that is stopped are no try of the release.
func TestABrokenDownloadIsNoTry(t *testing.T) {
	g := newRig(t)
	rel, b := g.release("2.0.0", "good")
	broke := errors.New("it broke")
	err := g.Place(context.Background(), rel, g.pub, io.MultiReader(bytes.NewReader(b[:1000]), iotest.ErrReader(broke)))
	if !errors.Is(err, broke) {
		t.Fatalf("placed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	g.log = slog.New(&at{"update: remembered", func() { cancel(stopped) }}) // in the self-test
	if err := g.Place(ctx, rel, g.pub, bytes.NewReader(b)); !errors.Is(err, stopped) {
		t.Fatalf("placed: %v", err)
	}
	g.tidy("1.0.0")
	g.serves("1.0.0")
	if r := g.record(); r.State != "" || len(r.Tried) > 0 {
		t.Errorf("the record is %+v", r)
	}
	g.log = slog.New(slog.DiscardHandler)
	g.must(g.placeIt(rel, b))
	g.serves("2.0.0")
}

func TestOpen(t *testing.T) {
	g := newRig(t)
	if g.Running() != "1.0.0" {
		t.Errorf("running %s", g.Running())
	}
	for _, exe := range []string{"/bin/sh", "."} {
		if _, err := Open(exe, g.log); !errors.Is(err, ErrNotVersioned) {
			t.Errorf("%s: %v", exe, err)
		}
	}
	if _, err := Open(filepath.Join(g.prefix, "versions", "none", "tugline"), g.log); err == nil {
		t.Error("a program that is not there has versions")
	}
}

// at does something when a message is logged.
type at struct {
	message string
	do      func()
}

func (a *at) Enabled(context.Context, slog.Level) bool { return true }
func (a *at) Handle(_ context.Context, r slog.Record) error {
	if r.Message == a.message {
		a.do()
	}
	return nil
}
func (a *at) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a *at) WithGroup(string) slog.Handler      { return a }
