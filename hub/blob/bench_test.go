package blob

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkPut measures durable stores of blobs that are all different.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{2 << 10, 64 << 10, 8 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			s := open(b, Config{Dir: b.TempDir()})
			data := noise(1, size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				copy(data, fmt.Sprint(i))
				b.StopTimer()
				d := digest(data)
				b.StartTimer()
				if err := s.Put(b.Context(), d, int64(size), bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutParallel measures the same with many writers at once.
func BenchmarkPutParallel(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir()})
	var n atomic.Int64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			data := fmt.Appendf(make([]byte, 2000), "%d", n.Add(1))
			if err := s.Put(b.Context(), digest(data), int64(len(data)), bytes.NewReader(data)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blobs/s")
}
