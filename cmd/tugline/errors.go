package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tugline.dev/tugline/runner/worktree"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// The exit codes. A followed job ends with its own; everything else uses the first,
// the second or those of the hub.
const (
	exitOK           = 0
	exitFailed       = 1 // the job failed or was not pushed, or a command did not do what it was to do
	exitUsage        = 2
	exitCancelled    = 3 // cancelled or lost
	exitUnreachable  = 4
	exitUnauthorised = 5
	exitReview       = 6
	exitBlocked      = 7
	exitRestart      = 75  // a service manager is to start it again: another version is there
	exitStandDown    = 78  // a service manager must not start it again
	exitInterrupted  = 130 // Ctrl-C while the job goes on
)

// failure is an end with an exit code and one sentence for people; an empty one was
// said already.
type failure struct {
	code  int
	text  string
	cause error
	help  bool // the command's help says more
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

func fail(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// silent ends with a code when everything has been said.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

// refusal is a problem document that the hub answered with.
type refusal struct{ api.Problem }

func (r *refusal) Error() string {
	text := strings.TrimSpace(r.Detail)
	if text == "" {
		text = fmt.Sprintf("the hub answered %d %s", r.Status, r.Title)
	}
	if r.Instance != "" {
		text += " (" + r.Instance + ")"
	}
	return text
}

func (r *refusal) Unwrap() error { return r.Code }

// exitCode says with which code an error ends the program.
func exitCode(err error) int {
	var f *failure
	var r *refusal
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.As(err, &r):
		switch r.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			return exitUnauthorised
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return exitUsage
		case http.StatusNotFound, http.StatusConflict:
			if r.Code != fleet.Internal { // that of something which is no hub
				return exitUsage
			}
		case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests:
			return exitUnreachable
		}
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, fleet.BadRequest):
		return exitUsage
	}
	return exitFailed
}

// sentence gives what people read of an error, on one line.
func sentence(err error) string {
	text := err.Error()
	var w *worktree.Fault
	var f *failure
	if errors.As(err, &w) {
		text = w.Text
	} else if errors.As(err, &f) {
		text = f.text
	}
	text = withoutCodes(text, err)
	return strings.Join(strings.FieldsFunc(clean(text), func(r rune) bool { return r == '\n' }), "; ")
}

// withoutCodes takes off the end of a text the codes that its error carries: they are
// for programs.
func withoutCodes(text string, err error) string {
	for found := true; found; {
		found = false
		for _, c := range codes(err) {
			if rest, ok := strings.CutSuffix(text, ": "+string(c)); ok {
				text, found = rest, true
			}
		}
	}
	return text
}

// codes gives every code in an error.
func codes(err error) []fleet.Code {
	switch e := err.(type) {
	case fleet.Code:
		return []fleet.Code{e}
	case interface{ Unwrap() error }:
		return codes(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []fleet.Code
		for _, x := range e.Unwrap() {
			all = append(all, codes(x)...)
		}
		return all
	}
	return nil
}

// stateExit gives the exit code of a followed job.
func stateExit(s fleet.State) int {
	switch s {
	case fleet.Succeeded:
		return exitOK
	case fleet.Failed:
		return exitFailed
	case fleet.NeedsReview:
		return exitReview
	case fleet.Blocked:
		return exitBlocked
	}
	return exitCancelled
}
