//go:build linux

package fault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// on runs f on the machine's network. The thread that does it is never used for anything
// else where it cannot be brought back; f must leave nothing to other goroutines.
func (m *machine) on(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		there, err := os.Open("/run/netns/" + m.space)
		if err != nil {
			done <- err
			return
		}
		defer there.Close()
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		err = f()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// dial connects from the machine, to an address that is a number.
func (m *machine) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = m.on(func() (err error) {
		c, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// listen opens a TCP port on the machine.
func (m *machine) listen(addr string) (l net.Listener, err error) {
	err = m.on(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// client speaks to hubs from the person's machine. Each request has a connection of
// its own: what a cut did to an old one is not the question.
func (c *cluster) client() *http.Client {
	pool := x509.NewCertPool()
	b, err := os.ReadFile(c.ca)
	if err == nil {
		pool.AppendCertsFromPEM(b)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: c.person.dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
}

// answer is what a hub answered.
type answer struct {
	status int
	body   []byte
	head   http.Header
}

// ask sends one request to the hub.
func (h *hub) ask(method, path, key string, body any, within time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.url()+path, r)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+h.c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := h.c.client().Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, b, res.Header}, err
}

const askTime = 6 * time.Second

// get reads a document from the hub.
func (h *hub) get(path string, into any) error {
	a, err := h.ask(http.MethodGet, path, "", nil, askTime)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%s answered %d: %s", path, a.status, a.body)
	}
	if text, ok := into.(*string); ok {
		*text = string(a.body)
		return nil
	}
	return json.Unmarshal(a.body, into)
}

// get reads a document from the first hub that gives it.
func (c *cluster) get(path string, into any) bool {
	for _, h := range c.likely() {
		if h.p.Runs() && h.get(path, into) == nil {
			c.answers.Store(h)
			return true
		}
	}
	return false
}

// likely are all hubs, the one that answered last before the others.
func (c *cluster) likely() []*hub {
	last := c.answers.Load()
	if last == nil || !slices.Contains(c.hubs, last) {
		return c.hubs
	}
	return append([]*hub{last}, c.others(last)...)
}
