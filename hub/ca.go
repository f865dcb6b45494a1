package hub

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"tugline.dev/tugline/shared/wire"
)

// makeCA makes a CA, and has the one before it certify its public key too.
func (k *heldKey) makeCA(cluster string, before *heldKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	name := "Tugline cluster " + cluster
	if k.Generation > 1 {
		name += fmt.Sprintf(", CA %d", k.Generation)
	}
	from, until := time.Now().Add(-time.Hour), time.Now().AddDate(20, 0, 0)
	if k.Public, err = selfSigned(pkix.Name{CommonName: name}, from, until, key); err != nil {
		return err
	}
	if k.Secret, err = x509.MarshalECPrivateKey(key); err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(k.Public)
	if err != nil {
		return err
	}
	k.ID = caID(cert)
	if before == nil {
		return nil
	}
	k.Proof, err = x509.CreateCertificate(rand.Reader, authority(cert.Subject, from, until), before.ca, &key.PublicKey, before.private)
	return err
}

func caID(cert *x509.Certificate) string { return "ca-" + wire.PinText(wire.CAPin(cert))[:12] }

func authority(name pkix.Name, from, until time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: serial(), Subject: name, NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

func selfSigned(name pkix.Name, from, until time.Time, key *ecdsa.PrivateKey) ([]byte, error) {
	t := authority(name, from, until)
	return x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic("system randomness failed: " + err.Error())
	}
	return n
}

// leaf issues a server certificate for the names the node is reached by, of the CA
// that serves now. It lives ninety days. While CAs that served before are trusted, the
// chain leads up to each of them.
func (u *inUse) leaf(listen, publicURL string) (tls.Certificate, error) {
	key, err := u.issuer.leafKey()
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
	der, err := x509.CreateCertificate(rand.Reader, t, u.issuer.ca, &key.PublicKey, u.issuer.private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue the hub's certificate: %w", err)
	}
	return tls.Certificate{Certificate: append([][]byte{der}, u.above...), PrivateKey: key}, nil
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

// caPEM gives the certificates of all CAs that are trusted now, the newest last, and
// nothing secret.
func (u *inUse) caPEM() []byte {
	var b bytes.Buffer
	for _, k := range u.trusted {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Public}))
	}
	return b.Bytes()
}
