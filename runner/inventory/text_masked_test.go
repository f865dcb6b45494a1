package inventory

import (
	"strings"
	"testing"
)

// What npm quotes of an .npmrc is told without its credentials.
func TestMaskedTexts(t *testing.T) {
	for _, secret := range []string{"npm_abcdefghijklmnopqrstuvwxyz0123456789", "sk-ant-LEAK1234567890abcdef", "c29tZS1vcGFxdWUtdG9rZW4"} {
		got := Masked("npm ended with status 1: //registry.example/:_authToken=" + secret + " is refused")
		if strings.Contains(got, secret) || !strings.HasSuffix(got, " is refused") {
			t.Errorf("%q", got)
		}
	}
}
