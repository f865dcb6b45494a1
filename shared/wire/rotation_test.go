package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// authority is a CA and what certifies it.
type authority struct {
	CAKey
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string, before *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a := &authority{key: key}
	if a.Cert, err = x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(a.Cert); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		if a.Cross, err = x509.CreateCertificate(rand.Reader, tmpl, before.cert, &key.PublicKey, before.key); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestVerifyCAs(t *testing.T) {
	one := newAuthority(t, "one", nil)
	two := newAuthority(t, "two", one)
	three := newAuthority(t, "three", two)
	other := newAuthority(t, "other", nil)
	swapped := CAKey{Cert: other.Cert, Cross: two.Cross} // another key under the old one's word
	pin := func(as ...*authority) (out [][]byte) {
		for _, a := range as {
			out = append(out, CAPin(a.cert))
		}
		return out
	}
	for _, c := range []struct {
		name string
		pins [][]byte
		all  []CAKey
		want [][]byte
		code fleet.Code
	}{
		{"nothing new", pin(one), []CAKey{one.CAKey}, pin(one), ""},
		{"a second", pin(one), []CAKey{one.CAKey, two.CAKey}, pin(one, two), ""},
		{"two at once", pin(one), []CAKey{one.CAKey, two.CAKey, three.CAKey}, pin(one, two, three), ""},
		{"the first has gone", pin(one, two), []CAKey{two.CAKey}, pin(two), ""},
		{"what stands before the pinned one", pin(two), []CAKey{other.CAKey, two.CAKey, three.CAKey}, pin(two, three), ""},
		{"no pin leads there", pin(one), []CAKey{two.CAKey}, nil, fleet.BadSignature},
		{"no certificate by the one before", pin(one), []CAKey{one.CAKey, other.CAKey}, nil, fleet.BadSignature},
		{"a certificate of another key", pin(one), []CAKey{one.CAKey, swapped}, nil, fleet.BadSignature},
		{"a link left out", pin(one), []CAKey{one.CAKey, three.CAKey}, nil, fleet.BadSignature},
		{"no certificate", pin(one), []CAKey{{Cert: []byte("x")}}, nil, fleet.BadRequest},
		{"too many", pin(one), make([]CAKey, MaxCAs+1), nil, fleet.TooLarge},
		{"none", pin(one), nil, nil, fleet.BadSignature},
	} {
		got, err := VerifyCAs(c.pins, c.all)
		if c.code == "" && err != nil || c.code != "" && !errors.Is(err, c.code) || !bytes.Equal(bytes.Join(got, nil), bytes.Join(c.want, nil)) {
			t.Errorf("%s: %x, %v; want %x, %q", c.name, got, err, c.want, c.code)
		}
	}
}

// FuzzVerifyCAs: no bytes of a stranger are believed.
func FuzzVerifyCAs(f *testing.F) {
	f.Add([]byte("x"), []byte("y"))
	f.Fuzz(func(t *testing.T, cert, cross []byte) {
		if got, err := VerifyCAs([][]byte{make([]byte, 32)}, []CAKey{{Cert: cert, Cross: cross}, {Cert: cert, Cross: cross}}); err == nil {
			t.Fatalf("believed %x", got)
		}
	})
}
