package hub

import (
	"net/netip"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	proxy := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
	for name, c := range map[string]struct {
		cfg   Config
		wrong string // what the refusal must name; empty: taken
		plain bool
		clear bool
	}{
		"loopback is plain":               {cfg: Config{Listen: "127.0.0.1:0"}, plain: true},
		"IPv6 loopback too":               {cfg: Config{Listen: "[::1]:0"}, plain: true},
		"localhost too":                   {cfg: Config{Listen: "localhost:0"}, plain: true},
		"loopback with a certificate":     {cfg: Config{Listen: "127.0.0.1:0", TLSCert: "c", TLSKey: "k"}},
		"any other address has TLS":       {cfg: Config{Listen: "192.0.2.1:0"}},
		"all addresses have TLS":          {cfg: Config{Listen: ":0"}},
		"a name has TLS":                  {cfg: Config{Listen: "hub.example.org:0"}},
		"no directory":                    {cfg: Config{Dir: "-", Listen: "127.0.0.1:0"}, wrong: "--data-dir"},
		"no port":                         {cfg: Config{Listen: "127.0.0.1"}, wrong: "HOST:PORT"},
		"a certificate without a key":     {cfg: Config{Listen: ":0", TLSCert: "c"}, wrong: "--tls-key"},
		"a key without a certificate":     {cfg: Config{Listen: ":0", TLSKey: "k"}, wrong: "--tls-cert"},
		"plain with a certificate":        {cfg: Config{Listen: "127.0.0.1:0", PlainHTTP: true, TLSCert: "c", TLSKey: "k"}, wrong: "exclude"},
		"plain on a network":              {cfg: Config{Listen: "0.0.0.0:0", PlainHTTP: true}, wrong: "--trusted-proxy"},
		"plain on all addresses":          {cfg: Config{Listen: ":0", PlainHTTP: true}, wrong: "--trusted-proxy"},
		"plain behind a proxy":            {cfg: Config{Listen: "0.0.0.0:0", PlainHTTP: true, TrustedProxies: proxy}, plain: true, clear: true},
		"a public URL":                    {cfg: Config{Listen: ":0", PublicURL: "https://hub.example.org"}},
		"a public URL with a slash":       {cfg: Config{Listen: ":0", PublicURL: "https://hub.example.org/"}},
		"a public URL with a path":        {cfg: Config{Listen: ":0", PublicURL: "https://hub.example.org/x"}, wrong: "--public-url"},
		"a public URL with a user":        {cfg: Config{Listen: ":0", PublicURL: "https://a@hub.example.org"}, wrong: "--public-url"},
		"a public URL that is a name":     {cfg: Config{Listen: ":0", PublicURL: "hub.example.org"}, wrong: "--public-url"},
		"a public URL in the clear":       {cfg: Config{Listen: ":0", PublicURL: "http://hub.example.org"}, wrong: "in the clear"},
		"a public URL on loopback":        {cfg: Config{Listen: "127.0.0.1:0", PublicURL: "http://localhost:99"}, plain: true},
		"a public URL of another program": {cfg: Config{Listen: ":0", PublicURL: "ftp://hub.example.org"}, wrong: "--public-url"},
	} {
		t.Run(name, func(t *testing.T) {
			switch c.cfg.Dir {
			case "":
				c.cfg.Dir = "d"
			case "-":
				c.cfg.Dir = ""
			}
			err := c.cfg.complete()
			switch {
			case c.wrong == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Fatalf("got %v; want a refusal that names %q", err, c.wrong)
			case c.wrong != "":
				return
			}
			if got := c.cfg.plain(); got != c.plain {
				t.Errorf("plain is %t; want %t", got, c.plain)
			}
			if got := c.cfg.inTheClear(); got != c.clear {
				t.Errorf("for proxies only is %t; want %t", got, c.clear)
			}
		})
	}
}
