package probe

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDiskAndMemoryOfThisMachine(t *testing.T) {
	s, err := Disk(t.Context(), t.TempDir())
	if err != nil || s.Free <= 0 || s.Total < s.Free {
		t.Errorf("Disk = %+v, %v", s, err)
	}
	if _, err := Disk(t.Context(), t.TempDir()+"/none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("Disk of no path: %v, want ErrUnknown", err)
	}
	if m, err := Mem(); err != nil || m.Total <= 0 || m.Available > m.Total {
		t.Errorf("Mem = %+v, %v", m, err)
	}
}

func TestHungMountIsUnknownAndCostsOneGoroutine(t *testing.T) {
	release := make(chan struct{})
	var stats atomic.Int32
	hang := func(string) (Space, error) { stats.Add(1); <-release; return Space{Free: 1}, nil }
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := bounded(ctx, "/hung", hang); !errors.Is(err, ErrUnknown) {
			t.Fatalf("a hung mount gave %v, want ErrUnknown", err)
		}
	}
	if n := stats.Load(); n != 1 {
		t.Errorf("%d looks at a hung mount, want 1", n)
	}
	close(release)
	if s, err := bounded(t.Context(), "/hung", hang); err != nil || s.Free != 1 {
		t.Errorf("after the mount came back: %+v, %v", s, err)
	}
}
