package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	keepAlive = 15 * time.Second // a comment after this long without an event
	slowest   = 30 * time.Second // a reader that takes no byte for so long is dropped
)

// stream writes server-sent events to one reader.
type stream struct {
	w    io.Writer
	rc   *http.ResponseController
	fail error
}

// open begins an event stream, or refuses where too many are open. The context
// ends with the request, with the server and with the caller's token.
func (s *Server) open(hctx huma.Context) (*stream, context.Context, func(), error) {
	if !s.streams.TryAcquire() {
		return nil, nil, nil, wrong(fleet.Unavailable, "this node has %d open event streams, its bound; close one or use another node", maxStreams)
	}
	s.metrics.streams.Inc()
	ctx, leave := s.allowed(hctx.Context())
	hctx.SetHeader("Content-Type", "text/event-stream")
	hctx.SetHeader("X-Accel-Buffering", "no")
	st := &stream{w: hctx.BodyWriter()}
	if w, ok := st.w.(http.ResponseWriter); ok {
		st.rc = http.NewResponseController(w)
	}
	st.comment("tugline")
	return st, ctx, func() {
		leave()
		s.metrics.streams.Dec()
		s.streams.Release()
	}, nil
}

// send writes one event; an empty id leaves the reader's place as it was.
func (st *stream) send(id string, e api.Event) { st.put(id, e.Type, e) }

// put writes one event of a name with its data.
func (st *stream) put(id, name string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		st.fail = err
		return
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	st.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, name, b))
}

func (st *stream) comment(text string) { st.write(": " + text + "\n\n") }

func (st *stream) write(text string) {
	if st.fail != nil {
		return
	}
	if st.rc != nil {
		// Not every writer can bound a write; the one of net/http can.
		_ = st.rc.SetWriteDeadline(now().Add(slowest))
	}
	if _, err := io.WriteString(st.w, text); err != nil {
		st.fail = err
		return
	}
	if st.rc != nil {
		st.fail = st.rc.Flush()
	}
}

// gate bounds how many may be inside at once.
type gate chan struct{}

func (g gate) TryAcquire() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) Release() { <-g }
