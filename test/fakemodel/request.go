package fakemodel

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// What is kept of the requests: the newest that fit both bounds.
const (
	maxRequests     = 1024
	maxRequestBytes = 64 << 20
	// maxBody bounds one request; a larger one is answered 413.
	maxBody = 16 << 20
)

// Kind says how a request was treated.
type Kind string

// The kinds of request.
const (
	Scripted  Kind = "scripted"  // answered by a step of the script, or after its end
	Side      Kind = "side"      // offered no tools
	Refused   Kind = "refused"   // wrong or missing key
	Models    Kind = "models"    // the list of models
	Count     Kind = "count"     // a token count
	WebSocket Kind = "websocket" // an attempt to open a WebSocket
	Probe     Kind = "probe"     // HEAD or GET of the base URL
	Unknown   Kind = "unknown"   // anything else
)

// Request is one request as it was received.
type Request struct {
	Scenario, Nonce string
	Kind            Kind
	Protocol        Protocol // "" unless it asked for an answer
	Method, Path    string   // the path after the nonce
	Step            int      // of the script; -1 if it was over or was not asked
	// Key is the accepted key, or "wrong" or "missing". Headers that could carry
	// a secret are "redacted".
	Key    string
	Header http.Header
	Body   []byte
}

// Text is every string value in the body, one a line: prompt, history, tools.
func (r Request) Text() string { return text(r.Body) }

// Requests lists what a run has sent, oldest first, as far as it is still kept.
func (s *Server) Requests(scenario, nonce string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if r.Scenario == scenario && r.Nonce == nonce {
			out = append(out, r)
		}
	}
	return out
}

// Dropped counts the requests that are no longer kept.
func (s *Server) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	s.bytes += len(r.Body)
	n := 0
	for len(s.requests)-n > maxRequests || s.bytes > maxRequestBytes {
		s.bytes -= len(s.requests[n].Body)
		n++
	}
	if n > 0 {
		s.dropped += n
		s.requests = slices.Delete(s.requests, 0, n)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// keyOf reads the API key of a request in either provider's header.
func keyOf(h http.Header) string {
	if k := h.Get("X-Api-Key"); k != "" {
		return k
	}
	return strings.TrimSpace(strings.TrimPrefix(h.Get("Authorization"), "Bearer"))
}

// keyName is what is recorded of a key: a good one is no secret.
func keyName(key string) (name string, good bool) {
	switch {
	case key == GoodKey, strings.HasPrefix(key, GoodKey+"-"):
		return key, true
	case key == "":
		return "missing", false
	}
	return "wrong", false
}

func redact(h http.Header) http.Header {
	out := h.Clone()
	for name := range out {
		low := strings.ToLower(name)
		for _, part := range []string{"auth", "key", "token", "cookie", "secret"} {
			if strings.Contains(low, part) {
				out[name] = []string{"redacted"}
			}
		}
	}
	return out
}

// text gathers the string values of a JSON document, keys left out. It gives ""
// for what is no JSON.
func text(body []byte) string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return ""
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v)
			b.WriteByte('\n')
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(v[k])
			}
		}
	}
	walk(v)
	return b.String()
}
