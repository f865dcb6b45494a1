package consensus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const memberEnv = "CONSENSUS_TEST_MEMBER"

var trio = []string{"a", "b", "c"}

// tcp is a Transport on loopback. Addresses lie in a directory, in files named after
// the nodes.
type tcp struct {
	net.Listener
	dir string
}

func listenTCP(dir, id string) (*tcp, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, id+".addr")
	if err := os.WriteFile(path+".new", []byte(l.Addr().String()), 0o600); err != nil {
		return nil, err
	}
	return &tcp{l, dir}, os.Rename(path+".new", path)
}

func (t *tcp) Dial(id string, timeout time.Duration) (net.Conn, error) {
	addr, err := os.ReadFile(filepath.Join(t.dir, id+".addr"))
	if err != nil {
		return nil, err
	}
	return net.DialTimeout("tcp", string(addr), timeout)
}

// openMember opens one of three nodes below dir.
func openMember(dir, id string, fsm FSM) (*Node, error) {
	l, err := listenTCP(dir, id)
	if err != nil {
		return nil, err
	}
	return Open(Config{
		Dir: filepath.Join(dir, id), NodeID: id, Bootstrap: true, Voters: trio, FSM: fsm, Transport: l, SnapshotEvery: 256,
	})
}

// memberForever is a child: it proposes for as long as it leads, and says what was
// acknowledged, until it is killed.
func memberForever(dir, id string) {
	n, err := openMember(dir, id, &ledger{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	err = n.WhileLeader(context.Background(), func(ctx context.Context) error {
		say("leads %d", n.Status().Term)
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					entry := fmt.Sprintf("%s-%d-%d-%d", id, os.Getpid(), w, i)
					_, index, err := n.Propose(ctx, []byte(entry))
					switch {
					case err == nil:
						say("ack %d %s", index, entry)
					case !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) && ctx.Err() == nil:
						say("error %v", err)
					}
				}
			})
		}
		writers.Wait()
		return nil
	})
	say("error %v", err)
}

// child is a member in a process of its own.
type child struct {
	id   string
	proc *os.Process
	done chan struct{} // all it said was read
}

// news is what a child said.
type news struct{ id, text string }

func startMember(t *testing.T, dir, id string, to chan<- news) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
		Env: append(os.Environ(), memberEnv+"="+dir+":"+id), Files: []*os.File{nil, w, os.Stderr},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{id, proc, make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			to <- news{id, lines.Text()}
		}
	}()
	return c
}

// end kills the child; what it said before is still read.
func (c *child) end() {
	c.proc.Signal(syscall.SIGKILL)
	c.proc.Wait()
	<-c.done
}

// TestKillingLeadersLosesNothing kills the leader of three real processes, one after
// the other, while it proposes, and starts it again.
func TestKillingLeadersLosesNothing(t *testing.T) {
	t.Parallel()
	const kills = 3
	dir := t.TempDir()
	said := make(chan news)
	var acked []string
	leads, enough := make(chan string, 100), make(chan struct{}, 1)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for n := range said {
			kind, rest, _ := strings.Cut(n.text, " ")
			switch kind {
			case "ack":
				acked = append(acked, rest)
				if len(acked)%50 == 0 {
					select {
					case enough <- struct{}{}:
					default:
					}
				}
			case "leads":
				leads <- n.id
			default:
				t.Errorf("%s: %s", n.id, n.text)
			}
		}
	}()
	children := map[string]*child{}
	for _, id := range trio {
		children[id] = startMember(t, dir, id, said)
	}
	wait := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("no %s", what)
		}
	}
	leader := ""
	next := func() {
		t.Helper()
		select {
		case leader = <-leads:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody leads")
		}
	}
	next()
	var took []time.Duration
	for range kills {
		select {
		case <-enough:
		default:
		}
		wait("entries", enough)
		for len(leads) > 0 { // leadership may have moved by itself
			leader = <-leads
		}
		begun := time.Now()
		children[leader].end()
		killed := leader
		for leader == killed {
			next()
		}
		took = append(took, time.Since(begun).Round(time.Millisecond))
		children[killed] = startMember(t, dir, killed, said)
	}
	for _, c := range children {
		c.end()
	}
	close(said)
	<-counted

	// Two of them are enough to have it all.
	ledgers := map[string]*ledger{}
	var nodes []*Node
	for _, id := range trio[:2] {
		ledgers[id] = &ledger{}
		n, err := openMember(dir, id, ledgers[id])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		nodes = append(nodes, n)
	}
	var kept []string
	for kept == nil {
		for _, n := range nodes {
			if n.Barrier(within(t, 10*time.Second)) == nil {
				kept = ledgers[n.cfg.NodeID].all()
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("nobody leads")
		case <-time.After(10 * time.Millisecond):
		}
	}
	have := map[string]int{}
	for _, e := range kept {
		have[e]++
	}
	for _, e := range acked {
		if have[e] != 1 {
			t.Errorf("acknowledged entry %q is there %d times", e, have[e])
		}
	}
	if len(acked) < 50*kills {
		t.Errorf("only %d entries were acknowledged", len(acked))
	}
	slices.Sort(took)
	t.Logf("%d acknowledged, %d kept; new leader after %v", len(acked), len(kept), took)
	if took[0] > 3*time.Second {
		t.Errorf("a new leader took %v at best", took[0])
	}
}
