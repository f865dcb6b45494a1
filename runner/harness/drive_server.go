package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tugline.dev/tugline/runner/process"
	"tugline.dev/tugline/shared/fleet"
)

// server is an `opencode serve` of this run alone.
type server struct {
	url      string
	password string
	client   *http.Client
	cancel   context.CancelFunc
	done     chan struct{} // closed when the process is over
	err      error         // of it, once done
	said     *serverOutput
}

var (
	listening = lazily(`listening on (http://127\.0\.0\.1:\d+)`)
	portTaken = lazily(`(?i)in use|EADDRINUSE|failed to start server`)
)

// startServer starts opencode and waits until it listens. Between the choice of a port and its use somebody else
// may take it; then another is tried.
func startServer(ctx context.Context, r DriveRequest, env []string, stderr io.Writer) (*server, error) {
	var last error
	for range 3 {
		s, err := startOnce(ctx, r, env, stderr)
		if err == nil {
			return s, nil
		}
		if last = err; ctx.Err() != nil || !portTaken().MatchString(err.Error()) {
			break
		}
	}
	return nil, last
}

func startOnce(ctx context.Context, r DriveRequest, env []string, stderr io.Writer) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	var secret [24]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, fmt.Errorf("make a password: %w", err)
	}
	// The process must outlive ctx: the end of ctx asks for an abort first.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &server{
		password: hex.EncodeToString(secret[:]), cancel: cancel, done: make(chan struct{}),
		said:   &serverOutput{next: stderr, ready: make(chan string, 1)},
		client: &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: driveCall, MaxIdleConns: 4}},
	}
	go func() {
		defer close(s.done)
		_, s.err = process.Run(run, process.Cmd{
			Argv:   []string{r.Program, "serve", "--hostname", "127.0.0.1", "--port", strconv.Itoa(port)},
			Dir:    r.Dir,
			Env:    append(append([]string{}, env...), "OPENCODE_SERVER_PASSWORD="+s.password),
			Stdout: s.said, Stderr: s.said, Grace: 3 * time.Second,
		})
	}()
	timer := time.NewTimer(driveStart)
	defer timer.Stop()
	select {
	case s.url = <-s.said.ready:
		return s, nil
	case <-s.done:
		err = errors.New("opencode serve ended at once: " + s.epitaph())
	case <-timer.C:
		err = fmt.Errorf("opencode serve did not listen within %v", driveStart)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.stop()
	return nil, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// stop ends the process and waits for it.
func (s *server) stop() {
	s.cancel()
	<-s.done
	s.client.CloseIdleConnections()
}

// epitaph gives the last words of a process that is over or about to be.
func (s *server) epitaph() string {
	select {
	case <-s.done:
	case <-time.After(2 * time.Second):
		return "the connection to opencode broke"
	}
	text := s.said.last()
	if s.err != nil {
		text = joined(text, s.err.Error())
	}
	return fleet.CutText(text, 1<<10)
}

// call makes one request. out, if not nil, takes the JSON of a good answer.
func (s *server) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, driveCall)
	defer cancel()
	resp, err := s.send(ctx, method, path, in)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, fleet.CutText(string(bytes.TrimSpace(body)), 500))
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return resp.StatusCode, nil
}

func (s *server) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.SetBasicAuth("opencode", s.password)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return resp, nil
}

// serverEvent is one event of the server's stream.
type serverEvent struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`
}

// maxServerEvent bounds one event in bytes; one beyond it is passed over.
const maxServerEvent = 16 << 20

// events follows the server's stream from now on. The channel is closed when the stream or ctx ends, and must be
// read until then.
func (s *server) events(ctx context.Context) (<-chan serverEvent, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := s.send(ctx, http.MethodGet, "/event", nil)
	if err != nil {
		cancel()
		return nil, &errEnd{reason: driveStartup, detail: "follow its events: " + err.Error()}
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		cancel()
		return nil, &errEnd{reason: driveStartup, detail: fmt.Sprintf("follow its events: status %d", resp.StatusCode)}
	}
	out := make(chan serverEvent, 64)
	first := make(chan struct{})
	go func() {
		defer close(out)
		defer cancel()
		defer resp.Body.Close()
		var once sync.Once
		lines := lineBuffer{limit: maxServerEvent}
		buf := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buf)
			lines.feed(buf[:n], func(l []byte, total int64) {
				data, ok := bytes.CutPrefix(bytes.TrimRight(l, "\r"), []byte("data:"))
				var e serverEvent
				if !ok || total > maxServerEvent || json.Unmarshal(data, &e) != nil {
					return
				}
				once.Do(func() { close(first) })
				select {
				case out <- e:
				case <-ctx.Done():
				}
			})
			if err != nil {
				return
			}
		}
	}()
	// The first event says that the stream is in place: nothing after it is missed.
	timer := time.NewTimer(driveCall)
	defer timer.Stop()
	select {
	case <-first:
		return out, nil
	case <-timer.C:
		err = &errEnd{reason: driveMalformed, detail: "its stream of events stays empty"}
	case <-s.done:
		err = &errEnd{reason: driveDied, detail: s.epitaph()}
	}
	cancel()
	for range out {
		// Until the reader is gone.
	}
	return nil, err
}

// serverOutput passes the server's output on and finds the line that tells its address.
type serverOutput struct {
	next  io.Writer
	ready chan string // buffered by one

	mu    sync.Mutex
	lines lineBuffer
	tail  []string
	found bool
}

func (o *serverOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines.feed(p, func(l []byte, _ int64) {
		text := stripANSI(strings.ToValidUTF8(string(l[:min(len(l), 4<<10)]), "\uFFFD"))
		if m := listening().FindStringSubmatch(text); m != nil && !o.found {
			o.found = true
			o.ready <- m[1]
		}
		if text = strings.TrimSpace(text); text == "" || noise().MatchString(text) {
			return
		}
		if o.tail = append(o.tail, text); len(o.tail) > 6 {
			o.tail = o.tail[1:]
		}
	})
	_, _ = o.next.Write(p)
	return len(p), nil
}

func (o *serverOutput) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.tail, "; ")
}

// modelParts takes PROVIDER/MODEL apart for a request.
func modelParts(model string) map[string]any {
	provider, name, ok := strings.Cut(model, "/")
	if !ok {
		return nil
	}
	return map[string]any{"providerID": provider, "modelID": name}
}
