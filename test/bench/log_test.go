//go:build bench

package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// nothing is a state machine that does nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) ApplyBatch(l []*raft.Log) []any      { return make([]any, len(l)) }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (nothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (nothing) Release()                            {}

const (
	rounds = 5
	span   = 800 * time.Millisecond
)

// openHub runs a hub in this process, without any connection but its own log.
func openHub(t *testing.T) *hub.Hub {
	t.Helper()
	h, err := hub.New(hub.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Bootstrap: true, Version: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-h.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("the hub does not get ready")
	}
	return h
}

// propose commits a command that must not be refused.
func propose(t *testing.T, h *hub.Hub, cmd state.Command) state.Result {
	res, err := commit(h, cmd)
	if err != nil {
		t.Error(err)
	}
	return res
}

// commit is propose where a leader may be lost.
func commit(h *hub.Hub, cmd state.Command) (state.Result, error) {
	res, err := h.Entries().Propose(context.Background(), cmd)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return res, fmt.Errorf("%T: %w", cmd, err)
	}
	return res, nil
}

// enrol makes a runner in the state.
func enrol(t *testing.T, h *hub.Hub) fleet.RunnerID {
	t.Helper()
	id := newID()
	key := sha256.Sum256([]byte(id))
	ticket := fleet.Digest(hex.EncodeToString(key[:]))
	propose(t, h, &state.CreateTicket{Hash: ticket, TTL: time.Hour, Uses: 1})
	r := propose(t, h, &state.Enrol{Ticket: ticket, ID: fleet.RunnerID("r-" + id), Name: id, SignKey: key[:], BoxKey: key[:], MachineID: id})
	return fleet.RunnerID(r.ID)
}

func newID() string { return strings.ToLower(ulid.Make().String()) }

// spec is a small job.
func spec() fleet.Spec {
	return fleet.Spec{Kind: fleet.KindExec, Origin: fleet.Origin{Kind: "manual"}, Harness: "exec", Argv: []string{"true"}, Permissions: fleet.PermWorkspace, OnLost: "hold"}
}

// measureLog compares the way of a command through the hub's log with raft alone, by
// entries of the same size. Every writer submits a job and cancels it.
func measureLog(t *testing.T, s *sheet, _ machine) {
	h := openHub(t)
	e, err := state.Encode(state.Head{At: time.Now(), Actor: "hub"}, &state.SubmitJob{ID: fleet.JobID(newID()), Spec: spec()})
	if err != nil {
		t.Fatal(err)
	}
	raw := openRaw(t, true)
	defer raw.close()
	for _, n := range []int{1, 16, 256} {
		open := make([]fleet.JobID, n)
		step := func(w int) {
			if open[w] == "" {
				open[w] = fleet.JobID(newID())
				propose(t, h, &state.SubmitJob{ID: open[w], Spec: spec()})
				return
			}
			propose(t, h, &state.CancelJob{Job: open[w]})
			open[w] = ""
		}
		var base, ours, ratio, baseCPU, oursCPU []float64
		for range rounds {
			var b, o float64
			baseCPU = append(baseCPU, perCall(func() float64 { b = rate(n, span, func(int) { raw.apply(t, e) }); return b }))
			oursCPU = append(oursCPU, perCall(func() float64 { o = rate(n, span, step); return o }))
			base, ours, ratio = append(base, b), append(ours, o), append(ratio, o/b)
		}
		s.note(fmt.Sprintf("raw raft Apply, %d writers", n), "/s", base...)
		s.note(fmt.Sprintf("hub's log, %d writers", n), "/s", ours...)
		if n == 256 {
			s.least("hub's log ÷ raw raft, 256 writers", "", 0.7, "≥ 0.70", ratio...)
			s.note("   CPU an entry: raw raft", "µs", baseCPU...)
			s.note("   CPU an entry: hub's log", "µs", oursCPU...)
		} else {
			s.note(fmt.Sprintf("hub's log ÷ raw raft, %d writers", n), "", ratio...)
		}
	}
}
