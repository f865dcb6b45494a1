package hub

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	leafAge   = 30 * day    // a leaf of the cluster's own lives ninety days and is renewed after these
	certCheck = time.Minute // between looks at the operator's certificate
)

type certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificates gives the operator's certificate, or one of the cluster's own.
func (h *Hub) certificates() (certificate, error) {
	if h.cfg.TLSCert != "" {
		return operatorCert(h.cfg.TLSCert, h.cfg.TLSKey, h.log)
	}
	return ownCert(func() string { return h.secrets.use.Load().chain() }, func() (tls.Certificate, error) {
		return h.secrets.use.Load().leaf(h.cfg.Listen, h.url)
	}), nil
}

// ownCert issues a leaf when it is first needed, and anew long before it ends and
// when it is to be another CA's.
func ownCert(chain func() string, issue func() (tls.Certificate, error)) certificate {
	var mu sync.Mutex
	var leaf *tls.Certificate
	var issued time.Time
	var of string
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if now := chain(); leaf == nil || time.Since(issued) > leafAge || now != of {
			c, err := issue()
			if err != nil {
				return nil, err
			}
			leaf, issued, of = &c, time.Now(), now
		}
		return leaf, nil
	}
}

// operatorCert serves a certificate from files, and takes up what a renewal puts in
// their place. While the new pair cannot be used the old one stays.
func operatorCert(cert, key string, log *slog.Logger) (certificate, error) {
	load := func() (*tls.Certificate, time.Time, error) {
		at := changedAt(cert, key)
		c, err := loadPair(cert, key)
		return c, at, err
	}
	pair, at, err := load()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	looked := time.Now()
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(looked) < certCheck {
			return pair, nil
		}
		looked = time.Now()
		if !changedAt(cert, key).Equal(at) {
			c, when, err := load()
			if err != nil {
				log.Error("the renewed certificate cannot be used; the old one stays", "err", err)
				return pair, nil
			}
			pair, at = c, when
			log.Info("certificate renewed")
		}
		return pair, nil
	}, nil
}

func loadPair(cert, key string) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate %s with the key %s: %w", cert, key, err)
	}
	return &c, nil
}

// changedAt gives when the younger of two files was written.
func changedAt(paths ...string) (at time.Time) {
	for _, p := range paths {
		if st, err := os.Stat(p); err == nil {
			at = later(at, st.ModTime())
		}
	}
	return at
}
