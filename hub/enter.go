package hub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tugline.dev/tugline/hub/peer"
	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	enterTime  = 2 * time.Minute // for all hubs of a ticket to be tried
	enterEach  = 15 * time.Second
	enterPause = 2 * time.Second
)

// entry is what a machine that joins asks for, and welcome what it is given.
type (
	entry struct {
		Ticket string        `json:"ticket"` // the secret
		Node   fleet.HubNode `json:"node"`
	}
	welcome struct {
		Cluster string           `json:"cluster"`
		Epoch   uint64           `json:"epoch"`
		Index   uint64           `json:"index"` // the newest entry that Nodes accounts for
		Nodes   []*fleet.HubNode `json:"nodes"`
		Secrets []byte           `json:"secrets"` // sealed to the node's key
	}
)

// enter joins the cluster of a ticket, if the directory holds no node yet. What has
// to be the same when it is repeated is on disk before anything is sent; that the
// node has joined is recorded last.
func (h *Hub) enter() error {
	dir := h.cfg.Dir
	if _, err := os.Stat(filepath.Join(dir, nodeName)); err == nil {
		return nil // it has joined before
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for a node in %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "raft")); err == nil {
		return fmt.Errorf("node.json is gone from %s although a node has lived there: put it back from a backup, or empty the directory and join anew", dir)
	}
	t, err := wire.ParseHubTicket(h.cfg.Ticket)
	if err != nil {
		return err
	}
	if err := h.mayListen(); err != nil { // before the ticket is spent on a node that could not serve
		return fmt.Errorf("join cluster %s: %w; the ticket was not used", t.Cluster, err)
	}
	if h.keys, err = loadSelf(dir); err != nil {
		return err
	}
	id, err := joiningAs(dir, t.Cluster)
	if err != nil {
		return err
	}
	h.id = id
	w, err := h.knock(t)
	if err != nil {
		return fmt.Errorf("join cluster %s: %w", t.Cluster, err)
	}
	if w.Cluster != t.Cluster {
		return fmt.Errorf("join cluster %s: another one, %s, answered: %w", t.Cluster, w.Cluster, fleet.ClusterMismatch)
	}
	b, err := h.keys.open(w.Secrets)
	if err != nil {
		return fmt.Errorf("join cluster %s: read its keys: %w", t.Cluster, err)
	}
	if err := importSecrets(dir, b); err != nil {
		return err
	}
	if err := (roster{Version: 1, Epoch: w.Epoch, Index: w.Index, Nodes: w.Nodes}).save(dir); err != nil {
		return err
	}
	h.log.Info("joined", "cluster", t.Cluster, "node", id.Node)
	if err := id.save(filepath.Join(dir, nodeName)); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, joiningName))
}

const joiningName = "joining.json"

// joiningAs gives the identity that this machine asks to join under, the same each
// time it asks.
func joiningAs(dir, cluster string) (identity, error) {
	path := filepath.Join(dir, joiningName)
	var id identity
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &id)
	}
	switch {
	case err == nil && id.Cluster == cluster:
		return id, nil
	case err == nil:
		return id, fmt.Errorf("%s began to join cluster %s, and the ticket is of cluster %s: use a ticket of the former, or an empty directory", dir, id.Cluster, cluster)
	case !errors.Is(err, os.ErrNotExist):
		return id, fmt.Errorf("read %s: %w", path, err)
	}
	id = identity{Version: 1, Cluster: cluster, Node: newID("n-"), Joined: true}
	return id, id.save(path)
}

