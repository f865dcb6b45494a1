// Package runner is the workstation's side of the mesh: it dials out to a hub, shows
// what it has and does what signed orders ask for, within its owner's rules.
//
//	link ── heartbeat ──► hub          one goroutine each: connect and read, heartbeats,
//	     ◄─ desired set ──             reports, reconciling
//	reconcile ── plan ──► attempts     one goroutine each, see runner/attempt
//	attempts ──► journal ──► reports   every report is durable here until the hub has it
//
// It guarantees that nothing slow delays a heartbeat, that an attempt which the hub
// does not name goes on, that one which may have run is never started again, and
// that a restarted runner finds every job that it left.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/format"
	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/probe"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// Runner runs one data directory. Make one with New, then call Run once.
type Runner struct {
	cfg     Config
	log     *slog.Logger
	machine string

	// Set by Run before any other goroutine starts.
	journal *journal.Journal
	id      *identity
	host    *attempt.Host
	link    *link
	work    sync.WaitGroup
	life    context.Context // of attempts
	reaped  bool            // no process without a record is left of an earlier life

	detectNow  chan struct{}
	ledger     ledger      // of disk space
	footprints *footprints // likewise; set by Run before any other goroutine starts
	sampler    *probe.Sampler
	health     *health
	pressure   *pressure
	retention  *retention
	now        func() time.Time // by which workspaces and caches are kept
	formats    format.Table     // of the data directory
	updates    updates
	errands    *errands
	provisions provisions

	storeMu  sync.Mutex
	store    *worktree.Store
	storeKey string

	mu          sync.Mutex
	owner       Owner
	ownerRead   bool // good rules of the owner were read
	ownerUnread bool // there are rules, and none of them were good yet
	secretNames []string
	harnesses   []fleet.HarnessInfo
	alerts      map[string]string
	told        *fleet.Limits        // of automation, by the hub; nil: never
	sampled     func() *fleet.Health // the machine's last sample with its age, nil: there is none; never blocks
	lowDisk     string
	noRoom      string    // what the disk did not take when it was last written to
	noRoomAt    time.Time // when that was
	attempts    map[fleet.Fence]*held
	answered    map[fleet.Fence]bool // told the hub that nothing of it is here
	acks        chan<- []settled     // to the reporter of the present session
}

// held is an attempt together with what the hub makes of it.
type held struct {
	attempt  *attempt.Attempt
	unlisted bool // the last desired set did not name it
}

var errSlept = errors.New("the machine slept")

// With a runner in development mode its jobs end, and the hub is told, within these
// times.
const (
	stopPatience = 15 * time.Second
	tellPatience = 3 * time.Second
)

// New checks the configuration. It starts and writes nothing.
func New(cfg Config) (*Runner, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	exec := fleet.HarnessInfo{Name: "exec", SignedIn: "yes"}
	sampler := newSampler(cfg)
	r := &Runner{
		sampler: sampler, health: newHealth(sampler.Sample), pressure: newPressure(), retention: newRetention(), errands: newErrands(), now: time.Now, formats: format.Steps,
		cfg: cfg, log: cfg.Logger, machine: machineID(), detectNow: make(chan struct{}, 1), owner: DefaultOwner(),
		harnesses: []fleet.HarnessInfo{exec}, alerts: map[string]string{}, attempts: map[fleet.Fence]*held{}, answered: map[fleet.Fence]bool{},
	}
	r.sampled = r.lastSample
	r.updates.acked = make(chan struct{})
	return r, nil
}

// Run runs until ctx ends; then it returns nil, and jobs go on under their
// supervisors until a later Run finds them. An error wraps journal.ErrLocked where
// another runner has the directory, is a *StandDown where the hub sent this runner
// away, ErrUpdated where another version is to be started, or says why the runner can't run. A runner that the hub knows no more enrols
// anew where it was given a ticket for that, and goes on.
func (r *Runner) Run(ctx context.Context) error {
	for anew := false; ; anew = true {
		err := r.run(ctx, anew)
		var away *StandDown
		if !errors.As(err, &away) || away.ticketWanted() == "" || !r.newTicket(r.id) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		r.log.Warn("the hub takes this identity no more; enrolling anew with the ticket", "err", err)
	}
}

