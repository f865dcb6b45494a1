// Command etcd measures puts on three nodes of etcd, as a figure that the hub's log is
// held against. The nodes live in this process, talk over loopback, and keep their files
// below one directory; the writers are clients inside the process of the node that leads.
// Each line on standard input is one round of that many writers, answered by a line of
// JSON with what the round took and what each put took.
//
// It is a module of its own, so that Tugline itself depends on none of it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

const nodes = 3

func main() {
	dir := flag.String("dir", "", "directory of the nodes' files, on the disk to be measured")
	size := flag.Int("size", 300, "bytes of a value")
	span := flag.Duration("for", time.Second, "how long one round measures")
	flag.Parse()
	if err := run(*dir, *size, *span); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(dir string, size int, span time.Duration) error {
	all, err := start(dir)
	for _, e := range all {
		defer e.Close()
	}
	if err != nil {
		return err
	}
	value := strings.Repeat("x", size)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		writers, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		c, err := leader(all)
		if err != nil {
			return err
		}
		a, err := round(c, writers, value, span)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// start brings the nodes up and waits until they are ready.
func start(dir string) (all []*embed.Etcd, err error) {
	var peers []url.URL
	var list []string
	for i := range nodes {
		u, err := free()
		if err != nil {
			return nil, err
		}
		peers, list = append(peers, u), append(list, fmt.Sprintf("n%d=%s", i, u.String()))
	}
	for i := range nodes {
		client, err := free()
		if err != nil {
			return all, err
		}
		c := embed.NewConfig()
		c.Name, c.Dir, c.LogLevel = fmt.Sprint("n", i), filepath.Join(dir, fmt.Sprint(i)), "panic"
		c.ListenPeerUrls, c.AdvertisePeerUrls = peers[i:i+1], peers[i:i+1]
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.InitialCluster, c.ClusterState = strings.Join(list, ","), embed.ClusterStateFlagNew
		e, err := embed.StartEtcd(c)
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	for _, e := range all {
		select {
		case <-e.Server.ReadyNotify():
		case <-time.After(30 * time.Second):
			return all, errors.New("the nodes do not get ready")
		}
	}
	return all, nil
}

// free gives an address of loopback that nobody uses.
func free() (url.URL, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}, nil
}

// leader gives a client inside the node that leads.
func leader(all []*embed.Etcd) (*clientv3.Client, error) {
	for range 300 {
		for _, e := range all {
			if e.Server.Leader() == e.Server.MemberID() {
				return v3client.New(e.Server), nil
			}
		}
		<-time.After(100 * time.Millisecond)
	}
	return nil, errors.New("no node leads")
}

// answer is what came of a round.
type answer struct {
	Passed time.Duration
	CPU    time.Duration // of all nodes
	Took   []float64     // each put, in milliseconds
}

// round has the writers put for a time.
func round(c *clientv3.Client, writers int, value string, span time.Duration) (a answer, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	begin, before := time.Now(), used()
	for w := range writers {
		wg.Go(func() {
			var mine []float64
			var failed error
			for n := 0; time.Since(begin) < span && failed == nil; n++ {
				at := time.Now()
				_, failed = c.Put(context.Background(), fmt.Sprintf("%d/%d", w, n), value)
				mine = append(mine, time.Since(at).Seconds()*1000)
			}
			mu.Lock()
			defer mu.Unlock()
			a.Took, err = append(a.Took, mine...), errors.Join(err, failed)
		})
	}
	wg.Wait()
	a.Passed, a.CPU = time.Since(begin), used()-before
	return a, err
}

func used() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
