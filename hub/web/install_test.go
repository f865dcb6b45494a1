package web

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tugline.dev/tugline/shared/fleet"
)

func TestTheScriptAndThePrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tugline")
	if err := os.WriteFile(file, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("ab", 32)
	w := newWorld(t, func(c *Config) {
		c.Script = func() string { return "main\n" }
		c.Program = func(os, arch string) (string, fleet.Digest, error) {
			if os+"/"+arch != "linux/arm64" {
				return "", "", fleet.NotFound
			}
			return file, fleet.Digest(sum), nil
		}
		c.Signature = func(os, arch string) (string, error) {
			if os+"/"+arch != "linux/arm64" {
				return "", fleet.NotFound
			}
			return "untrusted comment: of this test", nil
		}
	})
	get := func(path string, head http.Header) *http.Response {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil) // without a token: whoever installs has none
		r.Header = head
		rec := httptest.NewRecorder()
		w.srv.Handler().ServeHTTP(rec, r)
		return rec.Result()
	}
	text := func(r *http.Response) string {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if res := get("/install.sh", http.Header{}); res.StatusCode != 200 || text(res) != "main\n" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/x-shellscript") {
		t.Errorf("the script is %s, %v", res.Status, res.Header)
	}
	raw, _ := hex.DecodeString(sum)
	res := get("/v1/binaries/linux/arm64", http.Header{})
	if got, want := res.Header.Get("Repr-Digest"), "sha-256=:"+base64.StdEncoding.EncodeToString(raw)+":"; res.StatusCode != 200 || text(res) != "the program" || got != want {
		t.Errorf("the program is %s, with the digest %q, want %q", res.Status, got, want)
	}
	if res := get("/v1/binaries/linux/arm64", http.Header{"Range": {"bytes=4-"}}); res.StatusCode != 206 || text(res) != "program" {
		t.Errorf("the rest of it is %s", res.Status)
	}
	if res := get("/v1/binaries/linux/arm64.minisig", http.Header{}); res.StatusCode != 200 || text(res) != "untrusted comment: of this test" {
		t.Errorf("its signature is %s", res.Status)
	}
	if res := get("/v1/binaries/linux/amd64.minisig", http.Header{}); res.StatusCode != 404 {
		t.Errorf("a signature that there is not is %s", res.Status)
	}
	if res := get("/v1/binaries/plan9/386", http.Header{}); res.StatusCode != 404 {
		t.Errorf("what there is not is %s", res.Status)
	}
	for range maxLoads {
		w.srv.loads.TryAcquire()
	}
	if res := get("/v1/binaries/linux/arm64", http.Header{}); res.StatusCode != 503 {
		t.Errorf("one too many is %s", res.Status)
	}
}
