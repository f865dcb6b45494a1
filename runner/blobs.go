package runner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

const (
	partTime  = 5 * time.Minute // of one part of a blob on its way to the hub
	stallTime = time.Minute     // without a byte of one that comes; then it is asked for anew from there
)

// Fetch is of attempt.Hub: it copies a blob, going on from where a broken transfer
// stopped, and verifies its digest.
func (l *link) Fetch(ctx context.Context, d fleet.Digest, to io.Writer) error {
	return l.fetch(ctx, d, to, 0)
}

// fetch is Fetch, which gives up after so many breaks in a row that brought no byte; 0 is
// never.
func (l *link) fetch(ctx context.Context, d fleet.Digest, to io.Writer, idle int) error {
	sum := sha256.New()
	var have int64
	breaks := 0
	err := l.patiently(ctx, func(s *session) (bool, error) {
		n, err := l.fetchPart(ctx, s, d, have, io.MultiWriter(to, sum))
		have += n
		if breaks++; n > 0 {
			breaks = 0
		}
		if err != nil && breaks > 0 && breaks == idle {
			err = localError{fmt.Errorf("given up at %d bytes after %d tries that brought none: %w", have, breaks, err)}
		}
		return n > 0, err
	})
	if err != nil {
		return fmt.Errorf("fetch blob %s: %w", d, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != string(d) {
		return fmt.Errorf("fetch blob %s: the bytes have digest %s: %w", d, got, fleet.BlobDigest)
	}
	return nil
}

// errPass says that something failed which may go better the next time.
var errPass = errors.New("the transfer broke")

// localError is a failure of this machine, not of the transfer.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// patiently repeats a transfer until it is done or refused for good. One that moved
// something says so, and is repeated sooner.
func (l *link) patiently(ctx context.Context, do func(*session) (moved bool, err error)) error {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		s, err := l.current(ctx)
		if err != nil {
			return err
		}
		moved, err := do(s)
		if moved {
			wait = minBackoff
		}
		var code fleet.Code
		var local localError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &local):
			return local.error
		case errors.As(err, &code) && !passing(code):
			return err
		}
		l.r.log.Info("transfer is tried again", "err", err)
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// passing says whether a refusal may go away by itself. A session that ended is
// replaced by the next one.
func passing(c fleet.Code) bool {
	switch c {
	case fleet.Unavailable, fleet.SessionEnded, fleet.OutcomeUnknown, fleet.Internal, fleet.Restarting, fleet.Unauthorised, fleet.DiskFull, fleet.SpoolGap:
		return true
	}
	return false
}

func (l *link) blobRequest(ctx context.Context, s *session, method string, d fleet.Digest, query string, body io.Reader) (*http.Request, error) {
	path := wire.BlobPath(l.id.Runner, d)
	req, err := http.NewRequestWithContext(ctx, method, s.base+path+query, body)
	if err != nil {
		return nil, localError{err}
	}
	nonce, err := wire.NewNonce(rand.Reader)
	if err != nil {
		return nil, localError{err}
	}
	req.Header.Set("Authorization", wire.BlobAuth(s.key, s.id, method, req.URL.EscapedPath(), nonce))
	return req, nil
}

func (l *link) fetchPart(ctx context.Context, s *session, d fleet.Digest, have int64, to io.Writer) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := l.blobRequest(ctx, s, http.MethodGet, d, "", nil)
	if err != nil {
		return 0, err
	}
	from := strconv.FormatInt(have, 10) + "-"
	if have > 0 {
		req.Header.Set("Range", "bytes="+from)
	}
	res, err := l.net.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errPass, err)
	}
	defer res.Body.Close()
	stalled := time.AfterFunc(stallTime, cancel)
	defer stalled.Stop()
	switch {
	case have > 0 && res.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, nil // the break came after the last byte
	case have > 0 && res.StatusCode == http.StatusPartialContent:
		if r := res.Header.Get("Content-Range"); !strings.HasPrefix(r, "bytes "+from) {
			return 0, fmt.Errorf("asked for the bytes %s, and %q came: %w", from, r, errPass)
		}
	case res.StatusCode != http.StatusOK:
		return 0, refusal(res)
	case have > 0: // somebody between knows no ranges
		if _, err := io.CopyN(still{stalled}, res.Body, have); err != nil {
			return 0, fmt.Errorf("%w: %w", errPass, err)
		}
	}
	out := &tracked{to: to}
	_, err = io.Copy(io.MultiWriter(out, still{stalled}), res.Body)
	if out.err != nil {
		return out.n, localError{out.err}
	}
	if err != nil {
		return out.n, fmt.Errorf("%w: %w", errPass, err)
	}
	return out.n, nil
}

