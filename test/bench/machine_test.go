//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"tugline.dev/tugline/test/mesh"
)

// machine is what this machine can do, which the figures are held against.
type machine struct {
	apply func() // A: one raw Apply, one writer
	fsync func() // F: one fsync of 256 bytes
	start func() // S: fork, exec and exit of the binary
}

func measureMachine(t *testing.T, s *sheet) machine {
	t.Helper()
	body := bytes.Repeat([]byte("x"), 256)
	raw := openRaw(t, true)
	t.Cleanup(raw.close)
	m := machine{
		apply: func() { raw.apply(t, body) },
		fsync: fsyncs(t),
		start: func() { run(t, mesh.Binary(), "supervise") },
	}
	s.note("F: fsync of 256 bytes, p50", "ms", each(600, m.fsync))
	s.note("A: raw raft Apply, 1 writer, store as the hub sets it, p50", "ms", each(400, m.apply))
	r := openRaw(t, false)
	s.note("   the same, raft and store with their defaults", "ms", each(300, func() { r.apply(t, body) }))
	r.close()
	s.note("S: fork, exec and exit of the tugline binary, p50", "ms", each(40, m.start))
	s.note("   the same of /bin/true", "ms", each(40, func() { run(t, "/bin/true") }))
	return m
}

// fsyncs gives a function that appends 256 bytes and syncs them.
func fsyncs(t *testing.T) func() {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := make([]byte, 256)
	return func() {
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

// run starts a program that ends at once. An exit code is no error: the binary
// refuses to supervise nothing.
func run(t *testing.T, argv ...string) {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = []string{"PATH=/bin:/usr/bin"}
	c.Run()
	if c.ProcessState == nil {
		t.Errorf("%v did not start", argv)
	}
}

// each gives the median time of one call out of n, in milliseconds.
func each(n int, f func()) float64 {
	var v []float64
	for range n {
		v = append(v, timed(f))
	}
	return median(v)
}

// timed gives the milliseconds that one call takes.
func timed(f func()) float64 {
	begin := time.Now()
	f()
	return ms(time.Since(begin))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rate counts the calls a second that n goroutines make of f within a span.
func rate(n int, span time.Duration, f func(worker int)) float64 {
	var wg sync.WaitGroup
	var done atomic.Int64
	begin := time.Now()
	for w := range n {
		wg.Go(func() {
			for time.Since(begin) < span {
				f(w)
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(begin).Seconds()
}

// perCall gives the microseconds of processor time that this process spends on one of
// the calls that f makes; f gives their number a second.
func perCall(f func() float64) float64 {
	begin, before := time.Now(), used()
	r := f()
	return float64((used() - before).Microseconds()) / (r * time.Since(begin).Seconds())
}

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rawRaft is hashicorp/raft alone, with a state machine that does nothing.
type rawRaft struct {
	raft  *raft.Raft
	store *raftboltdb.BoltStore
}

// openRaw opens a single voter. With tuned it has the settings of consensus, else
// the defaults of the libraries.
func openRaw(t *testing.T, tuned bool) *rawRaft {
	t.Helper()
	dir := t.TempDir()
	opt := raftboltdb.Options{Path: filepath.Join(dir, "raft.db")}
	rc := raft.DefaultConfig()
	rc.LocalID, rc.Logger = "one", hclog.NewNullLogger()
	rc.SnapshotThreshold = 1 << 40
	if tuned {
		opt.BoltOptions = &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: 64 << 20}
		rc.MaxAppendEntries, rc.BatchApplyCh, rc.NoLegacyTelemetry = 512, true, true
	}
	store, err := raftboltdb.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	snaps := raft.NewInmemSnapshotStore()
	addr, trans := raft.NewInmemTransport("one")
	if err := raft.BootstrapCluster(rc, store, store, snaps, trans, raft.Configuration{Servers: []raft.Server{{ID: "one", Address: addr}}}); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(rc, nothing{}, store, store, snaps, trans)
	if err != nil {
		t.Fatal(err)
	}
	if lead := <-r.LeaderCh(); !lead {
		t.Fatal("the only voter does not lead")
	}
	return &rawRaft{r, store}
}

func (r *rawRaft) apply(t *testing.T, b []byte) {
	if err := r.raft.Apply(b, 0).Error(); err != nil {
		t.Error(fmt.Errorf("apply: %w", err))
	}
}

func (r *rawRaft) close() {
	r.raft.Shutdown().Error()
	r.store.Close()
}
