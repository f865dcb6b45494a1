package harness

import (
	"fmt"
	"strings"
	"time"

	"tugline.dev/tugline/shared/fleet"
)

// execHarness runs an argv. Its output is output, not events.
var execHarness = &Harness{
	Name:   "exec",
	Title:  "Command",
	launch: launchExec,
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

// execParser says nothing of the output, whatever is in it: only the end of the process counts.
type execParser struct{}

func (execParser) Frame(fleet.Frame) (events, live []fleet.Event) { return nil, nil }

func (execParser) Status() (string, time.Time) { return "", time.Time{} }

func (execParser) Session() (id, model string) { return "", "" }

func (execParser) End(x ExitInfo) ([]fleet.Event, fleet.Outcome) {
	o := execOutcome(x.normal())
	o.Type, o.Detail = "outcome", fleet.CutText(o.Detail, fleet.MaxDetail)
	return nil, o
}

func execOutcome(x ExitInfo) fleet.Outcome {
	switch {
	case x.Reason == "stopped":
		return fleet.Outcome{Class: fleet.ClassCancelled, Detail: "stopped"}
	case strings.Contains(x.Reason, "timeout"):
		return fleet.Outcome{Class: fleet.ClassTimeout, Detail: x.Reason}
	case x.Reason == "start_failed":
		return fleet.Outcome{Class: fleet.ClassHarnessStartup, Detail: x.StderrTail}
	case x.Reason == exitLost:
		return fleet.Outcome{Class: fleet.ClassCrashed, Detail: "how it ended is not known"}
	case x.Signal != "":
		return fleet.Outcome{Class: fleet.ClassCrashed, Detail: "killed by signal " + x.Signal}
	case x.Code == 0:
		return fleet.Outcome{Class: fleet.ClassOK, Terminal: true}
	}
	return fleet.Outcome{Class: fleet.ClassTaskFailed, Detail: fmt.Sprintf("exit code %d", x.Code), Terminal: true}
}
