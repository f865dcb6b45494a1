package mesh

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relay carries datagrams between callers and one target, as a NAT or a bad line
// does: the target sees the relay's address.
type relay struct {
	front  *net.UDPConn
	target atomic.Pointer[netip.AddrPort]

	mu    sync.Mutex
	back  *net.UDPConn // where the target sees us
	from  netip.AddrPort
	loss  float64
	delay time.Duration
	rand  *rand.Rand
	timer sync.WaitGroup
	loops sync.WaitGroup
	done  bool
	seen  atomic.Int64 // datagrams carried
}

func newRelay(t testing.TB, target netip.AddrPort) *relay {
	t.Helper()
	r := &relay{rand: rand.New(rand.NewPCG(1, 2))}
	r.target.Store(&target)
	r.front = socket(t)
	r.loops.Go(func() {
		pump(r.front, func(b []byte, from netip.AddrPort) {
			r.mu.Lock()
			r.from = from
			back := r.back
			r.mu.Unlock()
			r.carry(b, back, *r.target.Load())
		})
	})
	r.move(t)
	t.Cleanup(func() {
		r.mu.Lock()
		r.done = true
		r.mu.Unlock()
		r.timer.Wait()
		r.front.Close()
		r.back.Close()
		r.loops.Wait()
	})
	return r
}

// move gives the relay another address towards the target.
func (r *relay) move(t testing.TB) {
	back := socket(t)
	r.mu.Lock()
	old := r.back
	r.back = back
	r.mu.Unlock()
	if old != nil {
		old.Close()
	}
	r.loops.Go(func() {
		pump(back, func(b []byte, _ netip.AddrPort) {
			r.mu.Lock()
			to := r.from
			r.mu.Unlock()
			r.carry(b, r.front, to)
		})
	})
}

func (r *relay) bad(loss float64, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loss, r.delay = loss, delay
}

func (r *relay) carry(b []byte, by *net.UDPConn, to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done || r.rand.Float64() < r.loss {
		return
	}
	r.seen.Add(1)
	if r.delay == 0 {
		by.WriteToUDPAddrPort(b, to)
		return
	}
	b = append([]byte(nil), b...)
	r.timer.Add(1)
	time.AfterFunc(r.delay, func() {
		defer r.timer.Done()
		by.WriteToUDPAddrPort(b, to)
	})
}

func socket(t testing.TB) *net.UDPConn {
	t.Helper()
	s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pump(s *net.UDPConn, f func([]byte, netip.AddrPort)) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		f(buf[:n], from)
	}
}

func (r *relay) addr() string { return r.front.LocalAddr().String() }
