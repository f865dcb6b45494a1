package runner

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fed has a runner's watchdog fed, and gives when it was last.
func fed(t *testing.T, l *link, watchdog time.Duration) (last func() time.Time) {
	t.Helper()
	var mu sync.Mutex
	at := time.Now()
	l.r.cfg.Watchdog = watchdog
	l.r.cfg.Notify = func(state string) error {
		mu.Lock()
		defer mu.Unlock()
		if state == "WATCHDOG=1" {
			at = time.Now()
		}
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { l.r.feeds(ctx) })
	t.Cleanup(func() { cancel(); work.Wait() })
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

// longestGap watches for a while how long the watchdog goes without.
func longestGap(last func() time.Time, d time.Duration) (gap time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Second)
		gap = max(gap, time.Since(last()))
	}
	return gap
}

// A hub that is away for an hour, however it is away, starves no watchdog.
func TestTheWatchdogIsFedWhileTheHubIsAway(t *testing.T) {
	for _, watchdog := range []time.Duration{20 * time.Second, 3 * time.Minute} {
		for _, transport := range []string{"ws", "http"} {
			for _, how := range []string{"", "refuses", "silent", "frozen"} {
				t.Run(watchdog.String()+" "+transport+" "+how, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newHubs(t, 1)
						l := h.linked(t, func(c *Config) { c.Transport = transport })
						last := fed(t, l, watchdog)
						within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, l.id.Runner) })
						if how != "" {
							h.nodes[0].fail(how)
						}
						if gap := longestGap(last, time.Hour); gap > watchdog/2 {
							t.Errorf("for %s the watchdog was not fed, of %s that it may go without", gap, watchdog)
						}
						h.nodes[0].fail("")
						within(t, time.Minute, "the session after it", func() bool { return h.connected(0, l.id.Runner) })
						h.down()
						time.Sleep(time.Second) // for lines that were about to stand
					})
				})
			}
		}
	}
}

// A loop that is stuck starves it: a call that does not come back although its time is over.
func TestAStuckLoopStarvesTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubs(t, 1)
		var mu sync.Mutex
		stuck, release := false, make(chan struct{})
		l := h.linked(t, func(c *Config) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				hang := stuck
				mu.Unlock()
				if hang {
					<-release
					return nil, net.ErrClosed
				}
				return h.dial(ctx, network, address)
			}
			c.Transport = "ws"
		})
		last := fed(t, l, 3*time.Minute)
		t.Cleanup(func() { close(release) })
		within(t, 3*time.Second, "the first session", func() bool { return h.connected(0, l.id.Runner) })
		mu.Lock()
		stuck = true
		mu.Unlock()
		h.nodes[0].fail("refuses")
		time.Sleep(10 * time.Minute)
		if d := time.Since(last()); d < 3*time.Minute {
			t.Errorf("it was fed %s ago, by a link that has not moved for ten minutes", d)
		}
	})
}
