package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

const (
	maxGuests  = 16       // connections of guests at once
	maxRequest = 16 << 10 // bytes of a request to join
	joinTime   = 30 * time.Second
)

// request is what a node that a guest asked tells the leader.
type request struct {
	Guest string `json:"guest"` // address inside the network, which stands for the guest's key
	Body  []byte `json:"body"`
}

// joinServer is what guests reach: one request a connection, and nothing but that.
func (p *Peers) joinServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /join", p.answerJoin)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.enter() {
				refuse(w, fleet.Unavailable, "this node is stopping; try another one")
				return
			}
			defer p.wg.Done()
			w.Header().Set("Connection", "close")
			if _, pattern := mux.Handler(r); pattern == "" {
				refuse(w, fleet.NotFound, "a guest can only ask to join")
				return
			}
			mux.ServeHTTP(w, r)
		}),
		BaseContext:    func(net.Listener) context.Context { return p.life },
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   10*time.Second + joinTime,
		MaxHeaderBytes: 4 << 10,
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
}

func (p *Peers) answerJoin(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(w, fleet.TooLarge, fmt.Sprintf("a request to join has at most %d bytes", maxRequest))
		return
	}
	guest, _, _ := net.SplitHostPort(r.RemoteAddr)
	b, err := json.Marshal(request{Guest: guest, Body: body})
	if err != nil {
		p.refuseWith(w, joinCall, err)
		return
	}
	answer, err := p.CallLeader(r.Context(), joinCall, b)
	if err != nil {
		p.log.Info("guest refused", "address", r.RemoteAddr, "err", err)
		p.refuseWith(w, joinCall, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := w.Write(answer); err != nil {
		p.log.Warn("answer a guest", "address", r.RemoteAddr, "err", err)
	}
}

// joined serves on the leader what a guest asked some node.
func (p *Peers) joined(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("read a request to join: %v: %w", err, fleet.BadRequest)
	}
	return p.cfg.Join(ctx, r.Guest, r.Body)
}

// Join asks a node, over a connection to its join port, to be taken in. An error has
// the code that the cluster gave, or says that the node was not reached or did not
// answer; then the same request may be made again.
func Join(ctx context.Context, dial func(context.Context) (net.Conn, error), body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://hub/join", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask to join: %w", err)
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask to join: %v: %w", err, fleet.Unavailable)
	}
	defer res.Body.Close()
	answer, err := readAnswer(res)
	if err != nil {
		return nil, fmt.Errorf("ask to join: %w", err)
	}
	return answer, nil
}

// limited is a listener that closes what comes beyond its bound.
type limited struct {
	net.Listener
	room chan struct{}
}

func newLimited(l net.Listener, n int) limited { return limited{l, make(chan struct{}, n)} }

func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
		default:
			c.Close()
		}
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
