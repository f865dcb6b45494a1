package hub

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/nacl/box"

	"tugline.dev/tugline/mesh"
)

// selfKeys are this node's own keys, which no other node has: one for the mesh, and
// one that secrets are sealed to on their way here.
type selfKeys struct {
	mu   sync.Mutex // held while the mesh's keys change, and to read them
	mesh mesh.PrivateKey
	next mesh.PrivateKey // the one that mesh is to become; zero: none
	seal [32]byte
}

// selfFile is how they lie in D/secrets/node.json.
type selfFile struct {
	Version int    `json:"version"`
	Mesh    string `json:"mesh"`
	Next    string `json:"next_mesh,omitempty"`
	Seal    []byte `json:"seal"`
}

const selfName = "node.json"

// loadSelf reads the node's own keys, or makes them where there were none: a node
// that was alone needs none until others join it.
func loadSelf(dir string) (*selfKeys, error) {
	path := filepath.Join(dir, "secrets", selfName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		k := &selfKeys{mesh: mesh.NewKey()}
		rand.Read(k.seal[:])
		return k, k.save(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read this node's own keys: %w", err)
	}
	var f selfFile
	k := new(selfKeys)
	if err = json.Unmarshal(b, &f); err == nil && f.Version > 1 {
		return nil, &NewerError{path, f.Version, 1} // and no reason to join anew
	}
	if err == nil {
		k.mesh, err = mesh.ParsePrivateKey(f.Mesh)
	}
	if err == nil && f.Next != "" {
		k.next, err = mesh.ParsePrivateKey(f.Next)
	}
	if err == nil && len(f.Seal) != len(k.seal) {
		err = errors.New("it lacks a key")
	}
	if err != nil {
		return nil, fmt.Errorf("read this node's own keys in %s: %w; without them it must join anew, with `tugline hub ticket --role hub --replace` and an empty data directory", path, err)
	}
	copy(k.seal[:], f.Seal)
	return k, nil
}

func (k *selfKeys) save(dir string) error {
	f := selfFile{Version: 1, Mesh: k.mesh.Text(), Seal: k.seal[:]}
	if !k.next.IsZero() {
		f.Next = k.next.Text()
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	sd, err := secretsDir(dir)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(sd, selfName), append(b, '\n'), 0o600)
}

// sealPublic is what others seal to.
func (k *selfKeys) sealPublic() []byte {
	priv, err := ecdh.X25519().NewPrivateKey(k.seal[:])
	if err != nil { // only for a wrong length
		panic(err)
	}
	return priv.PublicKey().Bytes()
}

// open reads what was sealed to this node.
func (k *selfKeys) open(sealed []byte) ([]byte, error) {
	pub := [32]byte(k.sealPublic())
	b, ok := box.OpenAnonymous(nil, sealed, &pub, &k.seal)
	if !ok {
		return nil, errors.New("it was not sealed to this node")
	}
	return b, nil
}
