package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	readPatience   = 3 * time.Second  // a read is tried again for so long
	actPatience    = 10 * time.Second // an act that may safely be repeated
	createPatience = 15 * time.Minute // a creation, under its idempotency key
	answerTime     = 30 * time.Second // for the hub's answer to one request
	partTime       = 10 * time.Minute // for one part of an upload
	silenceTime    = time.Second      // of trying again before the user is told
	maxAnswer      = 64 << 20         // bytes of a JSON answer
)

// client speaks to one hub, or to whichever of several answers.
type client struct {
	spot   hubSpot
	ring   ring
	http   *http.Client
	notice func(format string, args ...any)
}

// dial makes a client of the hub that the user means. It asks nothing yet.
func (a *app) dial() (*client, error) {
	s, err := a.spot()
	if err != nil {
		return nil, err
	}
	return newClient(s, a.say)
}

func newClient(s hubSpot, notice func(string, ...any)) (*client, error) {
	pool, err := roots(s.CAFile)
	if err != nil {
		return nil, err
	}
	patience := 10 * time.Second
	if len(s.Others) > 0 {
		patience = 3 * time.Second // there is another one to ask
	}
	return &client{spot: s, ring: ring{urls: s.all()}, notice: notice, http: &http.Client{
		// A token must not follow a redirect to some other host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: patience, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   10 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			MaxIdleConnsPerHost:   4,
			ExpectContinueTimeout: time.Second,
		},
	}}, nil
}

// hub is the URL of the hub that is asked now.
func (c *client) hub() string { return c.ring.now() }

func (c *client) close() { c.http.CloseIdleConnections() }

// request is one question to the hub.
type request struct {
	method, path string
	query        url.Values
	body         any    // sent as JSON
	raw          []byte // sent as it is
	key          string // Idempotency-Key
	patience     time.Duration
	once         bool // must not be repeated once a byte may have arrived
	timeout      time.Duration
	lastEvent    string // Last-Event-ID
}

// newKey makes an idempotency key.
func newKey() string { return strings.ToLower(ulid.Make().String()) }

// reading is the request for a document.
func reading(path string, query url.Values) request {
	return request{method: http.MethodGet, path: path, query: query, patience: readPatience}
}

// acting is the request that does something with what exists, under a key of its own.
func acting(path string, body any) request {
	return request{method: http.MethodPost, path: path, body: body, key: newKey(), patience: actPatience}
}

// answer has the hub answer one request. It is done where that was all there is to do: it
// failed, or --json wants the answer as the hub wrote it.
func (a *app) answer(ctx context.Context, r request, out any) (done bool, err error) {
	c, err := a.dial()
	if err != nil {
		return true, err
	}
	defer c.close()
	raw, err := c.ask(ctx, r, out)
	if err != nil || !a.json {
		return err != nil, err
	}
	return true, a.printRaw(raw)
}

// read gets a document; raw is how the hub wrote it.
func (c *client) read(ctx context.Context, path string, query url.Values, out any) (raw []byte, err error) {
	return c.ask(ctx, reading(path, query), out)
}

// act posts to something that exists.
func (c *client) act(ctx context.Context, path string, body, out any) (raw []byte, err error) {
	return c.ask(ctx, acting(path, body), out)
}

// ask gives the answer to a request; raw is how the hub wrote it.
func (c *client) ask(ctx context.Context, r request, out any) (raw []byte, err error) {
	raw, _, err = c.call(ctx, r)
	if err == nil && out != nil {
		err = decode(raw, out)
	}
	return raw, err
}

func decode(raw []byte, out any) error {
	if err := json.Unmarshal(raw, out); err != nil {
		return fail(exitFailed, "the hub's answer cannot be read (%v); is it of another release, or something else at that address?", err)
	}
	return nil
}

// call asks until there is an answer, a refusal, or no patience left.
func (c *client) call(ctx context.Context, r request) (raw []byte, head http.Header, err error) {
	body := r.raw
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return nil, nil, err
		}
	}
	start, told := time.Now(), false
	for wait := backoff(0); ; {
		raw, head, err = c.once(ctx, r, body)
		if err == nil || ctx.Err() != nil || !repeatable(err, r.once) {
			return raw, head, c.explain(ctx, err)
		}
		next := c.next(&wait, err)
		if left := r.patience - time.Since(start); next > left {
			return nil, nil, c.explain(ctx, err)
		}
		if !told && time.Since(start)+next > silenceTime && r.patience > actPatience {
			told = true
			c.notice("%s; trying again for up to %s, Ctrl-C gives up", c.explain(ctx, err), span(r.patience-time.Since(start)))
		}
		if err := pause(ctx, next); err != nil {
			return nil, nil, c.explain(ctx, err)
		}
	}
}

func (c *client) once(ctx context.Context, r request, body []byte) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout, answerTime))
	defer cancel()
	hub := c.hub()
	res, err := c.send(ctx, r, body, "application/json")
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		if ctx.Err() == nil {
			c.ring.passOver(hub)
		}
		return nil, nil, err
	}
	return b, res.Header, nil
}

