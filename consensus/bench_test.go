package consensus

import (
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// counter is the cheapest state machine.
type counter struct{ n int }

func (c *counter) Apply(uint64, []byte) (any, error) { c.n++; return c.n, nil }
func (c *counter) Restore(io.Reader) error           { return nil }
func (c *counter) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}

type rawCounter struct{ n int }

func (c *rawCounter) Apply(*raft.Log) any                 { c.n++; return c.n }
func (c *rawCounter) Restore(io.ReadCloser) error         { return nil }
func (c *rawCounter) Snapshot() (raft.FSMSnapshot, error) { return &view{}, nil }

// BenchmarkApply compares Node.Propose with raft used directly on the same
// store, once as raft comes and once with this package's tuning.
func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("raw/writers=", writers), func(b *testing.B) {
			r := rawRaft(b, func(*raft.Config) {})
			write(b, writers, func(entry []byte) error { return r.Apply(entry, 0).Error() })
		})
		b.Run(fmt.Sprint("tuned/writers=", writers), func(b *testing.B) {
			r := rawRaft(b, func(c *raft.Config) { c.MaxAppendEntries = 512 })
			write(b, writers, func(entry []byte) error { return r.Apply(entry, 0).Error() })
		})
		b.Run(fmt.Sprint("buffered/writers=", writers), func(b *testing.B) {
			r := rawRaft(b, func(c *raft.Config) { c.MaxAppendEntries, c.BatchApplyCh = 512, true })
			write(b, writers, func(entry []byte) error { return r.Apply(entry, 0).Error() })
		})
		b.Run(fmt.Sprint("node/writers=", writers), func(b *testing.B) {
			n := mustOpen(b, b.TempDir(), &counter{}, func(c *Config) { c.SnapshotEvery = 1 << 40 })
			write(b, writers, func(entry []byte) error {
				_, _, err := n.Propose(b.Context(), entry)
				return err
			})
			mustClose(b, n)
		})
	}
}

// write proposes b.N entries of 256 bytes from a number of goroutines.
func write(b *testing.B, writers int, propose func([]byte) error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			entry := make([]byte, 256)
			for left.Add(-1) >= 0 {
				if err := propose(entry); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func rawRaft(b *testing.B, tune func(*raft.Config)) *raft.Raft {
	dir := b.TempDir()
	store, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, storeFile), BoltOptions: &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: 64 << 20,
	}})
	if err != nil {
		b.Fatal(err)
	}
	c := raft.DefaultConfig()
	c.LocalID = "n1"
	c.Logger = hclog.NewNullLogger()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	c.SnapshotThreshold = 1 << 40
	tune(c)
	snaps := raft.NewInmemSnapshotStore()
	_, trans := raft.NewInmemTransport("n1")
	members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}
	if err := raft.BootstrapCluster(c, store, store, snaps, trans, members); err != nil {
		b.Fatal(err)
	}
	r, err := raft.NewRaft(c, &rawCounter{}, store, store, snaps, trans)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Shutdown().Error()
		store.Close()
	})
	<-r.LeaderCh()
	return r
}
