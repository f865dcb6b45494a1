// Package attempt carries one assignment from its fence to its finish: inputs,
// worktree, the owner's rules, the permit, the launch, the process's output and
// events, the evidence, the report, the push.
//
// It guarantees that nothing is done in the name of a fence before the fence is
// durable in the journal, that a process is started at most once and only after the
// hub has committed the accept, that a killed runner finds every attempt again in
// the stage it was in, and that values of secrets are masked in whatever leaves the
// machine. It leaves to its caller to speak to the hub, to verify orders, and to
// decide what a desired set means.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tugline.dev/tugline/runner/journal"
	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/fleet"
)

// Stream names one of an attempt's byte streams.
type Stream string

// The streams: frames of the process's output, and its events as JSON lines.
const (
	Output Stream = "output"
	Events Stream = "events"
)

// Hub is what an attempt needs of the hub. Every method waits out a broken
// connection and gives up only when ctx ends or the hub's answer is final; then the
// error wraps a fleet.Code.
type Hub interface {
	// Append sends bytes of a stream and gives the length that the hub holds durably,
	// which is the offset that it wants next. No bytes ask for that alone.
	Append(ctx context.Context, job fleet.JobID, fence fleet.Fence, s Stream, offset int64, data []byte) (durable int64, err error)
	// Permit asks whether the attempt may push now; nil is yes.
	Permit(ctx context.Context, job fleet.JobID, fence fleet.Fence, p journal.Push) error
	// Fetch copies a blob.
	Fetch(ctx context.Context, d fleet.Digest, to io.Writer) error
	// Store uploads a file as a blob; it returns once the hub holds it durably.
	Store(ctx context.Context, d fleet.Digest, file string) error
	// Live shows partial events to people who watch; it may drop them and never blocks.
	Live(job fleet.JobID, fence fleet.Fence, events []fleet.Event)
	// Changed says that a view changed, so that a heartbeat is due; it never blocks.
	Changed()
}

// Host is what all attempts of a runner share. Its functions are safe for
// concurrent use and give the present state.
type Host struct {
	Dir     string // the runner's data directory, absolute
	Self    string // path of the tugline binary, which is the supervisor too
	Journal *journal.Journal
	Hub     Hub
	Trees   func() (*worktree.Store, error)
	Policy  func() Policy
	Harness func(name string) (fleet.HarnessInfo, bool) // as detected here
	Secrets func() (map[string]string, error)
	Space   Space
	Docker  func(context.Context) fleet.Docker  // asked now; bounded in time
	Memory  func(context.Context) *fleet.Memory // looked at now; bounded in time; nil: not known
	Environ func() []string
	// Session finds one that people have with an agent CLI on this machine. The error
	// wraps fleet.NotFound where there is none.
	Session func(ctx context.Context, harness, id string) (fleet.CLISession, error)
	Logger  *slog.Logger
	// CredentialFile is the owner's git-credentials.yaml; it need not exist.
	CredentialFile string
	// Mark begins the marker of every process launched from Dir, and no other's.
	Mark string
	// Trouble is told that the disk does not take what is to be written; it may be nil
	// and never blocks.
	Trouble func(error)
	// Dockerless is told that a job found no Docker; it may be nil and never blocks.
	Dockerless func()

	scratchMu sync.Mutex // of the scratch directories of jobs without repository

	mu   sync.Mutex
	here map[fleet.JobID][]*Attempt // begun or resumed, until their Run returns
}

// Assignment is what is asked for.
type Assignment struct {
	Job        fleet.JobID
	Turn       int
	Attempt    int
	Fence      fleet.Fence
	Spec       fleet.Spec
	Prompt     fleet.Digest
	PromptText string
	Model      string
	Fresh      bool
	Resume     *Resume
	Branch     string
	CreatedAt  time.Time
	Again      bool  // an earlier attempt at the turn began here: its directory and session are gone on with
	Docker     bool  // Docker and Compose must answer
	Reserve    int64 // bytes of disk to keep for it
}

// Resume says what a later turn goes on from.
type Resume struct {
	SessionID  string
	BaseCommit string
	Bundle     fleet.Digest
	Tip        string
	Usage      *fleet.Usage
}

