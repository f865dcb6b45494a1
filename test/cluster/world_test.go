package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/mesh/meshtest"
)

// options are what one run is made of.
type options struct {
	Seed          uint64
	For           time.Duration // of virtual time under faults
	Disk          bool          // the logs of the hubs are files
	SnapshotEvery uint64
	Verbose       bool
}

// world is all there is: a network, three hubs, many runners, some people.
type world struct {
	t     *testing.T
	opt   options
	dir   string
	net   *meshtest.Network
	hubs  *hubSet
	token string
	begun time.Time

	mu     sync.Mutex
	ends   []func()
	wrongs []string
}

func newWorld(t *testing.T, opt options) *world {
	dir := t.TempDir()
	if !opt.Disk {
		// Files that need not outlive the machine are quick where they are in memory.
		if d, err := os.MkdirTemp("/dev/shm", "tugline-cluster-"); err == nil {
			dir = d
			t.Cleanup(func() { os.RemoveAll(d) })
		}
	}
	w := &world{t: t, opt: opt, dir: dir, net: meshtest.New(opt.Seed), begun: time.Now()}
	w.hubs = &hubSet{w: w}
	for i := range hubCount {
		w.hubs.nodes = append(w.hubs.nodes, newHubNode(w, i))
	}
	return w
}

// rand gives a source of chance of its own for one purpose.
func (w *world) rand(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.opt.Seed, purpose))
}

// dial connects a machine to the hub that serves at an address.
func (w *world) dial(ctx context.Context, from, address string) (net.Conn, error) {
	n := w.hubs.byAddress(address)
	if n == nil {
		return nil, fmt.Errorf("nothing serves at %s", address)
	}
	return w.net.Node(from).Dial(ctx, n.id, n.port)
}

// wrong notes that an invariant does not hold.
func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrongs) < 20 {
		w.wrongs = append(w.wrongs, fmt.Sprintf("[%s] ", w.now())+fmt.Sprintf(format, args...))
	}
}

func (w *world) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrongs) > 0
}

// now is the virtual time since the beginning.
func (w *world) now() string { return strconv.FormatFloat(time.Since(w.begun).Seconds(), 'f', 3, 64) }

// onEnd has something done when the world ends.
func (w *world) onEnd(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, f)
}

func (w *world) end() {
	var wg sync.WaitGroup
	for _, n := range w.hubs.nodes {
		wg.Go(func() { n.stop(false) })
	}
	wg.Wait()
	w.hubs.wg.Wait()
	w.mu.Lock()
	ends := w.ends
	w.mu.Unlock()
	for _, f := range ends {
		f()
	}
	synctest.Wait()
}

var errLate = errors.New("it did not happen in time")

// within waits until something is so.
func (w *world) within(ctx context.Context, d time.Duration, what string, so func() bool) error {
	end := time.Now().Add(d)
	for !so() {
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w, within %s", what, errLate, d)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *world) logger(node string) *slog.Logger {
	if !w.opt.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(writer{w}, &slog.HandlerOptions{Level: slog.LevelInfo})).With("on", node)
}

// writer writes to the test's log.
type writer struct{ w *world }

func (x writer) Write(b []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "%s %s", x.w.now(), b)
	return len(b), nil
}
