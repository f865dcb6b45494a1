package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/fleet"
)

// story is a random sequence of appends, seals, partitions, crashes, full disks and
// changes of the leader.
type story struct {
	*cluster
	rnd   *rand.Rand
	term  uint64
	steps int
	leads string // who was told last to lead

	mu     sync.Mutex
	acked  map[spool.Key][]byte
	sealed map[spool.Key]int
	log    []string
	wg     sync.WaitGroup
}

func (s *story) say(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, a...))
}

func (s *story) fail(format string, a ...any) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Errorf("%s, after:\n%s", fmt.Sprintf(format, a...), strings.Join(s.log, "\n"))
}

// bytesOf gives what a runner has at an offset. A variant is what it has after it
// lost what it had not made durable, and did something else.
func bytesOf(k spool.Key, offset, n, variant int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte('a' + (offset+i+variant)%26)
	}
	return out
}

// acknowledged takes note of what was acknowledged, which may only ever grow.
func (s *story) acknowledged(k spool.Key, at string, offset int, data []byte) {
	s.mu.Lock()
	have := s.acked[k]
	last := offset + len(data)
	var problem string
	switch {
	case offset > len(have):
		problem = fmt.Sprintf("%s acknowledged %s from %d on, where only %d bytes were acknowledged", at, k, offset, len(have))
	case !bytes.Equal(data[:min(len(data), len(have)-offset)], have[offset:min(last, len(have))]):
		problem = fmt.Sprintf("%s acknowledged other bytes of %s at %d", at, k, offset)
	case last > len(have):
		s.acked[k] = append(have[:offset:offset], data...)
	}
	s.mu.Unlock()
	if problem != "" {
		s.fail("%s", problem)
	}
}

func (s *story) some() *node {
	ids := s.up()
	if len(ids) == 0 {
		return nil
	}
	return s.nodes[ids[s.rnd.IntN(len(ids))]]
}

