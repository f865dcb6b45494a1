package consensus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// filled is a store on a disk that has no room while full.
type filled struct {
	backend
	full *atomic.Bool
}

func (f filled) try(write func() error) error {
	if f.full.Load() {
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	return write()
}

func (f filled) StoreLogs(l []*raft.Log) error {
	return f.try(func() error { return f.backend.StoreLogs(l) })
}

func (f filled) Set(k, v []byte) error {
	return f.try(func() error { return f.backend.Set(k, v) })
}

func (f filled) SetUint64(k []byte, v uint64) error {
	return f.try(func() error { return f.backend.SetUint64(k, v) })
}

// A disk that is full stops the node only where no room can be made on it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	rooms := 2
	n, err := open(Config{Dir: t.TempDir(), NodeID: "n-a", Bootstrap: true, FSM: &ledger{}, MakeRoom: func() bool {
		rooms--
		full.Store(rooms < 0)
		return rooms >= 0
	}}, func(b backend) backend { return filled{b, &full} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.settle(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	mustPropose(t, n, "before")
	full.Store(true)
	mustPropose(t, n, "room was made for it")
	full.Store(true)
	if err := n.store.SetUint64([]byte("CurrentTerm"), n.raft.CurrentTerm()); err != nil {
		t.Errorf("save: %v", err)
	}
	full.Store(true)
	if _, _, err := n.Propose(t.Context(), []byte("none is left")); err == nil {
		t.Error("an entry was taken on a full disk")
	}
	if fatal := waitDone(t, n); !errors.Is(fatal, syscall.ENOSPC) {
		t.Errorf("stopped with %v", fatal)
	}
}
