package fakemodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type obj = map[string]any

// dialect turns a neutral answer into what a protocol's clients read.
type dialect interface {
	protocol() Protocol
	// tools lists what a request offers.
	tools(body obj) toolbox
	// answer gives the same answer as stream frames and as one document.
	answer(a answer) ([]frame, obj)
	// failed gives the frames of a stream that breaks with an error object.
	failed(a answer, e any) []frame
	// refusal is the body that says that the client's request is wrong.
	refusal(kind, message string) obj
}

// answer is what a step says to a client, in the words of that client's tools.
type answer struct {
	id    func(prefix string) string
	model string
	parts []part
	in    int // input tokens, read off the request's size
}

// outTokens is what every answer claims to have cost, for tests that add up.
const outTokens = 42

// part is one piece of an answer: words, a thought, or a tool call.
type part struct {
	say, think string
	call       *call
}

// serve routes by what follows /s/<scenario>/<nonce>; /v1 is optional, since one
// provider's base URL has it and the other's has not.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer s.active.Done()
	seen := Request{Method: r.Method, Path: r.URL.Path, Header: redact(r.Header), Step: -1, Kind: Unknown}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/s/"); ok {
		p := strings.SplitN(rest, "/", 3)
		seen.Scenario = p[0]
		if len(p) > 1 {
			seen.Nonce = p[1]
		}
		seen.Path = "/"
		if len(p) > 2 {
			seen.Path = "/" + p[2]
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			s.complain("%s %s: a body of more than %d bytes", r.Method, r.URL.Path, maxBody)
			writeJSON(w, http.StatusRequestEntityTooLarge, obj{"error": obj{"message": err.Error()}})
		}
		return // otherwise the client went away in the middle of its request
	}
	seen.Body = body
	if seen.Scenario == Prompted {
		if m := promptedRE.FindAllStringSubmatch(text(body), -1); m != nil {
			seen.Scenario, seen.Nonce = m[len(m)-1][1], m[len(m)-1][2]
		}
	}
	var good bool
	seen.Key, good = keyName(keyOf(r.Header))

	var d dialect
	path := strings.TrimPrefix(seen.Path, "/v1")
	switch {
	case path == "/" || path == "":
		seen.Kind = Probe
		s.record(seen)
		w.WriteHeader(http.StatusOK)
		return
	case r.Method == http.MethodGet && path == "/responses":
		// Codex tries a WebSocket first; this status sends it to plain HTTP at once.
		seen.Kind = WebSocket
		s.record(seen)
		writeJSON(w, http.StatusUpgradeRequired, obj{"error": obj{"message": "this server speaks plain HTTP only"}})
		return
	case r.Method == http.MethodGet && path == "/models":
		seen.Kind, d = Models, chat{}
	case r.Method == http.MethodPost && path == "/responses":
		d = responses{}
	case r.Method == http.MethodPost && path == "/chat/completions":
		d = chat{}
	case r.Method == http.MethodPost && path == "/messages":
		d = messages{}
	case r.Method == http.MethodPost && path == "/messages/count_tokens":
		seen.Kind, d = Count, messages{}
	}
	switch {
	case d == nil:
		s.record(seen)
		writeJSON(w, http.StatusNotFound, chat{}.refusal("not_found_error", "there is nothing at "+seen.Path))
	case !good:
		seen.Kind = Refused
		s.record(seen)
		writeJSON(w, http.StatusUnauthorized, wrongKey(d.protocol()))
	case seen.Kind == Models:
		s.record(seen)
		writeJSON(w, http.StatusOK, models("fake-model", "gpt-5.5", "claude-sonnet-4-5"))
	case seen.Kind == Count:
		s.record(seen)
		writeJSON(w, http.StatusOK, obj{"input_tokens": len(body) / 4})
	default:
		seen.Protocol = d.protocol()
		s.play(w, r, d, seen)
	}
}

