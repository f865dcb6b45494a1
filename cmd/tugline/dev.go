package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/durable"
)

// devRules are the owner's rules of a runner in development: repositories of this
// machine may be named by their path.
const devRules = "# Made by `tugline dev`; yours to change. `tugline runner config example` explains every key.\nallow_file: true\n"

// dev is a hub and a runner in one process.
type dev struct {
	a           *app
	dir         string
	listen      string // "" takes the port of the last time, if it is free
	slots       int
	level       string
	acceptClock bool
}

func (a *app) devCommand() *cobra.Command {
	d := dev{a: a}
	c := &cobra.Command{
		Use: "dev", Short: "Try it here: a hub and a runner in one process", GroupID: groupWork, Args: cobra.NoArgs,
		Long: `Run a hub and a runner in one process, with all their data in one directory. Commands on
this machine find it by themselves when the default directory is used and no other hub was
named. Ctrl-C stops it; jobs that run go on and are found again at the next start.`,
		Example: "  tugline dev\n  tugline dev --data-dir /tmp/try --listen 127.0.0.1:7440 --slots 4",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if d.slots, err = slotsAsked(cmd.Flags(), d.slots); err != nil {
				return err
			}
			if d.dir == "" {
				d.dir = a.devDir()
			}
			if d.dir, err = filepath.Abs(d.dir); err != nil {
				return err
			}
			return d.run(cmd.Context())
		},
	}
	c.Flags().StringVar(&d.dir, "data-dir", "", "`DIR` where everything is kept (default ~/.local/share/tugline/dev)")
	c.Flags().StringVar(&d.listen, "listen", "", "`HOST:PORT` of the hub (default 127.0.0.1 and a free port, the next time the same)")
	c.Flags().IntVar(&d.slots, "slots", 0, "jobs `N` at a time that people ask for, 0 to 16 (default as runner.yaml says, else 1)")
	c.Flags().BoolVar(&d.acceptClock, "accept-clock", false, "believe this machine's clock although it is far from the recorded time")
	c.Flags().StringVar(&d.level, "log-level", "info", "`LEVEL` of the log in the data directory: debug, info, warn, error")
	return local(c)
}

// run starts both and stops them again: the runner first, so that it can still say
// goodbye to its hub.
func (d *dev) run(ctx context.Context) error {
	file, err := openLog(filepath.Join(d.dir, "logs", "dev.log"))
	if err != nil {
		return fail(exitFailed, "cannot write the log: %v", err)
	}
	defer file.Close()
	log, err := logger(d.level, file)
	if err != nil {
		return err
	}
	if d.listen == "" {
		d.listen = d.lastAddress()
	}
	cfg := hub.Config{Dir: d.dir, Listen: d.listen, Bootstrap: true, AcceptClock: d.acceptClock, Version: thisBuild().Version, Logger: log.With("part", "hub")}
	h, err := hub.New(cfg)
	if err != nil {
		return notStarted(err)
	}
	ctx, stop := d.a.untilStopped(ctx)
	defer stop()

	// Each half has an owner here that waits for it. The hub outlives the runner.
	hubCtx, endHub := context.WithCancel(context.WithoutCancel(ctx))
	runCtx, endRunner := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var hubErr, runErr error
	wg.Go(func() {
		defer endRunner()
		hubErr = h.Run(hubCtx)
	})
	wg.Go(func() {
		defer endHub()
		runErr = d.beside(runCtx, h, log)
	})
	wg.Wait()
	endRunner()
	endHub()
	d.a.say("stopped; jobs that still ran go on, and the next `tugline dev` finds them")
	return errors.Join(hubFailed(hubErr), runnerFailed(runErr))
}

// lastAddress gives the address of the last time where it is free, so that what
// people exported still holds.
func (d *dev) lastAddress() string {
	s, err := readSpot(d.dir)
	if err != nil {
		return "127.0.0.1:0"
	}
	u, err := url.Parse(s.Hub)
	if err != nil || net.ParseIP(u.Hostname()) == nil || !net.ParseIP(u.Hostname()).IsLoopback() {
		return "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		return "127.0.0.1:0"
	}
	l.Close()
	return u.Host
}

// beside runs the runner once the hub is ready.
func (d *dev) beside(ctx context.Context, h *hub.Hub, log *slog.Logger) error {
	select {
	case <-h.Ready():
	case <-ctx.Done():
		return nil
	}
	cfg := runner.Config{
		Dir: filepath.Join(d.dir, "runner"), Name: "dev", Slots: d.slots, Version: thisBuild().Version, Logger: log.With("part", "runner"),
		Dial: d.toHub(h),
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	rules := runner.OwnerFile(cfg.Dir)
	if _, err := os.Stat(rules); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Replace(rules, []byte(devRules), 0o600); err != nil {
			return err
		}
	}
	// A runner that has enrolled before does not look at it.
	var err error
	if cfg.Ticket, _, err = h.Ticket(ctx, time.Minute, nil); err != nil {
		return err
	}
	r, err := runner.New(cfg)
	if err != nil {
		return err
	}
	d.welcome(h)
	return r.Run(ctx)
}

// toHub connects to the hub of this process, whatever address the runner remembers:
// the port may have changed since it enrolled.
func (d *dev) toHub(h *hub.Hub) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if u, err := url.Parse(h.URL()); err == nil && u.Port() != "" {
			address = u.Host
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// welcome tells how to use it.
func (d *dev) welcome(h *hub.Hub) {
	w := d.a.out
	fmt.Fprintf(w, "tugline dev is ready at %s (data in %s)\n\n", h.URL(), d.dir)
	ca := ""
	if strings.HasPrefix(h.URL(), "https:") {
		ca = filepath.Join(d.dir, caName)
	}
	again := "tugline dev"
	if d.dir != d.a.devDir() {
		again += " --data-dir " + quoted(d.dir)
	}
	if d.a.foundHere(h.URL(), d.dir, h.TokenFile(), ca, again) {
		fmt.Fprintln(w, "Commands on this machine find it by themselves. Elsewhere, or beside another hub:")
	} else {
		fmt.Fprintln(w, "In another terminal:")
	}
	fmt.Fprintf(w, "  export TUGLINE_HUB=%s\n  export TUGLINE_TOKEN=$(cat %s)\n", h.URL(), quoted(h.TokenFile()))
	if ca != "" {
		fmt.Fprintf(w, "  export TUGLINE_CA_FILE=%s\n", quoted(ca))
	}
	fmt.Fprint(w, `
Then, in a git repository:
  tugline exec --repo . -- make test
  tugline run --repo . --harness codex "fix the failing test"
  tugline job list

Ctrl-C stops it.
`)
}
