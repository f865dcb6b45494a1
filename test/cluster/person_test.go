package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
	"tugline.dev/tugline/shared/wire"
)

// person uses the REST interface from a machine of her own: one hub at a time, another
// one when it does not answer.
type person struct {
	w    *world
	id   string
	http *http.Client
	at   int   // the hub that is asked
	last error // of the last request
}

func newPerson(w *world, id string) *person {
	t := &http.Transport{
		DialContext:           func(ctx context.Context, _, addr string) (net.Conn, error) { return w.dial(ctx, id, addr) },
		ResponseHeaderTimeout: 12 * time.Second, IdleConnTimeout: 20 * time.Second, DisableCompression: true,
	}
	p := &person{w: w, id: id, http: &http.Client{Transport: t, Timeout: 15 * time.Second}}
	w.onEnd(t.CloseIdleConnections)
	return p
}

// answer is what came back.
type answer struct {
	status int
	code   fleet.Code
	index  uint64
	body   []byte
}

// unsure says that the request may have been done.
var errUnsure = errors.New("no answer")

// ask makes one request at the hub of the moment. An error means that there was no
// answer.
func (p *person) ask(ctx context.Context, method, path, key string, body any) (answer, error) {
	return p.request(ctx, method, path, body, func(h http.Header) {
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
	})
}

// askSince does so for an answer that is at least as new as an entry.
func (p *person) askSince(ctx context.Context, method, path string, index uint64) (answer, error) {
	return p.request(ctx, method, path, nil, func(h http.Header) { h.Set(api.IndexHeader, strconv.FormatUint(index, 10)) })
}

func (p *person) request(ctx context.Context, method, path string, body any, head func(http.Header)) (answer, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		in = bytes.NewReader(b)
	}
	hub := p.w.hubs.nodes[p.at%len(p.w.hubs.nodes)]
	r, err := http.NewRequestWithContext(ctx, method, hub.url+path, in)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+p.w.token)
	r.Header.Set("Content-Type", "application/json")
	head(r.Header)
	res, err := p.http.Do(r)
	if err != nil {
		p.last = err
		return answer{}, fmt.Errorf("%w: %w", errUnsure, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.last = err
		return answer{}, fmt.Errorf("%w: %w", errUnsure, err)
	}
	a := answer{status: res.StatusCode, body: b}
	a.index, _ = strconv.ParseUint(res.Header.Get(api.IndexHeader), 10, 64)
	if a.status >= 300 {
		var pr api.Problem
		_ = json.Unmarshal(b, &pr)
		a.code = pr.Code
		p.last = fmt.Errorf("%s %s: %d %s: %s", method, path, a.status, pr.Code, pr.Detail)
	}
	return a, nil
}

// call asks and decodes; whatever is no success is an error.
func (p *person) call(ctx context.Context, method, path, key string, body, into any) error {
	a, err := p.ask(ctx, method, path, key, body)
	if err != nil {
		return err
	}
	if a.status >= 300 {
		return p.last
	}
	return json.Unmarshal(a.body, into)
}

// ticket makes a ticket and gives its text.
func (p *person) ticket(ctx context.Context, role string, uses int) (string, error) {
	var t api.Ticket
	err := p.call(ctx, http.MethodPost, "/v1/tickets", "", api.TicketRequest{Role: role, Uses: uses}, &t)
	return t.Ticket, err
}

// secret makes a ticket for runners and gives its secret.
func (p *person) secret(ctx context.Context, uses int) (string, error) {
	text, err := p.ticket(ctx, "", uses)
	if err != nil {
		return "", err
	}
	t, err := wire.ParseTicket(text)
	return t.Secret, err
}

func (p *person) members(ctx context.Context) (m api.Members, err error) {
	err = p.call(ctx, http.MethodGet, "/v1/members", "", nil, &m)
	return m, err
}
