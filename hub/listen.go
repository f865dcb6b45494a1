package hub

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// mayListen tries the addresses that this node is to listen at, and lets them go again:
// nothing is made, and no ticket is spent, for a node that could not serve.
func (h *Hub) mayListen() error {
	if h.cfg.Listener == nil {
		l, err := net.Listen("tcp", h.cfg.Listen)
		if err != nil {
			return noListening(h.cfg.Listen, "--listen", err)
		}
		l.Close()
	}
	if h.cfg.Network == nil && h.cfg.MeshListen != "" {
		l, err := net.ListenPacket("udp", h.cfg.MeshListen)
		if err != nil {
			return noListening(h.cfg.MeshListen+" for the mesh", "--mesh-listen", err)
		}
		l.Close()
	}
	return nil
}

// noListening says why an address cannot be listened at, and what to do.
func noListening(address, flag string, err error) error {
	next := "name another one with " + flag
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		next = "stop what listens there, or name another one with " + flag
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		next = "this machine has no such address; name one of its own with " + flag
	case errors.Is(err, syscall.EACCES):
		next = "ports below 1024 may need more rights; name another one with " + flag
	}
	return fmt.Errorf("listen on %s: %w: %s", address, err, next)
}

// hasPort says whether an address that is to be listened at has a port that there can be.
func hasPort(network, address string) error {
	_, name, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	if _, err := net.LookupPort(network, name); err != nil {
		return fmt.Errorf("%q has no port from 0 to 65535", address)
	}
	return nil
}
