package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"tugline.dev/tugline/mesh"
	"tugline.dev/tugline/runner"
	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// tunnel is a runner's way to the hubs where only UDP passes. Its key and what it knows
// of the hubs lie in the runner's data directory.
type tunnel struct {
	file string
	log  *slog.Logger

	mu     sync.Mutex
	kept   keptTunnel
	key    mesh.PrivateKey
	client *mesh.Client // nil until somebody dials
}

// keptTunnel is mesh.json (0600).
type keptTunnel struct {
	Version int               `json:"version"`
	Cluster string            `json:"cluster"`
	Key     string            `json:"key"`
	Hubs    []wire.HubAddress `json:"hubs"`
}

// throughMesh has a runner reach the hubs through their tunnel. The caller calls end.
func throughMesh(cfg *runner.Config) (end func(), err error) {
	t, err := openTunnel(cfg.Dir, cfg.Ticket, cfg.Logger)
	if err != nil {
		return nil, err
	}
	public := t.key.Public()
	cfg.MeshKey, cfg.Dial, cfg.Enter, cfg.OnTunnels = public[:], t.dial, t.enter, t.learn
	return t.close, nil
}

func openTunnel(dir, ticket string, log *slog.Logger) (*tunnel, error) {
	t := &tunnel{file: filepath.Join(dir, "mesh.json"), log: log}
	if err := t.load(); err != nil {
		return nil, runnerFailed(fmt.Errorf("read %s: %w", t.file, err))
	}
	if ticket != "" {
		k, err := wire.ParseTicket(ticket)
		if err != nil {
			return nil, usage("%s", withoutCodes(err.Error(), err))
		}
		if len(k.Mesh) > 0 { // newer than what is kept
			t.kept.Cluster, t.kept.Hubs = k.Cluster, k.Mesh
		}
	}
	if len(t.kept.Hubs) == 0 {
		return nil, usage("--via-mesh: nothing is known of the hubs' tunnel; enrol with a ticket from `tugline hub ticket --via-mesh`")
	}
	if _, err := meshHubs(t.kept.Hubs); err != nil {
		return nil, usage("--via-mesh: %v", err)
	}
	if err := t.save(); err != nil {
		return nil, err
	}
	return t, nil
}

// load reads the file; a first key is made where there is none.
func (t *tunnel) load() error {
	b, err := os.ReadFile(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		t.key = mesh.NewKey()
		t.kept = keptTunnel{Version: 1, Key: t.key.Text()}
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &t.kept)
	}
	if err == nil && t.kept.Version != 1 {
		return &durable.Newer{What: "what is known of the hubs' tunnel", Path: t.file, Format: t.kept.Version, Known: 1}
	}
	if err == nil {
		t.key, err = mesh.ParsePrivateKey(t.kept.Key)
	}
	return err
}

// save puts the key on disk before anybody hears of it.
func (t *tunnel) save() error {
	b, err := json.MarshalIndent(t.kept, "", "  ")
	if err == nil {
		if err = os.MkdirAll(filepath.Dir(t.file), 0o700); err == nil {
			err = durable.Replace(t.file, append(b, '\n'), 0o600)
		}
	}
	if err != nil {
		return fail(exitFailed, "cannot write %s: %v", t.file, err)
	}
	return nil
}

// meshHubs gives the hubs as the tunnel calls them.
func meshHubs(list []wire.HubAddress) ([]mesh.Hub, error) {
	var out []mesh.Hub
	for _, a := range list {
		h := mesh.Hub{ID: a.Node, Endpoints: a.Endpoints}
		for _, text := range []string{a.Key, a.Next} {
			if text == "" {
				continue
			}
			b, err := hex.DecodeString(text)
			if err != nil || len(b) != fleet.MeshKeyBytes {
				return nil, fmt.Errorf("the key of hub node %s is no key: %w", a.Node, fleet.BadRequest)
			}
			h.Keys = append(h.Keys, mesh.PublicKey(b))
		}
		if u, err := url.Parse(a.URL); err == nil && u.Host != "" {
			h.Hosts = []string{hostPort(u)}
		}
		out = append(out, h)
	}
	return out, nil
}

// enter reaches the hubs by a ticket's key, which opens nothing but the enrolment.
func (t *tunnel) enter(secret string) (func(context.Context, string, string) (net.Conn, error), func(), error) {
	seed, err := wire.GuestKey(secret)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	hubs, err := meshHubs(t.kept.Hubs)
	cluster := t.kept.Cluster
	t.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	dial, end, err := mesh.RunnerDial(mesh.ClientConfig{Cluster: cluster, Key: mesh.KeyFromSeed(seed), Hubs: hubs, Logger: t.log})
	if err != nil {
		return nil, nil, err
	}
	return dial, func() { end() }, nil
}

// dial reaches the hub of an address by this runner's own key.
func (t *tunnel) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := t.up()
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, network, addr)
}

// up brings the tunnel up, once there is a runner whom the hubs know by its key.
func (t *tunnel) up() (*mesh.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil {
		return t.client, nil
	}
	hubs, err := meshHubs(t.kept.Hubs)
	if err == nil {
		t.client, err = mesh.NewClient(mesh.ClientConfig{Cluster: t.kept.Cluster, Key: t.key, Hubs: hubs, Logger: t.log})
	}
	return t.client, err
}

// learn takes in where the hubs' tunnels are now.
func (t *tunnel) learn(list []wire.HubAddress) {
	hubs, err := meshHubs(list)
	if err == nil && len(hubs) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.client != nil {
		err = t.client.SetHubs(hubs)
	}
	if err == nil {
		t.kept.Hubs = list
		err = t.save()
	}
	if err != nil {
		t.log.Error("where the hubs' tunnels are could not be kept", "err", err)
	}
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil {
		t.client.Close()
	}
}
