package hub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// keysEvery is how often a node looks for keys that end by time alone, and for keys
// that it lacks.
const keysEvery = time.Second

// keyPeers is how keys come to the other nodes and from them. Both are required where
// there are others.
type keyPeers struct {
	// distribute returns once every other voter has the key on disk. An error has a code,
	// and names those who have not.
	distribute func(ctx context.Context, k sealable) error
	// fetch asks the other nodes for a generation of a key, and gives what take takes.
	fetch func(ctx context.Context, kind string, generation uint64) ([]byte, error)
}

// sealable is a key on its way to other nodes.
type sealable struct {
	Kind       string
	Generation uint64
	// Seal encrypts it to a node's X25519 public key.
	Seal func(box []byte) ([]byte, error)
}

// followKeys makes use of what the log says of the keys. What this node lacks it asks
// its peers for; an error says what is still missing.
func (h *Hub) followKeys(ctx context.Context) error {
	h.secrets.following.Lock()
	defer h.secrets.following.Unlock()
	missing, changed, err := h.secrets.follow(h.entries.View())
	if err != nil {
		h.log.Error("the keys in use are not on disk; if this node restarts before they are, it reads them from the log", "err", err)
	}
	if changed {
		h.keysChanged()
	}
	if len(missing) == 0 {
		return nil
	}
	var failed []error
	for _, row := range missing {
		if err := h.fetchKey(ctx, row); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if missing, changed, err = h.secrets.follow(h.entries.View()); changed {
		h.keysChanged()
	}
	if err == nil && len(missing) > 0 {
		err = lacks(missing[0])
	}
	return err
}

func lacks(row *fleet.ClusterKey) error {
	return fmt.Errorf("this node lacks generation %d (%s) of the cluster's %s key, which is in use: put D/secrets back from a backup that is younger than %s",
		row.Generation, row.ID, row.Kind, row.At.UTC().Format(time.RFC3339))
}

// keysToLead sees that this node holds every key that is in use. One that does not, and
// has peers, gives leadership to another and goes on asking.
func (h *Hub) keysToLead(ctx context.Context) error {
	told := ""
	for {
		err := h.followKeys(ctx)
		if err == nil || h.keyPeers.fetch == nil || len(h.others()) == 0 {
			return err
		}
		if told != err.Error() {
			told = err.Error()
			h.log.Error("this node cannot lead", "err", err)
		}
		if e := h.node.Transfer(ctx, ""); e != nil && ctx.Err() == nil {
			h.log.Debug("leadership could not be given away", "err", e)
		}
		select {
		case <-time.After(keysEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *Hub) fetchKey(ctx context.Context, row *fleet.ClusterKey) error {
	if h.keyPeers.fetch == nil {
		return lacks(row)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	payload, err := h.keyPeers.fetch(ctx, row.Kind, row.Generation)
	if err != nil {
		return fmt.Errorf("%w; the other nodes were asked: %w", lacks(row), err)
	}
	return h.secrets.take(payload)
}

// keysChanged tells those who are concerned that other keys are in use.
func (h *Hub) keysChanged() {
	u := h.secrets.use.Load()
	if now := fmt.Sprint(u.session.Master, u.session.SigningID, u.issuer.ID, len(u.trusted)); h.keysTold.Swap(now) != now {
		h.log.Info("keys in use", "hmac", u.session.Master, "signing", u.session.SigningID, "ca", u.issuer.ID, "trusted", len(u.trusted))
	}
	if err := h.writeCA(); err != nil {
		h.log.Error("the certificates of the hub's own CA cannot be written", "err", err)
	}
	h.sessions.KeysChanged()
}

// writeCA puts the certificates that people need who speak to this node beside its
// data, where it is certified by the cluster's own CA.
func (h *Hub) writeCA() error {
	if h.cfg.plain() || h.cfg.TLSCert != "" {
		return nil
	}
	return writeFile(filepath.Join(h.cfg.Dir, "ca.pem"), h.secrets.use.Load().caPEM(), 0o644)
}

// tendKeys has the keys follow the log for as long as the node lives.
func (h *Hub) tendKeys(ctx context.Context) {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.keyNews:
		}
		err := h.followKeys(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			h.log.Error("keys are missing", "err", err)
		}
	}
}
