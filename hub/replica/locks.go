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
	users int

	mu      sync.Mutex
	free    sync.Cond // something was unlocked
	sharers int
	alone   bool
	waiting int // to be alone; who comes to share waits behind them
}

// Waiting is on a condition and not on a mutex, since who holds the lock may wait for
// another node meanwhile: a simulation's time goes on only where all wait like that.

func (x *lock) RLock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.alone || x.waiting > 0 {
		x.free.Wait()
	}
	x.sharers++
}

func (x *lock) RUnlock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sharers--
	x.free.Broadcast()
}

func (x *lock) Lock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting++
	for x.alone || x.sharers > 0 {
		x.free.Wait()
	}
	x.waiting--
	x.alone = true
}

func (x *lock) Unlock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alone = false
	x.free.Broadcast()
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
		x.free.L = &x.mu
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
