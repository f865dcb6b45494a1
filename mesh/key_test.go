package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestKeys(t *testing.T) {
	k := NewKey()
	back, err := ParsePrivateKey(k.Text())
	if err != nil || back != k || back.Public() != k.Public() {
		t.Errorf("a key changed in its text: %v", err)
	}
	if k == NewKey() || k.IsZero() || k.Public().IsZero() {
		t.Error("keys are not fresh")
	}
	if a, b := KeyFromSeed([32]byte{1}), KeyFromSeed([32]byte{1}); a != b || a == KeyFromSeed([32]byte{32}) {
		t.Error("a seed does not give its one key")
	}
	// RFC 7748, section 5.2: the base point times nine.
	if got := KeyFromSeed([32]byte{9}).Public().hex(); got != "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079" {
		t.Errorf("the public half of the known key is %s", got)
	}
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%+v %#v", k, k), k.LogValue().String()} {
		if strings.Contains(shown, k.Text()) || strings.Contains(shown, k.hex()) || !strings.Contains(shown, k.Public().String()) {
			t.Errorf("a private key prints as %s", shown)
		}
	}
	pub := k.Public()
	raw, _ := json.Marshal(map[string]any{"key": pub})
	var got struct{ Key PublicKey }
	if err := json.Unmarshal(raw, &got); err != nil || got.Key != pub {
		t.Errorf("a public key changed in JSON %s: %v", raw, err)
	}
	for _, bad := range []string{"", "x", strings.Repeat("A", 43) + "=", pub.String()[:40], pub.String() + "AAAA", strings.ToLower(k.hex())} {
		_, err := ParsePublicKey(bad)
		_, err2 := ParsePrivateKey(bad)
		if !errors.Is(err, fleet.BadRequest) || !errors.Is(err2, fleet.BadRequest) {
			t.Errorf("%q was read: %v, %v", bad, err, err2)
		}
		if bad != "" && bad != "x" && strings.Contains(err2.Error(), bad) {
			t.Errorf("the error quotes the key: %v", err2)
		}
	}
}
