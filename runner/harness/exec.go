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

// execParser makes no events of the output, whatever is in it: the end of the process
// counts. Only of one that failed the last words are looked at, for whether it lacked
// Docker.
type execParser struct{ tail []byte }

func (p *execParser) Frame(f fleet.Frame) (events, live []fleet.Event) {
	if f.Kind == fleet.FrameStdout || f.Kind == fleet.FrameStderr {
		p.tail = append(p.tail, f.Payload...)
		if len(p.tail) > 2*execTail {
			p.tail = append(p.tail[:0], p.tail[len(p.tail)-execTail:]...)
		}
	}
	return nil, nil
}

// execTail is how much of the output's end is looked at, in bytes.
const execTail = 8 << 10

func (p *execParser) Status() (string, time.Time) { return "", time.Time{} }

func (p *execParser) Session() (id, model string) { return "", "" }

func (p *execParser) Responded() bool { return false }

func (p *execParser) End(x ExitInfo) ([]fleet.Event, fleet.Outcome) {
	x = x.normal()
	o := execOutcome(x)
	if o.Class == fleet.ClassTaskFailed && noDocker(string(p.tail[max(0, len(p.tail)-execTail):])+"\n"+x.StderrTail) {
		o.Class, o.Detail = fleet.ClassDocker, o.Detail+"; "+dockerless
	}
	o.Type, o.Detail = "outcome", fleet.CutText(o.Detail, fleet.MaxDetail)
	return nil, o
}

func execOutcome(x ExitInfo) fleet.Outcome {
	switch {
	case x.Reason == "stopped":
		return fleet.Outcome{Class: fleet.ClassCancelled, Detail: "stopped"}
	case strings.Contains(x.Reason, "timeout"):
		return fleet.Outcome{Class: timedOut(x.Reason), Detail: x.Reason}
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
