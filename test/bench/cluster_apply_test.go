//go:build bench

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

// sample is what a contender did in one turn or in several.
type sample struct {
	passed time.Duration
	cpu    time.Duration // of its process, all three nodes in it
	took   []float64     // each commit, in milliseconds
}

func (s *sample) add(o sample) {
	s.passed, s.cpu, s.took = s.passed+o.passed, s.cpu+o.cpu, append(s.took, o.took...)
}

func (s sample) rate() float64 { return float64(len(s.took)) / s.passed.Seconds() }

// contender is one way to have an entry committed by three nodes.
type contender struct {
	name string
	turn func(writers int) sample
}

// A round has several short turns of each, which evens out what else the machine does.
const (
	turnsEach = 4
	turnSpan  = span / turnsEach
)

// measureApply compares ways to commit entries of the same size on three nodes, in turns.
func measureApply(t *testing.T, s *sheet) {
	entry, err := state.Encode(state.Head{At: time.Now(), Actor: "hub"}, &state.SubmitJob{ID: fleet.JobID(newID()), Spec: spec()})
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	sides := []contender{
		{"raft alone", turns(t, &failed, rawTrio(t, entry))},
		{"log, plain TCP", turns(t, &failed, nodeTrio(t, plainNodes(t), entry))},
		{"log, WireGuard", turns(t, &failed, nodeTrio(t, meshNodes(t), entry))},
		{"hub, plain TCP", turns(t, &failed, hubTrio(t, true))},
		{"hub, WireGuard", turns(t, &failed, hubTrio(t, false))},
		{"etcd put", etcd(t, len(entry))},
	}
	for _, x := range sides { // warm
		x.turn(64)
	}
	for _, n := range []int{1, 16, 256} {
		got := map[string][]sample{}
		for r := range rounds {
			round := map[string]*sample{}
			for _, x := range sides {
				round[x.name] = &sample{}
			}
			for range turnsEach {
				for i := range sides { // none has always the same one before it
					x := sides[(i+r)%len(sides)]
					round[x.name].add(x.turn(n))
				}
			}
			for name, v := range round {
				got[name] = append(got[name], *v)
			}
		}
		compare(s, sides, n, got)
	}
	s.note("calls that failed, over a change of leaders", "", float64(failed.Load()))
}

func compare(s *sheet, sides []contender, n int, got map[string][]sample) {
	for _, x := range sides {
		what := fmt.Sprintf("%s, %d writers", x.name, n)
		s.note(what, "/s", pick(got[x.name], sample.rate)...)
		for _, q := range []float64{0.5, 0.99} {
			s.note(fmt.Sprintf("   %s: commit p%.0f", what, 100*q), "ms", pick(got[x.name], func(r sample) float64 { return quantile(r.took, q) })...)
		}
		s.note("   "+what+": CPU an entry", "µs", pick(got[x.name], func(r sample) float64 { return float64(r.cpu.Microseconds()) / float64(len(r.took)) })...)
	}
	for _, x := range sides[1:5] {
		for _, base := range []struct {
			name string
			aim  float64
			say  string
		}{{"raft alone", 0.7, "≥ 0.70, reaching for 2"}, {"etcd put", 1.5, "≥ 1.50"}} {
			var v []float64
			for i, r := range got[x.name] {
				v = append(v, r.rate()/got[base.name][i].rate())
			}
			what := fmt.Sprintf("%s ÷ %s, %d writers", x.name, base.name, n)
			if n == 256 {
				s.least(what, "", base.aim, base.say, v...)
			} else {
				s.note(what, "", v...)
			}
		}
	}
}

func pick[T any](all []T, f func(T) float64) (v []float64) {
	for _, r := range all {
		v = append(v, f(r))
	}
	return v
}

// turns makes a turn of a function that commits one entry. One that fails is asked
// again: on a busy machine the leader may change.
func turns(t *testing.T, failed *atomic.Int64, commit func(writer int) error) func(int) sample {
	return func(writers int) (all sample) {
		took := make([][]float64, writers)
		begin, before := time.Now(), used()
		rate(writers, turnSpan, func(w int) {
			begin := time.Now()
			for err := commit(w); err != nil; err = commit(w) {
				failed.Add(1)
				if time.Since(begin) > 30*time.Second {
					t.Errorf("no entry is committed: %v", err)
					return
				}
				<-time.After(10 * time.Millisecond)
			}
			took[w] = append(took[w], ms(time.Since(begin)))
		})
		all.passed, all.cpu = time.Since(begin), used()-before
		for _, v := range took {
			all.took = append(all.took, v...)
		}
		return all
	}
}

