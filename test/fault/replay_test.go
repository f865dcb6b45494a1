//go:build linux

package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// tap is a TCP line in front of a hub that keeps all that is said to it.
type tap struct {
	m  *machine
	to string
	l  net.Listener

	mu   sync.Mutex
	said []*bytes.Buffer // one a connection
}

func newTap(t *testing.T, m *machine, at, to string) *tap {
	t.Helper()
	l, err := m.listen(at)
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{m: m, to: to, l: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { x.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return x
}

func (x *tap) carry(from net.Conn) {
	defer from.Close()
	to, err := x.m.dial(context.Background(), "tcp", x.to)
	if err != nil {
		return
	}
	defer to.Close()
	kept := new(bytes.Buffer)
	x.mu.Lock()
	x.said = append(x.said, kept)
	x.mu.Unlock()
	go func() {
		io.Copy(from, to)
		from.Close()
		to.Close()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		x.mu.Lock()
		kept.Write(b[:n])
		x.mu.Unlock()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// recorded gives what was said so far, by connection.
func (x *tap) recorded() (out [][]byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.said {
		out = append(out, bytes.Clone(b.Bytes()))
	}
	return out
}

// say says it all again to a hub, on a connection of its own, and gives the answer.
func (x *tap) say(b []byte, to string) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := x.m.dial(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(b); err != nil {
		return nil, err
	}
	answer, _ = io.ReadAll(c)
	return answer, nil
}

// together makes a cluster whose hubs share one machine and speak without TLS, each
// behind a tap.
func together(t *testing.T) (*cluster, []*tap) {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), lan: newLAN(t)}
	c.ca = filepath.Join(c.dir, "none")
	c.person = c.lan.machine("all", "10.77.0.2")
	var taps []*tap
	for n := 1; n <= 3; n++ {
		h := &hub{machine: c.person, c: c, dir: filepath.Join(c.dir, fmt.Sprintf("hub%d", n))}
		h.tcp, h.udp = fmt.Sprintf("127.0.0.1:744%d", n), fmt.Sprintf("127.0.0.1:844%d", n)
		at := fmt.Sprintf("127.0.0.1:944%d", n)
		h.public, h.called = "http://"+at, fmt.Sprintf("h%d", n)
		h.faults.Stable = "1s"
		taps = append(taps, newTap(t, c.person, at, h.tcp))
		c.hubs = append(c.hubs, h)
	}
	t.Cleanup(c.end) // before the taps wait for the last of their lines
	return c, taps
}

// What a runner said to the hubs is said to them again, by somebody who listened on the
// line: while its session lives, after the leader failed, and once more when all is
// done. Nothing happens twice, and the runner is not disturbed.
func TestReplayedFrames(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"ws", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c, taps := together(t)
			c.found()
			r := &runner{machine: c.person, c: c, slots: 2, dir: filepath.Join(c.dir, "runner1"), called: "r1", extra: []string{"--transport", transport}}
			c.runners = append(c.runners, r)
			r.start()
			c.online()
			w := c.work()
			replay := func(when string) {
				t.Helper()
				n := 0
				var refused atomic.Int64
				var wg sync.WaitGroup
				for _, x := range taps {
					for _, said := range x.recorded() {
						for _, h := range c.hubs {
							if !h.p.Runs() || len(said) == 0 {
								continue
							}
							n++
							wg.Go(func() {
								if a, err := x.say(said, h.tcp); err != nil || !bytes.Contains(a, []byte("HTTP/1.1 200")) {
									refused.Add(1)
								}
							})
						}
					}
				}
				wg.Wait()
				t.Logf("%s %d recorded connections were said again; %d got no 200 at all", when, n, refused.Load())
				if n == 0 {
					t.Errorf("nothing was recorded %s", when)
				}
			}
			w.running("across", 150)
			replay("while the session lives,")
			c.used("r1", 1, 20*time.Second)
			c.failover()
			w.submit("second", 2)
			w.check("second", 60*time.Second)
			replay("after the leader failed,")
			w.check("across", 60*time.Second)
			c.used("r1", 0, 20*time.Second)
			j, _ := c.job(w.jobs["across"])
			replay("when all is done,")
			var after api.Job
			c.eventually(20*time.Second, "the job is still there", func() (ok bool) { after, ok = c.job(w.jobs["across"]); return ok })
			if after.Revision != j.Revision || after.State != fleet.Succeeded {
				t.Errorf("the job is %s at revision %d after the replay; want %s at %d", after.State, after.Revision, j.State, j.Revision)
			}
			c.used("r1", 0, 20*time.Second)
			var rs api.Runners
			if !c.get("/v1/runners?consistent", &rs) || len(rs.Runners) != 1 || rs.Runners[0].Conflict != "" {
				t.Errorf("the runners are %+v; want one, undisturbed", rs.Runners)
			}
			w.submit("third", 2)
			w.check("third", 60*time.Second)
		})
	}
}
