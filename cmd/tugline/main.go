// Command tugline is the one binary of the mesh: the hub, the runner, the
// supervisor of a job, and the commands with which people and scripts use them.
//
// It guarantees that the words, the JSON keys and the exit codes of its commands
// stay as they are; that standard output carries only what was asked for, and
// standard error everything said beside it; and that a request which may have
// reached the hub is never repeated without its idempotency key. What the hub and
// the runner do lies in their own packages; here they are only started.
package main

import (
	"context"
	"os"

	_ "tugline.dev/tugline/cmd/tugline/supervisor" // a supervisor does not come as far as main
	"tugline.dev/tugline/runner/attempt"
	"tugline.dev/tugline/runner/harness"
)

func main() {
	if code, ok := inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(newApp().run(context.Background(), os.Args[1:]))
}

// inner serves the words that tugline says to itself when it starts a process of
// its own, but for that of a supervisor.
func inner(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "drive":
		return harness.Drive(context.Background(), args[1:], os.Stdin, os.Stdout, os.Stderr), true
	case attempt.CredentialCommand:
		if len(args) != 2 {
			return exitUsage, true
		}
		return attempt.GitCredential(args[1], os.Stdin, os.Stdout), true
	}
	return 0, false
}
