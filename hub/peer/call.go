package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

const (
	maxCall   = 1 << 20 // bytes of a call
	maxAnswer = 4 << 20 // bytes of its answer
	joinCall  = "join"
)

// Call is something that other nodes may ask this one for. What its bytes mean is
// the business of those who make and serve it: a handed-over key is sealed to its
// receiver before it gets here.
type Call struct {
	// AtLeader has every other node refuse it.
	AtLeader bool
	// Do serves the call of a node. An error with a code reaches the caller with
	// that code and its text; another one stays here.
	Do func(ctx context.Context, from string, body []byte) ([]byte, error)
}

// find gives the call of a name.
func (p *Peers) find(name string) (Call, bool) {
	if name == joinCall && p.cfg.Join != nil {
		return Call{AtLeader: true, Do: p.joined}, true
	}
	c, ok := p.cfg.Calls[name]
	return c, ok
}

func (p *Peers) answerCall(w http.ResponseWriter, r *http.Request) {
	call, ok := p.find(r.PathValue("name"))
	if !ok {
		refuse(w, fleet.NotFound, fmt.Sprintf("this node has no call %q; it may be of an older version", r.PathValue("name")))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err != nil {
		refuse(w, fleet.TooLarge, fmt.Sprintf("a call has at most %d bytes", maxCall))
		return
	}
	from, _ := r.Context().Value(fromKey{}).(string)
	answer, err := p.serve(r.Context(), call, from, body)
	if err != nil {
		p.refuseWith(w, r.PathValue("name"), err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := w.Write(answer); err != nil {
		p.log.Debug("answer a call", "node", from, "err", err)
	}
}

func (p *Peers) serve(ctx context.Context, call Call, from string, body []byte) ([]byte, error) {
	if call.AtLeader && !p.cfg.Leading() {
		return nil, fmt.Errorf("node %s does not lead: %w", p.cfg.Self, fleet.Unavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return call.Do(ctx, from, body)
}

// refuseWith answers with an error. What has no code is nobody's business.
func (p *Peers) refuseWith(w http.ResponseWriter, what string, err error) {
	var code fleet.Code
	if !errors.As(err, &code) {
		p.log.Error("call failed", "call", what, "err", err)
		refuse(w, fleet.Internal, "the node could not do it; its log says why")
		return
	}
	refuse(w, code, err.Error())
}

// Call asks a node for something, once. An error has the code that the node gave;
// fleet.Unavailable where it was not reached, and fleet.OutcomeUnknown where its
// answer did not come. It lasts 15 s at most.
func (p *Peers) Call(ctx context.Context, id, name string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, "http://"+id+"/calls/"+url.PathEscape(name), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call %s of node %s: %w", name, id, err)
	}
	res, err := p.calls.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", name, outcome(req.Method, id, sent.Load(), err))
	}
	defer res.Body.Close()
	answer, err := readAnswer(res)
	if err != nil {
		return nil, fmt.Errorf("call %s of node %s: %w", name, id, err)
	}
	return answer, nil
}

// CallLeader asks the node that leads, which may be this one.
func (p *Peers) CallLeader(ctx context.Context, name string, body []byte) ([]byte, error) {
	if p.cfg.Leading() {
		call, ok := p.find(name)
		if !ok {
			return nil, fmt.Errorf("there is no call %s: %w", name, fleet.NotFound)
		}
		return p.serve(ctx, call, p.cfg.Self, body)
	}
	to := p.cfg.Leader()
	if to == "" || to == p.cfg.Self {
		return nil, fmt.Errorf("call %s: no node leads: %w", name, fleet.Unavailable)
	}
	return p.Call(ctx, to, name, body)
}

// readAnswer reads what came back whole, and makes a refusal an error of its code.
func readAnswer(res *http.Response) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %v: %w", err, fleet.OutcomeUnknown)
	case len(b) > maxAnswer:
		return nil, fmt.Errorf("the answer has over %d bytes: %w", maxAnswer, fleet.TooLarge)
	case res.StatusCode == http.StatusOK:
		return b, nil
	}
	var problem api.Problem
	if json.Unmarshal(b, &problem) != nil || problem.Code == "" {
		return nil, fmt.Errorf("it answered %s: %w", res.Status, fleet.Internal)
	}
	return nil, refusal{problem.Code, problem.Detail}
}

// refusal is what another node said, with its code.
type refusal struct {
	code   fleet.Code
	detail string
}

// Answered says of an error of Call that the node was reached, and refused.
func Answered(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

func (r refusal) Error() string { return r.detail }
func (r refusal) Unwrap() error { return r.code }
