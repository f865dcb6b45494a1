package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/runner/update"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	updateTime  = time.Hour        // of getting and placing one release
	updateAgain = 10 * time.Minute // after one that broke off without being a try
	updateRoom  = 500 << 20        // bytes that must be free beside the program
	updateIdle  = 5                // breaks in a row of getting it that bring no byte
	updateAnew  = 3                // times that it is got from the beginning
	approvePoll = 2 * time.Second
)

// ErrUpdated ends Run when another version is the present one: it is to be started.
var ErrUpdated = errors.New("another version of this program is to be started")

// updates is where the runner stands with its own versions. Offers come from the
// reconciler, which alone begins an update: no assignment slips in between.
type updates struct {
	acked chan struct{} // closed at the first acknowledged heartbeat
	once  sync.Once

	// Under the runner's lock.
	record  update.Record
	offered string    // the version that the hub offers; empty: none
	waits   string    // why it is not taken now
	busy    string    // the version that is being placed
	notTill time.Time // no update begins before

	restart context.CancelCauseFunc // ends Run; set by Run before any other goroutine starts
}

// loadUpdates takes up how the last update went.
func (r *Runner) loadUpdates() {
	if r.cfg.Versions == nil {
		return
	}
	rec, err := r.cfg.Versions.Standing()
	if err != nil {
		r.log.Error("how the last update went is not known", "err", err)
		r.alert("update", err.Error()+"; the runner does not update itself")
		return
	}
	text := ""
	switch rec.State {
	case update.Failed:
		text = fmt.Sprintf("update to %s failed: %s", rec.To, rec.Why)
	case update.RolledBack:
		text = fmt.Sprintf("update to %s failed, %s is back: %s", rec.To, r.cfg.Versions.Running(), rec.Why)
	}
	r.alert("update", text)
	r.mu.Lock()
	r.updates.record = rec
	r.mu.Unlock()
}

// updateFacts is what the hub hears of it; the caller holds the lock.
func (r *Runner) updateFacts() *fleet.RunnerUpdate {
	u := &r.updates
	f := &fleet.RunnerUpdate{
		Policy: r.owner.Updates, Offered: u.offered, Waits: u.waits,
		State: string(u.record.State), To: u.record.To, Why: u.record.Why,
	}
	if n := len(u.record.Tried); n > 0 && u.record.State != "" {
		f.Asked = u.record.Tried[n-1].Asked
	}
	if why := r.immovable(); why != "" {
		f.Policy, f.Waits = "off", why
	}
	return f
}

// immovable says why this program is not the runner's own to replace.
func (r *Runner) immovable() string {
	switch {
	case r.cfg.ManagedBy != "":
		return "managed by " + r.cfg.ManagedBy + "; on the machine `" + r.cfg.UpdatedBy + "` updates it"
	case r.cfg.Versions == nil:
		return "not installed in a directory of versions; `tugline runner install` does that"
	}
	return ""
}

// gate is what decides whether an update begins now.
type gate struct {
	policy   string // of the owner
	fixed    string // why the program is not the runner's own to replace
	key      bool   // one of releases is pinned
	hours    bool   // it is a time at which the owner has updates
	approved bool   // this release, by the owner on this machine
	idle     bool
}

// closed says why an update does not begin now; empty is that it does. Whoever approves
// it at the machine is not kept waiting for the hours.
func (g gate) closed() string {
	switch {
	case g.fixed != "":
		return g.fixed
	case g.policy == "off":
		return "updates are off in runner.yaml"
	case !g.key:
		return "no key of releases is known here; set release_key in runner.yaml, or enrol anew"
	case g.policy != "auto" && !g.approved:
		return "waits for `tugline runner update --approve` on the machine"
	case !g.hours && !g.approved:
		return "waits for the owner's hours for updates"
	case !g.idle:
		return "waits until no job is here"
	}
	return ""
}

// updatesAt says whether it is a time at which the owner has updates.
func (o Owner) updatesAt(now time.Time) bool {
	return inPeriods(o.Hours.Updates, now)
}

// inPeriods says whether a time is in one of the periods; none is always.
func inPeriods(periods []string, now time.Time) bool {
	for _, s := range periods {
		if q, err := parseQuiet(s); err == nil {
			if _, ok := q.until(now); ok {
				return true
			}
		}
	}
	return len(periods) == 0
}

