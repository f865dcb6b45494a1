package fakemodel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Protocol is the way that a client talks to its model.
type Protocol string

// The protocols spoken.
const (
	Responses Protocol = "responses" // OpenAI Responses: Codex
	Chat      Protocol = "chat"      // OpenAI Chat Completions: opencode
	Messages  Protocol = "messages"  // Anthropic Messages: Claude Code
)

// Scenario is the script of one run. After its last step every request is
// answered with a closing sentence.
type Scenario struct {
	About string // one line for people
	Steps []Step
}

// Step answers one request that offers tools. A request without tools (a title,
// a summary) gets a short side answer and leaves the script where it is.
type Step struct {
	Items  []Item
	Repeat int // how many more requests the same step answers; -1 for ever

	// Key is the only account that meets the step, and Protocol the only protocol: the
	// first request of another one ends it. "" is every one.
	Key      string
	Protocol Protocol

	Hold  bool          // until Release is called for the run, before the response headers
	Delay time.Duration // before the response headers
	First time.Duration // between the headers and the first content
	Pace  time.Duration // before each further piece of text

	// Expect lists strings that the request must carry somewhere in its text.
	// If one is missing the server complains and answers 400.
	Expect []string

	Fault   *Fault              // instead of an answer, or in the middle of one
	FaultBy map[Protocol]*Fault // overrides Fault for one protocol
	// Everywhere makes side requests meet the fault as well: it is the provider
	// that refuses, not one answer that fails.
	Everywhere bool
}

// Item is one thing that the model does. Exactly one of Say, Think, Run and Write
// is set. In each string {nonce} becomes the nonce of the run.
type Item struct {
	Say   string
	Think string
	Run   string // a command line for the client's shell tool
	Write *File
	// Limit is how long the client should let Run go on; 0 leaves its default.
	Limit time.Duration
}

// File is a file to create or replace; a relative path is taken from the folder
// that the client works in.
type File struct{ Path, Text string }

// Fault is a way for an answer to go wrong. With Status the answer is just that
// status, Header and Body; else it begins as a stream and then one of the others
// happens.
type Fault struct {
	Status int
	Header map[string]string
	Body   any // marshalled as JSON

	Disconnect bool // cut the connection in the middle of the stream
	Truncate   bool // end the body cleanly in the middle of the stream
	// After is how many events go out before Disconnect or Truncate; 0 is half.
	After int

	Hang  bool // open the stream, then say nothing until the client leaves
	Error any  // an error object inside the stream
}

// meets says whether a client meets the step.
func (st Step) meets(key string, p Protocol) bool {
	return (st.Key == "" || st.Key == key) && (st.Protocol == "" || st.Protocol == p)
}

// fault is the fault that a step has for a protocol, or nil.
func (st Step) fault(p Protocol) *Fault {
	if f := st.FaultBy[p]; f != nil {
		return f
	}
	return st.Fault
}

// Validate reports what makes a scenario unplayable.
func (sc Scenario) Validate() error {
	if len(sc.Steps) == 0 {
		return errors.New("no steps")
	}
	for i, st := range sc.Steps {
		if len(st.Items) == 0 && st.Fault == nil && len(st.FaultBy) == 0 {
			return fmt.Errorf("step %d: neither items nor a fault", i)
		}
		if st.Repeat < -1 {
			return fmt.Errorf("step %d: repeat %d is below -1", i, st.Repeat)
		}
		for j, it := range st.Items {
			n := 0
			for _, set := range []bool{it.Say != "", it.Think != "", it.Run != "", it.Write != nil} {
				if set {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("step %d, item %d: want one of Say, Think, Run and Write, got %d", i, j, n)
			}
			if it.Write != nil && it.Write.Path == "" {
				return fmt.Errorf("step %d, item %d: a file without a path", i, j)
			}
		}
	}
	return nil
}

// filled is the item with the nonce in its place.
func (it Item) filled(nonce string) Item {
	fill := func(s string) string { return strings.ReplaceAll(s, "{nonce}", nonce) }
	it.Say, it.Think, it.Run = fill(it.Say), fill(it.Think), fill(it.Run)
	if it.Write != nil {
		it.Write = &File{Path: fill(it.Write.Path), Text: fill(it.Write.Text)}
	}
	return it
}