// Stage is how far an attempt is, as far as a desired set is concerned.
type Stage int

// The stages, in their order.
const (
	Preparing Stage = iota // no permit yet
	Running                // launched, or permitted
	Stopping
	Ending  // the process is over; the result is being made
	Ended   // its end is in the outbox
	Settled // its end is acknowledged and nothing more is owed
)

// View is an attempt as a heartbeat shows it.
type View struct {
	Job    fleet.JobID
	Fence  fleet.Fence
	Phase  string // preparing, ready, running, stopping, finishing, finished, gone
	Detail string
	Since  time.Duration // age of the phase
	Output int64         // bytes recorded
	Sent   int64         // of these acknowledged
}

// Attempt is one assignment on its way.
type Attempt struct {
	host *Host
	asg  Assignment
	dir  string
	log  *slog.Logger

	permit chan struct{} // closed: the accept is committed
	stop   chan struct{} // closed: stopReason is set
	forget chan struct{} // closed: the hub needs nothing more
	settle chan struct{} // a value: look at the outbox again
	gap    chan struct{} // a value: the hub lacks bytes that it once had
	done   chan struct{}
	over   chan struct{} // closed: no process of it is left and its worktree is free

	mu         sync.Mutex
	stage      Stage
	phase      string
	detail     string
	waiting    string // why the process is waiting on its provider
	waitTold   bool   // whether it was told at all
	since      time.Time
	stopReason string
	output     int64
	sent       int64

	resumed bool  // found again by a restarted runner, or by a second try; of Run's goroutine
	broken  error // why it can't be gone on with, known before Run

	cold      bool // its repository is not cached here; of Run's goroutine
	delivered bool // the hub took every file of the evidence; of Run's goroutine

	factMu sync.Mutex                // held over the number of a fact
	resend func(ctx context.Context) // brings the streams to the hub once more; nil without streams. Of Run's goroutine
}

func (h *Host) attempt(asg Assignment) *Attempt {
	return &Attempt{
		host: h, asg: asg, dir: h.attemptDir(asg.Job, asg.Fence),
		log:    h.Logger.With("job", asg.Job, "fence", asg.Fence.String()),
		permit: make(chan struct{}), stop: make(chan struct{}), forget: make(chan struct{}), settle: make(chan struct{}, 1), gap: make(chan struct{}, 1),
		done: make(chan struct{}), over: make(chan struct{}), phase: "preparing", since: time.Now(),
	}
}

func (h *Host) attemptDir(job fleet.JobID, f fleet.Fence) string {
	return filepath.Join(h.Dir, "attempts", string(job), f.String())
}

// Begin takes an assignment on: its fence is durable when Begin returns, and Run
// goes on from there. body is the order's body as it was signed, which Resume gets
// back after a restart, and proof the order itself.
func (h *Host) Begin(asg Assignment, order string, body, proof []byte) (*Attempt, error) {
	a := h.attempt(asg)
	if filepath.Base(string(asg.Job)) != string(asg.Job) || asg.Job == "" || asg.Job[0] == '.' {
		return nil, fmt.Errorf("take on job %q: not an id: %w", asg.Job, fleet.BadRequest)
	}
	err := h.Journal.Begin(journal.Attempt{Job: asg.Job, Fence: asg.Fence, Order: order, Assignment: body, Proof: proof, Dir: a.dir})
	if err != nil {
		return nil, fmt.Errorf("take on job %s: %w", asg.Job, err)
	}
	h.enter(a)
	return a, nil
}

// Resume finds an attempt of the journal again, after a restart of the runner.
func (h *Host) Resume(rec journal.Attempt, asg Assignment) *Attempt {
	a := h.attempt(asg)
	a.dir, a.resumed = rec.Dir, true
	switch p := rec.Progress; {
	case p.Finished:
		a.ended()
		a.phase = "finished"
	case p.Ended:
		a.ended()
		a.phase = "gone"
	case p.Intent:
		a.stage, a.phase = Running, "running"
	}
	if rec.Progress.Stop != "" {
		a.stopReason = rec.Progress.Stop
		close(a.stop)
	}
	h.enter(a)
	return a
}

