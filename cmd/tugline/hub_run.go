package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

func (a *app) hubRunCommand() *cobra.Command {
	var cfg hub.Config
	var proxies []string
	var level string
	c := &cobra.Command{
		Use: "run", Short: "Run a hub on this machine", Args: cobra.NoArgs,
		Long: `Run a hub on this machine. With --bootstrap, the first time, it makes a new cluster of one
node, writes the operator token into the data directory, and prints how runners join. A
loopback address is served plainly; any other gets TLS: with your certificate, or with one
of the cluster's own CA (ca.pem in the data directory), which tickets pin. The flags are kept in
the data directory: a restart needs only --data-dir, and a flag that is given replaces the kept one.

With --mesh-listen other machines can join it, by the ticket of ` + "`tugline hub ticket --role hub`" + `: the
nodes then keep one log, and any one of three may be lost. Give the ticket in TUGLINE_TICKET or on
standard input. One UDP port is all that hub nodes need between them.

Exit code 78 means that a newer version wrote its data and must run it, or that the node was removed
from its cluster.`,
		Example: `  tugline hub run --data-dir /var/lib/tugline --listen 0.0.0.0:7440 --bootstrap
  tugline hub run --data-dir /var/lib/tugline --listen 0.0.0.0:7440 --mesh-listen :7441 --bootstrap
  TUGLINE_TICKET=tughub1_… tugline hub run --data-dir /var/lib/tugline --listen 0.0.0.0:7440 --mesh-listen :7441
  tugline hub run --data-dir /var/lib/tugline --listen 127.0.0.1:7440 --plain-http \
      --public-url https://hub.example.com --trusted-proxy 127.0.0.1/32`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Dir == "" {
				return usage("`tugline hub run` needs --data-dir, and the first time --listen, such as --data-dir /var/lib/tugline --listen 127.0.0.1:7440")
			}
			if err := recallFlags(cmd.Flags(), cfg.Dir); err != nil {
				return err
			}
			if cfg.Listen == "" {
				return usage("`tugline hub run` needs --listen the first time, such as --listen 127.0.0.1:7440")
			}
			switch cfg.Ticket {
			case "":
				cfg.Ticket = a.env("TUGLINE_TICKET")
			case "-":
				var err error
				if cfg.Ticket, err = a.readSecret("join ticket"); err != nil {
					return err
				}
			}
			for _, p := range proxies {
				n, err := prefix(p)
				if err != nil {
					return usage("--trusted-proxy %q is no address range such as 10.0.0.0/8", p)
				}
				cfg.TrustedProxies = append(cfg.TrustedProxies, n)
			}
			if fresh, err := emptyDir(cfg.Dir); err != nil {
				return fail(exitUsage, "cannot look into %s: %v", cfg.Dir, err)
			} else if fresh && !cfg.Bootstrap && cfg.Ticket == "" {
				return usage("there is no hub in %s. Where this machine was a node of a cluster and has lost its directory: run `tugline hub ticket --role hub --replace NODE` at another node, and join by that ticket with --ticket. Else add --bootstrap to make a new cluster there, or --ticket to join one, or name the directory of one", cfg.Dir)
			}
			var err error
			if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
				return err
			}
			if err := cfg.Check(); err != nil {
				return usage("%s", withoutCodes(err.Error(), err))
			}
			file, err := openLog(filepath.Join(cfg.Dir, "logs", "hub.log"))
			if err != nil {
				return fail(exitFailed, "cannot write the hub's log: %v", err)
			}
			defer file.Close()
			if cfg.Logger, err = logger(level, io.MultiWriter(a.err, file)); err != nil {
				return err
			}
			return a.runHub(cmd.Context(), cfg, func() error { return keepFlags(cmd.Flags(), cfg.Dir) })
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Dir, "data-dir", "", "data `DIR` (required)")
	f.StringVar(&cfg.Listen, "listen", "", "`HOST:PORT` for people and runners (required the first time)")
	f.StringVar(&cfg.MeshListen, "mesh-listen", "", "UDP `HOST:PORT` of the tunnel between hub nodes, such as :7441")
	f.StringArrayVar(&cfg.MeshAdvertise, "mesh-advertise", nil, "`HOST:PORT` where other nodes find the tunnel (repeatable; default this machine's addresses)")
	f.StringArrayVar(&cfg.MeshPeers, "mesh-peer", nil, "`HOST:PORT` of another node's tunnel, where all have moved at once (repeatable)")
	f.StringVar(&cfg.Ticket, "ticket", "", "`TICKET` that joins a cluster, - reads standard input; default TUGLINE_TICKET")
	f.BoolVar(&cfg.Bootstrap, "bootstrap", false, "make a new cluster of one node if the directory holds none")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "`FILE` with its certificate, PEM")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "`FILE` with the key of that certificate, PEM")
	f.BoolVar(&cfg.PlainHTTP, "plain-http", false, "no TLS: on loopback, or behind a proxy that ends it")
	f.StringVar(&cfg.PublicURL, "public-url", "", "`URL` where people and runners reach it, when not at --listen")
	f.StringArrayVar(&proxies, "trusted-proxy", nil, "address range `CIDR` of a proxy whose X-Forwarded-For counts (repeatable)")
	f.BoolVar(&cfg.AcceptClock, "accept-clock", false, "believe this machine's clock although it is far from the recorded time")
	f.StringVar(&cfg.Programs, "programs", "", "`DIR` with tugline-OS-ARCH, its program for runners on other platforms")
	retention(f, &cfg)
	f.StringVar(&level, "log-level", "info", "`LEVEL` of the log: debug, info, warn, error")
	return local(c)
}

func prefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(s)
}

// emptyDir says whether no hub has lived in a directory; its logs do not count.
func emptyDir(dir string) (bool, error) {
	es, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return true, nil
	}
	for _, e := range es {
		if e.Name() != "logs" && e.Name() != "hub.lock" {
			return false, err
		}
	}
	return true, err
}

// runHub runs a node until it is told to stop; opened is called once its data are
// open.
func (a *app) runHub(ctx context.Context, cfg hub.Config, opened func() error) error {
	_, err := os.Stat(filepath.Join(cfg.Dir, "operator.token"))
	fresh := errors.Is(err, fs.ErrNotExist)
	cfg.Version = thisBuild().Version
	if cfg.Program, err = os.Executable(); err != nil {
		return fail(exitFailed, "cannot find this program: %v", err)
	}
	if err := beset(&cfg); err != nil {
		return err
	}
	h, err := hub.New(cfg)
	if err != nil {
		return notStarted(err)
	}
	if err := opened(); err != nil {
		cfg.Logger.Warn(unkept, "err", err)
	}
	ctx, stop := a.untilStopped(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	end := make(chan error, 1)
	go func() { end <- h.Run(ctx) }()
	select {
	case err = <-end:
		cancel()
		return hubFailed(err)
	case <-h.Ready():
	}
	if err := a.welcome(ctx, h, cfg, fresh); err != nil {
		a.say("%s", sentence(err))
	}
	err = <-end
	cancel()
	return hubFailed(err)
}

// notStarted gives the end of a hub that was not even opened: what is not the
// machine's doing is how it was called.
func notStarted(err error) error {
	var op *net.OpError
	var path *fs.PathError
	var fatal *consensus.FatalError
	var newer *hub.NewerError
	if errors.As(err, &newer) || errors.As(err, &op) || errors.As(err, &path) || errors.As(err, &fatal) || errors.Is(err, state.ErrUnknownEntry) || errors.Is(err, hub.ErrRemoved) || errors.Is(err, hub.ErrReplace) || errors.Is(err, fleet.DiskFull) {
		return hubFailed(err)
	}
	return &failure{code: exitUsage, text: err.Error(), cause: err}
}

// welcome tells how to use the hub.
func (a *app) welcome(ctx context.Context, h *hub.Hub, cfg hub.Config, fresh bool) error {
	ownCA := strings.HasPrefix(h.URL(), "https:") && cfg.TLSCert == "" && !cfg.PlainHTTP
	ca := ""
	if ownCA {
		ca = filepath.Join(cfg.Dir, caName)
	}
	found := a.foundHere(h.URL(), cfg.Dir, h.TokenFile(), ca, "tugline hub run --data-dir "+quoted(cfg.Dir))
	fmt.Fprintf(a.out, "hub ready at %s\n", h.URL())
	if everywhere(cfg.Listen) && cfg.PublicURL == "" {
		fmt.Fprintf(a.out, "Tickets name %s: where other machines reach it under another name, start it with --public-url https://NAME:PORT.\n", h.URL())
	}
	if h.Joined() {
		fmt.Fprintln(a.out, "It is a node of a cluster; `tugline hub members` lists them.")
		return nil
	}
	if !fresh {
		return nil
	}
	if found {
		fmt.Fprint(a.out, "\nYour commands on this machine find it by themselves. Elsewhere, or beside another hub:\n")
	} else {
		fmt.Fprint(a.out, "\nUse it from here:\n")
	}
	fmt.Fprintf(a.out, "  export TUGLINE_HUB=%s\n  export TUGLINE_TOKEN=$(cat %s)\n", h.URL(), quoted(h.TokenFile()))
	if ownCA {
		fmt.Fprintf(a.out, "  export TUGLINE_CA_FILE=%s\n", quoted(ca))
	}
	const ttl = 15 * time.Minute
	ticket, command, err := h.Ticket(ctx, ttl, nil)
	if err != nil {
		return fmt.Errorf("the hub runs, but no join ticket could be made: %w; `tugline hub ticket` makes one", err)
	}
	fmt.Fprintf(a.out, "\nOn a machine that is to join as a runner, within %s, once; as a service, with nothing there yet:\n  %s\nor in the foreground, where tugline is installed:\n  %s\n", span(ttl), h.InstallLine(ticket), command)
	return nil
}

// everywhere says whether an address is every one of this machine, so that none of
// them is the hub's name.
func everywhere(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	addr, bad := netip.ParseAddr(host)
	return err == nil && (host == "" || bad == nil && addr.IsUnspecified())
}

// quoted writes a path as a shell reads it.
func quoted(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(strings.ContainsRune("/.,:=@%+", r) || r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
