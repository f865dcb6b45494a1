package session

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"tugline.dev/tugline/shared/wire"
)

// BenchmarkHeartbeat measures an idle runner's heartbeat with its reply, both ends
// and the sockets included.
func BenchmarkHeartbeat(b *testing.B) {
	h := newHub(b)
	a := h.enrolled()
	k := a.link()
	a.beat(k)
	body := encode(b, wire.Heartbeat{Epoch: 1, Slots: 2, Count: 100})
	b.ReportAllocs()
	for b.Loop() {
		if _, bye := k.say(wire.TypeHeartbeat, body, wire.TypeHeartbeatReply); bye != nil {
			b.Fatal(bye)
		}
	}
}

// BenchmarkEcho is what BenchmarkHeartbeat is held against: the same bytes over a
// bare WebSocket, decoded and encoded as JSON and with an HMAC each way.
func BenchmarkEcho(b *testing.B) {
	key := []byte("0123456789abcdef0123456789abcdef")
	mac := func(p []byte) []byte { m := hmac.New(sha256.New, key); m.Write(p); return m.Sum(nil) }
	up := websocket.Upgrader{}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			_, p, err := c.ReadMessage()
			if err != nil {
				return
			}
			var hb wire.Heartbeat
			n := len(p) - sha256.Size
			if !hmac.Equal(mac(p[:n]), p[n:]) || json.Unmarshal(p[:n], &hb) != nil {
				return
			}
			rep, err := json.Marshal(wire.HeartbeatReply{Epoch: 1, Term: 1, Index: 5, Time: time.Now().UTC(), Interval: 5e9})
			if err != nil || c.WriteMessage(websocket.BinaryMessage, append(rep, mac(rep)...)) != nil {
				return
			}
		}
	}))
	defer ts.Close()
	c, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(ts.URL, "http"), nil)
	if err != nil {
		b.Fatal(err)
	}
	res.Body.Close()
	defer c.Close()
	body := encode(b, wire.Heartbeat{Epoch: 1, Slots: 2, Count: 100})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteMessage(websocket.BinaryMessage, append(bytes.Clone(body), mac(body)...)); err != nil {
			b.Fatal(err)
		}
		_, p, err := c.ReadMessage()
		if err != nil {
			b.Fatal(err)
		}
		var rep wire.HeartbeatReply
		n := len(p) - sha256.Size
		if !hmac.Equal(mac(p[:n]), p[n:]) || json.Unmarshal(p[:n], &rep) != nil {
			b.Fatal("bad reply")
		}
	}
}

// BenchmarkIdle measures the memory that an idle link takes, both ends together.
func BenchmarkIdle(b *testing.B) {
	const n = 500
	for b.Loop() {
		h := newHub(b)
		agents := make([]*agent, n)
		for i := range agents {
			agents[i] = h.enrolled()
		}
		before := inUse()
		links := make([]*linkTalk, n)
		for i, a := range agents {
			links[i] = a.link()
			a.beat(links[i])
		}
		b.ReportMetric(float64(inUse()-before)/n, "bytes/link")
		for _, l := range links {
			l.close()
		}
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
