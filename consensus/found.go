package consensus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// Variables of this package, beside raft's own.
var (
	keyNode = []byte("tugline.node") // id of the node that lives here
	keyJoin = []byte("tugline.join") // it was made to wait for a group
)

// found makes an empty store that of a new node, and leaves any other as it is.
func (n *Node) found(rc *raft.Config) error {
	err := n.foundIn(rc)
	if err != nil {
		return n.opening(err)
	}
	return nil
}

func (n *Node) foundIn(rc *raft.Config) error {
	owner, err := n.variable(keyNode)
	if err != nil {
		return err
	}
	if owner != "" && owner != n.cfg.NodeID {
		return fmt.Errorf("as node %q: the directory belongs to [%q]; start it under that id", n.cfg.NodeID, owner)
	}
	waits, err := n.variable(keyJoin)
	if err != nil {
		return err
	}
	n.joining.Store(waits != "")
	has, err := raft.HasExistingState(n.store, n.store, n.snaps)
	if err != nil || has {
		return err
	}
	switch {
	case waits != "" && n.cfg.Bootstrap:
		return errors.New("the node in it waits to be added to a group: bootstrap in an empty directory")
	case waits != "":
		return nil
	case n.cfg.Join:
		n.log.Info("waiting to be added to a group")
		n.joining.Store(true)
		return errors.Join(n.store.Set(keyNode, []byte(n.cfg.NodeID)), n.store.Set(keyJoin, []byte("1")))
	case !n.cfg.Bootstrap:
		return ErrEmpty
	}
	voters := n.cfg.Voters
	if len(voters) == 0 {
		voters = []string{n.cfg.NodeID}
	}
	var first raft.Configuration
	for _, id := range voters {
		first.Servers = append(first.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	if err := n.store.Set(keyNode, []byte(n.cfg.NodeID)); err != nil {
		return err
	}
	if err := raft.BootstrapCluster(rc, n.store, n.store, n.snaps, n.trans, first); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	n.log.Info("bootstrapped", "voters", len(voters))
	return nil
}

// belongs says whether the members on disk can be those of this node, and notes its id
// where that was not done yet.
func (n *Node) belongs(all []raft.Server) error {
	self := raft.ServerID(n.cfg.NodeID)
	member := slices.ContainsFunc(all, func(s raft.Server) bool { return s.ID == self })
	if n.cfg.Transport == nil && (!member || len(all) > 1) {
		return fmt.Errorf("as node %q: the directory belongs to %s; start it under that id, or give it a transport", self, names(all))
	}
	owner, err := n.variable(keyNode)
	switch {
	case err != nil || owner != "":
		return err
	case !member:
		return fmt.Errorf("as node %q: the directory belongs to one of %s; start it under that id", self, names(all))
	}
	return n.store.Set(keyNode, []byte(self))
}

func names(all []raft.Server) string {
	out := make([]string, len(all))
	for i, m := range all {
		out[i] = string(m.ID)
	}
	return fmt.Sprintf("%q", out)
}

// variable reads one of this package's variables, "" where it was never set.
func (n *Node) variable(key []byte) (string, error) {
	v, err := n.store.Get(key)
	if err != nil && err.Error() != errNotFound.Error() {
		return "", fmt.Errorf("read %s: %w", key, err)
	}
	return string(v), nil
}
