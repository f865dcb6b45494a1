package harness

import (
	"fmt"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// execHarness runs an argv. Its output is output, not events.
var execHarness = &Harness{
	Name:    "exec",
	Title:   "Command",
	launch:  launchExec,
	decoder: func(ParseRequest) decoder { return execDecoder{} },
}

func launchExec(r Request) (Launch, error) {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return Launch{}, fmt.Errorf("the command is empty: %w", fleet.BadRequest)
	}
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return Launch{}, fmt.Errorf("the command has a NUL byte: %w", fleet.BadRequest)
		}
	}
	return Launch{Argv: r.Argv, StopSignal: "TERM"}, nil
}

type execDecoder struct{}

func (execDecoder) line(*stream, []byte)    {}
func (execDecoder) errLine(*stream, string) {}

func (execDecoder) end(_ *stream, x ExitInfo) fleet.Outcome {
	switch {
	case x.Reason == "stopped":
		return fleet.Outcome{Class: fleet.ClassCancelled, Detail: "stopped"}
	case strings.Contains(x.Reason, "timeout"):
		return fleet.Outcome{Class: fleet.ClassTimeout, Detail: x.Reason}
	case x.Reason == "start_failed":
		return fleet.Outcome{Class: fleet.ClassHarnessStartup, Detail: x.StderrTail}
	case x.Signal != "":
		return fleet.Outcome{Class: fleet.ClassCrashed, Detail: "killed by signal " + x.Signal}
	case x.Code == 0:
		return fleet.Outcome{Class: fleet.ClassOK, Terminal: true}
	}
	return fleet.Outcome{Class: fleet.ClassTaskFailed, Detail: fmt.Sprintf("exit code %d", x.Code), Terminal: true}
}
