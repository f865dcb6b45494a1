package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// latch is a store that waits before it stores, while it is shut.
type latch struct {
	backend
	mu   sync.Mutex
	shut chan struct{}
	at   chan struct{} // gets a word from each append that waits
}

func (s *latch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = make(chan struct{})
}

func (s *latch) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.shut)
	s.shut = nil
}

func (s *latch) StoreLogs(logs []*raft.Log) error {
	s.mu.Lock()
	shut := s.shut
	s.mu.Unlock()
	if shut != nil {
		s.at <- struct{}{}
		<-shut
	}
	return s.backend.StoreLogs(logs)
}

// latched opens a node whose store can be made to wait.
func latched(t *testing.T, dir string, fsm FSM, change ...func(*Config)) (*Node, *latch) {
	t.Helper()
	s := &latch{at: make(chan struct{}, 16)}
	cfg := Config{Dir: dir, NodeID: "n1", Bootstrap: true, FSM: fsm}
	for _, c := range change {
		c(&cfg)
	}
	n, err := open(cfg, func(b backend) backend { s.backend = b; return s })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.settle(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return n, s
}

// proposed is what became of a proposal.
type proposed struct {
	command string
	result  any
	number  uint64
	err     error
}

// gathered proposes first while the store waits, then the others, one after the other, so
// that all are open when it goes on; it gives what became of all.
func gathered(t *testing.T, n *Node, s *latch, first string, others ...string) map[string]proposed {
	t.Helper()
	s.close()
	all := make(chan proposed, 1+len(others))
	propose := func(c string) {
		r, number, err := n.Propose(within(t, 20*time.Second), []byte(c))
		all <- proposed{c, r, number, err}
	}
	go propose(first)
	<-s.at
	for i, c := range others {
		go propose(c)
		waitOpen(t, n, i+1)
	}
	s.open()
	out := map[string]proposed{}
	for range 1 + len(others) {
		p := <-all
		out[p.command] = p
	}
	return out
}

// waitOpen waits until so many commands wait for raft.
func waitOpen(t *testing.T, n *Node, want int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		n.gather.mu.Lock()
		got := n.gather.waiting
		n.gather.mu.Unlock()
		if got >= want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d commands wait, want %d", got, want)
		}
		<-time.After(100 * time.Microsecond)
	}
}

func numbered(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("c", i))
	}
	return out
}

