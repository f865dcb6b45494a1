package web

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/replica"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

func (w *world) put(d fleet.Digest, size, offset int64, part []byte) answer {
	w.t.Helper()
	return w.do(request{method: "PUT", path: fmt.Sprintf("/v1/blobs/%s?size=%d&offset=%d", d, size, offset), role: fleet.RoleOperator, kind: "application/octet-stream", body: part})
}

func (w *world) offset(d fleet.Digest, size int64) (status int, offset string) {
	w.t.Helper()
	a := w.do(request{method: "HEAD", path: fmt.Sprintf("/v1/blobs/%s?size=%d", d, size), role: fleet.RoleOperator})
	return a.status, a.header.Get("Tugline-Offset")
}

func TestUploadResumes(t *testing.T) {
	w := newWorld(t)
	data := make([]byte, 300<<10)
	src := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(src.Uint32())
	}
	d, size := digestOf(data), int64(len(data))
	if st, off := w.offset(d, size); st != 202 || off != "0" {
		t.Errorf("before the first part: %d, offset %s", st, off)
	}
	if a := w.put(d, size, 0, data[:100<<10]); a.status != 202 || a.header.Get("Tugline-Offset") != "102400" {
		t.Errorf("first part: %d, offset %s %s", a.status, a.header.Get("Tugline-Offset"), a.body)
	}
	p := checkProblem(t, "a part that leaves a gap", w.put(d, size, 200<<10, data[200<<10:]), 416, fleet.SpoolGap)
	if !strings.Contains(p.Detail, "102400") || !strings.Contains(p.Detail, fmt.Sprintf("?size=%d", size)) {
		t.Errorf("%q does not say where to go on", p.Detail)
	}
	if st, off := w.offset(d, size); st != 202 || off != "102400" {
		t.Errorf("after a gap: %d, offset %s", st, off)
	}
	if a := w.put(d, size, 50<<10, data[50<<10:]); a.status != 201 {
		t.Errorf("the rest, overlapping: %d %s", a.status, a.body)
	}
	if st, off := w.offset(d, size); st != 200 || off != fmt.Sprint(size) {
		t.Errorf("when whole: %d, offset %s", st, off)
	}
	if a := w.put(d, size, 0, data[:10]); a.status != 201 {
		t.Errorf("a repeat: %d %s", a.status, a.body)
	}
	if a := w.do(request{method: "GET", path: "/v1/blobs/" + string(d), role: fleet.RoleOperator}); !bytes.Equal(a.body, data) {
		t.Errorf("read back %d bytes of %d", len(a.body), len(data))
	}
}

// TestUploadOfFullParts: a part may have exactly the most that a part may have.
func TestUploadOfFullParts(t *testing.T) {
	w := newWorld(t)
	data := make([]byte, maxPart+1)
	d, size := digestOf(data), int64(len(data))
	if a := w.put(d, size, 0, data[:maxPart]); a.status != 202 || a.header.Get("Tugline-Offset") != strconv.Itoa(maxPart) {
		t.Errorf("a full part: %d, offset %s %s", a.status, a.header.Get("Tugline-Offset"), a.body)
	}
	if a := w.put(d, size, maxPart, data[maxPart:]); a.status != 201 {
		t.Errorf("the rest: %d %s", a.status, a.body)
	}
}

func TestUploadRefusals(t *testing.T) {
	w := newWorld(t)
	right, wrong := []byte("right"), []byte("wrong")
	checkProblem(t, "other bytes than promised", w.put(digestOf(right), 5, 0, wrong), 422, fleet.BlobDigest)
	if st, off := w.offset(digestOf(right), 5); st != 202 || off != "0" {
		t.Errorf("after wrong bytes: %d, offset %s; want it to begin anew", st, off)
	}
	checkProblem(t, "over 2 GiB", w.put(digestOf(right), 2<<30+1, 0, right), 413, fleet.TooLarge)
	checkProblem(t, "a part over 8 MiB", w.put(digestOf(right), 9<<20, 0, make([]byte, 8<<20+1)), 413, fleet.TooLarge)
	checkProblem(t, "a part beyond the end", w.put(digestOf(right), 3, 0, right), 413, fleet.TooLarge)
	checkProblem(t, "no digest", w.put("abc", 5, 0, right), 400, fleet.BadRequest)
	checkProblem(t, "a digest in capitals", w.put(fleet.Digest(strings.ToUpper(string(digestOf(right)))), 5, 0, right), 400, fleet.BadRequest)
	checkProblem(t, "a negative size", w.put(digestOf(right), -1, 0, right), 400, fleet.BadRequest)
	checkProblem(t, "a negative offset", w.put(digestOf(right), 5, -1, right), 400, fleet.BadRequest)
	w.refuses(request{method: "PUT", path: "/v1/blobs/" + string(digestOf(right)), role: fleet.RoleOperator, kind: "application/octet-stream", body: right}, 400, fleet.BadRequest)
	w.refuses(request{method: "GET", path: "/v1/blobs/" + string(digestOf(right)), role: fleet.RoleOperator}, 404, fleet.BlobMissing)
	if n, _ := w.blobs.Usage(); n != 0 {
		t.Errorf("the refusals left %d bytes", n)
	}
	if a := w.put(digestOf(nil), 0, 0, nil); a.status != 201 {
		t.Errorf("an empty blob: %d %s", a.status, a.body)
	}
}

