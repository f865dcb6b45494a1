// Command jetstream measures the whole task on a NATS JetStream server, as the figure
// that the hub's is held against: every worker publishes a task, pulls one, and
// acknowledges it with an acknowledgement of its own. The stream is on file storage, with
// one replica or with three on as many servers, and every write is synced before it is
// answered. The workers are in the process of the server that leads stream and consumer;
// the other servers are processes of their own. Each line on standard input is one round,
// answered by a line with the tasks a second; between rounds the workers rest.
//
// It is a module of its own, so that Tugline itself depends on none of it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	dir := flag.String("dir", "", "directory of the server's files, on the disk to be measured")
	workers := flag.Int("workers", 256, "tasks at a time")
	size := flag.Int("size", 300, "bytes of a task")
	span := flag.Duration("for", 2*time.Second, "how long one round measures")
	replicas := flag.Int("replicas", 1, "servers that hold the stream")
	beside := flag.String("beside", "", "routes of all servers: be another one beside the first")
	place := flag.Int("place", 0, "of this server among them")
	flag.Parse()
	err := error(nil)
	if *beside != "" {
		err = stand(*dir, strings.Split(*beside, ","), *place)
	} else {
		err = run(*dir, *workers, *size, *replicas, *span)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jetstream:", err)
		os.Exit(1)
	}
}

// options are those of a server that syncs every write.
func options(name, dir string) *server.Options {
	return &server.Options{ServerName: name, JetStream: true, StoreDir: dir, SyncAlways: true, DontListen: true, NoSigs: true, NoLog: true}
}

// join makes a server the one of a cluster whose route is at that place among all.
func join(opt *server.Options, routes []string, place int) error {
	for i, r := range routes {
		u, err := url.Parse("nats://" + r)
		if err != nil {
			return err
		}
		if i == place {
			opt.Cluster.Name, opt.Cluster.Host = "bench", u.Hostname()
			if opt.Cluster.Port, err = strconv.Atoi(u.Port()); err != nil {
				return err
			}
		}
		opt.Routes = append(opt.Routes, u)
	}
	opt.Host, opt.Port, opt.DontListen = "127.0.0.1", -1, false // a server takes no others before it listens
	return nil
}

// free gives addresses of loopback that nobody uses.
func free(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // once all are chosen, so that they differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func begin(opt *server.Options) (*server.Server, error) {
	s, err := server.NewServer(opt)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return nil, errors.New("the server does not get ready")
	}
	return s, nil
}

// stand is another server, until standard input ends.
func stand(dir string, routes []string, place int) error {
	name := serverName(place)
	opt := options(name, filepath.Join(dir, name))
	if err := join(opt, routes, place); err != nil {
		return err
	}
	s, err := begin(opt)
	if err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func serverName(place int) string { return fmt.Sprint("s", place+1) }

// company starts the other servers as processes.
func company(dir string, routes []string) (end func(), err error) {
	var all []*exec.Cmd
	var ends []io.Closer
	end = func() {
		for i, c := range all {
			ends[i].Close()
			c.Wait()
		}
	}
	for i := 1; i < len(routes); i++ {
		c := exec.Command(os.Args[0], "-dir", dir, "-place", strconv.Itoa(i), "-beside", strings.Join(routes, ","))
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return end, err
		}
		all, ends = append(all, c), append(ends, in)
	}
	return end, nil
}

// lead has this process's server lead stream and consumer.
func lead(ctx context.Context, js jetstream.JetStream, cons jetstream.Consumer, nc *nats.Conn) error {
	body := []byte(`{"placement":{"preferred":"s1"}}`)
	for range 300 {
		st, err := js.Stream(ctx, "tasks")
		if err != nil {
			return err
		}
		info, err := st.Info(ctx)
		if err != nil {
			return err
		}
		of, err := cons.Info(ctx)
		if err != nil {
			return err
		}
		switch {
		case info.Cluster != nil && info.Cluster.Leader != "" && info.Cluster.Leader != "s1":
			nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.tasks", body, time.Second)
		case of.Cluster != nil && of.Cluster.Leader != "" && of.Cluster.Leader != "s1":
			nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.tasks.workers", body, time.Second)
		case info.Cluster != nil && of.Cluster != nil && info.Cluster.Leader == "s1" && of.Cluster.Leader == "s1":
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return errors.New("the first server does not get to lead")
}

// gate lets workers through while it is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func (g *gate) pass() {
	g.mu.Lock()
	c := g.open
	g.mu.Unlock()
	<-c
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// run ends with its standard input; the workers, some of which may wait for a task
// then, end with the process.
func run(dir string, workers, size, replicas int, span time.Duration) error {
	opt := options(serverName(0), filepath.Join(dir, serverName(0)))
	var routes []string
	if replicas > 1 {
		var err error
		if routes, err = free(replicas); err == nil {
			err = join(opt, routes, 0)
		}
		if err != nil {
			return err
		}
	}
	s, err := begin(opt)
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if replicas > 1 {
		end, err := company(dir, routes)
		defer end()
		if err != nil {
			return err
		}
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx := context.Background()
	tasks := jetstream.StreamConfig{
		Name: "tasks", Subjects: []string{"tasks"}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Replicas: replicas,
	}
	_, err = js.CreateStream(ctx, tasks)
	for tries := 0; err != nil && tries < 30; tries++ { // the servers may not be one cluster yet
		<-time.After(time.Second)
		_, err = js.CreateStream(ctx, tasks)
	}
	if err != nil {
		return err
	}
	cons, err := js.CreateConsumer(ctx, "tasks", jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * workers, MaxWaiting: 4 * workers,
	})
	if err != nil {
		return err
	}
	if replicas > 1 {
		if err := lead(ctx, js, cons, nc); err != nil {
			return err
		}
	}
	body := make([]byte, size)
	var done atomic.Int64
	failed := make(chan error, workers)
	g := new(gate)
	g.shut()
	for range workers {
		pull, err := cons.Messages(jetstream.PullMaxMessages(1))
		if err != nil {
			return err
		}
		go func() {
			for {
				g.pass()
				if err := task(ctx, js, pull, body); err != nil {
					failed <- err
					return
				}
				done.Add(1)
			}
		}()
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		begin, before := time.Now(), done.Load()
		g.unlock()
		select {
		case err := <-failed:
			return err
		case <-time.After(span):
		}
		g.shut()
		fmt.Println(float64(done.Load()-before) / time.Since(begin).Seconds())
	}
	return nil
}

func task(ctx context.Context, js jetstream.JetStream, pull jetstream.MessagesContext, body []byte) error {
	if _, err := js.Publish(ctx, "tasks", body); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	m, err := pull.Next()
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if err := m.DoubleAck(ctx); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}
