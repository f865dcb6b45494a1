package probe

import (
	"context"
	"fmt"
	"sync"
)

// looks are the looks under way. Those who ask the same at the same time share one.
// What hangs is asked once: others wait for that look, in vain, until their own time
// is over.
type looks struct {
	mu    sync.Mutex
	under map[string]*look // by what may hang as one: a mount, the daemon, a command
}

type look struct {
	what    string // is asked of it
	waiting int
	end     context.CancelFunc
	ending  bool          // nobody waits any more
	done    chan struct{} // closed when value and err are set
	value   any
	err     error
}

// ask gives the answer of f, which is asked of the thing named by key. When ctx ends
// first, the error wraps ErrUnknown; f is told to end once nobody waits for it, and is
// not waited for.
func ask[T any](ctx context.Context, ls *looks, key, what string, f func(context.Context) (T, error)) (T, error) {
	var none T
	for {
		l, ours := ls.join(key, what, func(ctx context.Context) (any, error) { return f(ctx) })
		select {
		case <-l.done:
			if ours {
				ls.leave(l)
				v, _ := l.value.(T) // none after a panic
				return v, l.err
			}
		case <-ctx.Done():
			if ours {
				ls.leave(l)
			}
			return none, fmt.Errorf("no answer in time: %w", ErrUnknown)
		}
	}
}

// join gives the look under way, or begins one. It is ours when it answers what was
// asked; otherwise it is in the way.
func (ls *looks) join(key, what string, f func(context.Context) (any, error)) (l *look, ours bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.under[key]; l != nil {
		ours := l.what == what && !l.ending
		if ours {
			l.waiting++
		}
		return l, ours
	}
	ctx, end := context.WithCancel(context.Background())
	l = &look{what: what, waiting: 1, end: end, done: make(chan struct{})}
	if ls.under == nil {
		ls.under = map[string]*look{}
	}
	ls.under[key] = l
	go func() {
		l.value, l.err = guarded(ctx, f)
		ls.mu.Lock()
		delete(ls.under, key)
		ls.mu.Unlock()
		end()
		close(l.done)
	}()
	return l, true
}

// guarded runs f. Libraries that read what a machine says may panic where it says
// something else, as in a container that imitates a kernel; the runner goes on.
func guarded(ctx context.Context, f func(context.Context) (any, error)) (v any, err error) {
	defer func() {
		if what := recover(); what != nil {
			v, err = nil, fmt.Errorf("the answer makes no sense: %v: %w", what, ErrUnknown)
		}
	}()
	return f(ctx)
}

func (ls *looks) leave(l *look) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		l.ending = true
		l.end()
	}
}

// Within runs f, which may hang, by the rules of this package: one at a time by key,
// bounded by ctx, and not waited for beyond that. The error wraps ErrUnknown where it
// did not end in time.
func Within[T any](ctx context.Context, s *Sampler, key string, f func(context.Context) (T, error)) (T, error) {
	return ask(ctx, &s.looks, "of others: "+key, "", f)
}