// TestSubmitRenewsItsInputs: what a submit names must outlive the sweep of what
// nobody names, from the moment the submit looked.
func TestSubmitRenewsItsInputs(t *testing.T) {
	var dir string
	var blobs *blob.Store
	w := newWorld(t, func(c *Config) {
		dir = t.TempDir()
		var err error
		if blobs, err = blob.Open(blob.Config{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		spooled, err := spool.Open(spool.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		copies, err := replica.New(replica.Config{Self: "n-test", Dir: t.TempDir(), Spool: spooled, Blobs: blobs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { copies.Close(); spooled.Close() })
		c.Blobs = copies.Blobs()
	})
	w.blobs = blobs
	bundle, prompt := []byte("bundle"), "the same prompt as long ago"
	w.put(digestOf(bundle), int64(len(bundle)), 0, bundle)
	submit := request{method: "POST", path: "/v1/jobs", role: fleet.RoleOperator, body: api.Submit{Kind: fleet.KindAgent, Harness: "codex", Prompt: prompt,
		Repo: &fleet.Repo{Bundle: digestOf(bundle), CacheKey: strings.Repeat("a", 40)}}}
	get[api.Job](w, submit)
	long := time.Now().Add(-90 * 24 * time.Hour)
	names := []fleet.Digest{digestOf(bundle), digestOf([]byte(prompt))}
	for _, d := range names {
		if err := os.Chtimes(filepath.Join(dir, string(d[:2]), string(d)), long, long); err != nil {
			t.Fatal(err)
		}
	}
	get[api.Job](w, submit)
	check := func(d fleet.Digest, after string) {
		t.Helper()
		if freed, err := w.blobs.DeleteUnused(d, time.Now().Add(-time.Hour)); freed != 0 || err != nil {
			t.Errorf("blob %s was swept right after %s: %d, %v", d, after, freed, err)
		}
	}
	for _, d := range names {
		check(d, "a submit named it")
	}
	// Who asks for it, or sends it again, is about to submit.
	for after, ask := range map[string]func(fleet.Digest){
		"a HEAD": func(d fleet.Digest) { w.offset(d, int64(len(bundle))) },
		"a PUT":  func(d fleet.Digest) { w.put(d, int64(len(bundle)), 0, bundle) },
	} {
		d := digestOf(bundle)
		if err := os.Chtimes(filepath.Join(dir, string(d[:2]), string(d)), long, long); err != nil {
			t.Fatal(err)
		}
		ask(d)
		check(d, after)
	}
}

func TestUploadAnswersAsDeclared(t *testing.T) {
	w := newWorld(t)
	data := []byte("two parts")
	declared := map[string]map[string]any{}
	_, ops := w.document()
	for _, o := range ops {
		declared[o.id], _ = o.spec["responses"].(map[string]any)
	}
	path := "/v1/blobs/" + string(digestOf(data)) + "?size=9"
	for _, r := range []struct {
		id, method, query string
		body              []byte
		status            int
	}{
		{"put-blob", "PUT", "", data[:4], 202},
		{"head-blob", "HEAD", "", nil, 202},
		{"put-blob", "PUT", "&offset=4", data[4:], 201},
		{"head-blob", "HEAD", "", nil, 200},
	} {
		req := request{method: r.method, path: path + r.query, role: fleet.RoleOperator}
		if r.body != nil {
			req.body, req.kind = r.body, "application/octet-stream"
		}
		a := w.do(req)
		if _, ok := declared[r.id][strconv.Itoa(a.status)]; a.status != r.status || !ok {
			t.Errorf("%s answers %d; want %d, and declared: %t", r.id, a.status, r.status, ok)
		}
	}
	for _, none := range []string{"put-blob", "head-blob"} {
		if _, ok := declared[none]["204"]; ok {
			t.Errorf("%s declares 204 and never gives it", none)
		}
	}
}
