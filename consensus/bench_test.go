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

// BenchmarkApply measures Node.Propose, and raft used directly on the same
// store: as raft comes, and with this package's tuning.
func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		for _, s := range sides {
			b.Run(fmt.Sprintf("%s/writers=%d", s.name, writers), func(b *testing.B) {
				propose := s.open(b)
				b.ReportAllocs()
				b.ResetTimer()
				write(b, b.N, writers, propose)
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}

// BenchmarkRatio lets the sides of BenchmarkApply take turns of 50 ms or so,
// which evens out what else the machine does, and reports Node.Propose as a
// fraction of the other two.
func BenchmarkRatio(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			perTurn := 100 * min(writers, 40)
			spent := map[string]time.Duration{}
			propose := map[string]func([]byte) error{}
			for _, s := range sides {
				propose[s.name] = s.open(b)
			}
			for b.Loop() {
				for _, s := range sides {
					start := time.Now()
					write(b, perTurn, writers, propose[s.name])
					spent[s.name] += time.Since(start)
				}
			}
			for _, s := range sides[:2] {
				b.ReportMetric(spent[s.name].Seconds()/spent["node"].Seconds(), "node/"+s.name)
			}
			b.ReportMetric(float64(perTurn*b.N)/spent["node"].Seconds(), "entries/s")
		})
	}
}

// sides are the ways to get an entry applied.
var sides = []struct {
	name string
	open func(*testing.B) func(entry []byte) error
}{
	{"raw", func(b *testing.B) func([]byte) error { return rawRaft(b, func(*raft.Config) {}) }},
	{"tuned", func(b *testing.B) func([]byte) error {
		return rawRaft(b, func(c *raft.Config) { c.MaxAppendEntries, c.BatchApplyCh = 512, true })
	}},
	{"node", func(b *testing.B) func([]byte) error {
		n := mustOpen(b, b.TempDir(), &counter{}, func(c *Config) { c.SnapshotEvery = 1 << 40 })
		ctx := b.Context()
		return func(entry []byte) error {
			_, _, err := n.Propose(ctx, entry)
			return err
		}
	}},
}

// write proposes n entries of 256 bytes from a number of goroutines.
func write(b *testing.B, n, writers int, propose func([]byte) error) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
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
}

// rawRaft returns Apply of a raft without this package around it.
func rawRaft(b *testing.B, tune func(*raft.Config)) func(entry []byte) error {
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
	return func(entry []byte) error { return r.Apply(entry, 0).Error() }
}

// BenchmarkGroup is BenchmarkRatio with three nodes on loopback TCP: raft as it comes,
// with its own transport and raft-boltdb or this package's store, against this package.
func BenchmarkGroup(b *testing.B) {
	groups := []struct {
		name string
		open func(*testing.B) func([]byte) error
	}{
		{"raw", func(b *testing.B) func([]byte) error {
			return rawGroup(b, func(path string) (backend, error) {
				s, err := raftboltdb.New(raftboltdb.Options{Path: path})
				return plain{s}, err
			})
		}},
		{"same", func(b *testing.B) func([]byte) error { return rawGroup(b, openBolt) }},
		{"node", nodeGroup},
	}
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			perTurn := 50 * min(writers, 80)
			spent := map[string]time.Duration{}
			propose := map[string]func([]byte) error{}
			for _, g := range groups {
				propose[g.name] = g.open(b)
			}
			for b.Loop() {
				for _, g := range groups {
					start := time.Now()
					write(b, perTurn, writers, propose[g.name])
					spent[g.name] += time.Since(start)
				}
			}
			for _, g := range groups[:2] {
				b.ReportMetric(spent[g.name].Seconds()/spent["node"].Seconds(), "node/"+g.name)
			}
			for _, g := range groups {
				b.ReportMetric(float64(perTurn*b.N)/spent[g.name].Seconds(), g.name+"/s")
			}
		})
	}
}

// nodeGroup returns Propose of the leader of three nodes.
func nodeGroup(b *testing.B) func(entry []byte) error {
	dir := b.TempDir()
	var nodes []*Node
	for _, id := range trio {
		l, err := listenTCP(dir, id)
		if err != nil {
			b.Fatal(err)
		}
		n, err := Open(Config{
			Dir: filepath.Join(dir, id), NodeID: id, Bootstrap: true, Voters: trio, FSM: &counter{}, Transport: l, SnapshotEvery: 1 << 40,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { n.Close() })
		nodes = append(nodes, n)
	}
	leader := leading(nodes, nil)
	if err := leader.settle(within(b, 10*time.Second)); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	return func(entry []byte) error {
		_, _, err := leader.Propose(ctx, entry)
		return err
	}
}

// plain is raft-boltdb's store, which keeps nothing of what is committed.
type plain struct{ *raftboltdb.BoltStore }

func (plain) committed(uint64, []byte) {}

// rawGroup returns Apply of the leader of three nodes without this package.
func rawGroup(b *testing.B, open func(path string) (backend, error)) func(entry []byte) error {
	var members raft.Configuration
	var trans []*raft.NetworkTransport
	for i := range 3 {
		tr, err := raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 10*time.Second, hclog.NewNullLogger())
		if err != nil {
			b.Fatal(err)
		}
		trans = append(trans, tr)
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: tr.LocalAddr()})
	}
	var rafts []*raft.Raft
	for i, tr := range trans {
		store, err := open(filepath.Join(b.TempDir(), storeFile))
		if err != nil {
			b.Fatal(err)
		}
		c := raft.DefaultConfig()
		c.LocalID = raft.ServerID(fmt.Sprint(i))
		c.Logger = hclog.NewNullLogger()
		c.SnapshotThreshold = 1 << 40
		snaps := raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, store, store, snaps, tr, members); err != nil {
			b.Fatal(err)
		}
		r, err := raft.NewRaft(c, &rawCounter{}, store, store, snaps, tr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			r.Shutdown().Error()
			tr.CloseStreams()
			tr.Close()
			store.Close()
		})
		rafts = append(rafts, r)
	}
	for {
		for _, r := range rafts {
			if r.State() == raft.Leader {
				return func(entry []byte) error { return r.Apply(entry, 0).Error() }
			}
		}
		<-time.After(10 * time.Millisecond)
	}
}