// play answers a request with the next step of its run's script.
func (s *Server) play(w http.ResponseWriter, r *http.Request, d dialect, seen Request) {
	var body obj
	if err := json.Unmarshal(seen.Body, &body); err != nil {
		s.record(seen)
		s.complain("%s: the body is no JSON object: %v", seen.Path, err)
		writeJSON(w, http.StatusBadRequest, d.refusal("invalid_request_error", err.Error()))
		return
	}
	s.mu.Lock()
	sc, known := s.scenarios[seen.Scenario]
	s.mu.Unlock()
	if !known {
		s.record(seen)
		s.complain("there is no scenario %q", seen.Scenario)
		writeJSON(w, http.StatusNotFound, d.refusal("not_found_error", "there is no scenario "+seen.Scenario))
		return
	}
	tools := d.tools(body)
	seen.Kind = Scripted
	if len(tools) == 0 {
		seen.Kind = Side
	}
	step, index, err := s.advance(sc, runKey{seen.Scenario, seen.Nonce}, seen)
	if err != nil {
		s.complain("%s: %v", seen.Path, err)
		writeJSON(w, http.StatusBadRequest, d.refusal("invalid_request_error", err.Error()))
		return
	}
	seen.Step = index
	s.record(seen)

	words := text(seen.Body)
	for _, want := range step.Expect {
		if want = (Item{Say: want}).filled(seen.Nonce).Say; !strings.Contains(words, want) {
			s.complain("step %d of %s/%s: the request does not carry %q", index, seen.Scenario, seen.Nonce, want)
			writeJSON(w, http.StatusBadRequest, d.refusal("invalid_request_error", "the request does not carry what the script expects"))
			return
		}
	}
	if step.Hold && !s.held(r.Context(), runKey{seen.Scenario, seen.Nonce}) || !pause(r, step.Delay) {
		return
	}
	fault := step.fault(d.protocol())
	if fault != nil && fault.Status != 0 {
		for k, v := range fault.Header {
			w.Header().Set(k, v)
		}
		writeJSON(w, fault.Status, fault.Body)
		return
	}
	model, _ := body["model"].(string)
	a := answer{id: s.id, model: model, in: len(seen.Body) / 4}
	for _, it := range step.Items {
		it = it.filled(seen.Nonce)
		p, ok := tools.part(it, workDir(words))
		if !ok {
			s.complain("step %d of %s/%s: no tool of the client does %+v", index, seen.Scenario, seen.Nonce, it)
		}
		a.parts = append(a.parts, p)
	}
	frames, whole := d.answer(a)
	if on, _ := body["stream"].(bool); !on {
		s.playWhole(w, r, fault, whole)
		return
	}
	if fault != nil && fault.Error != nil {
		frames = d.failed(a, fault.Error)
	}
	playStream(w, r, step, fault, frames)
}

// playWhole answers a request that did not ask for a stream. A fault that needs
// a stream then happens to the whole body.
func (s *Server) playWhole(w http.ResponseWriter, r *http.Request, f *Fault, whole obj) {
	switch {
	case f == nil:
		writeJSON(w, http.StatusOK, whole)
	case f.Hang:
		<-r.Context().Done()
	case f.Error != nil:
		writeJSON(w, http.StatusInternalServerError, obj{"type": "error", "error": f.Error})
	default:
		panic(http.ErrAbortHandler) // cuts the connection without a log line
	}
}

func wrongKey(p Protocol) obj {
	if p == Messages {
		return messages{}.refusal("authentication_error", "invalid x-api-key")
	}
	return obj{"error": obj{
		"message": "Incorrect API key provided. Check the key and try again.",
		"type":    "invalid_request_error", "param": nil, "code": "invalid_api_key",
	}}
}

// models lists names in a shape that both providers' clients read.
func models(names ...string) obj {
	var data []obj
	for _, n := range names {
		data = append(data, obj{
			"id": n, "object": "model", "created": 1, "owned_by": "fakemodel",
			"type": "model", "display_name": n, "created_at": "2026-01-01T00:00:00Z",
		})
	}
	return obj{"object": "list", "data": data, "has_more": false}
}

// id makes an identifier that no other answer of this server has.
func (s *Server) id(prefix string) string {
	return prefix + "_" + fmt.Sprintf("%08d", s.ids.Add(1))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("fakemodel: a body that is no JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have left; then nobody is there to tell
}

// pause waits for d and reports whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context().Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