// send makes one request; an answer that is no success is an error. Where another hub
// may do better, that one is asked the next time.
func (c *client) send(ctx context.Context, r request, body []byte, accept string) (*http.Response, error) {
	if id, odd := oddID(r.path); odd {
		return nil, usage("%q is no id and no name", id)
	}
	hub := c.ring.now()
	res, err := c.sendTo(ctx, hub, r, body, accept)
	switch {
	case err == nil:
		c.ring.answered(res.Header)
	case ctx.Err() == nil && passes(err):
		c.ring.passOver(hub)
	}
	return res, err
}

// oddID finds what can't be one among the ids of a path: nothing, or steps to another path.
func oddID(p string) (id string, odd bool) {
	for part := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
		plain, err := url.PathUnescape(part)
		if err != nil || path.Clean("/"+plain) != "/"+plain || plain == "" {
			return plain, true
		}
	}
	return "", false
}

func (c *client) sendTo(ctx context.Context, hub string, r request, body []byte, accept string) (*http.Response, error) {
	u := hub + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.spot.Token)
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "tugline/"+thisBuild().Version)
	switch {
	case r.raw != nil:
		req.Header.Set("Content-Type", "application/octet-stream")
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if i := c.ring.seen(); i > 0 && r.method == http.MethodGet {
		req.Header.Set(api.IndexHeader, strconv.FormatUint(i, 10)) // nothing older than what was shown
	}
	if r.lastEvent != "" {
		req.Header.Set("Last-Event-ID", r.lastEvent)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	return nil, refused(res, b)
}

// refused reads a refusal. What is no problem document comes from something that
// is no hub, or stands before it.
func refused(res *http.Response, body []byte) error {
	r := &refusal{}
	if res.Request.Method == http.MethodHead {
		code := fleet.Internal
		switch res.StatusCode {
		case http.StatusUnauthorized:
			code = fleet.Unauthorised
		case http.StatusForbidden:
			code = fleet.Forbidden
		}
		r.Problem = api.Problem{Code: code, Detail: "the hub refused the upload: " + res.Status}
	} else if err := json.Unmarshal(body, &r.Problem); err != nil || r.Code == "" {
		r.Problem = api.Problem{Code: fleet.Internal, Detail: fmt.Sprintf(
			"%s answered %s, which is not how a Tugline hub refuses; check the URL, and any proxy before the hub", res.Request.URL.Host, res.Status)}
	}
	r.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		return &later{r, time.Duration(min(s, 60)) * time.Second}
	}
	return r
}

// later is a refusal that says when to ask again.
type later struct {
	*refusal
	after time.Duration
}

func (l *later) Unwrap() error { return l.refusal }

func retryAfter(err error) time.Duration {
	var l *later
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}

// repeatable says whether the same request may do better a little later.
func repeatable(err error, once bool) bool {
	var r *refusal
	if errors.As(err, &r) {
		switch r.Status {
		case http.StatusTooManyRequests:
			return r.Code == fleet.QueueFull || r.Code == fleet.KeysFull
		case http.StatusServiceUnavailable:
			return !once || r.Code != fleet.OutcomeUnknown
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			return !once
		}
		return false
	}
	var f *failure
	var cert *tls.CertificateVerificationError
	if errors.As(err, &f) || errors.As(err, &cert) {
		return false
	}
	var op *net.OpError
	if once {
		return errors.As(err, &op) && op.Op == "dial"
	}
	return true
}

// explain turns what the network says into a sentence with the exit code of an
// unreachable hub. A refusal stays as it is.
func (c *client) explain(ctx context.Context, err error) error {
	var r *refusal
	var f *failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r) && (ctx.Err() == nil || !repeatable(err, false)):
		return err
	case errors.As(err, &f):
		return err
	case ctx.Err() != nil:
		return &failure{code: exitInterrupted, text: "stopped before the hub answered", cause: ctx.Err()}
	}
	if len(c.ring.urls) > 1 {
		return &failure{code: exitUnreachable, text: fmt.Sprintf("none of the hubs %s can be reached: %s", c.ring.list(), c.why(err)), cause: err}
	}
	return &failure{code: exitUnreachable, text: fmt.Sprintf("the hub at %s cannot be reached: %s", c.hub(), c.why(err)), cause: err}
}

func (c *client) why(err error) string {
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &cert):
		return "its certificate is not trusted here (" + cert.Err.Error() + "); give the hub's CA with --ca-file (where it was replaced, `tugline hub keys --ca` on the hub's machine prints the new one)"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " is not known; check the URL and the network"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there; is the hub running?"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time; check the network and any firewall"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "it closed the connection"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "it does not speak TLS; use http:// in the URL"
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// backoff gives growing pauses, each with jitter so that many clients do not come
// back at once.
type backoff time.Duration

func (b *backoff) next() time.Duration {
	*b = min(max(2**b, backoff(200*time.Millisecond)), backoff(10*time.Second))
	return time.Duration(*b)/2 + rand.N(time.Duration(*b))/2
}

// pause waits, or ends with the context.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
