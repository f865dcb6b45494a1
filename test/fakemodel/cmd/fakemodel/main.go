// Command fakemodel runs the scripted model server by hand, until it is
// interrupted or terminated: to try an agent's command line against a scenario.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"tugline.dev/tugline/test/fakemodel"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "loopback `address` to listen on; port 0 takes a free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := fakemodel.Listen(*addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakemodel:", err)
		os.Exit(1)
	}
	defer s.Close()
	for _, name := range fakemodel.Names() {
		sc, _ := fakemodel.Builtin(name)
		fmt.Printf("%-18s %s\n%18s %s\n", name, sc.About, "", s.URL(name, "1"))
	}
	fmt.Printf("key %s; OpenAI clients add /v1; another last path element starts a script anew\n", fakemodel.GoodKey)
	<-ctx.Done()
	for _, c := range s.Complaints() {
		fmt.Fprintln(os.Stderr, "fakemodel:", c)
	}
}