// takeOffer looks at what the hub offers, and begins an update where everything allows
// it. Only the reconciler calls it.
func (r *Runner) takeOffer(s *session, o *wire.Offer) {
	rel, err := r.releaseOf(s, o)
	if err != nil {
		r.log.Warn("update without a valid order is passed over", "err", err)
		return
	}
	waits := ""
	if rel.Version != "" && r.immovable() == "" {
		if err := r.cfg.Versions.Admits(rel); err != nil {
			waits = err.Error()
		}
	}
	approved := rel.Version != "" && r.approvedIs(rel)
	r.mu.Lock()
	u := &r.updates
	g := gate{
		policy: r.owner.Updates, fixed: r.immovable(), key: r.releaseKey() != "", hours: r.owner.updatesAt(time.Now()),
		approved: approved, idle: len(r.attempts) == 0 && r.provisions.busy == "",
	}
	if rel.Version != "" && waits == "" {
		waits = g.closed()
	}
	begin := rel.Version != "" && waits == "" && u.busy == "" && !time.Now().Before(u.notTill)
	told := u.offered != rel.Version || u.waits != waits
	u.offered, u.waits = rel.Version, fleet.CutText(waits, fleet.MaxDetail)
	if begin {
		u.busy = rel.Version
	}
	r.mu.Unlock()
	r.showWaiting(rel, rel.Version != "" && g.policy == "ask" && g.fixed == "" && !approved)
	if told || begin {
		r.log.Info("update", "version", rel.Version, "waits", waits, "begins", begin)
		r.changed()
	}
	if begin {
		r.work.Go(func() { r.update(r.life, rel) })
	}
}

// releaseOf verifies an offer; without one the release has no version.
func (r *Runner) releaseOf(s *session, o *wire.Offer) (update.Release, error) {
	if o == nil {
		return update.Release{}, nil
	}
	order, err := r.open(s, o.Order, o.Body)
	if err != nil {
		return update.Release{}, err
	}
	var b wire.Update
	if err := wire.Decode(o.Body, &b); err != nil || order.Kind != wire.OrderUpdate {
		return update.Release{}, fmt.Errorf("order %s is no update: %w", order.ID, fleet.BadRequest)
	}
	return update.Release{
		Version: b.Version, OS: b.OS, Arch: b.Arch, SHA256: b.SHA256, Size: b.Size, Signature: b.Signature, Asked: b.Asked, Downgrade: b.Downgrade,
	}, nil
}

// releaseKey is what programs must be signed by; the caller holds the lock.
func (r *Runner) releaseKey() string {
	if r.owner.ReleaseKey != "" {
		return r.owner.ReleaseKey
	}
	return r.id.ReleaseKey
}

// update gets a release and places it; with it the process ends, so that the new
// version is started. Meanwhile no job is taken on.
func (r *Runner) update(ctx context.Context, rel update.Release) {
	r.log.Info("update begins", "version", rel.Version)
	err := r.placeRelease(ctx, rel)
	r.mu.Lock()
	if err != nil {
		r.updates.busy, r.updates.notTill = "", time.Now().Add(updateAgain)
	}
	r.mu.Unlock()
	if ctx.Err() != nil && err != nil {
		return
	}
	r.loadUpdates()
	if err != nil {
		r.log.Error("update failed; this version goes on", "version", rel.Version, "err", err)
		r.alert("update", fmt.Sprintf("update to %s failed: %v", rel.Version, err))
		r.changed()
		return
	}
	r.log.Info("update is in place; the new version is to be started", "version", rel.Version)
	r.updates.restart(ErrUpdated)
}

func (r *Runner) placeRelease(ctx context.Context, rel update.Release) error {
	ctx, cancel := context.WithTimeout(ctx, updateTime)
	defer cancel()
	if v := r.fresh(ctx, r.cfg.Versions.Prefix()); !v.Known || v.Free < rel.Size+updateRoom {
		return fmt.Errorf("storage: %s free where the versions are, below %s beside the program", attempt.Size(v.Free), attempt.Size(updateRoom))
	}
	r.mu.Lock()
	key := r.releaseKey()
	r.mu.Unlock()
	f, err := r.got(ctx, rel.SHA256)
	if err != nil {
		return fmt.Errorf("get %s: %w", rel.Version, err)
	}
	defer f.Close()
	return r.cfg.Versions.Place(ctx, rel, key, f)
}

