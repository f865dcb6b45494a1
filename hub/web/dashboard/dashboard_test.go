package dashboard

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

var script = bytes.Repeat([]byte("console.log('a page');\n"), 100)

func page(t *testing.T, files fstest.MapFS) *Page {
	t.Helper()
	p, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(p *Page, method, path string, header map[string]string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFiles(t *testing.T) {
	p := page(t, fstest.MapFS{
		".keep": {}, "index.html": {Data: []byte("<!doctype html>the page")},
		"assets/main-abc.js": {Data: script}, "assets/tiny-1.js": {Data: []byte("1")}, "favicon.svg": {Data: []byte("<svg/>")},
	})
	for _, c := range []struct{ path, accept, encoding, kind, cache, packed, text string }{
		{"/", "", "", "text/html; charset=utf-8", "no-store", "", "<!doctype html>the page"},
		{"/index.html", "", "", "text/html; charset=utf-8", "no-store", "", "<!doctype html>the page"},
		{"/jobs/01k", "text/html,*/*", "", "text/html; charset=utf-8", "no-store", "", "<!doctype html>the page"},
		{"/assets/main-abc.js", "", "", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "", string(script)},
		{"/assets/main-abc.js", "", "br, gzip", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "gzip", string(script)},
		{"/assets/main-abc.js", "", "gzip;q=0", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "", string(script)},
		{"/assets/tiny-1.js", "", "gzip", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "", "1"},
		{"/favicon.svg", "", "", "image/svg+xml", "no-cache", "", "<svg/>"},
	} {
		head := map[string]string{"Accept": c.accept, "Accept-Encoding": c.encoding}
		r := ask(p, "GET", c.path, head)
		text := body(t, r)
		if c.packed == "gzip" {
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		got := [5]string{r.Header.Get("Content-Type"), r.Header.Get("Cache-Control"), r.Header.Get("Content-Encoding"), text, r.Header.Get("Vary")}
		if want := [5]string{c.kind, c.cache, c.packed, c.text, "Accept-Encoding"}; got != want || r.StatusCode != 200 {
			t.Errorf("%s with %v: %d %.200q; want %.200q", c.path, head, r.StatusCode, got, want)
		}
		if h := ask(p, "HEAD", c.path, head); body(t, h) != "" || h.Header.Get("Content-Length") != r.Header.Get("Content-Length") {
			t.Errorf("HEAD %s: not as GET without its body: %v", c.path, h.Header)
		}
	}
	was := ask(p, "GET", "/favicon.svg", nil).Header.Get("ETag")
	if r := ask(p, "GET", "/favicon.svg", map[string]string{"If-None-Match": was}); r.StatusCode != 304 || was == "" {
		t.Errorf("asked again with %q: %d; want 304", was, r.StatusCode)
	}
}

// What the page may do is told with every file: a worker has a policy of its own.
func TestPolicy(t *testing.T) {
	p := page(t, fstest.MapFS{"index.html": {Data: []byte("x")}, "assets/worker-1.js": {Data: []byte("x")}})
	for _, path := range []string{"/", "/assets/worker-1.js"} {
		h := ask(p, "GET", path, nil).Header
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "worker-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			if !strings.Contains(h.Get("Content-Security-Policy")+";", part+";") {
				t.Errorf("%s: the policy %q lacks %s", path, h.Get("Content-Security-Policy"), part)
			}
		}
		if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: the policy %q", path, h.Get("Content-Security-Policy"))
		}
		for k, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"} {
			if h.Get(k) != want {
				t.Errorf("%s: %s is %q; want %q", path, k, h.Get(k), want)
			}
		}
	}
}

func TestWhatIsThePages(t *testing.T) {
	p := page(t, fstest.MapFS{"index.html": {Data: []byte("x")}, "assets/a-1.js": {Data: []byte("x")}})
	for path, want := range map[string][2]bool{ // for a program, for a browser that goes there
		"/": {true, true}, "/assets/a-1.js": {true, true}, "/assets/a-0.js": {false, false}, "/jobs/1": {false, true},
	} {
		for i, accept := range []string{"*/*", "text/html,application/xhtml+xml"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Accept", accept)
			if got := p.Has(r); got != want[i] {
				t.Errorf("%s for %s: %t; want %t", path, accept, got, want[i])
			}
		}
	}
}

func TestWithoutABuild(t *testing.T) {
	p := page(t, fstest.MapFS{".keep": {}})
	if text := body(t, ask(p, "GET", "/", nil)); !strings.Contains(text, "make dashboard build") {
		t.Errorf("%q does not say how to build the page", text)
	}
	if _, err := New(Files()); err != nil {
		t.Errorf("what lies in the program: %v", err)
	}
}
