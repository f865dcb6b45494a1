package session

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"tugline.dev/tugline/hub/state"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// blobCall makes one authorised blob request.
func (a *agent) blobCall(k talk, method string, d fleet.Digest, query string, body []byte, header ...string) (*http.Response, []byte) {
	a.t.Helper()
	path := wire.BlobPath(a.id, d)
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.h.url+path+query, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	key, session := k.key()
	req.Header.Set("Authorization", wire.BlobAuth(key, session, method, path, random(a.t, wire.NonceSize)))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := a.h.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res, b
}

func offset(t *testing.T, res *http.Response) int64 {
	t.Helper()
	n, err := strconv.ParseInt(res.Header.Get(wire.OffsetHeader), 10, 64)
	if err != nil {
		t.Fatalf("answer %d has offset %q", res.StatusCode, res.Header.Get(wire.OffsetHeader))
	}
	return n
}

func TestStoreBlob(t *testing.T) {
	t.Parallel()
	over(t, func(t *testing.T, connect func(*agent) talk) {
		h := newHub(t)
		a := h.enrolled()
		k := connect(a)
		data := []byte("some patch")
		d := digest(data)
		if res, _ := a.blobCall(k, http.MethodPut, d, "", data); res.StatusCode != http.StatusForbidden {
			t.Errorf("a runner without any attempt stored a blob: %d", res.StatusCode)
		}
		h.assign(a.id)
		if res, _ := a.blobCall(k, http.MethodHead, d, "?size=10", nil); res.StatusCode != http.StatusNotFound || offset(t, res) != 0 {
			t.Errorf("of a blob that is not there: %d, offset %d", res.StatusCode, offset(t, res))
		}
		for range 2 { // again is harmless
			if res, b := a.blobCall(k, http.MethodPut, d, "", data); res.StatusCode != http.StatusCreated || offset(t, res) != 10 {
				t.Fatalf("whole: %d %s", res.StatusCode, b)
			}
		}
		if res, _ := a.blobCall(k, http.MethodHead, d, "", nil); res.StatusCode != http.StatusOK || offset(t, res) != 10 {
			t.Errorf("of a stored blob: %d, offset %d", res.StatusCode, offset(t, res))
		}
		if res, _ := a.blobCall(k, http.MethodPut, digest([]byte("other")), "", data); res.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("another content: %d", res.StatusCode)
		}
	})
}