// knock asks the hubs of a ticket in turn to be taken in.
func (h *Hub) knock(t wire.HubTicket) (welcome, error) {
	seed, err := wire.GuestKey(t.Secret)
	if err != nil {
		return welcome{}, err
	}
	body, err := json.Marshal(entry{Ticket: t.Secret, Node: h.self()})
	if err != nil {
		return welcome{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), enterTime)
	defer cancel()
	var hubs []mesh.Hub
	for _, n := range t.Nodes {
		k, err := meshKey(n.Key)
		if err != nil {
			return welcome{}, err
		}
		hubs = append(hubs, mesh.Hub{ID: n.Node, Keys: []mesh.PublicKey{k}, Endpoints: n.Endpoints})
	}
	dial, end := h.inTests(hubs), func() error { return nil }
	if dial == nil {
		dial, end, err = mesh.JoinDial(mesh.ClientConfig{Cluster: t.Cluster, Key: mesh.KeyFromSeed(seed), Hubs: hubs, Logger: h.log})
	}
	if err != nil {
		return welcome{}, err
	}
	defer end()
	for {
		w, err := ask(ctx, dial, body)
		if err == nil || final(err) {
			return w, err
		}
		h.log.Warn("no hub took this machine in yet; trying on", "err", err)
		pause := time.NewTimer(enterPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return w, fmt.Errorf("no hub of the ticket took it in within %s over UDP, at %s; the last try: %w", enterTime, where(t), err)
		}
	}
}

// inTests reaches the join port of a ticket's hubs over the network that a test gave;
// nil: it gave none.
func (h *Hub) inTests(hubs []mesh.Hub) func(context.Context) (net.Conn, error) {
	if h.cfg.Network == nil {
		return nil
	}
	return func(ctx context.Context) (c net.Conn, err error) {
		err = fleet.Unavailable
		for i := 0; err != nil && i < len(hubs); i++ {
			c, err = h.cfg.Network.Dial(ctx, hubs[i].ID, peer.PortJoin)
		}
		return c, err
	}
}

// where lists the UDP addresses of a ticket's hubs.
func where(t wire.HubTicket) string {
	var out []string
	for _, n := range t.Nodes {
		out = append(out, n.Endpoints...)
	}
	return strings.Join(out, ", ")
}

// ask asks once.
func ask(ctx context.Context, dial func(context.Context) (net.Conn, error), body []byte) (w welcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, enterEach)
	defer cancel()
	b, err := peer.Join(ctx, dial, body)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	return w, err
}

// final says whether asking again would be answered the same way.
func final(err error) bool {
	for _, c := range []fleet.Code{fleet.TicketInvalid, fleet.TicketExpired, fleet.TicketUsed, fleet.Conflict, fleet.NodeRemoved, fleet.NodeUnknown, fleet.BadRequest, fleet.Forbidden, fleet.TooLarge} {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

// admit takes a machine into the cluster, on the leader. The guest reached it by
// the key of its ticket and no other.
func (h *Hub) admit(ctx context.Context, guest string, body []byte) ([]byte, error) {
	var e entry
	if err := wire.Decode(body, &e); err != nil {
		return nil, fmt.Errorf("read the request to join: %v: %w", err, fleet.BadRequest)
	}
	hash := wire.SecretHash(e.Ticket)
	t, ok := h.entries.View().Ticket(hash)
	if !ok || t.Role != fleet.TicketHub || h.mesh != nil && mesh.GuestAddr(h.id.Cluster, mesh.PublicKey(t.Guest)).String() != guest {
		return nil, fmt.Errorf("the cluster does not know this ticket, or it is another's: %w", fleet.TicketInvalid)
	}
	if old, ok := h.entries.View().Node(t.Replace); ok && !old.Removed() {
		if !h.removing.TryLock() {
			return nil, fmt.Errorf("another node is being removed; ask again: %w", fleet.Unavailable)
		}
		defer h.removing.Unlock()
		if err := h.makeWay(ctx, old.ID); err != nil {
			return nil, err
		}
	}
	if err := h.entries.Record(ctx, &state.AdmitNode{Ticket: hash, Node: e.Node, Replaces: t.Replace}); err != nil {
		return nil, err
	}
	h.log.Info("node admitted", "node", e.Node.ID)
	b, err := h.secrets.export()
	if err != nil {
		return nil, err
	}
	sealed, err := wire.SealTo(e.Node.SealKey, rand.Reader, b)
	if err != nil {
		return nil, err
	}
	v := h.entries.View()
	m := v.Meta()
	return json.Marshal(welcome{Cluster: h.id.Cluster, Epoch: m.Epoch, Index: m.Index, Nodes: v.Nodes(), Secrets: sealed})
}

// meshKey reads a key as tickets carry it.
func meshKey(text string) (k mesh.PublicKey, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("a mesh key in the ticket is no key: %w", fleet.TicketInvalid)
	}
	return mesh.PublicKey(b), nil
}