// rawTrio is raft alone on three nodes, with its own transport over TCP, and with the
// store and the settings of batches that a node has.
func rawTrio(t *testing.T, entry []byte) func(int) error {
	var members raft.Configuration
	var trans []*raft.NetworkTransport
	for _, id := range trio {
		tr, err := raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 10*time.Second, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		trans = append(trans, tr)
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: tr.LocalAddr()})
	}
	var all []*raft.Raft
	for i, id := range trio {
		store, err := consensus.OpenStore(filepath.Join(t.TempDir(), "raft.db"))
		if err != nil {
			t.Fatal(err)
		}
		c := raft.DefaultConfig()
		c.LocalID, c.Logger, c.SnapshotThreshold = raft.ServerID(id), hclog.NewNullLogger(), 1<<40
		c.MaxAppendEntries, c.BatchApplyCh, c.NoLegacyTelemetry = 512, true, true
		snaps := raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, store, store, snaps, trans[i], members); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(c, nothing{}, store, store, snaps, trans[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			r.Shutdown().Error()
			trans[i].CloseStreams()
			trans[i].Close()
			store.Close()
		})
		all = append(all, r)
	}
	return func(int) error {
		for _, r := range all {
			if r.State() == raft.Leader {
				return r.Apply(entry, 0).Error()
			}
		}
		return raft.ErrNotLeader
	}
}

// still is a state machine that does nothing.
type still struct{}

func (still) Apply(uint64, []byte) (any, error) { return nil, nil }
func (still) Restore(io.Reader) error           { return nil }
func (still) Snapshot() (func(io.Writer) error, error) {
	return func(io.Writer) error { return nil }, nil
}

// carried is the log's port of a node's network.
type carried struct {
	net.Listener
	over hub.Network
}

const logPort = 7301

func (c carried) Dial(id string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.over.Dial(ctx, id, logPort)
}

// nodeTrio is the log as a hub has it, on three nodes of a network.
func nodeTrio(t *testing.T, nets []hub.Network, entry []byte) func(int) error {
	var all []*consensus.Node
	for i, id := range trio {
		l, err := nets[i].Listen(logPort)
		if err != nil {
			t.Fatal(err)
		}
		n, err := consensus.Open(consensus.Config{
			Dir: filepath.Join(t.TempDir(), id), NodeID: id, Bootstrap: true, Voters: trio, FSM: still{}, Transport: carried{l, nets[i]}, SnapshotEvery: 1 << 40,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		all = append(all, n)
	}
	var lead atomic.Pointer[consensus.Node]
	lead.Store(all[0])
	return func(int) error {
		_, _, err := lead.Load().Propose(context.Background(), entry)
		if err != nil {
			for _, n := range all {
				if n.Status().Leader != "" && n.Status().Leader == n.Status().NodeID {
					lead.Store(n)
				}
			}
		}
		return err
	}
}

// hubTrio is three whole hubs. Every writer submits a job and cancels it, in turn.
func hubTrio(t *testing.T, plain bool) func(int) error {
	all := threeHubs(t, plain)
	var lead atomic.Pointer[trioHub]
	lead.Store(leads(t, all))
	var mu sync.Mutex
	open := map[int]fleet.JobID{}
	return func(w int) error {
		mu.Lock()
		id := open[w]
		mu.Unlock()
		var cmd state.Command = &state.CancelJob{Job: id}
		next := fleet.JobID("")
		if id == "" {
			next = fleet.JobID(newID())
			cmd = &state.SubmitJob{ID: next, Spec: spec()}
		}
		res, err := lead.Load().Entries().Propose(context.Background(), cmd)
		if err != nil {
			for _, h := range all {
				if h.inside.Leading() {
					lead.Store(h)
				}
			}
			return err
		}
		if res.Code != "" && res.Code != fleet.Conflict { // a cancel may have been done before it failed
			t.Errorf("%T: %s %s", cmd, res.Code, res.Detail)
		}
		mu.Lock()
		open[w] = next
		mu.Unlock()
		return nil
	}
}

// etcd builds and starts the module of its own that measures etcd.
func etcd(t *testing.T, size int) func(int) sample {
	ask := module(t, "etcd", "-dir", t.TempDir(), "-size", fmt.Sprint(size), "-for", turnSpan.String())
	return func(writers int) (all sample) {
		var r struct {
			Passed, CPU time.Duration
			Took        []float64
		}
		if err := json.Unmarshal([]byte(ask(fmt.Sprint(writers))), &r); err != nil {
			t.Fatal(err)
		}
		return sample{r.Passed, r.CPU, r.Took}
	}
}

// module builds and starts a program that is a module of its own, and gives a function
// that writes it a line and gives the line that it answers.
func module(t *testing.T, name string, args ...string) func(string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = name
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return converse(t, exec.Command(program, args...))
}

// converse starts a program that answers each line with one; it ends with its input.
func converse(t *testing.T, c *exec.Cmd) func(string) string {
	t.Helper()
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Wait() })
	answers := bufio.NewReader(out)
	return func(line string) string {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%s gave no answer: %v", filepath.Base(c.Path), err)
		}
		return answer
	}
}
