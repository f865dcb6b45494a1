package state

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

// BenchmarkJob measures the life of one job: submit, assign, accept, finish, seal.
func BenchmarkJob(b *testing.B) {
	g := newRig(b)
	g.enrol("r1")
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		g.log = nil
		id := jobID(n)
		g.submit(id)
		f := g.ruledRun(id, "r1")
		end := g.judged(id, f, fleet.Accept)
		end.Rules = 1
		g.do(end)
		g.do(&SealLog{Job: id, Fence: f})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

type countingWriter int64

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

// BenchmarkBound fills the queue to its bound and says what that takes: memory,
// bytes of a snapshot, and the time to write and to read one.
func BenchmarkBound(b *testing.B) {
	memory := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := memory()
	g := newRig(b)
	for n := range MaxQueue {
		g.log = nil
		g.actor = fmt.Sprintf("t-%d", n/MaxQueuePerUser)
		g.submit(jobID(n), func(s *fleet.Spec) {
			s.Repo = &fleet.Repo{URL: "https://git.example.com/team/project.git", Ref: "main"}
			s.ConcurrencyKey = fmt.Sprintf("key-%d", n%1000)
		})
	}
	used := memory() - before
	var size countingWriter
	for b.Loop() {
		size = 0
		if err := g.m.Snapshot()(&size); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(used)/(1<<20), "MiB-memory")
	b.ReportMetric(float64(size)/(1<<20), "MiB-snapshot")
	b.ReportMetric(float64(used)/MaxQueue, "B/job")
}

// BenchmarkRestore reads a snapshot of ten thousand jobs.
func BenchmarkRestore(b *testing.B) {
	g := newRig(b)
	for n := range 10_000 {
		g.log = nil
		g.actor = fmt.Sprintf("t-%d", n/MaxQueuePerUser)
		g.submit(jobID(n))
	}
	var buf bytes.Buffer
	if err := g.m.Snapshot()(&buf); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := New().Restore(io.Reader(bytes.NewReader(buf.Bytes()))); err != nil {
			b.Fatal(err)
		}
	}
}
