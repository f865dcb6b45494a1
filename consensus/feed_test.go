package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// read takes what is there without waiting.
func read(s *Subscription) (got []Event, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		e, err := s.Next(ctx)
		if errors.Is(err, context.Canceled) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, e)
	}
}

func mustSubscribe(t testing.TB, f *Feed, after uint64) *Subscription {
	t.Helper()
	s, err := f.Subscribe(after)
	if err != nil {
		t.Fatalf("subscribe after %d: %v", after, err)
	}
	return s
}

func TestFeedResume(t *testing.T) {
	f := NewFeed(4)
	if _, err := read(mustSubscribe(t, f, 0)); err != nil {
		t.Fatal(err)
	}
	f.Publish(3, "a")
	f.Publish(4)
	f.Publish(5, "b", "c")
	f.Publish(9, "d")
	all := []Event{{3, "a", true}, {5, "b", false}, {5, "c", true}, {9, "d", true}}
	for _, tt := range []struct {
		after uint64
		want  []Event
	}{{0, all}, {2, all}, {3, all[1:]}, {4, all[1:]}, {5, all[3:]}, {8, all[3:]}, {9, nil}, {50, nil}} {
		got, err := read(mustSubscribe(t, f, tt.after))
		if diff := cmp.Diff(got, tt.want); diff != "" || err != nil {
			t.Errorf("after %d: %v (-got +want):\n%s", tt.after, err, diff)
		}
	}
	f.Publish(10, "e") // pushes out index 3
	f.Publish(11, "f") // pushes out half of index 5
	for after, gap := range map[uint64]bool{0: true, 2: true, 3: true, 4: true, 5: false, 9: false} {
		if _, err := f.Subscribe(after); errors.Is(err, ErrGap) != gap {
			t.Errorf("after %d: %v, want a gap: %t", after, err, gap)
		}
	}
}

func TestFeedAheadOfReplay(t *testing.T) {
	f := NewFeed(8)
	f.Publish(1, "a")
	s := mustSubscribe(t, f, 3)
	for i := uint64(2); i < 6; i++ {
		f.Publish(i, i)
	}
	got, err := read(s)
	if diff := cmp.Diff(got, []Event{{4, uint64(4), true}, {5, uint64(5), true}}); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
}

