package harness

import (
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// dockerless ends the detail of a failure for want of Docker.
const dockerless = "it could not reach a Docker daemon on this machine"

// dockerGone is how Docker's own programs and the libraries for it say that no daemon
// answers, or that this user may not ask it. That there is no such program is another
// matter: the daemon may be there.
var dockerGone = lazily(`cannot connect to the docker daemon|couldn't connect to (the )?docker daemon|is the docker daemon running` +
	`|docker daemon is not running|docker desktop is not running|failed to connect to the docker api|could not find a valid docker environment` +
	`|error during connect:[^\n]{0,300}docker|dial unix [^\n]{0,200}docker[^\n ]*\.sock: connect:|permission denied while trying to connect to the docker` +
	`|connection aborted[^\n]{0,200}docker|error while fetching server api version`)

// noDocker says whether a text tells that the Docker daemon can't be reached.
func noDocker(text string) bool {
	low := fold(text)
	return strings.Contains(low, "docker") && dockerGone().MatchString(low)
}

// failed says whether an event is of a command that failed.
func failed(e fleet.Event) bool {
	return e.Status == fleet.StatusFailed || e.ExitCode != nil && *e.ExitCode != 0
}

// blameDocker tells a run that failed for want of Docker apart from one that failed.
func (s *stream) blameDocker(o *fleet.Outcome, x ExitInfo) {
	switch o.Class {
	case fleet.ClassTaskFailed, fleet.ClassUnknown, fleet.ClassHarnessStartup, fleet.ClassCrashed:
	default:
		return
	}
	if x.Signal != "" || x.Reason != "exited" || !s.dockerless && !noDocker(o.Detail) && !noDocker(s.stderrText(x)) {
		return
	}
	o.Class = fleet.ClassDocker
	if o.Detail != "" {
		o.Detail = fleet.CutText(o.Detail, fleet.MaxDetail-len(dockerless)-2) + "; "
	}
	o.Detail += dockerless
}
