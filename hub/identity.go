package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
	"github.com/oklog/ulid/v2"
)

// ErrNoCluster says that the data directory holds no node and that none was asked
// to be made.
var ErrNoCluster = errors.New("no hub node lives here")

// identity is what a node is for as long as its directory lives.
type identity struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Founded says that the cluster's first entries were recorded: from then on a
	// missing log is a loss, not a beginning.
	Founded bool `json:"founded,omitempty"`
	// Joined says that the node came to a cluster that others had founded.
	Joined bool `json:"joined,omitempty"`
	// Epoch is the greatest epoch of the cluster that the node has seen.
	Epoch uint64 `json:"epoch,omitempty"`
}

const nodeName = "node.json" // its file in the data directory

// newID gives a prefix and a fresh ULID in lower case.
func newID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }

// lockDir takes the data directory for this process alone.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", dir, err)
	}
	l := flock.New(filepath.Join(dir, "hub.lock"), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("another hub runs on the data directory %s: stop it first, or give this one another --data-dir", dir)
	}
	return l, nil
}

// loadIdentity reads the node's identity, or makes it when a cluster may be made.
func loadIdentity(dir string, bootstrap, fresh bool) (identity, error) {
	path := filepath.Join(dir, nodeName)
	b, err := os.ReadFile(path)
	if err == nil {
		var id identity
		if err := json.Unmarshal(b, &id); err != nil {
			return identity{}, fmt.Errorf("read %s: %w", path, err)
		}
		return id, checkVersion(path, id.Version, 1)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return identity{}, fmt.Errorf("read %s: %w", path, err)
	}
	if !fresh {
		return identity{}, fmt.Errorf("%s is gone although a node has lived here: put it back from a backup", path)
	}
	if !bootstrap {
		return identity{}, fmt.Errorf("%w: %s is empty; add --bootstrap to make a new cluster, or --ticket to join one", ErrNoCluster, dir)
	}
	id := identity{Version: 1, Cluster: newID("c-"), Node: newID("n-")}
	return id, id.save(path)
}

func (id identity) save(path string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'), 0o600)
}

// writeFile puts a file in place whole and durable, or not at all.
func writeFile(path string, b []byte, mode os.FileMode) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
