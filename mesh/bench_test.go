package mesh

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// benchPair gives a connection through the tunnel over loopback.
func benchPair(b *testing.B, listenAt string, mtu int) (here, there net.Conn) {
	x, y := newNodeAt(b, "n-x", listenAt, mtu), newNodeAt(b, "n-y", listenAt, mtu)
	px, py := x.peer(), y.peer()
	px.Endpoints = []string{fmt.Sprintf("127.0.0.1:%d", x.ListenAddr().Port())}
	py.Endpoints = []string{fmt.Sprintf("127.0.0.1:%d", y.ListenAddr().Port())}
	x.SetPeers([]Peer{py})
	y.SetPeers([]Peer{px})
	l := listen(b, y.Mesh, PortRaft)
	here = dial(b, x.Mesh, "n-y", PortRaft)
	there, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	return here, there
}

func loopbackPair(b *testing.B) (here, there net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	here, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	there, err = l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	return here, there
}

var benchLines = []struct {
	name string
	make func(*testing.B) (net.Conn, net.Conn)
}{
	{"tcp", loopbackPair},
	{"mtu=1280", func(b *testing.B) (net.Conn, net.Conn) { return benchPair(b, "127.0.0.1:0", 1280) }},
	{"mtu=1420", func(b *testing.B) (net.Conn, net.Conn) { return benchPair(b, "127.0.0.1:0", 1420) }},
	{"mtu=8920", func(b *testing.B) (net.Conn, net.Conn) { return benchPair(b, "127.0.0.1:0", 8920) }},
	{"any,mtu=1280", func(b *testing.B) (net.Conn, net.Conn) { return benchPair(b, ":0", 1280) }},
	{"any,mtu=1420", func(b *testing.B) (net.Conn, net.Conn) { return benchPair(b, ":0", 1420) }},
}

// BenchmarkRoundTrip sends 256 bytes and waits for 256.
func BenchmarkRoundTrip(b *testing.B) {
	for _, line := range benchLines {
		b.Run(line.name, func(b *testing.B) {
			here, there := line.make(b)
			defer there.Close()
			defer here.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 256)
				for {
					if _, err := io.ReadFull(there, buf); err != nil {
						return
					}
					there.Write(buf)
				}
			}()
			buf := make([]byte, 256)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				here.Write(buf)
				if _, err := io.ReadFull(here, buf); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			here.Close()
			<-done
		})
	}
}

// BenchmarkThroughput writes 64 KiB at a time, one way.
func BenchmarkThroughput(b *testing.B) {
	for _, line := range benchLines {
		b.Run(line.name, func(b *testing.B) {
			here, there := line.make(b)
			defer there.Close()
			defer here.Close()
			got := make(chan int64)
			go func() {
				n, _ := io.Copy(io.Discard, there)
				got <- n
			}()
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(len(buf)))
			var sent int64
			for b.Loop() {
				if _, err := here.Write(buf); err != nil {
					b.Fatal(err)
				}
				sent += int64(len(buf))
			}
			here.(interface{ CloseWrite() error }).CloseWrite()
			if n := <-got; n != sent {
				b.Fatalf("%d of %d bytes arrived", n, sent)
			}
		})
	}
}
