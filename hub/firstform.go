package hub

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// firstCA is the file that held the CA's certificate and key beside keys.json of
// version 1.
const firstCA = "ca.pem"

// readFirstForm reads keys as they lay before any could be replaced while a hub runs.
func readFirstForm(b []byte, dir string) ([]*heldKey, error) {
	var f struct {
		Masters map[uint64][]byte `json:"masters"`
		Signing []byte            `json:"signing"` // Ed25519 seed of the newest key
		Chain   []wire.SigningKey `json:"chain"`
	}
	if err := json.Unmarshal(b, &f); err != nil || len(f.Signing) != ed25519.SeedSize || len(f.Chain) != 1 || len(f.Masters) == 0 {
		return nil, errors.New("keys.json is damaged")
	}
	var keys []*heldKey
	for _, g := range slices.Sorted(maps.Keys(f.Masters)) {
		k := &heldKey{Kind: fleet.KeyHMAC, Generation: g, Secret: f.Masters[g]}
		k.ID = "h-" + string(k.digest()[:12])
		keys = append(keys, k)
	}
	keys = append(keys, &heldKey{Kind: fleet.KeySigning, Generation: 1, ID: f.Chain[0].ID, Secret: f.Signing, Public: f.Chain[0].Key})
	ca, err := readFirstCA(filepath.Join(dir, firstCA))
	if err != nil {
		return nil, err
	}
	keys = append(keys, ca)
	for _, k := range keys {
		k.Used = true
	}
	return keys, nil
}

func readFirstCA(path string) (*heldKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the cluster's CA: %w", err)
	}
	k := &heldKey{Kind: fleet.KeyCA, Generation: 1, Served: true}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			k.Public = block.Bytes
		case "EC PRIVATE KEY":
			k.Secret = block.Bytes
		}
	}
	if k.Public == nil || k.Secret == nil {
		return nil, fmt.Errorf("the cluster's CA in %s lacks its certificate or key", path)
	}
	cert, err := x509.ParseCertificate(k.Public)
	if err != nil {
		return nil, fmt.Errorf("the cluster's CA in %s: %w", path, err)
	}
	key, err := x509.ParseECPrivateKey(k.Secret)
	if err != nil {
		return nil, fmt.Errorf("the cluster's CA in %s: %w", path, err)
	}
	// Its certificate allows no other CA below it, so that it could not certify the one
	// that takes its place. Runners pin the key, which stays.
	if cert.MaxPathLenZero {
		if k.Public, err = selfSigned(cert.Subject, cert.NotBefore, cert.NotAfter, key); err != nil {
			return nil, err
		}
		if cert, err = x509.ParseCertificate(k.Public); err != nil {
			return nil, err
		}
	}
	k.ID = caID(cert)
	return k, nil
}
