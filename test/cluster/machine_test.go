package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// machine is a workstation: a disk, the processes of jobs, and a runner if one runs.
// Processes outlive the runner, and the disk outlives both.
type machine struct {
	w      *world
	id     string // in the network
	number int
	name   string
	slots  int // for manual work
	http   *http.Client

	sign ed25519.PrivateKey
	box  [2]*[32]byte // public, private
	who  wire.Enrolled
	key  []byte

	mu      sync.Mutex
	rand    *mathrand.Rand // guarded by mu
	book    []byte         // the runner's journal as it is on disk
	lost    time.Time      // when the disk was emptied last
	procs   map[fleet.Fence]*proc
	samples []sample                  // the newest that it told, oldest first
	shown   map[fleet.Fence]time.Time // when a hub last answered a heartbeat with it
	end     context.CancelFunc
	gone    chan struct{}
}

// proc is a job's process with its supervisor, who writes its output to disk.
type proc struct {
	plan       *plan
	start, end time.Time
	stopped    bool   // told to stop
	killed     bool   // it ended with the machine: there is no record of how
	unknown    bool   // it ended by itself, and the record of that is lost: nobody or the hubs alone know how
	automated  bool   // for an automation
	ends       ending // what it says of its provider
	account    string
}

func newMachine(w *world, i int) *machine {
	id := fmt.Sprintf("r-%02d", i+1)
	r := w.rand(uint64(1000 + i))
	m := &machine{w: w, id: id, number: i, shown: map[fleet.Fence]time.Time{}, name: fmt.Sprintf("mac-%02d", i+1), slots: 1 + r.IntN(3), rand: r, procs: map[fleet.Fence]*proc{}}
	t := &http.Transport{
		DialContext:           func(ctx context.Context, _, addr string) (net.Conn, error) { return w.dial(ctx, id, addr) },
		ResponseHeaderTimeout: 10 * time.Second, IdleConnTimeout: 20 * time.Second,
	}
	m.http = &http.Client{Transport: t, Timeout: 15 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w.onEnd(t.CloseIdleConnections)
	return m
}

// chance draws a number below n.
func (m *machine) chance(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *machine) between(min, max time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return between(m.rand, min, max)
}

// enrol turns a ticket into an identity, at whichever hub leads.
func (m *machine) enrol(ctx context.Context, secret string) error {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	m.sign = priv
	if m.box[0], m.box[1], err = box.GenerateKey(rand.Reader); err != nil {
		return err
	}
	body, err := json.Marshal(wire.Enrol{Secret: secret, Name: m.name, SignKey: pub, BoxKey: m.box[0][:], MachineID: m.id})
	if err != nil {
		return err
	}
	for range 40 {
		for _, n := range m.w.hubs.nodes {
			if err = m.enrolAt(ctx, n, body); err == nil {
				m.key, err = wire.OpenBox(m.box[0][:], m.box[1][:], m.who.HMACKey)
				return err
			}
		}
		pass(500 * time.Millisecond)
	}
	return fmt.Errorf("enrol %s: %w", m.name, err)
}

func (m *machine) enrolAt(ctx context.Context, n *hubNode, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+wire.EnrolPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := m.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", res.Status, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &m.who)
	}
	return err
}

// boot starts the runner's process.
func (m *machine) boot() {
	ctx, end := context.WithCancel(context.Background())
	gone := make(chan struct{})
	m.mu.Lock()
	m.end, m.gone = end, gone
	m.mu.Unlock()
	m.w.machines.Go(func() {
		defer close(gone)
		newLife(m, ctx).run()
	})
}

// offered is how many slots the runner says that it has.
func (m *machine) offered() int {
	if m.w.opt.Broken == greedy {
		return m.slots + 1
	}
	return m.slots
}

// crash ends the runner's process as kill -9 does; with all, the whole machine.
func (m *machine) crash(all bool) {
	m.mu.Lock()
	end, gone := m.end, m.gone
	m.end = nil
	m.mu.Unlock()
	if end == nil {
		return
	}
	m.w.net.Crash(m.id)
	end()
	<-gone
	m.w.net.Crash(m.id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		if all && p.end.After(time.Now()) {
			p.end, p.killed = time.Now(), true
		}
	}
}

// forget empties the machine's disk, after the machine went down. How processes ended
// that had been told of to nobody is not known any more.
func (m *machine) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book, m.lost = nil, time.Now()
	m.w.debug("%s forgets everything", m.id)
	for f, p := range m.procs {
		p.unknown, p.killed = !p.killed, true
		delete(m.procs, f)
	}
}

// launch starts a job's process.
func (m *machine) launch(r *record) {
	job, f := r.Job, r.Fence
	p := m.w.plans.of(job, f)
	now := time.Now()
	x := &proc{plan: p, start: now, end: now.Add(p.run), automated: r.Automated, account: m.account(r.Harness)}
	switch {
	case r.Docker && m.docker().State != fleet.DockerReady:
		x.ends = ending{class: fleet.ClassDocker, detail: "there is no Docker"}
	case r.Harness != "":
		x.ends = m.provider(r.Harness, r.Model)
	}
	if passing(x.ends.class) {
		x.end = now.Add(min(p.run, 5*time.Second))
	}
	m.mu.Lock()
	again := m.procs[f] != nil
	m.procs[f] = x
	busy := 0
	for _, o := range m.procs {
		if o.end.After(now) && !o.automated {
			busy++
		}
	}
	m.mu.Unlock()
	m.w.ledger.begin(execution{job: job, fence: f, machine: m, proc: x, rerun: r.Rerun, again: again, busy: busy})
}

// find tells of the process of an attempt, and what it wrote so far.
func (m *machine) find(f fleet.Fence) (state journal.Process, x proc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.procs[f]
	switch {
	case p == nil:
		return journal.Gone, proc{}
	case p.end.After(time.Now()):
		return journal.Running, *p
	case p.killed:
		return journal.Gone, *p
	}
	return journal.Exited, *p
}

// stop ends a process soon.
func (m *machine) stop(f fleet.Fence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.procs[f]; p != nil && !p.stopped && p.end.After(time.Now()) {
		p.stopped = true
		if end := time.Now().Add(between(m.rand, 10*time.Millisecond, time.Second)); end.Before(p.end) {
			p.end = end
		}
	}
}

// drop removes what is kept of an attempt.
func (m *machine) drop(f fleet.Fence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.procs, f)
}

// bursts is how often a process writes in its life.
const bursts = 4

// wrote gives how much of a stream is on the machine's disk.
func (x proc) wrote(s wire.Stream) []byte {
	all := x.plan.stream(s)
	took := min(time.Since(x.start), x.end.Sub(x.start))
	return all[:min(len(all)*int(took*bursts/x.plan.run)/bursts, len(all))]
}

// next is when the process will write again, or end.
func (x proc) next() time.Time {
	part := x.plan.run / bursts
	at := x.start.Add(part * (time.Since(x.start)/part + 1)).Add(bursts) // what was rounded off
	if at.After(x.end) {
		return x.end
	}
	return at
}
