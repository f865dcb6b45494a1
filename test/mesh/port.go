package mesh

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports are given out one after the other, below those that a system hands out by itself:
// the port of a hub that was killed must still be there when it starts again, with other
// tests at work beside it.
const (
	firstPort = 20_000
	ports     = 10_000
)

var given atomic.Uint32

// freePort gives an address of loopback that nothing listens at, neither by TCP nor by UDP.
func freePort(t *testing.T) string {
	t.Helper()
	for range ports {
		at := fmt.Sprintf("127.0.0.1:%d", firstPort+(97*uint32(os.Getpid())+given.Add(1))%ports)
		if free(at) {
			return at
		}
	}
	t.Fatalf("no port from %d to %d is free", firstPort, firstPort+ports-1)
	return ""
}

func free(at string) bool {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return false
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
