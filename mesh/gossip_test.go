package mesh

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tugline.dev/tugline/shared/fleet"
)

// TestGossipInTheTunnel: the gossip of three real nodes.
func TestGossipInTheTunnel(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 3)
	var all []*Gossip
	for _, n := range nodes {
		g, err := StartGossip(GossipConfig{Carrier: n.Mesh, Cluster: "c-1", Meta: Meta{Version: n.ID()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		g.Join("n-0", "n-1", "n-2")
		all = append(all, g)
	}
	alive := func(g *Gossip) (k int) {
		for _, m := range g.Members() {
			if m.Alive && m.Meta.Version == m.ID {
				k++
			}
		}
		return k
	}
	for _, g := range all {
		eventually(t, "all see all", 10*time.Second, func() bool { return alive(g) == 3 })
	}
	select {
	case <-all[0].Events():
	default:
		t.Error("nodes came, and there was no event")
	}
	word := Meta{Version: "n-1", Endpoints: []string{"10.0.0.1:7441"}, Kinds: 47, DiskFree: 1 << 40, DiskTotal: 1 << 41, Applied: 9, Flags: FlagDiskFull}
	if err := all[1].SetMeta(word); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new word is heard", 5*time.Second, func() bool { return cmp.Equal(all[0].Members()[1].Meta, word) })
	if err := all[1].SetMeta(Meta{Version: strings.Repeat("x", MetaMax)}); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("too long a word: %v", err)
	}

	// A node that is killed says nothing.
	nodes[2].Close()
	took := eventually(t, "the dead node is seen dead", 8*time.Second, func() bool { return alive(all[0]) == 2 && alive(all[1]) == 2 })
	t.Logf("seen dead after %v", took)
	if err := all[1].Leave(); err != nil {
		t.Error(err)
	}
	all[1].Close()
	all[1].Close()
	if err := all[1].Leave(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("leave after close: %v", err)
	}
	eventually(t, "a leaver is seen gone", 2*time.Second, func() bool { return alive(all[0]) == 1 })
}

func TestPacketsInTheTunnel(t *testing.T) {
	nodes := newNodes(t, 2)
	a, err := nodes[0].Packets(PortGossip)
	if err != nil {
		t.Fatal(err)
	}
	b, err := nodes[1].Packets(PortGossip)
	if err != nil {
		t.Fatal(err)
	}
	type got struct {
		n    int
		from string
		err  error
	}
	came := make(chan got)
	go func() {
		buf := make([]byte, 2000)
		for range 2 {
			n, from, err := b.ReadFrom(buf)
			came <- got{n, from, err}
		}
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		if err := a.WriteTo(make([]byte, DefaultMTU-udpHeaders), "n-1"); err != nil {
			t.Fatal(err)
		}
		select {
		case g := <-came:
			if g.n != DefaultMTU-udpHeaders || g.from != "n-0" || g.err != nil {
				t.Errorf("got %+v", g)
			}
			waiting = false
		case <-tick.C:
		}
	}
	if err := a.WriteTo(make([]byte, DefaultMTU-udpHeaders+1), "n-1"); !errors.Is(err, fleet.TooLarge) {
		t.Errorf("too long a packet: %v", err)
	}
	if err := a.WriteTo(nil, "n-9"); !errors.Is(err, fleet.NotFound) {
		t.Errorf("a packet to a stranger: %v", err)
	}
	if _, err := nodes[0].Packets(PortGossip); !errors.Is(err, fleet.Conflict) {
		t.Errorf("a port taken twice: %v", err)
	}
	b.Close()
	for g := range came {
		if g.err != nil {
			if !errors.Is(g.err, net.ErrClosed) {
				t.Errorf("read after close: %v", g.err)
			}
			break
		}
		go func() {
			_, from, err := b.ReadFrom(make([]byte, 9))
			came <- got{0, from, err}
		}()
	}
}

func TestMeta(t *testing.T) {
	m := Meta{Endpoints: []string{"10.0.0.1:7441", "[fd00::1]:7441", "hub.example:7441"}, Version: "1.2.3", Kinds: 47, DiskFree: 1, DiskTotal: 2, Applied: 1 << 60, Flags: FlagDraining | FlagReadOnly}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeMeta(b)
	if d := cmp.Diff(got, m); err != nil || d != "" {
		t.Errorf("%v, %s", err, d)
	}
	// A later version with more in it is read as far as it is known.
	got, err = decodeMeta([]byte(`{"v":9,"r":"3.0","new":{"a":1}}`))
	if err != nil || got.Version != "3.0" {
		t.Errorf("a later version: %+v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"v":0}`, `[]`, `{"v":1,"e":["nowhere"]}`, `{"v":1,"e":[":1"]}`, `{"v":1,"k":-1}`, `{"v":1,"e":["a:1","a:1","a:1","a:1","a:1","a:1","a:1","a:1","a:1"]}`, `{"v":1,"r":"` + strings.Repeat("x", MetaMax) + `"}`} {
		if m, err := decodeMeta([]byte(bad)); err == nil {
			t.Errorf("%.40s was read as %+v", bad, m)
		}
	}
}

func FuzzMeta(f *testing.F) {
	b, _ := Meta{Endpoints: []string{"10.0.0.1:7441"}, Version: "1.2.3", Kinds: 47, DiskFree: 1, Flags: 3}.encode()
	f.Add(b)
	f.Add([]byte(`{"v":2,"e":["[::1]:1"],"x":[[]]}`))
	f.Add([]byte(`{"v":1,"e":[]}`))
	f.Add([]byte(`{"v":1,"r":"\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if errors.Is(err, fleet.TooLarge) {
			return // what was written shorter than we write it
		}
		if err != nil {
			t.Fatalf("%q was read and can't be written: %v", b, err)
		}
		if back, err := decodeMeta(again); err != nil || !cmp.Equal(back, m) {
			t.Fatalf("%q: %+v came back as %+v, %v", b, m, back, err)
		}
	})
}