// TestStoreParts sends a blob in parts, one of them lost and one sent twice.
func TestStoreParts(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	h.assign(a.id)
	data := random(t, 1<<20)
	d := digest(data)
	const step = 300 << 10
	put := func(from int) *http.Response {
		t.Helper()
		to := min(from+step, len(data))
		res, _ := a.blobCall(k, http.MethodPut, d, "", data[from:to], "Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
		return res
	}
	if res := put(0); res.StatusCode != http.StatusAccepted || offset(t, res) != step {
		t.Fatalf("first part: %d, offset %d", res.StatusCode, offset(t, res))
	}
	if res := put(2 * step); res.StatusCode != http.StatusConflict || offset(t, res) != step {
		t.Fatalf("a part behind a gap: %d, offset %d", res.StatusCode, offset(t, res))
	}
	if res := put(0); res.StatusCode != http.StatusAccepted || offset(t, res) != step {
		t.Fatalf("the first part again: %d, offset %d", res.StatusCode, offset(t, res))
	}
	k = a.link() // a new session goes on
	res, _ := a.blobCall(k, http.MethodHead, d, fmt.Sprintf("?size=%d", len(data)), nil)
	at := offset(t, res)
	if res.StatusCode != http.StatusNotFound || at != step {
		t.Fatalf("offset to go on from: %d, %d", res.StatusCode, at)
	}
	for at < int64(len(data)) {
		res := put(int(at))
		at = offset(t, res)
		if want := map[bool]int{true: http.StatusCreated, false: http.StatusAccepted}[at == int64(len(data))]; res.StatusCode != want {
			t.Fatalf("part up to %d: %d", at, res.StatusCode)
		}
	}
	f, size, err := h.blobs.Open(d)
	if err != nil || size != int64(len(data)) {
		t.Fatal(size, err)
	}
	f.Close()

	for _, c := range []struct {
		header string
		body   []byte
		status int
	}{
		{"bytes 0-1/5", []byte("abc"), http.StatusBadRequest},
		{"bytes 3-1/5", []byte("abc"), http.StatusBadRequest},
		{"bytes 3-5/5", []byte("abc"), http.StatusBadRequest},
		{"bytes */5", []byte("abc"), http.StatusBadRequest},
		{"lines 0-2/5", []byte("abc"), http.StatusBadRequest},
		{"bytes 0-2/99999999999", []byte("abc"), http.StatusRequestEntityTooLarge},
		{"", make([]byte, wire.MaxPart+1), http.StatusRequestEntityTooLarge},
	} {
		if res, b := a.blobCall(k, http.MethodPut, digest([]byte("x")), "", c.body, "Content-Range", c.header); res.StatusCode != c.status {
			t.Errorf("%q with %d bytes: %d %s, want %d", c.header, len(c.body), res.StatusCode, b, c.status)
		}
	}
}

func TestFetchBlob(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a, b := h.enrolled(), h.enrolled()
	b.journal = "j-2"
	k, other := a.link(), b.link()
	prompt, bundle, secret := random(t, 1000), random(t, 2000), random(t, 100)
	for _, p := range [][]byte{prompt, bundle, secret} {
		if err := h.blobs.Put(t.Context(), digest(p), int64(len(p)), bytes.NewReader(p)); err != nil {
			t.Fatal(err)
		}
	}
	h.assign(a.id, func(s *state.SubmitJob) {
		s.Prompt, s.Spec.Kind, s.Spec.Repo = digest(prompt), fleet.KindAgent, &fleet.Repo{Bundle: digest(bundle)}
	})
	for _, in := range [][]byte{prompt, bundle} {
		if res, got := a.blobCall(k, http.MethodGet, digest(in), "", nil); res.StatusCode != http.StatusOK || !bytes.Equal(got, in) {
			t.Errorf("an input: %d, %d bytes", res.StatusCode, len(got))
		}
		if res, got := a.blobCall(k, http.MethodGet, digest(in), "", nil, "Range", "bytes=100-"); res.StatusCode != http.StatusPartialContent || !bytes.Equal(got, in[100:]) {
			t.Errorf("the rest of an input: %d, %d bytes", res.StatusCode, len(got))
		}
		if res, _ := b.blobCall(other, http.MethodGet, digest(in), "", nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("another runner's input: %d", res.StatusCode)
		}
	}
	if res, _ := a.blobCall(k, http.MethodGet, digest(secret), "", nil); res.StatusCode != http.StatusForbidden {
		t.Errorf("a blob that no attempt names: %d", res.StatusCode)
	}
	if res, _ := b.blobCall(other, http.MethodHead, digest(prompt), "", nil); res.StatusCode != http.StatusForbidden || res.Header.Get(wire.CodeHeader) != string(fleet.Forbidden) {
		t.Errorf("HEAD of another runner's input: %d", res.StatusCode)
	}
}

// TestBlobAuth sees that a header holds for one method, path and live session.
func TestBlobAuth(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	a := h.enrolled()
	k := a.link()
	d := digest([]byte("x"))
	path := wire.BlobPath(a.id, d)
	nonce := random(t, wire.NonceSize)
	good := wire.BlobAuth(k.sk, k.session, http.MethodGet, path, nonce)
	wrong := k.sk
	wrong[0] ^= 1
	call := func(method, path, auth string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, h.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", auth)
		res, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := call(http.MethodGet, path, good); got != http.StatusForbidden { // known, but no attempt names it
		t.Errorf("the right header got %d", got)
	}
	for name, c := range map[string][3]string{
		"none":            {http.MethodGet, path, ""},
		"a bearer":        {http.MethodGet, path, "Bearer abc"},
		"another method":  {http.MethodPut, path, good},
		"another path":    {http.MethodGet, wire.BlobPath(a.id, digest([]byte("y"))), good},
		"another runner":  {http.MethodGet, wire.BlobPath("r-2", d), good},
		"another key":     {http.MethodGet, path, wire.BlobAuth(wrong, k.session, http.MethodGet, path, nonce)},
		"another session": {http.MethodGet, path, wire.BlobAuth(k.sk, "s-2", http.MethodGet, path, nonce)},
		"a session that ended": {http.MethodGet, path, func() string {
			old := a.link()
			auth := wire.BlobAuth(old.sk, old.session, http.MethodGet, path, nonce)
			a.link()
			return auth
		}()},
	} {
		if got := call(c[0], c[1], c[2]); got != http.StatusUnauthorized {
			t.Errorf("%s got %d", name, got)
		}
	}
}