// Abandon finds an attempt of the journal of which nothing but the record can be
// read: Run ends what there is of it and reports it.
func (h *Host) Abandon(rec journal.Attempt, cause error) *Attempt {
	a := h.Resume(rec, Assignment{Job: rec.Job, Fence: rec.Fence})
	a.broken = cause
	return a
}

// Run takes a begun or resumed attempt as far as it goes. It returns when nothing of
// it is owed any more, or ctx ends; then its process, if there is one, goes on, and
// a later runner finds it. A full disk is waited out. Whatever else fails is tried
// again from what the journal holds, and in the end the attempt is given up: its
// processes are ended and it is reported.
func (a *Attempt) Run(ctx context.Context) {
	defer close(a.done)
	defer a.host.leave(a)
	if a.broken != nil {
		a.giveUp(ctx, a.broken)
		return
	}
	for try, wait := 1, minRoomWait; ; wait = min(2*wait, maxRoomWait) {
		err := a.run(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case NoRoom(err):
			a.host.trouble(err)
			a.tell("waits for the disk: " + err.Error())
			try = 1
		case try >= maxTries:
			a.giveUp(ctx, err)
			return
		default:
			try++
		}
		a.log.Warn("attempt is taken up again after an error", "err", err)
		a.resumed = true
		if !pause(ctx, wait) {
			return
		}
	}
}

func (a *Attempt) run(ctx context.Context) error {
	rec, ok := a.host.Journal.Attempt(a.asg.Fence)
	if !ok {
		return fmt.Errorf("find the attempt in the journal: %w", fleet.NotFound)
	}
	proc := journal.Gone
	var status process.Status
	if rec.Progress.Intent {
		if _, err := os.Stat(a.processDir()); errors.Is(err, fs.ErrNotExist) {
			a.giveUp(ctx, errors.New("its directory is gone"))
			return nil
		}
		var err error
		if status, err = process.Attach(a.processDir()); err != nil {
			return err
		}
		switch status.State {
		case process.Running:
			proc = journal.Running
		case process.Exited:
			proc = journal.Exited
		}
	}
	switch next := journal.Decide(rec.Progress, proc); next {
	case journal.ResumePrepare, journal.ResumeStart:
		if next == journal.ResumeStart {
			a.Permit()
		}
		return a.fromStart(ctx)
	case journal.Adopt, journal.Finish, journal.ReportLost:
		a.log.Info("attempt found again", "process", string(status.State))
		return a.fromProcess(ctx)
	case journal.ReportGone:
		if !a.sweep(ctx) {
			return nil
		}
		return a.end(ctx, KindGone, nil)
	case journal.Deliver:
		if rec.Progress.Intent {
			return a.fromProcess(ctx)
		}
		if rec.Progress.Finished {
			return a.untilForgotten(ctx)
		}
		return a.settleEnd(ctx)
	default:
		return fmt.Errorf("no step is known after %q", next)
	}
}

// Job and Fence name the attempt.
func (a *Attempt) Job() fleet.JobID { return a.asg.Job }

// Fence gives the attempt's authority.
func (a *Attempt) Fence() fleet.Fence { return a.asg.Fence }

// Harness gives what the attempt is made with.
func (a *Attempt) Harness() string { return a.asg.Spec.Harness }

// Automated says whether the job was asked for by an automation.
func (a *Attempt) Automated() bool { return a.asg.Spec.Automated() }

// Done is closed when Run returns.
func (a *Attempt) Done() <-chan struct{} { return a.done }

// Permit says that the hub committed the accept. It may be called at any time and
// more than once.
func (a *Attempt) Permit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	closeOnce(a.permit)
}

// Stop ends the attempt in whatever stage it is; the first reason counts.
func (a *Attempt) Stop(reason string) {
	if reason == "" {
		reason = "stopped"
	}
	a.mu.Lock()
	first := a.stopReason == ""
	if first {
		a.stopReason = reason
		if a.stage == Running {
			a.stage = Stopping
		}
		closeOnce(a.stop)
	}
	a.mu.Unlock()
	if first {
		// Lazy: the hub goes on telling it until it sees the end.
		if err := a.host.Journal.Update(a.asg.Fence, journal.Lazy, func(p *journal.Progress) { p.Stop = reason }); err != nil {
			a.log.Warn("stop could not be journaled", "err", err)
		}
	}
}

