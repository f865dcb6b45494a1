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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/mesh/meshtest"
	"tugline.dev/tugline/shared/fleet"
)

const (
	runnerCount = 50
	personCount = 4
	hotCount    = 4 // of the runners, that every second job wants

	minDelay = 100 * time.Microsecond // of what crosses the network in good times
	maxDelay = 2 * time.Millisecond

	stepTime  = 500 * time.Millisecond // between two looks at everything
	calmTime  = 4 * time.Minute        // for all work to end once there are no faults any more
	longTime  = 10 * time.Hour         // for the same where circuits are waited for
	patience  = 10                     // one world in so many waits for them
	quietTime = 6 * time.Minute        // for all copies to be equal then; nodes compare theirs every few minutes
)

// options are what one run is made of.
type options struct {
	Seed    uint64
	For     time.Duration // of virtual time under faults
	Disk    bool          // the logs of the hubs are files
	Verbose bool
	Broken  string // what is wrong on purpose
}

// world is all there is: a network, three hubs, many runners, some people.
type world struct {
	t        *testing.T
	opt      options
	dir      string
	net      *meshtest.Network
	hubs     *hubSet
	fleet    []*machine
	machines sync.WaitGroup
	ledger   *ledger
	people   *people
	check    *checker
	court    *court
	healed   atomic.Bool // nothing of machines and providers is wrong any more
	plans    *plans
	token    string
	begun    time.Time
	steps    int
	took     time.Duration // of real time
	faults   map[string]int

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
	w := &world{t: t, opt: opt, dir: dir, net: meshtest.New(opt.Seed), plans: &plans{seed: opt.Seed}, begun: time.Now()}
	w.net.Delay(minDelay, maxDelay)
	w.ledger, w.check = newLedger(w.wrong), newChecker(w.plans, w.wrong)
	w.court = newCourt(w, w.wrong)
	w.people = &people{w: w}
	w.hubs = &hubSet{w: w}
	for i := range hubCount {
		w.hubs.nodes = append(w.hubs.nodes, newHubNode(w, i))
	}
	for i := range runnerCount {
		w.fleet = append(w.fleet, newMachine(w, i))
	}
	return w
}

// rand gives a source of chance of its own for one purpose.
func (w *world) rand(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(w.opt.Seed, purpose)) }

// run lets the world go its way: it begins, it has faults, it comes to rest.
func (w *world) run() error {
	defer w.end()
	ctx := context.Background()
	if err := w.begin(ctx); err != nil {
		return err
	}
	under, end := context.WithTimeout(ctx, w.opt.For)
	defer end()
	w.people.run(under, personCount)
	n := newNemesis(w)
	var wg sync.WaitGroup
	wg.Go(func() { n.run(under) })
	if w.opt.Broken == oldLogs {
		wg.Go(func() { n.oldLogs(under) })
	}
	for under.Err() == nil && !w.broken() {
		time.Sleep(stepTime)
		w.look(false)
	}
	end()
	wg.Wait()
	w.faults = n.made
	w.debug("no more faults")
	w.net.Delay(minDelay, maxDelay)
	if w.broken() {
		return w.verdict()
	}
	w.people.wg.Wait()
	return w.rest(ctx)
}

// begin founds the cluster and enrols the runners.
func (w *world) begin(ctx context.Context) error {
	if err := w.hubs.found(ctx); err != nil {
		return err
	}
	p := newPerson(w, "p-founder")
	secret, err := p.secret(ctx, runnerCount)
	if err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(w.fleet))
	for i, m := range w.fleet {
		wg.Go(func() { errs[i] = m.enrol(ctx, secret) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range w.fleet {
		m.boot()
	}
	return nil
}

// look holds all that can be seen now against what must be so.
func (w *world) look(whole bool) []look {
	synctest.Wait()
	w.steps++
	var nodes []look
	for _, n := range w.hubs.nodes {
		if err := n.failed(); err != nil {
			w.wrong("hub %s ended: %v", n.id, err)
		}
		if in, ok := n.live(); ok {
			nodes = append(nodes, w.check.lookAt(w, n.id, in, whole))
		}
	}
	w.check.check(nodes, w.people.promises())
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.check.onMajority(nodes, w.ledger.acked)
	w.check.blobsOnMajority(nodes, w.ledger.blobs)
	return nodes
}

// sum tells what happened in few words.
func (w *world) sum() string {
	return fmt.Sprintf("%d looks, %d terms, %d commands packed, %d jobs, %d executions, %d reports, %d requests, %d of them unanswered, faults %v, %v, took %s",
		w.steps, len(w.check.leaders), w.check.packed, w.people.done(), len(w.ledger.runs), w.ledger.items, w.people.tries, w.people.unsure, w.faults, w.court.cases, w.took.Round(time.Millisecond))
}

// lost says when a runner's disk was emptied last.
func (w *world) lost(r fleet.RunnerID) time.Time {
	for _, m := range w.fleet {
		if m.who.Runner == r {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.lost
		}
	}
	return time.Time{}
}

// slots gives what each runner offers.
func (w *world) slots() map[fleet.RunnerID]int {
	out := map[fleet.RunnerID]int{}
	for _, m := range w.fleet {
		out[m.who.Runner] = m.slots
	}
	return out
}

// everybody lists all machines of the network.
func (w *world) everybody() []string {
	out := w.hubs.ids()
	for _, m := range w.fleet {
		out = append(out, m.id)
	}
	for i := range personCount + 1 { // and who operates
		out = append(out, fmt.Sprintf("p-%02d", i))
	}
	return out
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

// verdict gives all that was wrong.
func (w *world) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, s := range w.wrongs {
		errs = append(errs, errors.New(s))
	}
	return errors.Join(errs...)
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
	for _, m := range w.fleet {
		wg.Go(func() { m.crash(false) })
	}
	for _, n := range w.hubs.nodes {
		wg.Go(func() { n.stop(false) })
	}
	wg.Wait()
	w.machines.Wait()
	w.hubs.wg.Wait()
	w.people.wg.Wait()
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
		case <-time.After(stepTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *world) debug(format string, args ...any) {
	if w.opt.Verbose {
		fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{w.now()}, args...)...)
	}
}

func (w *world) logger(node string) *slog.Logger {
	if !w.opt.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(writer{w}, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})).With("on", node)
}

// writer writes log lines with the virtual time before them.
type writer struct{ w *world }

func (x writer) Write(b []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "%s %s", x.w.now(), b)
	return len(b), nil
}

// pass lets time pass in the world, which is a bubble.
func pass(d time.Duration) { time.Sleep(d) }