// TestPack: what comes while raft stores goes as one entry, and each command of it has a
// number and a result of its own.
func TestPack(t *testing.T) {
	t.Parallel()
	var l ledger
	dir := t.TempDir()
	n, s := latched(t, dir, &l)
	mustPropose(t, n, "before")
	last := n.Status().LastIndex
	got := gathered(t, n, s, "first", numbered(40)...)
	if entries := n.Status().LastIndex - last; entries != 2 {
		t.Errorf("41 commands became %d entries, want 2", entries)
	}
	for i, c := range append([]string{"first"}, numbered(40)...) {
		p := got[c]
		if want := last + 1 + uint64(i); p.err != nil || p.number != want || p.result != i+2 {
			t.Errorf("%s: number %d, result %v, %v; want %d, %d", c, p.number, p.result, p.err, want, i+2)
		}
	}
	after := n.Status()
	if after.AppliedIndex != last+2 {
		t.Errorf("applied entry %d, want %d", after.AppliedIndex, last+2)
	}
	// Numbers go on from the last one, whatever the index is, also after a start from the
	// log and one from a snapshot.
	next := mustPropose(t, n, "alone")
	if next != last+42 {
		t.Errorf("the next number is %d, want %d", next, last+42)
	}
	for _, snapshot := range []bool{false, true} {
		if snapshot {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		want := l.all()
		mustClose(t, n)
		l = ledger{}
		n = mustOpen(t, dir, &l)
		if !slices.Equal(l.all(), want) {
			t.Errorf("after a start %q, want %q", l.all(), want)
		}
		if got := mustPropose(t, n, "again"); got != next+1 {
			t.Errorf("number %d after a start, want %d", got, next+1)
		}
		next++
	}
	mustClose(t, n)
	// Offline the same is seen, as far as numbers follow from what is there.
	var again ledger
	c, err := Replay(dir, &again)
	if err != nil || !slices.Equal(again.all(), l.all()) || c.Refused != nil {
		t.Errorf("replay: %+v, %v\n%q", c, err, again.all())
	}
	var dumped []string
	parts := map[uint64]int{}
	if err := Dump(dir, func(e Entry) error {
		if e.Kind != "command" {
			return nil
		}
		if parts[e.Index]++; e.Part > 0 && e.Part != parts[e.Index] {
			t.Errorf("command %d of entry %d comes as %d", e.Part, e.Index, parts[e.Index])
		}
		if e.Number > 0 {
			dumped = append(dumped, fmt.Sprintf("%d %s", e.Number, e.Data))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if all := l.all(); parts[last+2] != 40 || !slices.Equal(dumped, all[len(all)-1:]) {
		t.Errorf("%d commands in the pack, and behind the snapshot %q", parts[last+2], dumped)
	}
}

// TestPacksHeldBack: as long as a node of the group can't read packs there are none.
func TestPacksHeldBack(t *testing.T) {
	t.Parallel()
	n, s := latched(t, t.TempDir(), &ledger{}, func(c *Config) { c.Packs = func() bool { return false } })
	last := n.Status().LastIndex
	s.close()
	done := make(chan error, 20)
	for range cap(done) {
		go func() {
			_, number, err := n.Propose(within(t, 10*time.Second), []byte("x"))
			if err == nil && number > last+20 {
				err = fmt.Errorf("number %d", number)
			}
			done <- err
		}()
	}
	<-s.at
	s.open()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := n.Status().LastIndex; got != last+20 || n.fsm.reached() != got {
		t.Errorf("20 commands became %d entries, the last number is %d", got-last, n.fsm.reached())
	}
	var b bytes.Buffer
	if err := n.snapshotTo(&b); err != nil || !strings.HasPrefix(b.String(), snapshotMagic) {
		t.Errorf("a snapshot begins with %.4q (%v), which an older version does not read", b.String(), err)
	}
}

// snapshotTo writes a snapshot as raft would have it written.
func (n *Node) snapshotTo(w io.Writer) error {
	v, err := n.fsm.view()
	if err != nil {
		return err
	}
	return v.Persist(sink{w})
}

type sink struct{ io.Writer }

func (sink) ID() string    { return "" }
func (sink) Cancel() error { return nil }
func (sink) Close() error  { return nil }

// TestGivenUp: a command that raft was not given is taken back for certain, and its
// neighbours go on; one that raft has is unknown.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	var l ledger
	n, s := latched(t, t.TempDir(), &l)
	s.close()
	gone := errors.New("client went away")
	held, cancel := context.WithCancelCause(t.Context())
	answers := make(chan error, 3)
	go func() {
		_, _, err := n.Propose(held, []byte("held"))
		answers <- err
	}()
	<-s.at
	others := make(chan error, 2)
	for i, c := range []string{"stays", "goes", "stays too"} {
		ctx, to := t.Context(), others
		if c == "goes" {
			ctx, to = held, answers
		}
		go func() {
			_, _, err := n.Propose(ctx, []byte(c))
			to <- err
		}()
		waitOpen(t, n, i+1)
	}
	cancel(gone)
	unknown, definite := 0, 0
	for range 2 {
		switch err := <-answers; {
		case !errors.Is(err, gone):
			t.Errorf("got %v", err)
		case errors.Is(err, ErrUnknown):
			unknown++
		default:
			definite++
		}
	}
	if unknown != 1 || definite != 1 {
		t.Errorf("%d unknown, %d definite, want one each", unknown, definite)
	}
	s.open()
	for range 2 {
		if err := <-others; err != nil {
			t.Error(err)
		}
	}
	mustPropose(t, n, "last")
	if got := strip(l.all()); !slices.Equal(got, []string{"held", "stays", "stays too", "last"}) {
		t.Errorf("applied %q", got)
	}
	for end := time.Now().Add(10 * time.Second); len(n.slots) > 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d slots of %d are not given back", len(n.slots), cap(n.slots))
		}
	}
}

// TestFatalInAPack: the error names the command; those before it are done, those behind it
// are not applied, and a version that takes it applies all of them.
func TestFatalInAPack(t *testing.T) {
	t.Parallel()
	var l ledger
	dir := t.TempDir()
	n, s := latched(t, dir, &l)
	last := n.Status().LastIndex
	got := gathered(t, n, s, "first", "a", "poison", "b")
	var fatal *FatalError
	if err := got["poison"].err; !errors.As(err, &fatal) || fatal.Index != last+2 || fatal.Part != 2 || !strings.Contains(err.Error(), fmt.Sprintf("command 2 of entry %d", last+2)) || errors.Is(err, ErrUnknown) {
		t.Errorf("the command itself: %v", err)
	}
	if got["first"].err != nil || got["a"].err != nil {
		t.Errorf("those before: %v, %v", got["first"].err, got["a"].err)
	}
	if err := got["b"].err; !errors.Is(err, ErrUnknown) {
		t.Errorf("the one behind: %v, want unknown", err)
	}
	if waitDone(t, n) != fatal {
		t.Errorf("stopped with %v", n.Err())
	}
	if at := n.Status().AppliedIndex; at != last+1 {
		t.Errorf("applied entry %d, want %d", at, last+1)
	}
	mustClose(t, n)
	c, err := Replay(dir, &ledger{})
	if !errors.As(c.Refused, &fatal) || fatal.Index != last+2 || fatal.Part != 2 || c.Applied != last+1 || err != nil {
		t.Errorf("replay: %+v, %v", c, err)
	}
	var newer tolerant
	n = mustOpen(t, dir, &newer)
	if got := strip(newer.all()); !slices.Equal(got, []string{"first", "a", "poison", "b"}) {
		t.Errorf("a newer version has %q", got)
	}
}

// tolerant is a ledger that takes poison.
type tolerant struct{ ledger }

func (t *tolerant) Apply(number uint64, command []byte) (any, error) {
	if string(command) == "poison" {
		t.entries = append(t.entries, fmt.Sprintf("%d poison", number))
		return nil, nil
	}
	return t.ledger.Apply(number, command)
}

// TestPackBounds: a pack has at most so many commands, and bytes as an entry may have;
// large commands travel alone.
func TestPackBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, s := latched(t, dir, &ledger{})
	var all []string
	for i := range 300 {
		all = append(all, fmt.Sprint("small ", i))
	}
	for i := range 12 {
		all = append(all, fmt.Sprint("medium ", i, " ", strings.Repeat("x", packable-20)))
	}
	all = append(all, strings.Repeat("y", MaxEntry), strings.Repeat("z", packable+1), "end")
	for c, p := range gathered(t, n, s, "first", all...) {
		if p.err != nil {
			t.Errorf("%.20q: %v", c, p.err)
		}
	}
	mustClose(t, n)
	sizes := map[uint64]int{}
	if err := Dump(dir, func(e Entry) error {
		if e.Kind == "command" {
			sizes[e.Index]++
			if len(e.Data) > packable && e.Part != 0 {
				t.Errorf("a command of %d bytes shares entry %d", len(e.Data), e.Index)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o, err := openOffline(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	most := 0
	if err := o.each(0, func(l *raft.Log) error {
		most = max(most, sizes[l.Index])
		if len(l.Data) > MaxEntry {
			t.Errorf("entry %d has %d bytes", l.Index, len(l.Data))
		}
		return nil
	}); err != nil || most != maxPack || len(sizes) > 8 {
		t.Errorf("%d commands in an entry at most, %d entries, %v", most, len(sizes), err)
	}
	if _, _, err := n.Propose(t.Context(), []byte{packMark, 1}); !errors.Is(err, errMarked) {
		t.Errorf("a command that looks like a pack: %v", err)
	}
}

// TestPackWithoutItsLeader: what waits for raft when leadership goes is refused or unknown
// in time, and never lost silently.
func TestPackWithoutItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "a", "b", "c")
		defer l.end()
		for range 10 {
			leader := l.leader()
			var wg sync.WaitGroup
			for w := range 64 {
				wg.Go(func() {
					for i := range 5 {
						_, _, err := leader.Propose(t.Context(), fmt.Appendf(nil, "w%d-%d", w, i))
						if err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotLeader) {
							t.Errorf("got %v", err)
						}
					}
				})
			}
			time.Sleep(time.Millisecond)
			l.cut(leader.cfg.NodeID)
			next := l.leader(leader.cfg.NodeID)
			var done sync.WaitGroup
			for w := range 64 {
				done.Go(func() { mustPropose(t, next, fmt.Sprint("next ", w)) })
			}
			done.Wait()
			wg.Wait()
			l.cut()
			time.Sleep(2 * time.Second)
		}
		all := l.same()
		last := uint64(0)
		for _, e := range all {
			var number uint64
			if _, err := fmt.Sscan(e, &number); err != nil || number <= last {
				t.Fatalf("%q behind number %d", e, last)
			}
			last = number
		}
		if s := l.leader().Status(); s.AppliedIndex >= last {
			t.Errorf("%d entries for %d commands: nothing was packed", s.AppliedIndex, last)
		}
	})
}

