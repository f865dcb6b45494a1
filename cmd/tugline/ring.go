package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// maxHubs bounds how many hubs are kept or asked.
const maxHubs = 16

// hubList reads one or more URLs with commas between them.
func hubList(s string) ([]string, error) {
	var out []string
	for _, u := range strings.Split(s, ",") {
		if u = strings.TrimSpace(u); u == "" {
			continue
		}
		u, err := hubURL(u)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o string) bool { return sameHub(o, u) }) {
			out = append(out, u)
		}
	}
	switch {
	case len(out) == 0:
		_, err := hubURL(s)
		return nil, err
	case len(out) > maxHubs:
		return nil, usage("%d hubs are more than the %d that are asked", len(out), maxHubs)
	}
	return out, nil
}

// ring is the hubs of one cluster. One is asked until it fails, then the next.
type ring struct {
	mu     sync.Mutex
	urls   []string
	at     int
	failed int    // in a row
	index  uint64 // of the newest entry that an answer told of
}

func (r *ring) now() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.urls[r.at]
}

// passOver goes on to the next, unless that has been done.
func (r *ring) passOver(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.urls[r.at] == url {
		r.at = (r.at + 1) % len(r.urls)
		r.failed++
	}
}

// tried says whether each was asked since one answered last.
func (r *ring) tried() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed%len(r.urls) == 0
}

func (r *ring) answered(head http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = 0
	if i, err := strconv.ParseUint(head.Get(api.IndexHeader), 10, 64); err == nil {
		r.index = max(r.index, i)
	}
}

func (r *ring) seen() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index
}

// list names them for people.
func (r *ring) list() string { return strings.Join(r.urls, ", ") }

// passes says whether another hub may do better than the one that failed so.
func passes(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.Status == http.StatusServiceUnavailable || r.Status == http.StatusBadGateway || r.Status == http.StatusGatewayTimeout
	}
	return repeatable(err, false)
}

// rest waits before the next try: not at all while a hub is left that was not asked.
func (c *client) rest(ctx context.Context, wait *backoff, err error) error {
	return pause(ctx, c.next(wait, err))
}

func (c *client) next(wait *backoff, err error) time.Duration {
	if len(c.ring.urls) > 1 && passes(err) && !c.ring.tried() {
		return 0
	}
	return max(wait.next(), retryAfter(err))
}

// others gives the URLs of the cluster's hub nodes beside those that are known. A hub
// that can't be asked, or does not say, has none.
func (c *client) others(ctx context.Context) ([]string, error) {
	var m api.Members
	if _, err := c.read(ctx, "/v1/members", nil, &m); err != nil {
		if errors.Is(err, fleet.NotFound) {
			return nil, nil
		}
		return nil, err
	}
	var out []string
	for _, n := range m.Members {
		u, err := hubURL(n.URL)
		if err != nil || n.RemovedAt != nil || len(c.ring.urls)+len(out) >= maxHubs || slices.ContainsFunc(slices.Concat(c.ring.urls, out), func(o string) bool { return sameHub(o, u) }) {
			continue
		}
		out = append(out, u)
	}
	return out, nil
}
