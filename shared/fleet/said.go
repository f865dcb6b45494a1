package fleet

import "fmt"

// Said is a refusal whose text is for whoever asked, as it is, and not only for a log.
type Said struct {
	Code Code
	Text string // what happened, to what, and what to do next
}

// Say makes a refusal whose text is for whoever asked.
func Say(code Code, format string, args ...any) error {
	return &Said{code, fmt.Sprintf(format, args...)}
}

// Error is the text.
func (s *Said) Error() string { return s.Text }

// Unwrap gives the code, for errors.Is and errors.As.
func (s *Said) Unwrap() error { return s.Code }
