package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	partSize  = 8 << 20 // bytes of one part of an upload
	maxUpload = 2 << 30 // bytes of a blob
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// offsetOf reads which byte the hub wants next.
func offsetOf(h http.Header, total int64) (int64, error) {
	off, err := strconv.ParseInt(h.Get(wire.OffsetHeader), 10, 64)
	if err != nil || off < 0 || off > total {
		return 0, fail(exitFailed, "the hub's answer does not say which byte it wants next; is a proxy between that drops the header %s?", wire.OffsetHeader)
	}
	return off, nil
}

func isGap(err error) bool { return errors.Is(err, fleet.SpoolGap) }

// download streams a document into w. Nothing is tried again once the first byte
// was written.
func (c *client) download(ctx context.Context, path string, query url.Values, w io.Writer) error {
	res, err := c.open(ctx, path, query, "*/*")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(w, res.Body)
	if err != nil {
		return c.explain(ctx, err)
	}
	if res.ContentLength >= 0 && n < res.ContentLength {
		return fail(exitUnreachable, "the hub stopped after %d of %d bytes; try again", n, res.ContentLength)
	}
	return nil
}

// open starts to read something long, with the patience of a read.
func (c *client) open(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	var wait backoff
	for tries := 0; ; tries++ {
		res, err := c.send(ctx, request{method: http.MethodGet, path: path, query: query}, nil, accept)
		if err == nil {
			return res, nil
		}
		if tries >= 4 || ctx.Err() != nil || !repeatable(err, false) {
			return nil, c.explain(ctx, err)
		}
		if err := c.rest(ctx, &wait, err); err != nil {
			return nil, c.explain(ctx, err)
		}
	}
}

// save downloads into a file and checks what came against its digest.
func (c *client) save(ctx context.Context, path string, query url.Values, file string, want fleet.Digest) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".tugline-*")
	if err != nil {
		return fail(exitFailed, "cannot write %s: %v", file, err)
	}
	defer os.Remove(tmp.Name())
	sum := sha256.New()
	err = c.download(ctx, path, query, io.MultiWriter(tmp, sum))
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); want != "" && got != string(want) {
		return fail(exitFailed, "what came for %s has the SHA-256 %s instead of %s; try again", file, got, want)
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return fail(exitFailed, "cannot write %s: %v", file, err)
	}
	return nil
}
