//go:build linux

package fault

import (
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// lan is a switch and the machines on it, each a network namespace.
type lan struct {
	t        *testing.T
	name     string // of the namespace of the switch
	machines []*machine
}

// machine is a network namespace with one interface, eth0, and one address.
type machine struct {
	lan   *lan
	name  string // short
	space string // of the namespace
	addr  string
}

var lans atomic.Int64

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t: t, name: fmt.Sprintf("%s%d", spaces, lans.Add(1))}
	t.Cleanup(func() {
		for _, m := range l.machines {
			m.remove()
		}
		exec.Command("ip", "netns", "delete", l.name).Run()
	})
	l.ip("netns", "add", l.name)
	l.in(l.name, "link", "add", "br0", "type", "bridge")
	l.in(l.name, "link", "set", "br0", "up")
	return l
}

func (l *lan) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (l *lan) in(space string, args ...string) {
	l.t.Helper()
	l.ip(append([]string{"-n", space}, args...)...)
}

// machine puts one more machine on the switch.
func (l *lan) machine(name, addr string) *machine {
	l.t.Helper()
	m := &machine{lan: l, name: name, space: l.name + "-" + name, addr: addr}
	l.machines = append(l.machines, m)
	l.ip("netns", "add", m.space)
	l.in(l.name, "link", "add", "to-"+name, "type", "veth", "peer", "name", "eth0", "netns", m.space)
	l.in(l.name, "link", "set", "to-"+name, "master", "br0", "up")
	l.in(m.space, "address", "add", addr+"/24", "dev", "eth0")
	l.in(m.space, "link", "set", "eth0", "up")
	l.in(m.space, "link", "set", "lo", "up")
	return m
}

func (m *machine) remove() { exec.Command("ip", "netns", "delete", m.space).Run() }

// unplug takes the machine off the network, and plug brings it back.
func (m *machine) unplug() {
	m.lan.t.Helper()
	m.lan.in(m.lan.name, "link", "set", "to-"+m.name, "down")
}

func (m *machine) plug() {
	m.lan.t.Helper()
	m.lan.in(m.lan.name, "link", "set", "to-"+m.name, "up")
}

// deafTo loses all that the other machine sends to this one, and nothing that this one
// sends: the other has a hardware address for it that nobody has.
func (m *machine) deafTo(other *machine) {
	m.lan.t.Helper()
	m.lan.in(other.space, "neighbour", "replace", m.addr, "lladdr", "02:00:00:00:00:fe", "nud", "permanent", "dev", "eth0")
}

// hears ends what deafTo began.
func (m *machine) hears(other *machine) {
	m.lan.t.Helper()
	m.lan.in(other.space, "neighbour", "delete", m.addr, "dev", "eth0")
}

// renumber gives the machine another address.
func (m *machine) renumber(addr string) {
	m.lan.t.Helper()
	m.lan.in(m.space, "address", "flush", "dev", "eth0")
	m.lan.in(m.space, "address", "add", addr+"/24", "dev", "eth0")
	m.addr = addr
}

// command is a command that runs on the machine, in the test's own file system.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + m.space, name}, args...)...)
}
