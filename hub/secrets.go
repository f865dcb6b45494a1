package hub

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tugline.dev/tugline/hub/session"
	"tugline.dev/tugline/shared/wire"
)

// secrets are the keys of the cluster, under D/secrets with mode 0600.
type secrets struct {
	keys session.Keys
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
}

// keyFile is how the symmetric and signing keys lie on disk.
type keyFile struct {
	Version int               `json:"version"`
	Masters map[uint64][]byte `json:"masters"`
	Signing []byte            `json:"signing"` // Ed25519 seed of the newest key
	Chain   []wire.SigningKey `json:"chain"`
}

// loadSecrets reads the cluster's keys, or makes them for a new cluster. They are
// never made where a cluster has lived: every runner would be shut out.
func loadSecrets(dir, cluster string, fresh bool) (*secrets, error) {
	sd := filepath.Join(dir, "secrets")
	if err := os.MkdirAll(sd, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", sd, err)
	}
	path := filepath.Join(sd, "keys.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && fresh {
		b, err = makeKeys(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's keys: %w; without them no runner can be served: put them back from a backup", err)
	}
	var f keyFile
	if err := json.Unmarshal(b, &f); err != nil || f.Version != 1 || len(f.Signing) != ed25519.SeedSize || len(f.Chain) == 0 || len(f.Masters) == 0 {
		return nil, fmt.Errorf("the cluster's keys in %s cannot be read: put them back from a backup", path)
	}
	s := &secrets{keys: session.Keys{
		Cluster: cluster, Masters: f.Masters, Signing: ed25519.NewKeyFromSeed(f.Signing),
		SigningID: f.Chain[len(f.Chain)-1].ID, Chain: f.Chain,
	}}
	return s, s.loadCA(sd, cluster, fresh)
}

func makeKeys(path string) ([]byte, error) {
	master := make([]byte, 32)
	rand.Read(master)
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(pub)
	b, err := json.Marshal(keyFile{
		Version: 1, Masters: map[uint64][]byte{1: master}, Signing: priv.Seed(),
		Chain: []wire.SigningKey{{ID: "k-" + hex.EncodeToString(id[:6]), Key: pub}},
	})
	if err != nil {
		return nil, err
	}
	return b, writeFile(path, b, 0o600)
}

func (s *secrets) loadCA(dir, cluster string, fresh bool) error {
	path := filepath.Join(dir, "ca.pem")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && fresh {
		b, err = makeCA(path, cluster)
	}
	if err != nil {
		return fmt.Errorf("read the cluster's CA: %w; put it back from a backup", err)
	}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			s.ca, err = x509.ParseCertificate(block.Bytes)
		case "EC PRIVATE KEY":
			s.key, err = x509.ParseECPrivateKey(block.Bytes)
		}
		if err != nil {
			return fmt.Errorf("read the cluster's CA in %s: %w", path, err)
		}
	}
	if s.ca == nil || s.key == nil {
		return fmt.Errorf("the cluster's CA in %s lacks its certificate or key: put it back from a backup", path)
	}
	return nil
}

func makeCA(path, cluster string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Tugline cluster " + cluster},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	kder, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	b := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kder})...)
	return b, writeFile(path, b, 0o600)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic("system randomness failed: " + err.Error())
	}
	return n
}

// leaf issues a server certificate for the names the node is reached by. It lives
// ninety days and is made anew at every start.
func (s *secrets) leaf(listen, publicURL string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Tugline hub"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 3, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	hosts := localAddresses()
	if h, _, err := net.SplitHostPort(listen); err == nil {
		hosts = append(hosts, h)
	}
	if u, err := url.Parse(publicURL); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != "" {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, s.ca, &key.PublicKey, s.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue the hub's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der, s.ca.Raw}, PrivateKey: key}, nil
}

func localAddresses() []string {
	var out []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// caPEM gives the CA's certificate alone.
func (s *secrets) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.Raw})
}

// derive gives 32 bytes that only this cluster can derive from the text: a secret
// that a repeated request is answered with again.
func (s *secrets) derive(text string) []byte {
	newest := slices.Max(slices.Collect(maps.Keys(s.keys.Masters)))
	m := hmac.New(sha256.New, s.keys.Masters[newest])
	m.Write([]byte("tugline hub derive\x00" + text))
	return m.Sum(nil)
}
