package update

import (
	"crypto/rand"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// TestSigned: whoever adds a release learns before any runner does that it is not signed
// as it must be.
func TestSigned(t *testing.T) {
	pub, priv, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	program := []byte("a program")
	sign := func(comment string) string {
		return string(minisign.SignWithComments(priv, program, comment, ""))
	}
	good := sign("tugline 1.4.0 linux/amd64")
	if v, system, arch, err := Signed(pub.String(), good, program); err != nil || v != "1.4.0" || system != "linux" || arch != "amd64" {
		t.Errorf("%s %s/%s, %v", v, system, arch, err)
	}
	for name, c := range map[string]struct {
		key, sig string
		program  string
		says     string
	}{
		"another key":      {other.String(), good, "a program", "not that of the program"},
		"another program":  {pub.String(), good, "a progam", "not that of the program"},
		"no key":           {"", good, "a program", "public key"},
		"no signature":     {pub.String(), "", "a program", "signature can't be read"},
		"no platform":      {pub.String(), sign("tugline 1.4.0"), "a program", "trusted comment"},
		"no version":       {pub.String(), sign("tugline new linux/amd64"), "a program", "trusted comment"},
		"more than is due": {pub.String(), sign("tugline 1.4.0 linux/amd64 x"), "a program", "trusted comment"},
		"minisign's own":   {pub.String(), sign("timestamp:1 file:tugline"), "a program", "trusted comment"},
		"another comment":  {pub.String(), strings.Replace(good, "1.4.0", "9.9.9", 1), "a program", "not that of the program"},
	} {
		if v, _, _, err := Signed(c.key, c.sig, []byte(c.program)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want an error about %q", name, v, err, c.says)
		}
	}
}
