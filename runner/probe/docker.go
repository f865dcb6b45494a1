package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"tugline.dev/tugline/shared/fleet"
)

// Docker asks the daemon and, where it answers, has Compose verified unless that was
// done within the given time. It takes at most 2 s, and 3 s more for each of the two
// commands that may be Compose.
func (s *Sampler) Docker(ctx context.Context, within time.Duration) fleet.Docker {
	d := s.daemon(ctx)
	if d.State != fleet.DockerReady {
		s.mu.Lock()
		s.compose.asked = time.Time{} // with the daemon comes what belongs to it
		s.mu.Unlock()
		return s.known(d)
	}
	now := time.Now()
	s.mu.Lock()
	c := s.compose
	s.mu.Unlock()
	if c.version == "" {
		within = min(within, composeAgain)
	}
	if c.asked.IsZero() || now.Sub(c.asked) >= within {
		c = s.verify(ctx, now)
	}
	d.Compose, d.ComposeBy = c.version, c.by
	if c.version == "" {
		d.Detail = c.detail
	}
	return s.known(d)
}

// known adds when daemon and Compose both answered last, and what did.
func (s *Sampler) known(d fleet.Docker) fleet.Docker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.verified.IsZero() {
		d.Verified, d.VerifiedAge = true, max(elapsed(s.verified, time.Now()), 0)
		if d.State == fleet.DockerReady {
			s.server = d.Version
		}
		d.Version = s.server
	}
	return d
}

// elapsed is the larger of what the monotonic and the wall clock say: a machine that
// sleeps stops the first.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// daemon asks the daemon for its version.
func (s *Sampler) daemon(ctx context.Context) fleet.Docker {
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	all, err := ask(bound, &s.looks, "docker settings", "", s.endpoints)
	if err != nil {
		return fleet.Docker{State: fleet.DockerUnknown, Detail: "the settings of docker can't be read: " + detail(err)}
	}
	first := fleet.Docker{State: fleet.DockerAbsent, Detail: "there is no socket of a Docker daemon"}
	for i, e := range all {
		// A daemon that hangs costs its own time, and one that is there besides has its own.
		each, cancel := context.WithTimeout(ctx, probeTime)
		d, err := ask(each, &s.looks, "docker "+e.host, "version", func(ctx context.Context) (fleet.Docker, error) { return e.version(ctx), nil })
		cancel()
		if err != nil {
			d = fleet.Docker{State: fleet.DockerUnknown, Detail: fmt.Sprintf("the daemon at %s does not answer in time", e.host)}
		}
		if d.State == fleet.DockerReady {
			return d
		}
		if i == 0 {
			first = d
		}
	}
	return first
}

// open makes a client of the daemon; the caller closes it.
func (e endpoint) open() (*client.Client, error) {
	opts := []client.Opt{client.WithHost(e.host), client.WithUserAgent("tugline")}
	if e.certs != "" {
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(e.certs, "ca.pem"), filepath.Join(e.certs, "cert.pem"), filepath.Join(e.certs, "key.pem")))
	}
	return client.New(opts...)
}

// version asks one daemon.
func (e endpoint) version(ctx context.Context) fleet.Docker {
	if at := e.socketOf(); at != "" {
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			return fleet.Docker{State: fleet.DockerAbsent, Detail: "there is no socket at " + at}
		}
	} else if strings.HasPrefix(e.host, "ssh:") {
		return fleet.Docker{State: fleet.DockerUnknown, Detail: "a daemon behind ssh is not looked at"}
	}
	cli, err := e.open()
	if err != nil {
		return fleet.Docker{State: fleet.DockerUnknown, Detail: fleet.CutText("the settings of docker are no use: "+err.Error(), fleet.MaxDetail)}
	}
	defer cli.Close()
	if _, err = cli.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err == nil {
		var v client.ServerVersionResult
		if v, err = cli.ServerVersion(ctx, client.ServerVersionOptions{}); err == nil {
			return fleet.Docker{State: fleet.DockerReady, Version: fleet.CutText(v.Version, 64)}
		}
	}
	d := fleet.Docker{State: fleet.DockerDown, Detail: fleet.CutText(fmt.Sprintf("the daemon at %s does not answer: %v", e.host, err), fleet.MaxDetail)}
	var slow net.Error
	if ctx.Err() != nil || errors.As(err, &slow) && slow.Timeout() {
		d = fleet.Docker{State: fleet.DockerUnknown, Detail: fmt.Sprintf("the daemon at %s does not answer in time", e.host)}
	}
	return d
}

// answering gives a client of the first daemon that answers; the caller closes it.
func (s *Sampler) answering(ctx context.Context) (*client.Client, error) {
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	all, err := ask(bound, &s.looks, "docker settings", "", s.endpoints)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		each, cancel := context.WithTimeout(ctx, probeTime)
		d, err := ask(each, &s.looks, "docker "+e.host, "version", func(ctx context.Context) (fleet.Docker, error) { return e.version(ctx), nil })
		cancel()
		if err == nil && d.State == fleet.DockerReady {
			return e.open()
		}
	}
	return nil, fmt.Errorf("docker: no daemon answers: %w", ErrUnknown)
}
