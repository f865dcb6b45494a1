package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tugline.dev/tugline/shared/wire"
)

func TestNetworkIsServedUnderTheClustersCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := New(Config{Dir: dir, Listen: "0.0.0.0:0", Bootstrap: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	<-h.Ready()
	if !strings.HasPrefix(h.URL(), "https://") {
		t.Errorf("URL %s", h.URL())
	}
	text, _, err := h.Ticket(ctx, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := wire.ParseTicket(text)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(h.listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.secrets.use.Load().caPEM())
	conn, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatalf("a client that trusts the cluster's CA: %v", err)
	}
	chain := conn.ConnectionState().VerifiedChains[0]
	conn.Close()
	pin := sha256.Sum256(chain[len(chain)-1].RawSubjectPublicKeyInfo)
	if ticket.Trust != wire.TrustPin || !bytes.Equal(ticket.Pin, pin[:]) || ticket.Plain {
		t.Errorf("the ticket says %+v; want the pin of the CA that signed", ticket)
	}
	if len(chain) != 2 || chain[0].NotAfter.Sub(time.Now()) < 80*day {
		t.Errorf("chain of %d, leaf until %s", len(chain), chain[0].NotAfter)
	}
	if _, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port), &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("a client that trusts nobody connected")
	}
	res, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", port) + "/healthz")
	if err == nil {
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP is answered with %d", res.StatusCode)
		}
		res.Body.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLeafIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := loadSecrets(t.TempDir(), "c-test", true)
		if err != nil {
			t.Fatal(err)
		}
		cert := ownCert(func() string { return "" }, func() (tls.Certificate, error) {
			return s.use.Load().leaf("192.0.2.1:443", "https://hub.example.org")
		})
		serial := func() string {
			t.Helper()
			c, err := cert(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(c.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AddCert(s.use.Load().issuer.ca)
			for _, name := range []string{"192.0.2.1", "hub.example.org", "localhost", "127.0.0.1"} {
				if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: time.Now()}); err != nil {
					t.Errorf("as %s: %v", name, err)
				}
			}
			return leaf.SerialNumber.String()
		}
		first := serial()
		time.Sleep(29 * day)
		if serial() != first {
			t.Error("renewed before its time")
		}
		last := first
		for range 24 { // for two years, without a restart
			time.Sleep(31 * day)
			if s := serial(); s == last {
				t.Error("not renewed after a month")
			} else {
				last = s
			}
		}
	})
}

// pair writes a certificate and key into files, as a renewal does.
func pair(t *testing.T, s *secrets, cert, key, name string, at time.Time) {
	t.Helper()
	c, err := s.use.Load().leaf(name+":443", "https://"+name)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOperatorsCertificateIsTakenUpAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := loadSecrets(dir, "c-test", true)
		if err != nil {
			t.Fatal(err)
		}
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		log := slog.New(slog.DiscardHandler)
		if _, err := operatorCert(cert, key, log); err == nil || !strings.Contains(err.Error(), cert) {
			t.Errorf("missing files: %v", err)
		}
		pair(t, s, cert, key, "one.example.org", time.Now())
		get, err := operatorCert(cert, key, log)
		if err != nil {
			t.Fatal(err)
		}
		serves := func(name string) bool {
			c, err := get(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(c.Certificate[0])
			return err == nil && leaf.VerifyHostname(name) == nil
		}
		time.Sleep(2 * time.Minute)
		if !serves("one.example.org") {
			t.Error("the first certificate is not served")
		}
		if err := os.WriteFile(cert, []byte("half writ"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if !serves("one.example.org") {
			t.Error("the old certificate is not kept while the new one cannot be used")
		}
		pair(t, s, cert, key, "two.example.org", time.Now().Add(time.Second))
		time.Sleep(2 * time.Minute)
		if !serves("two.example.org") {
			t.Error("the renewed certificate is not served")
		}
	})
}

func TestBadCertificateIsRefusedAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	_, err := New(Config{Dir: dir, Listen: "127.0.0.1:0", Bootstrap: true, TLSCert: "/nowhere/cert.pem", TLSKey: "/nowhere/key.pem"})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/cert.pem") {
		t.Errorf("New: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the refused hub left something in %s: %v", dir, err)
	}
}
