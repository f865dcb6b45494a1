package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"tugline.dev/tugline/shared/wire"
)

const dialTime = 10 * time.Second

// tlsConfig gives how a hub proves itself, as the ticket said.
func tlsConfig(trust wire.Trust, pins func() [][]byte, ca string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	switch trust {
	case wire.TrustSystem:
	case wire.TrustCA:
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, errors.New("the ticket's CA certificate cannot be read; make a new ticket")
		}
	case wire.TrustPin:
		for _, p := range pins() {
			if len(p) != sha256.Size {
				return nil, errors.New("the pin of the hub's key is missing; make a new ticket")
			}
		}
		// The chain is verified below, by the pinned key and not by name: a hub may be
		// reached at any address.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error { return verifyPin(cs.PeerCertificates, pins(), time.Now()) }
	default:
		return nil, fmt.Errorf("trust %q is not known; use the same release as the hub", trust)
	}
	return c, nil
}

var errUnpinned = errors.New("the hub does not hold a key that is pinned here: its CA was replaced while this runner was away for longer than the overlap " +
	"(then enrol it again with `tugline hub ticket --for RUNNER`), or it is another hub, or somebody is in between")

// verifyPin sees that a chain holds a CA with a pinned public key, and that it leads
// from the leaf to there. A certificate that is not valid yet by this machine's clock
// is no reason to refuse: a machine that has just been started may be years behind, and
// learns the hub's time by connecting.
func verifyPin(chain []*x509.Certificate, pins [][]byte, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the hub showed no certificate")
	}
	at := now
	between := x509.NewCertPool()
	for i, c := range chain {
		if i > 0 {
			between.AddCert(c)
		}
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
	}
	var bad error
	for _, c := range chain {
		if !c.IsCA || !slices.ContainsFunc(pins, func(p []byte) bool { return bytes.Equal(p, wire.CAPin(c)) }) {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(c)
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err == nil {
			return nil
		}
		if bad = fmt.Errorf("the hub's certificate does not come from the pinned key: %w", err); expired(err) {
			bad = fmt.Errorf("the hub's certificate holds until %s, and this machine's clock says %s; see which of the two is wrong: %w",
				chain[0].NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), err)
		}
	}
	if bad != nil {
		return bad
	}
	return errUnpinned
}

func expired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// network is how this runner reaches hubs.
type network struct {
	tls    *tls.Config // nil for plain HTTP
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	client *http.Client
}

func newNetwork(id *identity, pins func() [][]byte, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*network, error) {
	n := &network{dial: dial}
	if !id.Plain {
		c, err := tlsConfig(id.Trust, pins, id.CA)
		if err != nil {
			return nil, err
		}
		n.tls = c
	}
	t := &http.Transport{
		TLSClientConfig: n.tls, TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: wire.PollHold + 15*time.Second,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
	}
	if dial != nil {
		t.DialContext = dial
	} else {
		t.Proxy = http.ProxyFromEnvironment
		t.DialContext = (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext
	}
	n.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return n, nil
}

func (n *network) close() { n.client.CloseIdleConnections() }
