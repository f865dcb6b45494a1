//go:build harness

package harness_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// circuits gives those that are not closed.
func (p *place) circuits() []api.Circuit {
	p.T.Helper()
	var cs api.Circuits
	p.JSON(&cs, "circuit", "list", "--json")
	return cs.Circuits
}

// circuit waits for the one of a class that is open over a provider.
func (p *place) circuit(class fleet.CircuitClass, provider string) api.Circuit {
	p.T.Helper()
	var found api.Circuit
	p.Eventually(20*time.Second, "a circuit of class "+string(class)+" over "+provider, func() bool {
		for _, c := range p.circuits() {
			if c.Class == class && c.Provider == provider {
				found = c
				return true
			}
		}
		return false
	})
	return found
}

// none fails the test if a circuit keeps anything away from a provider.
func (p *place) none(provider, after string) {
	p.T.Helper()
	for _, c := range p.circuits() {
		if c.Provider == provider {
			p.T.Errorf("a circuit of class %s is %s after %s: %s", c.Class, c.State, after, c.Text)
		}
	}
}

// repair resets what is not closed over some providers.
func (p *place) repair(providers ...string) {
	p.T.Helper()
	for _, c := range p.circuits() {
		if slices.Contains(providers, c.Provider) {
			p.reset(c)
		}
	}
}

func (p *place) reset(c api.Circuit) {
	p.T.Helper()
	p.Run("circuit", "reset", c.Key, "--repaired", "the test goes on")
}

// janitor resets every circuit as soon as it is there, until the test ends: those who
// share its runner with refused jobs are to go on.
func (p *place) janitor() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(400 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			var cs api.Circuits
			out, _, code := p.Try("circuit", "list", "--json")
			if code != 0 || json.Unmarshal([]byte(out), &cs) != nil {
				continue
			}
			for _, c := range cs.Circuits {
				p.Try("circuit", "reset", c.Key, "--repaired", "the test goes on")
			}
		}
	}()
	p.T.Cleanup(func() { close(stop); <-done })
}

// reason gives why one runner does not take a job, as soon as it says so with a code.
func (p *place) reason(id, runner string, code fleet.Code) api.RunnerReason {
	p.T.Helper()
	var e api.Explanation
	var found api.RunnerReason
	p.Eventually(20*time.Second, "job "+id+" waits on "+runner+" with "+string(code), func() bool {
		e = api.Explanation{}
		p.JSON(&e, "job", "explain", id, "--json")
		for _, r := range e.Runners {
			if r.Runner == runner && r.Code == code {
				found = r
				return true
			}
		}
		if e.State.Ended() {
			p.T.Fatalf("job %s is %s and did not wait on %s: %s\n%s\n%s", id, e.State, runner, e.Summary, p.Run("circuit", "list", "--all", "--json"), p.Run("runner", "get", runner, "--json"))
		}
		return false
	})
	return found
}

// about fails the test unless two times are within a bound of each other.
func about(t *testing.T, what string, got *time.Time, want time.Time, within time.Duration) {
	t.Helper()
	if got == nil || got.Sub(want).Abs() > within {
		t.Errorf("%s is %v; want %v within %v", what, got, want.UTC(), within)
	}
}