func TestFeedEnds(t *testing.T) {
	ctx := context.Background()
	t.Run("slow", func(t *testing.T) {
		f := NewFeed(2)
		s, ok := mustSubscribe(t, f, 0), mustSubscribe(t, f, 0)
		for i := uint64(1); i <= 3; i++ {
			f.Publish(i, "x")
			if e, err := ok.Next(ctx); err != nil || e.Index != i {
				t.Errorf("reader that keeps up: %v, %v", e, err)
			}
		}
		for range 2 {
			if _, err := s.Next(ctx); !errors.Is(err, ErrSlow) {
				t.Errorf("got %v, want %v", err, ErrSlow)
			}
		}
	})
	t.Run("reset", func(t *testing.T) {
		f := NewFeed(2)
		s := mustSubscribe(t, f, 0)
		f.Publish(1, "x")
		f.Reset(7)
		if _, err := s.Next(ctx); !errors.Is(err, ErrGap) {
			t.Errorf("got %v, want %v", err, ErrGap)
		}
		if _, err := f.Subscribe(6); !errors.Is(err, ErrGap) {
			t.Errorf("before the reset: got %v, want %v", err, ErrGap)
		}
		s = mustSubscribe(t, f, 7)
		f.Publish(8, "y")
		if got, err := read(s); err != nil || len(got) != 1 {
			t.Errorf("after the reset: %v, %v", got, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		f := NewFeed(2)
		s, own := mustSubscribe(t, f, 0), mustSubscribe(t, f, 0)
		f.Publish(1, "x")
		f.Close()
		f.Close()
		own.Close()
		own.Close()
		if e, err := s.Next(ctx); err != nil || e.Index != 1 {
			t.Errorf("published before: %v, %v", e, err)
		}
		for _, s := range []*Subscription{s, own} {
			if _, err := s.Next(ctx); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v, want %v", err, ErrClosed)
			}
		}
		if _, err := f.Subscribe(1); !errors.Is(err, ErrClosed) {
			t.Errorf("subscribe: %v, want %v", err, ErrClosed)
		}
	})
}

// Whatever ends the wait must end it for everybody who waits.
func TestFeedWakes(t *testing.T) {
	cause := errors.New("page closed")
	for name, tt := range map[string]struct {
		act  func(*Feed, *Subscription, context.CancelCauseFunc)
		want error
	}{
		"publish": {func(f *Feed, _ *Subscription, _ context.CancelCauseFunc) { f.Publish(1, "x") }, nil},
		"reset":   {func(f *Feed, _ *Subscription, _ context.CancelCauseFunc) { f.Reset(1) }, ErrGap},
		"close":   {func(f *Feed, _ *Subscription, _ context.CancelCauseFunc) { f.Close() }, ErrClosed},
		"own":     {func(_ *Feed, s *Subscription, _ context.CancelCauseFunc) { s.Close() }, ErrClosed},
		"context": {func(_ *Feed, _ *Subscription, c context.CancelCauseFunc) { c(cause) }, cause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFeed(4)
				s := mustSubscribe(t, f, 0)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				got := make(chan error, 1)
				go func() {
					_, err := s.Next(ctx)
					got <- err
				}()
				synctest.Wait()
				tt.act(f, s, cancel)
				if err := <-got; !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// A thousand readers see every event in order while the publisher paces itself
// by the slowest of them.
func TestFeedManyReaders(t *testing.T) {
	const readers, turns, perTurn = 1000, 30, 8
	f := NewFeed(perTurn)
	ctx := within(t, 30*time.Second)
	var all sync.WaitGroup
	turned := make(chan bool, readers)
	for range readers {
		s := mustSubscribe(t, f, 0)
		all.Go(func() {
			for i := uint64(1); i <= turns*perTurn; i++ {
				e, err := s.Next(ctx)
				if err != nil || e.Index != i || e.Data != i {
					t.Errorf("event %d: got %v, %v", i, e, err)
					turned <- false
					return
				}
				if i%perTurn == 0 {
					turned <- true
				}
			}
		})
	}
	defer all.Wait()
	defer f.Close()
	for n := range uint64(turns) {
		for i := range uint64(perTurn) {
			at := n*perTurn + i + 1
			f.Publish(at, at)
		}
		for range readers {
			if !<-turned {
				return
			}
		}
	}
}

// TestFeedProperty compares a small feed with a list that forgets nothing.
func TestFeedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 6).Draw(t, "capacity")
		f := NewFeed(capacity)
		var list []Event
		var index, floor uint64 // newest index; index of the last reset
		type reader struct {
			sub   *Subscription
			after uint64
			seen  int
		}
		var readers []*reader
		gone := func() int { return max(0, len(list)-capacity) } // events pushed out
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				index += rapid.Uint64Range(1, 3).Draw(t, "step")
				n := rapid.IntRange(0, 3).Draw(t, "events")
				var data []any
				for i := range n {
					data = append(data, fmt.Sprintf("%d.%d", index, i))
					list = append(list, Event{index, data[i], i == n-1})
				}
				f.Publish(index, data...)
			},
			"subscribe": func(t *rapid.T) {
				after := rapid.Uint64Range(0, index+2).Draw(t, "after")
				gap := after < floor
				for _, e := range list[:gone()] {
					gap = gap || e.Index > after
				}
				s, err := f.Subscribe(after)
				if errors.Is(err, ErrGap) != gap || (err != nil && !gap) {
					t.Fatalf("subscribe after %d: %v, want a gap: %t", after, err, gap)
				}
				if !gap {
					seen := 0
					for seen < len(list) && list[seen].Index <= after {
						seen++
					}
					readers = append(readers, &reader{s, after, seen})
				}
			},
			"read": func(t *rapid.T) {
				if len(readers) == 0 {
					return
				}
				i := rapid.IntRange(0, len(readers)-1).Draw(t, "reader")
				r := readers[i]
				got, err := read(r.sub)
				if r.seen < gone() {
					if !errors.Is(err, ErrSlow) || len(got) > 0 {
						t.Fatalf("overtaken reader: %v, %v", got, err)
					}
					readers = append(readers[:i], readers[i+1:]...)
					return
				}
				var want []Event
				for _, e := range list[r.seen:] {
					if e.Index > r.after {
						want = append(want, e)
					}
				}
				if diff := cmp.Diff(got, want); diff != "" || err != nil {
					t.Fatalf("read: %v (-got +want):\n%s", err, diff)
				}
				r.seen = len(list)
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					return
				}
				f.Reset(index)
				floor, list = index, nil
				for _, r := range readers {
					if _, err := read(r.sub); !errors.Is(err, ErrGap) {
						t.Fatalf("reader across a reset: %v", err)
					}
				}
				readers = nil
			},
		})
	})
}

func BenchmarkFeedPublish(b *testing.B) {
	for _, readers := range []int{0, 1, 1000} {
		b.Run(fmt.Sprint("readers=", readers), func(b *testing.B) {
			f := NewFeed(1 << 14)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for range readers {
				s := mustSubscribe(b, f, 0)
				wg.Go(func() {
					for {
						if _, err := s.Next(ctx); err != nil {
							return
						}
					}
				})
			}
			b.ReportAllocs()
			index := uint64(0)
			for b.Loop() {
				index++
				f.Publish(index, "x")
			}
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}
