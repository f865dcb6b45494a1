package probe

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHungMountIsUnknownAndCostsOneLook(t *testing.T) {
	release := make(chan struct{})
	var looks atomic.Int32
	hang := func(path string) (seen, error) { looks.Add(1); <-release; return seen{real: path}, nil }
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if v, err := diskBy(ctx, "/hung", hang); !errors.Is(err, ErrUnknown) || v.Known || v.Path != "/hung" || v.Detail != "no answer in time" {
			t.Fatalf("a hung mount gave %+v, %v, want ErrUnknown", v, err)
		}
		cancel()
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks at a hung mount, want 1", n)
	}
	close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if v, err := diskBy(ctx, "/hung", hang); err != nil || !v.Known {
		t.Errorf("after the mount came back: %+v, %v", v, err)
	}
}

func TestPathsOfOneMountHangAsOne(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, path := range []string{a, b} {
		if _, err := Disk(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	release := make(chan struct{})
	var looks atomic.Int32
	hang := func(path string) (seen, error) { looks.Add(1); <-release; return seen{real: path}, nil }
	for _, path := range []string{a, b, b, a} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := diskBy(ctx, path, hang); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v, want ErrUnknown", path, err)
		}
		cancel()
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks at a mount that hangs, want 1", n)
	}
	close(release)
	for _, path := range []string{a, b} {
		if _, err := Disk(t.Context(), path); err != nil {
			t.Errorf("after it came back: %v", err)
		}
	}
}

func TestAskSharesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls looks
		var begun, ended atomic.Int32
		slow := func(ctx context.Context) (int, error) {
			begun.Add(1)
			select {
			case <-time.After(time.Second):
				return int(begun.Load()), nil
			case <-ctx.Done():
				time.Sleep(100 * time.Millisecond) // it takes a moment to end
				ended.Add(1)
				return 0, ctx.Err()
			}
		}
		answers := make(chan int, 2)
		for range 2 {
			go func() {
				n, err := ask(t.Context(), &ls, "x", "", slow)
				if err != nil {
					t.Error(err)
				}
				answers <- n
			}()
		}
		if a, b := <-answers, <-answers; a != 1 || b != 1 {
			t.Errorf("two who ask at the same time got %d and %d, want one look of both", a, b)
		}

		// One that gives up does not end the look of another, the last one does.
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		go func() {
			n, err := ask(t.Context(), &ls, "x", "", slow)
			if err != nil || n != 2 {
				t.Errorf("%d, %v", n, err)
			}
			answers <- n
		}()
		if _, err := ask(short, &ls, "x", "", slow); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v, want ErrUnknown", err)
		}
		<-answers
		again, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := ask(again, &ls, "x", "", slow); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v, want ErrUnknown", err)
		}
		// One that is being ended is no answer: the next look begins after it.
		if n, err := ask(t.Context(), &ls, "x", "", slow); err != nil || n != 4 || ended.Load() != 1 {
			t.Errorf("%d, %v with %d ended, want the fourth look after one that was ended", n, err, ended.Load())
		}
	})
}