func (s *story) up() (ids []string) {
	for _, id := range s.ids {
		if s.nodes[id] != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// append has a node that was once told to lead take bytes, as a runner would send
// them: from what was acknowledged, or from where the hub said.
func (s *story) append(n *node, k spool.Key, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	s.mu.Lock()
	leads := s.leads
	offset := len(s.acked[k])
	prefix := bytes.Clone(s.acked[k])
	if sealed, ok := s.sealed[k]; ok && offset >= sealed {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	variants := rnd.Perm(4)
	back := 0
	if offset > 0 {
		back = rnd.IntN(min(offset, 8))
	}
	n1 := 1 + rnd.IntN(20)
	for _, variant := range variants {
		data := append(bytes.Clone(prefix[offset-back:]), bytesOf(k, offset, n1, variant)...)
		end, err := n.Append(context.Background(), k, int64(offset-back), data)
		var gap *spool.GapError
		switch {
		case err == nil:
			s.say("%s acknowledged %s %d..%d variant %d", n.id, k, offset-back, end, variant)
			s.acknowledged(k, n.id, offset-back, data)
			return
		case errors.As(err, &gap):
			s.say("%s wants %s from %d", n.id, k, gap.Want)
			if n.id == leads && int(gap.Want) < len(prefix) {
				s.fail("%s wants %s from %d, where %d bytes were acknowledged", n.id, k, gap.Want, len(prefix))
			}
			return
		case errors.Is(err, fleet.SpoolMismatch):
			// The hub kept bytes that it never acknowledged to this runner.
			s.say("%s has other bytes of %s after %d than variant %d", n.id, k, offset, variant)
			continue
		case errors.Is(err, fleet.Unavailable), errors.Is(err, fleet.DiskFull), errors.Is(err, fleet.LogSealed), errors.Is(err, context.Canceled):
			s.say("%s did not acknowledge %s at %d: %v", n.id, k, offset, err)
			return
		}
		s.fail("append to %s on %s: %v", k, n.id, err)
		return
	}
}

func (s *story) step() {
	s.steps++
	k := key(s.rnd.IntN(3) + s.steps/50)
	if s.rnd.IntN(4) == 0 {
		k.Name = spool.Events
	}
	switch x := s.rnd.IntN(100); {
	case x < 55:
		n := s.nodes[s.leads]
		if s.rnd.IntN(6) == 0 {
			n = s.some()
		}
		if n == nil || n.lead == nil {
			return
		}
		if s.rnd.IntN(3) == 0 { // at the same time as what follows
			seed := s.rnd.Uint64()
			s.wg.Go(func() { s.append(n, k, seed) })
			return
		}
		s.append(n, k, s.rnd.Uint64())
	case x < 58:
		s.wg.Wait()
		s.seal(k)
	case x < 68:
		a, b := s.ids[s.rnd.IntN(len(s.ids))], s.ids[s.rnd.IntN(len(s.ids))]
		if a != b {
			cut := s.rnd.IntN(3) == 0
			s.say("part %s %s %v", a, b, cut)
			s.net.part(a, b, cut)
		}
	case x < 73:
		id := s.ids[s.rnd.IntN(len(s.ids))]
		s.wg.Wait()
		if s.nodes[id] != nil {
			s.say("crash %s", id)
			s.stop(id)
		} else {
			s.say("start %s", id)
			s.start(id)
		}
	case x < 76:
		if n := s.some(); n != nil {
			if n.full() == nil {
				s.say("%s is full", n.id)
				n.fill(fmt.Errorf("no room: %w", fleet.DiskFull))
			} else {
				s.say("%s has room", n.id)
				n.fill(nil)
			}
		}
	case x < 82:
		if n := s.some(); n != nil {
			s.elect(n)
		}
	case x < 88:
		s.isolate(k)
	default:
		time.Sleep(time.Duration(s.rnd.IntN(3000)) * time.Millisecond)
	}
}

// isolate cuts the leader off while it takes bytes that it cannot have acknowledged,
// and has another lead.
func (s *story) isolate(k spool.Key) {
	s.wg.Wait()
	old := s.nodes[s.leads]
	if old == nil || old.lead == nil {
		return
	}
	for _, id := range s.ids {
		s.say("part %s %s true", old.id, id)
		s.net.part(old.id, id, true)
	}
	for range 1 + s.rnd.IntN(3) {
		s.append(old, k, s.rnd.Uint64())
	}
	if n := s.some(); n != nil && n != old && s.elect(n) {
		s.append(n, k, s.rnd.Uint64())
	}
	for _, id := range s.ids {
		if s.rnd.IntN(4) > 0 {
			s.say("part %s %s false", old.id, id)
			s.net.part(old.id, id, false)
		}
	}
}

// elect has a node lead in a new term; whoever led before may go on thinking so.
func (s *story) elect(n *node) bool {
	s.term++
	s.mu.Lock()
	s.leads = n.id
	s.mu.Unlock()
	s.say("%s leads in term %d", n.id, s.term)
	ctx, cancel := context.WithCancel(context.Background())
	if n.lead != nil {
		n.lead()
	}
	n.lead = cancel
	wait, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	done := make(chan error, 1)
	since := uint64(0)
	if s.term == 1 {
		since = 50
	}
	s.wg.Go(func() { done <- n.Lead(ctx, Term{Epoch: 1, Term: s.term, Since: since}) })
	select {
	case err := <-done:
		s.say("%s: %v", n.id, err)
		return err == nil
	case <-wait.Done():
		s.say("%s has no majority", n.id)
		cancel()
		return false
	}
}

func (s *story) seal(k spool.Key) {
	n := s.nodes[s.leads]
	if n == nil || n.lead == nil {
		return
	}
	s.mu.Lock()
	length := len(s.acked[k])
	_, done := s.sealed[k]
	s.mu.Unlock()
	if length == 0 || done {
		return
	}
	err := n.Seal(context.Background(), k, int64(length), "")
	s.say("%s seals %s at %d: %v", n.id, k, length, err)
	if err == nil {
		s.mu.Lock()
		s.sealed[k] = length
		s.mu.Unlock()
	}
}

// end heals everything and sees that nothing acknowledged is missing anywhere.
func (s *story) end() {
	s.wg.Wait()
	for _, a := range s.ids {
		for _, b := range s.ids {
			s.net.part(a, b, false)
		}
		if s.nodes[a] == nil {
			s.start(a)
		}
		s.nodes[a].fill(nil)
	}
	time.Sleep(2 * time.Second)
	n := s.nodes[s.ids[s.rnd.IntN(len(s.ids))]]
	if !s.elect(n) {
		s.fail("%s cannot lead when all is well", n.id)
		return
	}
	for k, want := range s.acked {
		_, err := n.Append(context.Background(), k, 1<<20, []byte("x"))
		var gap *spool.GapError
		if !errors.As(err, &gap) || gap.Want < int64(len(want)) {
			s.fail("the last leader says of %s %v, where %d bytes were acknowledged", k, err, len(want))
			continue
		}
		if got := n.read(s.t, k); !strings.HasPrefix(got, string(want)) {
			s.fail("the last leader has %q of %s, want it to begin with %q", got, k, want)
		}
	}
	same := func() bool {
		for k := range s.acked {
			want := n.local(s.t, k)
			for _, id := range s.ids {
				_, sealed := s.nodes[id].store.Size(k)
				if _, must := s.sealed[k]; s.nodes[id].local(s.t, k) != want || must && !sealed {
					return false
				}
			}
		}
		for _, d := range n.Debt() {
			if !d.Known || d.Bytes != 0 {
				return false
			}
		}
		return true
	}
	for range 1200 {
		if same() {
			return
		}
		time.Sleep(time.Second)
	}
	for k, want := range s.acked {
		for _, id := range s.ids {
			h := s.nodes[id].holding(k)
			s.say("%s %s: %d bytes %v of %d, stamp %v", id, k, h.Size, h.Sealed, len(want), h.Stamp)
		}
	}
	s.fail("the copies do not become equal: debts %+v", n.Debt())
}

// TestLaws: whatever happens, what was acknowledged is on every later leader, byte
// for byte, and in the end on all. REPLICA_SEED runs one seed.
func TestLaws(t *testing.T) {
	first, n := uint64(0), uint64(10)
	if text := os.Getenv("REPLICA_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	if text := os.Getenv("REPLICA_SEEDS"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ids := []string{"a", "b", "c"}
				if seed%5 == 4 {
					ids = append(ids, "d", "e")
				}
				c := newCluster(t, func(c *Config) { c.Patience = 3 * time.Second }, ids...)
				defer c.close()
				s := &story{cluster: c, rnd: rand.New(rand.NewPCG(seed, 1)), acked: map[spool.Key][]byte{}, sealed: map[spool.Key]int{}}
				s.elect(c.nodes["a"])
				for range 200 {
					if s.step(); t.Failed() {
						break
					}
				}
				if !t.Failed() {
					s.end()
				}
				s.wg.Wait()
				total := 0
				for _, b := range s.acked {
					total += len(b)
				}
				t.Logf("acknowledged %d bytes of %d streams, %d sealed, in %d terms", total, len(s.acked), len(s.sealed), s.term)
			})
		})
	}
}
