// Package dashboard serves the page that an operator keeps open, from files that lie in
// the program itself.
//
// It guarantees that the page runs no script and loads nothing but its own files, that
// no other page may frame it, and that a file which is named by its content is never
// asked for twice. It knows nothing of who is asking: the page holds nothing secret, and
// whatever it shows it asks the hub's interface for.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// built is what the page's own tools made; nothing but a placeholder where they were
// not run, so that the program builds without them.
//
//go:embed all:dist
var built embed.FS

// Files gives the page as it was built into this program.
func Files() fs.FS {
	sub, err := fs.Sub(built, "dist")
	if err != nil { // only for a name that is none
		panic(err)
	}
	return sub
}

const (
	index  = "index.html"
	assets = "assets/" // below it every file is named by its content
)

// policy is what the page may do: run its own files and ask this hub. Pictures may also
// come from bytes that it holds, which is how it shows a job's.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
	"font-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Page answers for the dashboard.
type Page struct {
	files map[string]*file
}

// file is one of the page's, with what is the same in each of its answers.
type file struct {
	raw    []byte
	kind   string
	tag    string
	packed func() []byte // by gzip; nil where that gains nothing
}

// New makes the page of files. Without an index among them it is one that says how to
// build it.
func New(from fs.FS) (*Page, error) {
	p := &Page{files: map[string]*file{}}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path.Base(name), ".") {
			return err
		}
		b, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		p.files[name] = newFile(name, b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the dashboard's files: %w", err)
	}
	if p.files[index] == nil {
		p.files[index] = newFile(index, []byte(unbuilt))
	}
	return p, nil
}

const unbuilt = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Tugline</title>
<h1>This hub was built without its dashboard</h1>
<p>It works as any other; only this page is missing. To have it, build the program from its sources with
<code>make dashboard build</code>, which needs Node.</p>
<p>The command line does all that the page does: begin with <code>tugline hub status</code>.
The interface is described at <a href="/openapi.json">/openapi.json</a>.</p>
</html>
`

// kinds are the types of what a page is made of, whatever the machine has on record.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".json": "application/json", ".webmanifest": "application/manifest+json",
	".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2", ".wasm": "application/wasm", ".txt": "text/plain; charset=utf-8",
}

// packable are the types that become smaller.
var packable = []string{".html", ".js", ".css", ".svg", ".json", ".webmanifest", ".wasm", ".txt"}

func newFile(name string, raw []byte) *file {
	ext := path.Ext(name)
	sum := sha256.Sum256(raw)
	f := &file{raw: raw, kind: kinds[ext], tag: hex.EncodeToString(sum[:8])}
	if f.kind == "" {
		if f.kind = mime.TypeByExtension(ext); f.kind == "" {
			f.kind = "application/octet-stream"
		}
	}
	if slices.Contains(packable, ext) {
		f.packed = sync.OnceValue(func() []byte { return pack(raw) })
	}
	return f
}

// pack gives bytes by gzip, or nil where they become no smaller.
func pack(raw []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil { // only for a level that is none
		panic(err)
	}
	z.Write(raw) // into memory
	z.Close()
	if b.Len() >= len(raw) {
		return nil
	}
	return b.Bytes()
}

// Has says whether a path is the page's: the page itself, one of its files, or, for who
// asks for a page to look at, any place that the page shows by itself.
func (p *Page) Has(r *http.Request) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "" || p.files[name] != nil:
		return true
	case strings.HasPrefix(name, assets): // a file of another version, which no page can stand for
		return false
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// ServeHTTP answers GET and HEAD of what Has names.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	f := p.files[name]
	if f == nil {
		name, f = index, p.files[index]
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), usb=(), payment=()")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	switch {
	case name == index: // it names the others: an old one would ask for what is gone
		h.Set("Cache-Control", "no-store")
	case strings.HasPrefix(name, assets):
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	default:
		h.Set("Cache-Control", "no-cache")
	}
	body, tag := f.raw, `"`+f.tag+`"`
	if f.packed != nil && packs(r) {
		if b := f.packed(); b != nil {
			body, tag = b, `"`+f.tag+`-gzip"`
			h.Set("Content-Encoding", "gzip")
		}
	}
	if name != index {
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body) // who went away needs no answer
	}
}

// packs says whether who asks can read gzip.
func packs(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || name == "*" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return weight == "" || err != nil || q > 0
		}
	}
	return false
}
