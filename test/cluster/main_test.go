package cluster

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // a world is small, and makes much that lives for one message
	os.Exit(m.Run())
}
