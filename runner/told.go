package runner

import (
	"errors"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// ErrNotEnrolled says that a data directory holds no identity, and no ticket was
// given that could make one.
var ErrNotEnrolled = errors.New("this runner is not enrolled")

// told is an error whose text is for people, and what it is besides for errors.Is.
type told struct {
	text string
	is   []error
}

func (t *told) Error() string   { return t.text }
func (t *told) Unwrap() []error { return t.is }

func notEnrolled() error {
	return &told{
		text: ErrNotEnrolled.Error() + ": make a ticket with `tugline hub ticket` on the hub, and give it in TUGLINE_TICKET",
		is:   []error{ErrNotEnrolled, fleet.TicketInvalid},
	}
}

// notTaken words the refusal of an enrolment. One for the ticket's sake says what to
// do; its code does not show.
func notTaken(err error) error {
	text := "enrol this runner: " + err.Error()
	for _, c := range []fleet.Code{fleet.TicketUsed, fleet.TicketExpired, fleet.TicketInvalid} {
		if !errors.Is(err, c) {
			continue
		}
		text = strings.TrimSuffix(text, ": "+string(c))
		if !strings.Contains(text, "tugline hub ticket") {
			text += "; make a new one with `tugline hub ticket`"
		}
		text += " and give it in TUGLINE_TICKET"
	}
	return &told{text: text, is: []error{err}}
}
