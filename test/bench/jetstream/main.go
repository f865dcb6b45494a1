// Command jetstream measures the whole task on a NATS JetStream server, as the figure
// that the hub's is held against: every worker publishes a task, pulls one, and
// acknowledges it with an acknowledgement of its own. The stream has one replica on
// file storage, and every write is synced before it is answered. Each line on standard
// input is one round, answered by a line with the tasks a second; between rounds the
// workers rest.
//
// It is a module of its own, so that Tugline itself depends on none of it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
	flag.Parse()
	if err := run(*dir, *workers, *size, *span); err != nil {
		fmt.Fprintln(os.Stderr, "jetstream:", err)
		os.Exit(1)
	}
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
func run(dir string, workers, size int, span time.Duration) error {
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, SyncAlways: true, DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the server does not get ready")
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "tasks", Subjects: []string{"tasks"}, Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Replicas: 1,
	}); err != nil {
		return err
	}
	cons, err := js.CreateConsumer(ctx, "tasks", jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * workers, MaxWaiting: 4 * workers,
	})
	if err != nil {
		return err
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
