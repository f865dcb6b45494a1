package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// A program that is not signed as its ticket says is neither installed nor enrolled: the
// hub is asked for nothing but the signature, and at home there is nothing new.
func TestNothingIsInstalledThatIsNotSignedAsTheTicketSays(t *testing.T) {
	const key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // somebody else's
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	for name, serve := range map[string]http.HandlerFunc{
		"has no signature of it": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusNotFound, fleet.NotFound, "nothing there")
		},
		"signature can't be read": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "of somebody\n") },
	} {
		srv := script(t, map[string]http.HandlerFunc{"GET /v1/binaries/" + runtime.GOOS + "/" + runtime.GOARCH + ".minisig": serve})
		s := newShell(t, "")
		s.in = strings.NewReader(wire.Ticket{
			Hubs: []string{srv.URL}, Cluster: "c-test", Secret: "a secret", Plain: true, ExpiresAt: time.Unix(2e9, 0).UTC(),
			Programs: map[string]fleet.Digest{platform: fleet.Digest(hex.EncodeToString(sum.Sum(nil)))}, Signed: map[string]bool{platform: true}, ReleaseKey: key,
		}.String() + "\n")
		if code := s.do("runner", "install", "--mode", "agent", "--ticket", "-"); code == 0 {
			t.Errorf("%s: exit %d\n%s", name, code, s.out)
		}
		has(t, name, s.err.String(), "not as the ticket says, signed by "+key, name, "nothing was installed")
		if left, _ := os.ReadDir(s.home); len(left) > 0 {
			t.Errorf("%s: at home is %v", name, left)
		}
	}
}