// run is one life of an identity; with anew it begins with making another one.
func (r *Runner) run(ctx context.Context, anew bool) error {
	if err := journal.Locked(r.cfg.Dir, func() error { return r.formats.Begin(r.cfg.Dir, r.cfg.Version, r.log) }); err != nil {
		return err
	}
	j, err := journal.Open(r.cfg.Dir)
	if err != nil {
		return err
	}
	defer j.Close()
	r.journal = j
	if note := j.Note(); note != "" {
		r.log.Error("journal was repaired", "note", note)
		r.alert("journal", note)
	}
	if anew {
		if err := r.enrolAnew(ctx); err != nil {
			return err
		}
	}
	if r.id, err = r.enrolled(ctx); err != nil {
		return err
	}
	r.log = r.cfg.Logger.With("runner", string(r.id.Runner))
	if r.link, err = newLink(r, r.id); err != nil {
		return err
	}
	r.loadOwner()
	r.loadLimits()
	r.loadUpdates()
	r.lookAtDisk(ctx)
	if r.footprints, err = openFootprints(r.cfg.Dir); err != nil {
		r.log.Warn("what repositories take is learned anew", "err", err)
	}
	r.ledger.restore(j.Attempts())
	r.host = &attempt.Host{
		Dir: r.cfg.Dir, Self: r.cfg.Self, Journal: j, Hub: r.link, Trees: r.trees, Policy: r.policy, Harness: r.harness,
		Secrets: r.secrets, Space: space{r}, Docker: r.freshDocker, Memory: r.freshMemory, Session: r.findSession, Environ: os.Environ, Logger: r.log, CredentialFile: filepath.Join(r.cfg.Dir, "git-credentials.yaml"),
		Mark: r.mark(), Trouble: r.trouble, Dockerless: r.health.again,
	}

	// In development mode the link outlives ctx until the jobs have ended.
	work, cancel := context.WithCancelCause(ctx)
	if r.cfg.DevMode {
		work, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	}
	defer cancel(nil)
	var failed error // nothing but the hub ends Run with one
	r.life, r.updates.restart = work, cancel
	r.recover()
	r.work.Go(func() {
		if failed = r.link.run(work); failed != nil {
			cancel(failed)
		}
	})
	r.work.Go(func() { r.watchOwner(work) })
	r.work.Go(func() { r.detects(work) })
	r.work.Go(func() { r.watchAccounts(work) })
	r.work.Go(func() { r.watchDisk(work) })
	r.work.Go(func() { r.watchHealth(work) })
	r.work.Go(func() { r.watchPressure(work) })
	r.work.Go(func() { r.watchRoom(work) })
	r.work.Go(func() { r.reaps(work) })
	r.work.Go(func() { r.sweepsScratch(work) })
	r.work.Go(func() { r.retains(work) })
	r.work.Go(func() { r.hangUps(work) })
	r.work.Go(func() { r.giveBack(work) })
	r.work.Go(func() { r.watchVersion(work) })
	r.work.Go(func() { r.runErrands(work) })
	r.work.Go(func() { r.feeds(work) })
	r.notify("READY=1")
	if r.cfg.DevMode {
		select {
		case <-ctx.Done():
			r.endJobs()
			cancel(nil)
		case <-work.Done():
		}
	}
	<-work.Done()
	r.notify("STOPPING=1")
	r.work.Wait()
	if failed == nil && errors.Is(context.Cause(work), ErrUpdated) {
		failed = ErrUpdated
	}
	cancel(nil)
	return failed
}

// hangUps looks for the agent CLIs anew on SIGHUP, which must not end the runner.
func (r *Runner) hangUps(ctx context.Context) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	defer signal.Stop(c)
	for {
		select {
		case <-c:
			r.loadOwner()
			r.redetect()
		case <-ctx.Done():
			return
		}
	}
}