// still puts off the end of a transfer that stalls, while bytes come.
type still struct{ stalled *time.Timer }

func (s still) Write(p []byte) (int, error) {
	s.stalled.Reset(stallTime)
	return len(p), nil
}

// tracked tells a failed write from a failed read.
type tracked struct {
	to  io.Writer
	n   int64
	err error
}

func (t *tracked) Write(p []byte) (int, error) {
	n, err := t.to.Write(p)
	t.n += int64(n)
	t.err = err
	return n, err
}

func refusal(res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxEnrol))
	if err != nil {
		return fmt.Errorf("%w: %w", errPass, err)
	}
	return problemOf(res.StatusCode, b)
}

// Store is of attempt.Hub: it uploads a file in parts, each from where the hub has
// it durably, and returns when the blob is stored.
func (l *link) Store(ctx context.Context, d fleet.Digest, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	err = l.patiently(ctx, func(s *session) (bool, error) { return false, l.upload(ctx, s, d, f, st.Size()) })
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	return nil
}

func (l *link) upload(ctx context.Context, s *session, d fleet.Digest, f io.ReaderAt, size int64) error {
	stored, offset, err := l.stored(ctx, s, d, size)
	for err == nil && !stored {
		n := min(int64(wire.MaxPart), size-offset)
		var next int64
		stored, next, err = l.putPart(ctx, s, d, io.NewSectionReader(f, offset, n), offset, n, size)
		if err == nil && !stored && next <= offset {
			err = fmt.Errorf("the hub has %d bytes after a part at %d: %w", next, offset, errPass)
		}
		offset = next
	}
	return err
}

// stored asks how much of a blob the hub has.
func (l *link) stored(ctx context.Context, s *session, d fleet.Digest, size int64) (bool, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	req, err := l.blobRequest(ctx, s, http.MethodHead, d, "?size="+strconv.FormatInt(size, 10), nil)
	if err != nil {
		return false, 0, err
	}
	res, err := l.net.client.Do(req)
	if err != nil {
		return false, 0, fmt.Errorf("%w: %w", errPass, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return true, size, nil
	case http.StatusNotFound:
		offset, err := strconv.ParseInt(res.Header.Get(wire.OffsetHeader), 10, 64)
		if err != nil || offset < 0 || offset > size {
			offset = 0
		}
		if offset == size {
			offset = 0 // whole and not stored: say the last of it again
		}
		return false, offset, nil
	case http.StatusUnauthorized:
		return false, 0, fmt.Errorf("the hub does not know the session any more: %w", fleet.SessionEnded)
	case http.StatusForbidden:
		return false, 0, fmt.Errorf("the hub takes no blob of this runner: %w", fleet.Forbidden)
	case http.StatusRequestEntityTooLarge:
		return false, 0, fmt.Errorf("the blob of %d bytes is larger than the hub takes: %w", size, fleet.TooLarge)
	}
	return false, 0, fmt.Errorf("the hub answered with status %d: %w", res.StatusCode, fleet.Unavailable) // a HEAD has no body to say more
}

func (l *link) putPart(ctx context.Context, s *session, d fleet.Digest, part io.Reader, offset, n, size int64) (stored bool, durable int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	req, err := l.blobRequest(ctx, s, http.MethodPut, d, "", part)
	if err != nil {
		return false, 0, err
	}
	req.ContentLength = n
	if n > 0 {
		req.Header.Set("Content-Range", "bytes "+strconv.FormatInt(offset, 10)+"-"+strconv.FormatInt(offset+n-1, 10)+"/"+strconv.FormatInt(size, 10))
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := l.net.client.Do(req)
	if err != nil {
		return false, 0, fmt.Errorf("%w: %w", errPass, err)
	}
	defer res.Body.Close()
	at, parseErr := strconv.ParseInt(res.Header.Get(wire.OffsetHeader), 10, 64)
	switch res.StatusCode {
	case http.StatusCreated:
		return true, size, nil
	case http.StatusAccepted, http.StatusConflict:
		if parseErr != nil || at < 0 || at >= size {
			return false, 0, fmt.Errorf("the hub names no offset: %w", errPass)
		}
		return false, at, nil
	}
	return false, 0, refusal(res)
}
