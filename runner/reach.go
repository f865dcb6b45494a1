package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/wire"
)

// Reached is how far one hub was reached from here.
type Reached struct {
	Hub  string
	Step string // of the one that failed: name, connection or WebSocket
	Err  error  // nil: all the way
	// Ahead is by how much this machine's clock is before the hub's, to a second; it is
	// known where Told is true.
	Ahead time.Duration
	Told  bool
}

// reachTime bounds one step towards a hub.
const reachTime = 10 * time.Second

// Reach tries every hub that a data directory names as the runner would: the name, a
// connection with the proof that it is the hub, and a WebSocket, which it drops before the
// handshake, so that a session of the runner goes on. Proxied goes by the proxy that the
// environment names, and directly otherwise.
func Reach(ctx context.Context, dir string, proxied bool) ([]Reached, error) {
	id, err := loadIdentity(dir)
	if err != nil {
		return nil, err
	}
	if id == nil || id.Runner == "" {
		return nil, errors.New("it is not enrolled")
	}
	n, err := newNetwork(id, func() [][]byte { return append([][]byte{id.Pin}, id.Pins...) }, nil)
	if err != nil {
		return nil, err
	}
	defer n.close()
	through := func(*http.Request) (*url.URL, error) { return nil, nil }
	if proxied {
		through = http.ProxyFromEnvironment
	}
	n.client.Transport.(*http.Transport).Proxy = through
	var all []Reached
	for _, hub := range slices.Concat(id.Known, id.Hubs) {
		if slices.ContainsFunc(all, func(r Reached) bool { return r.Hub == hub }) {
			continue
		}
		r := Reached{Hub: hub}
		r.Step, r.Err = r.reach(ctx, n, through, wire.LinkPath(id.Runner))
		all = append(all, r)
	}
	return all, nil
}

// reach goes one step after the other.
func (r *Reached) reach(ctx context.Context, n *network, through func(*http.Request) (*url.URL, error), link string) (step string, err error) {
	base := strings.TrimSuffix(r.Hub, "/")
	bound, cancel := context.WithTimeout(ctx, 3*reachTime)
	defer cancel()
	req, err := http.NewRequestWithContext(bound, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return "name", err
	}
	if by, err := through(req); err == nil && by == nil && net.ParseIP(req.URL.Hostname()) == nil {
		if _, err := net.DefaultResolver.LookupHost(bound, req.URL.Hostname()); err != nil {
			return "name", err
		}
	}
	sent := time.Now()
	res, err := n.client.Do(req)
	if err != nil {
		return "connection", err
	}
	res.Body.Close()
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		half := time.Since(sent) / 2
		r.Ahead, r.Told = time.Now().Add(-half).Sub(at.Add(500*time.Millisecond)).Round(time.Second), true
	}
	if res.StatusCode != http.StatusOK {
		return "connection", fmt.Errorf("%s answers with %s; is something else at that address?", base, res.Status)
	}
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, HandshakeTimeout: reachTime, TLSClientConfig: n.tls, Proxy: through}
	conn, answer, err := d.DialContext(bound, "ws"+strings.TrimPrefix(base, "http")+link, nil)
	if answer != nil {
		answer.Body.Close()
	}
	if err != nil {
		return "WebSocket", err
	}
	return "", conn.Close()
}