// TestNumbersGoOnAfterARestore to a state from before: none is given twice.
func TestNumbersGoOnAfterARestore(t *testing.T) {
	t.Parallel()
	var l ledger
	dir := t.TempDir()
	n, s := latched(t, dir, &l)
	gathered(t, n, s, "first", numbered(50)...)
	file, b := mustBackup(t, n)
	if b.Number != n.fsm.reached() || b.Number <= b.Index {
		t.Errorf("backup %+v at number %d", b, n.fsm.reached())
	}
	gathered(t, n, s, "undone", numbered(200)...)
	before := n.fsm.reached()
	var wg sync.WaitGroup
	var mu sync.Mutex
	given := map[uint64]bool{}
	for range 16 {
		wg.Go(func() {
			for range 20 {
				_, number, err := n.Propose(t.Context(), []byte("meanwhile"))
				mu.Lock()
				if err == nil && given[number] {
					t.Errorf("number %d was given twice", number)
				}
				given[number] = err == nil
				mu.Unlock()
			}
		})
	}
	if err := n.Restore(t.Context(), bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if got := mustPropose(t, n, "after"); got <= before {
		t.Errorf("number %d, those before the restore went to %d", got, before)
	}
	want := l.all()
	mustClose(t, n)
	l = ledger{}
	n = mustOpen(t, dir, &l)
	if !slices.Equal(l.all(), want) {
		t.Errorf("after a start %q, want %q", l.all(), want)
	}
	// A new node that is made of the backup goes on behind it.
	var other ledger
	m := mustOpen(t, t.TempDir(), &other)
	if err := m.Restore(t.Context(), bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if got := mustPropose(t, m, "after"); got <= b.Number {
		t.Errorf("number %d on a new node, the backup went to %d", got, b.Number)
	}
}

// TestRestoreWithoutPacks keeps to the forms that an older version reads.
func TestRestoreWithoutPacks(t *testing.T) {
	t.Parallel()
	n := mustOpen(t, t.TempDir(), &ledger{}, func(c *Config) { c.Packs = func() bool { return false } })
	for range 5 {
		mustPropose(t, n, "x")
	}
	file, b := mustBackup(t, n)
	if b.Number != b.Index || file[len(backupMagic)+3] != backupVersion {
		t.Errorf("backup %+v of version %d", b, file[len(backupMagic)+3])
	}
	if err := n.Restore(t.Context(), bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	if number, index := mustPropose(t, n, "y"), n.Status().AppliedIndex; number != index {
		t.Errorf("number %d of entry %d", number, index)
	}
	var out bytes.Buffer
	if err := n.snapshotTo(&out); err != nil || !strings.HasPrefix(out.String(), snapshotMagic) {
		t.Errorf("a snapshot begins with %.4q, %v", out.String(), err)
	}
}
