// Package fakemodel is a scripted model server on loopback for tests that drive
// real agent command lines.
//
// It speaks OpenAI Responses, OpenAI Chat Completions and Anthropic Messages,
// streaming and not, well enough for Codex, opencode and Claude Code to work
// against it. A Scenario says what the model does, in neutral words (say, run,
// write), and each request is answered with a call of whichever tool the client
// offered for that. It guarantees that runs with different nonces never disturb
// one another, that what it keeps is bounded, and that nothing outlives Close.
// It is no model of a provider's quality or limits: it plays its script.
package fakemodel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// GoodKey is the API key that is accepted, as is any key that begins with
// GoodKey and a dash, so that a test can tell two accounts apart. Every other
// key is answered 401.
const GoodKey = "sk-ok"

// maxRuns bounds the script positions kept: one for each scenario and nonce.
const maxRuns = 4096

// TB is the part of testing.TB that Start uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is a running model server. Its methods may be used from any goroutine.
type Server struct {
	http   *http.Server
	base   string
	served chan struct{} // closed when the accept loop is over
	active sync.WaitGroup
	ids    atomic.Int64

	mu         sync.Mutex
	scenarios  map[string]Scenario
	runs       map[runKey]*run
	requests   []Request
	bytes      int
	dropped    int
	changed    chan struct{} // closed and replaced when a request was recorded
	complaints []string
}

type runKey struct{ scenario, nonce string }

// run is the position in a script of one scenario and nonce.
type run struct {
	step int // index of the current step
	used int // requests that the current step has answered
	sum  int // requests that all steps have answered

	free     chan struct{} // closed by Release
	released bool
}

// Start runs a server with the built-in scenarios on a free loopback port until
// the test ends. What the server had to complain about, such as a follow-up that
// came without the history it should carry, then fails the test.
func Start(t TB) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatalf("start the model server: %v", err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, c := range s.Complaints() {
			t.Errorf("model server: %s", c)
		}
	})
	return s
}

// Listen runs a server with the built-in scenarios on addr, which must be a
// loopback IP address and a port; port 0 takes a free one. Close ends it.
func Listen(addr string) (*Server, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("listen on %s: only a loopback address will do, such as 127.0.0.1:0", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	s := &Server{
		base:      "http://" + ln.Addr().String(),
		served:    make(chan struct{}),
		scenarios: builtin(),
		runs:      map[runKey]*run{},
		changed:   make(chan struct{}),
	}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go func() {
		defer close(s.served)
		// Serve always returns an error, and after Close that is the expected end.
		_ = s.http.Serve(ln)
	}()
	return s, nil
}

// Close cuts every connection and returns when no handler runs any more.
// It may be called again.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.served
	s.active.Wait()
}

// URL is the Anthropic-style base URL of a run: the client appends /v1/messages.
// The nonce keys the script's position; use a new one for each job, and the same
// one for the follow-ups of a job.
func (s *Server) URL(scenario, nonce string) string {
	return s.base + "/s/" + scenario + "/" + nonce
}

// OpenAIURL is the OpenAI-style base URL of a run: the client appends /responses
// or /chat/completions.
func (s *Server) OpenAIURL(scenario, nonce string) string {
	return s.URL(scenario, nonce) + "/v1"
}

// Add makes a scenario known under a name, replacing one of that name.
func (s *Server) Add(name string, sc Scenario) error {
	if err := sc.Validate(); err != nil {
		return fmt.Errorf("add scenario %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scenarios[name] = sc
	return nil
}

// Complaints lists what clients did that the script did not allow, oldest first.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.complaints...)
}

// complain keeps the first hundred; more would say nothing new.
func (s *Server) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.complaints) < 100 {
		s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
	}
}

// Served counts the requests of a run that the script has answered; side
// requests and refused keys are not among them.
func (s *Server) Served(scenario, nonce string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runKey{scenario, nonce}]; r != nil {
		return r.sum
	}
	return 0
}

// Wait returns when the script has answered n requests of a run, or with the
// cause of ctx's end.
func (s *Server) Wait(ctx context.Context, scenario, nonce string, n int) error {
	for {
		s.mu.Lock()
		changed, have := s.changed, 0
		if r := s.runs[runKey{scenario, nonce}]; r != nil {
			have = r.sum
		}
		s.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-s.served:
			return errors.New("wait for a model request: the server is closed")
		case <-ctx.Done():
			return fmt.Errorf("wait for model request %d of %s/%s, have %d: %w", n, scenario, nonce, have, context.Cause(ctx))
		}
	}
}

// Release lets the steps of a run that hold be answered, those to come too. The run
// need not have begun.
func (s *Server) Release(scenario, nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.run(runKey{scenario, nonce}); r != nil && !r.released {
		r.released = true
		close(r.free)
	}
}

// run finds a run or begins it; nil where there are too many. The caller holds the lock.
func (s *Server) run(key runKey) *run {
	r := s.runs[key]
	if r == nil && len(s.runs) < maxRuns {
		r = &run{free: make(chan struct{})}
		s.runs[key] = r
	}
	return r
}

// held waits until a run is released; false is the end of the request.
func (s *Server) held(ctx context.Context, key runKey) bool {
	s.mu.Lock()
	r := s.run(key)
	s.mu.Unlock()
	select {
	case <-r.free:
		return true
	case <-ctx.Done():
		return false
	}
}

// advance takes the step that answers the next request of a run. The index is
// -1 once the script is over.
func (s *Server) advance(sc Scenario, key runKey, client Request) (step Step, index int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.run(key)
	if r == nil {
		return Step{}, 0, fmt.Errorf("more than %d runs", maxRuns)
	}
	for r.step < len(sc.Steps) && !sc.Steps[r.step].meets(client.Key, client.Protocol) {
		r.step, r.used = r.step+1, 0
	}
	step, index = Step{Items: []Item{{Say: "There is nothing more to do."}}}, -1
	if r.step < len(sc.Steps) {
		step, index = sc.Steps[r.step], r.step
	}
	if client.Kind == Side {
		answer := Step{Items: []Item{{Say: "A short title"}}}
		if step.Everywhere {
			answer.Fault, answer.FaultBy = step.Fault, step.FaultBy
		}
		return answer, index, nil
	}
	r.sum++
	if index >= 0 {
		r.used++
		if step.Repeat >= 0 && r.used > step.Repeat {
			r.step, r.used = r.step+1, 0
		}
	}
	return step, index, nil
}
