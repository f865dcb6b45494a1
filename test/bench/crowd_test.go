//go:build bench

package bench

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// throng is the crowd as its own process has it. It does what each line of standard
// input says and answers with a line.
type throng struct {
	url  string
	conf *tls.Config
	all  []*extra
	up   int // of these connected

	counting atomic.Bool
	mu       sync.Mutex
	took     []float64 // milliseconds of each reply while counting
	err      error     // the first
}

// extra is one runner of the throng: it beats, takes what it is given to do, writes a
// little output with each beat while it is at work, and stops when it is told to.
type extra struct {
	*puppet
	throng *throng

	mu   sync.Mutex
	sent time.Time // of the beat that waits for its reply
	seq  uint64
	job  *wire.AttemptView // at work
}

// told is what the throng has counted.
type told struct {
	Took    []float64
	Working int
	Error   string
}

// beCrowd is the crowd's process.
func beCrowd(url, ca string) error {
	c := &throng{url: url}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		c.conf = &tls.Config{RootCAs: x509.NewCertPool()}
		c.conf.RootCAs.AppendCertsFromPEM(b)
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		what, arg, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch what {
		case "enrol":
			err = c.enrol(arg)
		case "link":
			var n int
			if _, err = fmt.Sscan(arg, &n); err == nil {
				err = c.link(n)
			}
		case "count":
			var d time.Duration
			if d, err = time.ParseDuration(arg); err == nil {
				if err := out.Encode(c.count(d)); err != nil {
					return err
				}
				continue
			}
		}
		if err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
	return nil
}

// enrol makes as many runners as a ticket is for.
func (c *throng) enrol(secret string) error {
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: c.conf, MaxIdleConnsPerHost: 16}}
	defer hc.CloseIdleConnections()
	at := len(c.all)
	c.all = append(c.all, make([]*extra, 1000)...)
	return several(1000, func(i int) error {
		p, err := enrolPuppet(hc, c.url, secret, at+i)
		c.all[at+i] = &extra{puppet: p, throng: c}
		return err
	})
}

// link connects runners until there are n, from several addresses.
func (c *throng) link(n int) error {
	at := c.up
	err := several(n-at, func(i int) error {
		x := c.all[at+i]
		x.slots, x.from = 1, &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%8))}
		if err := x.puppet.link(c.url, c.conf); err != nil {
			return err
		}
		x.conn.SetReadDeadline(time.Time{})
		go func() { c.fail(x.read()) }()
		go func() { c.fail(x.beats(time.Duration(at+i) * 7919 * time.Millisecond % crowdBeat)) }()
		return nil
	})
	c.up = n
	return err
}

// several makes n calls, sixteen at a time, and gives the first error.
func several(n int, f func(int) error) error {
	room, errs := make(chan struct{}, 16), make(chan error, n)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := f(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return fmt.Errorf("%w (and %d more)", err, len(errs))
	default:
		return nil
	}
}

func (c *throng) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// count tells what was answered in a time.
func (c *throng) count(d time.Duration) (v told) {
	c.mu.Lock()
	c.took = nil
	c.mu.Unlock()
	c.counting.Store(true)
	<-time.After(d)
	c.counting.Store(false)
	for _, x := range c.all[:c.up] {
		x.mu.Lock()
		if x.job != nil {
			v.Working++
		}
		x.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v.Took = c.took
	if c.err != nil {
		v.Error = c.err.Error()
	}
	return v
}

// beats sends a heartbeat whenever one is due, the first after a while of its own.
func (x *extra) beats(first time.Duration) error {
	if err := x.pulse(); err != nil { // the hub counts on what it has heard
		return err
	}
	<-time.After(first)
	for {
		wait := crowdBeat
		if err := x.pulse(); err != nil {
			return err
		}
		x.mu.Lock()
		if x.job != nil {
			wait /= 3 // which is what the hub asks of those at work
		}
		x.mu.Unlock()
		<-time.After(wait)
	}
}

func (x *extra) pulse() error {
	x.mu.Lock()
	h := x.heartbeat()
	if j := x.job; j != nil {
		h.Attempts = []wire.AttemptView{*j}
	}
	x.sent = time.Now()
	x.mu.Unlock()
	return x.say(wire.TypeHeartbeat, h)
}

// read takes what the hub sends.
func (x *extra) read() error {
	for {
		_, b, err := x.conn.ReadMessage()
		if err != nil {
			return err
		}
		f, err := x.open.Open(b)
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeNudge:
			err = x.pulse()
		case wire.TypeHeartbeatReply:
			err = x.replied(f.Body)
		case wire.TypeReportAck:
			var a wire.ReportAck
			if err = wire.Decode(f.Body, &a); err == nil && len(a.Items) > 0 && a.Items[0].Code != "" {
				err = errors.New("a report is refused: " + a.Items[0].Detail)
			}
		case wire.TypeOutputAck:
			var a wire.OutputAck
			if err = wire.Decode(f.Body, &a); err == nil && a.Code != "" {
				err = errors.New("output is refused: " + a.Detail)
			}
		case wire.TypeGoodbye:
			err = errors.New("the hub says goodbye: " + string(f.Body))
		}
		if err != nil {
			return err
		}
	}
}

func (x *extra) replied(body []byte) error {
	x.mu.Lock()
	took, due := ms(time.Since(x.sent)), !x.sent.IsZero()
	x.sent = time.Time{}
	x.mu.Unlock()
	if c := x.throng; due && c.counting.Load() {
		c.mu.Lock()
		c.took = append(c.took, took)
		c.mu.Unlock()
	}
	var r wire.HeartbeatReply
	if err := wire.Decode(body, &r); err != nil {
		return err
	}
	for _, d := range r.Desired {
		if err := x.follow(d); err != nil {
			return err
		}
	}
	return x.write()
}

// follow does what the hub wants of an attempt.
func (x *extra) follow(d wire.Desired) error {
	x.mu.Lock()
	item := wire.ReportItem{Job: d.Job, Fence: d.Fence}
	switch {
	case d.Intent == wire.IntentRun && x.job == nil:
		x.job = &wire.AttemptView{Job: d.Job, Fence: d.Fence, Phase: "running"}
		item.Accepted = &wire.Accepted{Permissions: fleet.PermWorkspace}
	case d.Intent == wire.IntentStop && x.job != nil && x.job.Job == d.Job:
		x.job = nil
		item.Gone = true
	default:
		x.mu.Unlock()
		return nil
	}
	x.seq++
	item.Seq = x.seq
	x.mu.Unlock()
	return x.say(wire.TypeReport, wire.Report{Items: []wire.ReportItem{item}})
}

// write sends a line of output, if there is somebody who writes.
func (x *extra) write() error {
	x.mu.Lock()
	j := x.job
	if j == nil {
		x.mu.Unlock()
		return nil
	}
	o := wire.Output{Job: j.Job, Fence: j.Fence, Stream: wire.StreamEvents, Offset: j.Output, Data: []byte(strings.Repeat(" ", 255) + "\n")}
	j.Output += int64(len(o.Data))
	j.Sent = j.Output
	x.mu.Unlock()
	body, err := wire.EncodeOutput(o)
	if err != nil {
		return err
	}
	x.say1.Lock()
	defer x.say1.Unlock()
	return x.conn.WriteMessage(websocket.BinaryMessage, x.seal.Seal(wire.TypeOutput, body))
}