// recover ends what runs without a record, and takes up every attempt of the journal.
func (r *Runner) recover() {
	r.reaped = r.reap()
	r.loadProvisions()           // once nothing of an earlier life runs, and before the first attempt asks for it
	var found []*attempt.Attempt // all before the first one runs: those of one job wait for each other
	for _, rec := range r.journal.Attempts() {
		var as wire.Assignment
		if err := wire.Decode(rec.Assignment, &as); err != nil {
			r.log.Error("assignment in the journal cannot be read", "fence", rec.Fence.String(), "err", err)
			r.alert("journal", fmt.Sprintf("attempt %s of job %s cannot be read from the journal", rec.Fence, rec.Job))
			found = append(found, r.host.Abandon(rec, errors.New("its assignment in the journal can't be read")))
			continue
		}
		found = append(found, r.host.Resume(rec, assignmentOf(as)))
	}
	for _, a := range found {
		r.start(a)
	}
}

// start gives an attempt its goroutine.
func (r *Runner) start(a *attempt.Attempt) {
	r.mu.Lock()
	r.attempts[a.Fence()] = &held{attempt: a}
	r.mu.Unlock()
	r.work.Go(func() {
		a.Run(r.life)
		r.mu.Lock()
		delete(r.attempts, a.Fence())
		r.mu.Unlock()
		r.retention.poke()
		r.changed()
	})
}

// ordered lists the attempts by fence; the caller holds the lock.
func (r *Runner) ordered() []*held {
	return slices.SortedFunc(maps.Values(r.attempts), func(a, b *held) int {
		f, g := a.attempt.Fence(), b.attempt.Fence()
		return cmp.Or(cmp.Compare(f.Epoch, g.Epoch), cmp.Compare(f.Index, g.Index))
	})
}

// forgetAnswers makes a new session hear again what is not here.
func (r *Runner) forgetAnswers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.answered)
}

// busy counts the attempts that occupy a slot, until their end is reported: those of
// jobs that people asked for, and those of automations.
func (r *Runner) busy() (people, automations int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.attempts {
		switch {
		case h.attempt.Stage() >= attempt.Ended:
		case h.attempt.Automated():
			automations++
		default:
			people++
		}
	}
	return people, automations
}

// put adds an item about an attempt that is not here.
func (r *Runner) put(d wire.Desired, kind string, body any) error {
	it := journal.Item{Job: d.Job, Fence: d.Fence, Kind: kind}
	if body != nil {
		b, err := wire.Encode(body)
		if err != nil {
			return fmt.Errorf("encode %s: %w", kind, err)
		}
		it.Body = b
	}
	return r.journal.Put(journal.Durable, it)
}

// changed asks for a heartbeat, once there is a link.
func (r *Runner) changed() {
	if r.link != nil {
		r.link.Changed()
	}
}

// endJobs stops every job and waits, for a while, until the processes are gone and
// the hub has been told.
func (r *Runner) endJobs() {
	r.mu.Lock()
	all := r.ordered()
	r.mu.Unlock()
	for _, h := range all {
		h.attempt.Stop("the runner stops")
	}
	every := func(ok func(fleet.Fence) bool) func() bool {
		return func() bool { return !slices.ContainsFunc(all, func(h *held) bool { return !ok(h.attempt.Fence()) }) }
	}
	ended := every(func(f fleet.Fence) bool {
		rec, ok := r.journal.Attempt(f)
		return !ok || rec.Progress.Finished || rec.Progress.Ended
	})
	if !waitUntil(stopPatience, ended) {
		r.log.Warn("jobs did not end in time; they go on under their supervisors", "count", len(all))
		return
	}
	if !waitUntil(tellPatience, every(func(f fleet.Fence) bool {
		return !r.journal.PendingOf(f, attempt.KindFinished, attempt.KindLost, attempt.KindGone)
	})) {
		r.log.Info("the hub does not hear of the ends now; they stay in the outbox")
	}
}

// waitUntil looks again and again, and gives up after a time.
func waitUntil(patience time.Duration, ok func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
