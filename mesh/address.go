package mesh

import (
	"crypto/sha256"
	"net/netip"
)

// The ports inside the tunnel, one for each service. None of them exists outside.
const (
	PortRaft   = 7301 // the replicated log
	PortPeer   = 7302 // HTTP between nodes
	PortCopies = 7303 // output and artifacts
	PortGossip = 7304 // who is there; streams and packets
	PortJoin   = 7305 // the only one that a guest reaches
	PortRunner = 7306 // people and runners whose link goes through the tunnel
)

// Class says what a peer may do.
type Class uint8

const (
	ClassNode   Class = iota // a member of the cluster: every port
	ClassGuest               // holds a ticket: PortJoin only
	ClassRunner              // a runner through the mesh: what ListenRunners opened
)

// String is the lower-case word for logs.
func (c Class) String() string {
	return [...]string{"node", "guest", "runner"}[min(c, ClassRunner)]
}

// subnetKey is where the addresses live that packets carry while they are inside
// the tunnel: one for each key, never seen by a connection.
const subnetKey = 3

// Addr is the address of a node inside the tunnel. It depends on nothing but the
// two ids, so every node computes the same one for every other.
func Addr(cluster, node string) netip.Addr {
	return address(cluster, uint16(ClassNode), []byte(node))
}

// GuestAddr is the address of a joiner.
func GuestAddr(cluster string, key PublicKey) netip.Addr {
	return address(cluster, uint16(ClassGuest), key[:])
}

// RunnerAddr is the address of a runner whose link goes through the tunnel.
func RunnerAddr(cluster, runner string) netip.Addr {
	return address(cluster, uint16(ClassRunner), []byte(runner))
}

// keyAddr is what WireGuard's allowed_ip of a key is.
func keyAddr(cluster string, key PublicKey) netip.Addr { return address(cluster, subnetKey, key[:]) }

// address is fd, 40 bits of the cluster's hash, the subnet, 64 bits of the name's.
func address(cluster string, subnet uint16, name []byte) netip.Addr {
	c, n := sha256.Sum256([]byte(cluster)), sha256.Sum256(name)
	var a [16]byte
	a[0] = 0xfd
	copy(a[1:6], c[:])
	a[6], a[7] = byte(subnet>>8), byte(subnet)
	copy(a[8:], n[:])
	return netip.AddrFrom16(a)
}