// Forget says that the hub needs nothing more of the attempt.
func (a *Attempt) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	closeOnce(a.forget)
}

// Acked says that items of the attempt were settled by the hub.
func (a *Attempt) Acked() {
	select {
	case a.settle <- struct{}{}:
	default:
	}
}

// Gap says that the hub, asked to seal the log, lacks bytes of it.
func (a *Attempt) Gap() {
	select {
	case a.gap <- struct{}{}:
	default:
	}
}

// closeOnce closes c unless it is closed; the caller holds the lock of all closers.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Stage says how far it is.
func (a *Attempt) Stage() Stage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage
}

// View gives the attempt for a heartbeat.
func (a *Attempt) View() View {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := View{Job: a.asg.Job, Fence: a.asg.Fence, Phase: a.phase, Detail: a.detail, Since: time.Since(a.since), Output: a.output, Sent: a.sent}
	if a.waiting != "" && a.phase == "running" {
		v.Detail = a.waiting
	}
	return v
}

// enter moves the attempt to a phase and asks for a heartbeat.
func (a *Attempt) enter(stage Stage, phase, detail string) {
	a.mu.Lock()
	if stage == Running && a.stopReason != "" {
		stage, phase = Stopping, "stopping"
	}
	changed := a.phase != phase || a.stage != stage
	if a.phase != phase {
		a.since = time.Now()
	}
	a.stage, a.phase, a.detail = stage, phase, detail
	a.mu.Unlock()
	if changed {
		a.host.Hub.Changed()
	}
}

// ended marks the attempt as ended, before its end shows in the outbox: a hub that
// knows the end may fill the slot in the same instant.
func (a *Attempt) ended() {
	a.host.Space.Promise(a.asg.Fence, 0) // what it took is taken
	a.mu.Lock()
	a.stage = Ended
	closeOnce(a.over)
	a.mu.Unlock()
}

// tell changes the detail alone, which rides in the next heartbeat.
func (a *Attempt) tell(detail string) {
	a.mu.Lock()
	a.detail = fleet.CutText(detail, fleet.MaxDetail)
	a.mu.Unlock()
}

func (a *Attempt) processDir() string { return processDir(a.dir) }

func processDir(dir string) string { return filepath.Join(dir, "process") }

// ProcessDir is where the processes of an attempt on record are found.
func ProcessDir(rec journal.Attempt) string { return processDir(rec.Dir) }
func (a *Attempt) scratchDir() string       { return filepath.Join(a.dir, "scratch") }
func (a *Attempt) closureFile() string {
	return filepath.Join(a.scratchDir(), "closure.txt")
}

// sweep ends what may be left of the attempt's processes, and goes on until they are
// proven gone; false is the end of ctx.
func (a *Attempt) sweep(ctx context.Context) bool {
	for {
		n, err := process.Sweep(a.processDir())
		if err == nil {
			var more int
			more, err = a.sweepMark()
			n += more
		}
		if err == nil {
			if n > 0 {
				a.log.Info("leftover processes ended", "count", n)
			}
			return true
		}
		a.log.Warn("processes of the attempt could not be swept", "err", err)
		a.tell("its processes can't be ended: " + err.Error())
		if !pause(ctx, sweepAgain) {
			return false
		}
	}
}

// erase removes the runtime files: spool, events, scratch. The worktree stays.
func (a *Attempt) erase() {
	if err := os.RemoveAll(a.dir); err != nil {
		a.log.Warn("runtime files could not be removed", "err", err)
	}
	_ = os.Remove(filepath.Dir(a.dir)) // only when it was the job's last
}

// stopped gives a context that ends with the stop, and the release of it.
func (a *Attempt) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-a.stop:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-watched }
}

var errStopped = errors.New("the attempt was told to stop")

func (a *Attempt) isStopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}
