package replica

import (
	"sync"

	"tugline.dev/tugline/hub/spool"
)

// locks has a lock for each stream in use. Whoever adds to a stream holds it for
// reading, from the look at the promise until the bytes are durable; whoever must
// see all that was added under an older promise holds it alone.
type locks struct {
	mu    sync.Mutex
	byKey map[spool.Key]*lock
}

type lock struct {
	sync.RWMutex
	users int
}

func (l *locks) obtain(k spool.Key) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = map[spool.Key]*lock{}
	}
	x := l.byKey[k]
	if x == nil {
		x = &lock{}
		l.byKey[k] = x
	}
	x.users++
	return x
}

func (l *locks) release(k spool.Key, x *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.users--; x.users == 0 {
		delete(l.byKey, k)
	}
}

// share locks a stream for adding to it and gives what unlocks it.
func (l *locks) share(k spool.Key) (unlock func()) {
	x := l.obtain(k)
	x.RLock()
	return func() { x.RUnlock(); l.release(k, x) }
}

// hold locks a stream alone and gives what unlocks it.
func (l *locks) hold(k spool.Key) (unlock func()) {
	x := l.obtain(k)
	x.Lock()
	return func() { x.Unlock(); l.release(k, x) }
}
