package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"tugline.dev/tugline/shared/fleet"
)

// Parse reads a recorded stream of the named harness and writes its events as lines of JSON, the outcome as the
// last of them. Exit is the exit code, -N for an end by signal N. The error wraps fleet.NotFound for an unknown
// name, or is one of reading or writing.
func Parse(name string, stdin io.Reader, stdout io.Writer, exit int, stderr io.Reader) error {
	h, ok := Lookup(name)
	if !ok {
		return fmt.Errorf("harness %q: known are %v: %w", name, Names(), fleet.NotFound)
	}
	w := bufio.NewWriter(stdout)
	p := h.Parser(ParseRequest{})
	feed := func(kind fleet.FrameKind, r io.Reader, what string) error {
		buf := make([]byte, fleet.MaxFramePayload)
		for r != nil {
			n, err := r.Read(buf)
			events, _ := p.Frame(fleet.Frame{Kind: kind, Payload: buf[:n]})
			for _, e := range events {
				if _, werr := w.Write(e.Line()); werr != nil {
					return fmt.Errorf("write events: %w", werr)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", what, err)
			}
		}
		return nil
	}
	if err := feed(fleet.FrameStdout, stdin, "stream"); err != nil {
		return err
	}
	if err := feed(fleet.FrameStderr, stderr, "standard error"); err != nil {
		return err
	}
	events, o := p.End(ExitInfo{Code: exit})
	for _, e := range events {
		if _, err := w.Write(e.Line()); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
	}
	if _, err := w.Write(o.Line()); err != nil {
		return fmt.Errorf("write outcome: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write outcome: %w", err)
	}
	return nil
}
