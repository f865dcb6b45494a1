package spool

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkAppend measures durable appends of 64 bytes by several writers, each on
// its own stream.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 64, 500} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := open(b, Config{Dir: b.TempDir()})
			data := make([]byte, 64)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					k := key(w, Output)
					var end int64
					for range (b.N + writers - 1) / writers {
						var err error
						if end, err = s.Append(b.Context(), k, end, data); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}
