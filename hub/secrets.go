package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
)

const keyFileVersion = 2

// secrets are the keys of the cluster, under D/secrets with mode 0600. Which of them
// are in use is for the log to say; the file remembers what it said last, for the time
// until the log was read.
type secrets struct {
	path    string
	cluster string

	following sync.Mutex // held until those who are concerned know of what changed

	mu   sync.Mutex
	keys []*heldKey // as on disk, by kind and generation; a key is replaced, never changed
	seen rows       // of the log, that use was made of

	use atomic.Pointer[inUse]
}

const keysName = "keys.json"

// keyFile is how the keys lie on disk.
type keyFile struct {
	Version int        `json:"version"`
	Keys    []*heldKey `json:"keys"`
}

// loadSecrets reads the cluster's keys, or makes them for a new cluster. They are
// never made where a cluster has lived: every runner would be shut out.
func loadSecrets(dir, cluster string, fresh bool) (*secrets, error) {
	sd, err := secretsDir(dir)
	if err != nil {
		return nil, err
	}
	s := &secrets{path: filepath.Join(sd, keysName), cluster: cluster}
	b, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist) && fresh:
		err = s.begin(state.New().View())
	case err == nil:
		err = s.read(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's keys: %w; without them no runner can be served: put %s back from a backup", err, sd)
	}
	s.use.Store(s.inUse(nil, time.Time{}))
	return s, nil
}

// secretsDir gives the directory of a node's keys, and makes it where it is missing.
func secretsDir(dir string) (string, error) {
	sd := filepath.Join(dir, "secrets")
	if err := os.MkdirAll(sd, 0o700); err != nil {
		return "", fmt.Errorf("make %s: %w", sd, err)
	}
	return sd, nil
}

// begin makes a generation of each key behind all that the log knows of: of a new
// cluster the first.
func (s *secrets) begin(v state.View) error {
	for _, kind := range fleet.KeyKinds {
		generation := uint64(1)
		if rows := v.Keys(kind); len(rows) > 0 {
			generation = rows[len(rows)-1].Generation + 1
		}
		k, err := makeKey(kind, generation, s.cluster, nil, time.Now())
		if err != nil {
			return err
		}
		k.Used, k.Served = true, kind == fleet.KeyCA
		s.keys = append(s.keys, k)
	}
	return s.save(s.keys)
}

// replaceSecrets makes new keys for a node that has none of those that the log knows
// of. Nothing announces them: every runner must enrol anew.
func replaceSecrets(dir, cluster string, v state.View) (*secrets, error) {
	sd, err := secretsDir(dir)
	if err != nil {
		return nil, err
	}
	s := &secrets{path: filepath.Join(sd, keysName), cluster: cluster}
	return s, s.begin(v)
}

// importSecrets puts the cluster's keys in place on a node that joins.
func importSecrets(dir string, b []byte) error {
	sd, err := secretsDir(dir)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(sd, keysName), b, 0o600)
}

// read takes in the file, and brings one of an earlier version to the present form.
func (s *secrets) read(b []byte) error {
	var f keyFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("%s cannot be read: %w", s.path, err)
	}
	if err := checkVersion(s.path, f.Version, keyFileVersion); err != nil {
		return err
	}
	switch f.Version {
	case 1:
		keys, err := readFirstForm(b, filepath.Dir(s.path))
		if err != nil {
			return err
		}
		if err := s.save(keys); err != nil {
			return err
		}
	case keyFileVersion:
		s.keys = f.Keys
	}
	for _, k := range s.keys {
		if err := k.complete(); err != nil {
			return fmt.Errorf("the cluster's keys in %s cannot be used: %w", s.path, err)
		}
	}
	for _, kind := range fleet.KeyKinds {
		if s.newest(kind) == nil {
			return fmt.Errorf("the cluster's keys in %s lack the %s key", s.path, kind)
		}
	}
	// The CA of the first form lies in the file now.
	if err := os.Remove(filepath.Join(filepath.Dir(s.path), firstCA)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// save puts keys on disk, durable, and only then in place.
func (s *secrets) save(keys []*heldKey) error {
	b, err := json.Marshal(keyFile{Version: keyFileVersion, Keys: keys})
	if err != nil {
		return err
	}
	if err := writeFile(s.path, b, 0o600); err != nil {
		return err
	}
	s.keys = keys
	return nil
}

// used gives the generations of a key that are or were active, in order.
func (s *secrets) used(kind string) (out []*heldKey) {
	for _, k := range s.keys {
		if k.Kind == kind && k.Used {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *heldKey) int { return int(a.Generation) - int(b.Generation) })
	return out
}

// newest gives the active generation of a key.
func (s *secrets) newest(kind string) *heldKey {
	all := s.used(kind)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// next gives the key that a rotation is to make active, durable on this node: one that
// an earlier rotation left behind, or a new one.
func (s *secrets) next(kind string, now time.Time) (*heldKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.newest(kind)
	for _, k := range s.keys {
		if k.Kind == kind && !k.Used && k.Generation == last.Generation+1 && k.follows(last) {
			return k, nil
		}
	}
	k, err := makeKey(kind, last.Generation+1, s.cluster, last, now)
	if err != nil {
		return nil, err
	}
	return k, s.save(append(slices.Clone(s.keys), k))
}

// export gives all keys of this node, for one that joins.
func (s *secrets) export() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(keyFile{Version: keyFileVersion, Keys: s.keys})
}

// take puts keys of another node on disk. What this node holds already is left as it
// is; a key becomes active by the log alone.
func (s *secrets) take(payload []byte) error {
	var f keyFile
	if err := json.Unmarshal(payload, &f); err != nil || f.Version != keyFileVersion {
		return fmt.Errorf("keys of another node cannot be read (version %d): %w", f.Version, fleet.BadRequest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Clone(s.keys)
	for _, k := range f.Keys {
		if k == nil {
			return fmt.Errorf("keys of another node cannot be read: %w", fleet.BadRequest)
		}
		if err := k.complete(); err != nil {
			return fmt.Errorf("keys of another node cannot be used: %w: %w", err, fleet.BadRequest)
		}
		k.Used, k.Served = false, false
		if !slices.ContainsFunc(keys, func(h *heldKey) bool {
			return h.Kind == k.Kind && h.Generation == k.Generation && bytes.Equal(h.Secret, k.Secret)
		}) {
			keys = append(keys, k)
		}
	}
	if len(keys) == len(s.keys) {
		return nil
	}
	return s.save(keys)
}

// payloadOf gives what this node holds of a generation of a key, for another node.
func (s *secrets) payloadOf(kind string, generation uint64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := keyFile{Version: keyFileVersion}
	for _, k := range s.keys {
		if k.Kind == kind && k.Generation == generation {
			f.Keys = append(f.Keys, k)
		}
	}
	if len(f.Keys) == 0 {
		return nil, fmt.Errorf("this node has no generation %d of the %s key: %w", generation, kind, fleet.NotFound)
	}
	return json.Marshal(f)
}
