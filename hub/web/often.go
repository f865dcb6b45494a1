package web

import (
	"net/netip"
	"sync"
	"time"
)

// How often somebody may try to sign in: so many at once, and one more after each pause.
// A token cannot be guessed; this keeps the hub from being kept busy with guesses.
const (
	triesAtOnce, triesPause       = 10, 6 * time.Second // of one address
	allTriesAtOnce, allTriesPause = 200, 50 * time.Millisecond
	maxTriers                     = 4096 // addresses that are remembered
)

// often counts tries by address, and all of them. Where too many addresses try, one of
// them is forgotten for each that is new: what they may do together is bounded anyway.
type often struct {
	mu  sync.Mutex
	all bucket
	by  map[string]*bucket
}

// bucket holds how many tries are left, as of a time.
type bucket struct {
	left float64
	at   time.Time
}

func newOften() *often {
	return &often{all: bucket{left: allTriesAtOnce}, by: map[string]*bucket{}}
}

// take says whether one more try is allowed at a time, and how long to wait if not.
func (o *often) take(address string, at time.Time) (wait time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	who := trier(address)
	b := o.by[who]
	if b == nil {
		if len(o.by) >= maxTriers {
			for one := range o.by {
				delete(o.by, one)
				break
			}
		}
		b = &bucket{left: triesAtOnce, at: at}
		o.by[who] = b
	}
	if wait := b.wait(at, triesAtOnce, triesPause); wait > 0 {
		return wait, false
	}
	if wait := o.all.wait(at, allTriesAtOnce, allTriesPause); wait > 0 {
		return wait, false
	}
	b.left--
	o.all.left--
	return 0, true
}

// back returns the try of somebody who had the right token.
func (o *often) back(address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.by[trier(address)]; b != nil {
		b.left = min(b.left+1, triesAtOnce)
	}
}

// wait gives how long it is until a try is left.
func (b *bucket) wait(at time.Time, most float64, pause time.Duration) time.Duration {
	if d := at.Sub(b.at); d > 0 {
		b.left, b.at = min(b.left+float64(d)/float64(pause), most), at
	}
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) * float64(pause))
}

// trier names who tries: an address, or of IPv6 the network that one customer is given.
func trier(address string) string {
	a, err := netip.ParseAddr(hostOf(address))
	if err != nil {
		return ""
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
