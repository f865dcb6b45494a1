package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"tugline.dev/tugline/consensus"
	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/hub/state"
)

// Config says how to run a hub node.
type Config struct {
	Dir       string // data directory, made with mode 0700 where missing
	Listen    string // host:port for people and runners; port 0 takes a free one
	Bootstrap bool   // make a new cluster of one node if Dir holds none
	Version   string // of this binary, as shown

	// Program is this program's file, which machines that are to become runners get from
	// the node; "": they get none. Programs is a directory with those for other platforms,
	// as tugline-OS-ARCH.
	Program, Programs string

	// MeshListen is the UDP host:port of the tunnel between the hub nodes. Without it
	// the node is alone, and none can join.
	MeshListen string
	// MeshAdvertise is where other nodes find it, HOST:PORT each. Default: MeshListen,
	// or the addresses of this machine.
	MeshAdvertise []string
	// MeshPeers are addresses at which other nodes may be found too, HOST:PORT each:
	// for when all of them have moved at once.
	MeshPeers []string
	// Ticket joins the cluster of `tugline hub ticket --role hub` if Dir holds no node.
	Ticket string
	// Network takes the place of the mesh in tests.
	Network Network

	// TLSCert and TLSKey are the operator's own certificate. Without them an
	// address that is not loopback is served with a certificate of the cluster's
	// own CA, which tickets pin.
	TLSCert, TLSKey string
	// PlainHTTP serves without TLS: on loopback, or behind a trusted proxy that
	// ends it.
	PlainHTTP bool
	// PublicURL is where runners and people reach the hub, when not at Listen.
	PublicURL string
	// TrustedProxies may set X-Forwarded-For.
	TrustedProxies []netip.Prefix

	// AcceptClock says that the machine's clock, as it stands at the start, is right
	// although it is far from where it should be by the hub's last sign of life.
	AcceptClock bool

	// What takes the place of the machine in tests, beside Network: Listener of the
	// TCP port at Listen, Wall of the clock on the wall, and Log may change how the log
	// is kept, Pilot when votes are given. Inspect is given what lies behind the node's interfaces once it is open.
	// Scrub is the pause between looks at all that is stored, by default that of replica.
	// Generation is the newest of commands that the node says it can read, by default
	// the newest that it can.
	Listener   net.Listener
	Wall       func() time.Time
	Log        func(*consensus.Config)
	Pilot      func(*consensus.Pilot)
	Inspect    func(Insides)
	Generation uint16
	Scrub      time.Duration

	// Stable is how long a node that joined has kept up before it is given a vote.
	// Default 10 s.
	Stable time.Duration

	// uptime replaces the machine's own; for tests.
	uptime func() (boot string, up time.Duration)

	// MinFree is what is kept free on the disk for the log: below it no new work,
	// output or artifact is taken. Default 64 MiB.
	MinFree int64

	Retention Retention
	Logger    *slog.Logger // default: discard
}

// Insides are parts of a node, for tests that look at what it holds.
type Insides struct {
	View    func() state.View
	Status  func() consensus.Status
	Leading func() bool // people's and runners' requests are taken as by the leader
	Spool   *spool.Store
	Blobs   *blob.Store
}

// Retention bounds what is kept.
type Retention struct {
	Jobs        time.Duration // age of ended job records; default 90 days
	MaxJobs     int           // ended job records at most; default 200,000
	Output      time.Duration // age of sealed output and artifacts; default 30 days
	OutputBytes int64         // bytes of output and artifacts, oldest sealed go first; default 50 GiB
	Audit       time.Duration // default 1 year
}

const day = 24 * time.Hour

// Check says what is wrong with the configuration, the operator's certificate
// included. It writes nothing.
func (c Config) Check() error {
	if err := c.complete(); err != nil || c.TLSCert == "" {
		return err
	}
	_, err := loadPair(c.TLSCert, c.TLSKey)
	return err
}

func (c *Config) complete() error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	orDefault(&c.MinFree, 64<<20)
	orDefault(&c.Generation, state.Newest())
	orDefault(&c.Retention.Jobs, 90*day)
	orDefault(&c.Retention.MaxJobs, 200_000)
	orDefault(&c.Retention.Output, 30*day)
	orDefault(&c.Retention.OutputBytes, 50<<30)
	orDefault(&c.Retention.Audit, 365*day)
	if c.uptime == nil {
		c.uptime = uptime
	}
	if c.Dir == "" {
		return errors.New("hub needs a data directory: give --data-dir")
	}
	if err := hasPort("tcp", c.Listen); err != nil {
		return fmt.Errorf("listen address %w", err)
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together: give both")
	}
	if c.PlainHTTP && c.TLSCert != "" {
		return errors.New("--plain-http and --tls-cert exclude each other")
	}
	if c.PlainHTTP && !loopback(host) && len(c.TrustedProxies) == 0 {
		return fmt.Errorf("%s is not loopback, and credentials must not cross a network in the clear: leave out --plain-http, or name the proxy that ends TLS with --trusted-proxy", c.Listen)
	}
	if c.Ticket != "" && c.Bootstrap {
		return errors.New("--bootstrap begins a cluster and --ticket joins one: give one of them")
	}
	if c.Ticket != "" && c.MeshListen == "" {
		return errors.New("--ticket needs --mesh-listen, the UDP address of the tunnel to the other hub nodes, such as --mesh-listen :7441")
	}
	if c.MeshListen != "" {
		if err := hasPort("udp", c.MeshListen); err != nil {
			return fmt.Errorf("--mesh-listen %w; give one such as :7441", err)
		}
	}
	for flag, addresses := range map[string][]string{"--mesh-advertise": c.MeshAdvertise, "--mesh-peer": c.MeshPeers} {
		for _, a := range addresses {
			if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
				return fmt.Errorf("%s %q is not HOST:PORT, such as hub1.example.com:7441", flag, a)
			}
		}
	}
	if len(c.MeshAdvertise) > 0 && c.MeshListen == "" {
		return errors.New("--mesh-advertise needs --mesh-listen")
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
			return fmt.Errorf("--public-url %q is not of the form https://HOST[:PORT]", c.PublicURL)
		}
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			return fmt.Errorf("--public-url %s would have credentials cross a network in the clear: give the https URL of the proxy that ends TLS", c.PublicURL)
		}
	}
	return nil
}

// plain says whether the node serves without TLS of its own.
func (c *Config) plain() bool {
	host, _, _ := net.SplitHostPort(c.Listen)
	return c.PlainHTTP || c.TLSCert == "" && loopback(host)
}

// inTheClear says whether a network lies between the node's plain port and those
// who use it; then only the trusted proxies may.
func (c *Config) inTheClear() bool {
	host, _, _ := net.SplitHostPort(c.Listen)
	return c.PlainHTTP && !loopback(host)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
