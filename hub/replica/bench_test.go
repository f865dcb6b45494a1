package replica

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
)

// BenchmarkAppend adds 1 KiB at a time to as many streams as there are writers, on
// one node and on three that are joined by TCP on this machine, all with real disks.
func BenchmarkAppend(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, writers := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("nodes=%d/writers=%d", nodes, writers), func(b *testing.B) {
				r := benchCluster(b, nodes)
				data := make([]byte, 1<<10)
				b.SetBytes(int64(len(data)))
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for w := range writers {
					wg.Go(func() {
						for off := int64(0); left.Add(-1) >= 0; {
							end, err := r.Append(context.Background(), key(w), off, data)
							if err != nil {
								b.Errorf("append: %v", err)
								return
							}
							off = end
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkPut stores blobs of 4 KiB, one after the other.
func BenchmarkPut(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			r := benchCluster(b, nodes)
			data := make([]byte, 4<<10)
			b.ResetTimer()
			for i := range b.N {
				copy(data, fmt.Sprint(i))
				if err := r.Blobs().Put(context.Background(), digestOf(string(data)), int64(len(data)), reader4(string(data))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchCluster gives the leader of some nodes.
func benchCluster(b *testing.B, nodes int) *Replica {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	doors := map[string]net.Listener{}
	var members []Member
	for i := range nodes {
		id := fmt.Sprint("n", i)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		doors[id] = l
		members = append(members, Member{ID: id, Voter: true})
	}
	var lead *Replica
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	b.Cleanup(func() { cancel(); wg.Wait() })
	for _, m := range members {
		dir, err := os.MkdirTemp("", "bench-replica")
		must(err)
		b.Cleanup(func() { os.RemoveAll(dir) })
		s, err := spool.Open(spool.Config{Dir: filepath.Join(dir, "spool")})
		must(err)
		b.Cleanup(func() { s.Close() })
		bl, err := blob.Open(blob.Config{Dir: filepath.Join(dir, "blobs")})
		must(err)
		r, err := New(Config{
			Self: m.ID, Dir: filepath.Join(dir, "replica"), Spool: s, Blobs: bl,
			Members: func() []Member { return members },
			Dial: func(ctx context.Context, id string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", doors[id].Addr().String())
			},
		})
		must(err)
		b.Cleanup(func() { cancel(); wg.Wait(); r.Close() })
		wg.Go(func() { r.Run(ctx) })
		wg.Go(func() { r.Serve(ctx, doors[m.ID]) })
		if lead == nil {
			lead = r
		}
	}
	must(lead.Lead(ctx, Term{Epoch: 1, Term: 1, Since: 1}))
	return lead
}
