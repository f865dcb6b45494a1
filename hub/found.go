package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/hub/web"
	"tugline.dev/tugline/shared/fleet"
)

// found makes a new cluster's first entries: its name, and the operator token. It
// is run at the start of every term and does what is not yet done.
func (l *term) found(ctx context.Context) error {
	h := l.hub
	if m := h.entries.View().Meta(); m.Cluster == "" {
		if _, ok := l.propose(ctx, &state.InitCluster{Cluster: h.id.Cluster, Epoch: 1}); !ok {
			return fmt.Errorf("name the cluster %s: %w", h.id.Cluster, fleet.Unavailable)
		}
	} else if m.Cluster != h.id.Cluster {
		return fmt.Errorf("the log is of cluster %s, this node is of %s: %w", m.Cluster, h.id.Cluster, fleet.ClusterMismatch)
	}
	if err := l.raise(ctx); err != nil {
		return err
	}
	if err := l.recordSelf(ctx); err != nil {
		return err
	}
	l.recordKeys(ctx)
	if len(h.entries.View().Tokens()) > 0 {
		return h.founded()
	}
	secret, err := h.bootstrapToken()
	if err != nil {
		return err
	}
	cmd := &state.CreateToken{Token: fleet.Token{ID: fleet.TokenID(newID("t-")), Name: "bootstrap", Role: fleet.RoleAdmin, Hash: web.HashSecret(secret)}}
	if _, ok := l.propose(ctx, cmd); !ok {
		return fmt.Errorf("record the operator token: %w", fleet.Unavailable)
	}
	return h.founded()
}

// recordSelf puts the first node of a cluster on record, before others can join it.
func (l *term) recordSelf(ctx context.Context) error {
	h := l.hub
	if h.network == nil || len(h.entries.View().Nodes()) > 0 {
		return nil
	}
	if _, ok := l.propose(ctx, &state.UpdateNode{Node: h.self()}); !ok {
		return fmt.Errorf("record this node: %w", fleet.Unavailable)
	}
	return nil
}

// founded remembers beside the log that there is one.
func (h *Hub) founded() error {
	return h.remember(func(id *identity) { id.Founded = true })
}

// bootstrapToken writes the operator token before its hash is recorded, so that a
// crash between the two leaves no cluster without a key.
func (h *Hub) bootstrapToken() (string, error) {
	path := h.TokenFile()
	if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) != "" {
		return strings.TrimSpace(string(b)), nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	secret := web.NewSecret("tgl_")
	return secret, writeFile(path, []byte(secret+"\n"), 0o600)
}