// got gets a program into a file that has no name, so that a crash leaves nothing. What came
// broken is got again from the beginning; the last time it is for whoever verifies it to refuse.
func (r *Runner) got(ctx context.Context, d fleet.Digest) (*os.File, error) {
	f, err := os.CreateTemp(r.cfg.Versions.Prefix(), ".get-*")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		err = r.getInto(ctx, d, f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *Runner) getInto(ctx context.Context, d fleet.Digest, f *os.File) error {
	for n := 1; ; n++ {
		err := r.link.fetch(ctx, d, f, updateIdle)
		broken := errors.Is(err, fleet.BlobDigest)
		if err != nil && !broken {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if !broken || n == updateAnew {
			return nil
		}
		r.log.Warn("what came of the release is not what it is to be; it is got anew", "err", err)
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
}

// watchVersion says of the version that runs that it started, and that it is good. Then its
// data directory may have a newer format, and versions that are older are removed.
func (r *Runner) watchVersion(ctx context.Context) {
	started := time.NewTimer(update.StartTime)
	defer started.Stop()
	poll := time.NewTicker(approvePoll)
	defer poll.Stop()
	var acked time.Time
	heard, good := (<-chan struct{})(r.updates.acked), false
	var was string
	for {
		select {
		case <-started.C:
			if r.cfg.Versions == nil {
				continue
			}
			if err := r.cfg.Versions.Survived(); err != nil {
				r.log.Warn("that this version started can't be recorded", "err", err)
			}
		case <-heard:
			heard, acked = nil, time.Now()
		case <-poll.C:
			if now := stampOf(approvedFile(r.cfg.Dir)); now != was {
				was = now
				r.changed()
			}
			if good || !update.Good(acked, time.Now()) {
				continue
			}
			if err := r.confirm(); err != nil {
				r.log.Warn("that this version is good can't be recorded", "err", err)
				continue
			}
			good = true
		case <-ctx.Done():
			return
		}
	}
}

// confirm says that the version that runs is good.
func (r *Runner) confirm() error {
	if r.cfg.Versions != nil {
		if err := r.cfg.Versions.Confirm(); err != nil {
			return err
		}
	}
	if err := r.formats.Confirm(r.cfg.Dir, r.cfg.Version); err != nil || r.cfg.Versions == nil {
		return err
	}
	r.loadUpdates()
	r.changed()
	if len(r.journal.Attempts()) == 0 { // a job may name the program that started it
		if err := r.cfg.Versions.Prune(); err != nil {
			r.log.Warn("old versions can't be removed", "err", err)
		}
	}
	return nil
}

func stampOf(file string) string {
	st, err := os.Stat(file)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size())
}

// WaitingUpdate is a release that waits for its owner's word on the machine.
type WaitingUpdate struct {
	Version string       `json:"version"`
	SHA256  fleet.Digest `json:"sha256"`
	Asked   string       `json:"asked,omitempty"`
}

func waitingFile(dir string) string  { return filepath.Join(dir, "update-waiting.json") }
func approvedFile(dir string) string { return filepath.Join(dir, "update-approved.json") }

// Waiting gives the release that waits in a data directory; false is that none does.
func Waiting(dir string) (WaitingUpdate, bool, error) {
	w, err := readWaiting(waitingFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return w, false, nil
	}
	return w, err == nil, err
}

// Approve lets the runner of a data directory take a release that waits.
func Approve(dir string, w WaitingUpdate) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return durable.Replace(approvedFile(dir), append(b, '\n'), 0o600)
}

func readWaiting(file string) (w WaitingUpdate, err error) {
	b, err := readPrivate(file)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return w, fmt.Errorf("read %s: %w", file, err)
	}
	return w, nil
}

// approvedIs says whether the owner approved this very release.
func (r *Runner) approvedIs(rel update.Release) bool {
	w, err := readWaiting(approvedFile(r.cfg.Dir))
	return err == nil && w == WaitingUpdate{Version: rel.Version, SHA256: rel.SHA256, Asked: rel.Asked}
}

// showWaiting keeps what waits for the owner where the command line finds it.
func (r *Runner) showWaiting(rel update.Release, waits bool) {
	file := waitingFile(r.cfg.Dir)
	w := WaitingUpdate{Version: rel.Version, SHA256: rel.SHA256, Asked: rel.Asked}
	was, err := readWaiting(file)
	switch {
	case waits && (err != nil || was != w):
		b, err := json.Marshal(w)
		if err == nil {
			err = durable.Replace(file, append(b, '\n'), 0o600)
		}
		if err != nil {
			r.log.Warn("what waits for the owner can't be shown", "err", err)
		}
	case !waits && !errors.Is(err, fs.ErrNotExist):
		_ = os.Remove(file) // at worst it is shown for longer
	}
}
